"""Go as `make test` brings it."""

import hashlib

import pytest

from tools import install_go


@pytest.mark.parametrize(
    ("named", "used"),
    [
        ("", "https://proxy.golang.org"),
        ("direct", "https://proxy.golang.org"),
        ("https://go.example.org,direct", "https://go.example.org"),
        ("off|https://go.example.org", "https://go.example.org"),
    ],
)
def test_it_comes_from_the_proxy_that_go_itself_would_ask(named, used, monkeypatch):
    monkeypatch.setenv("GOPROXY", named)

    assert install_go._proxy() == used


def test_content_that_is_not_known_is_refused(tmp_path):
    archive = tmp_path / "go.zip"
    archive.write_bytes(b"something else")

    with pytest.raises(SystemExit, match="is not what it was"):
        install_go._check(archive, hashlib.sha256(b"Go").hexdigest())


def test_programs_can_be_run_and_nothing_else(tmp_path):
    """A module's archive says nothing about modes."""
    for name in ("bin/go", "pkg/tool/linux_amd64/compile", "src/cmd/go/main.go"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.chmod(0o644)
    install_go._make_executable(tmp_path)

    found = {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_mode & 1
    }
    assert found == {"bin/go", "pkg/tool/linux_amd64/compile"}
