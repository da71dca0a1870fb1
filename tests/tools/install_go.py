"""Installs Go where it says, from the Go module proxy, in one version with known content.

    python3 tests/tools/install_go.py .cache/go

Distributions have versions that are too old for the tools that the tests use. The standard library alone: this runs
before anything is installed.
"""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from pathlib import Path

_VERSION = "1.26.8"
_SHA256 = {
    "amd64": "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7",
    "arm64": "02b36b6787b3ac767668f630e2998df45a3b1f9ffee08d1bf3ef6487cd658d99",
}
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_PROXY = "https://proxy.golang.org"


def main(into: Path) -> None:
    """Downloads, checks, unpacks; what was there goes."""
    arch = _MACHINES.get(platform.machine())
    if arch is None:
        sys.exit(f"no Go for {platform.machine()}: it is fixed for {', '.join(_MACHINES)}")
    module = f"golang.org/toolchain@v0.0.1-go{_VERSION}.linux-{arch}"
    print(f"installing Go {_VERSION}", flush=True)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent) as folder:
        archive = Path(folder, "go.zip")
        _download(f"{_proxy()}/{module.replace('@', '/@v/')}.zip", archive)
        _check(archive, _SHA256[arch])
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        unpacked = Path(folder, module)
        _make_executable(unpacked)
        shutil.rmtree(into, ignore_errors=True)
        unpacked.rename(into)


def _proxy() -> str:
    """The first that $GOPROXY names, as the go command has it."""
    named = os.environ.get("GOPROXY", "").replace("|", ",").split(",")
    return next((each for each in named if each.startswith("http")), _PROXY)


def _download(url: str, file: Path) -> None:
    with urllib.request.urlopen(url, timeout=300) as answer, file.open("wb") as out:
        shutil.copyfileobj(answer, out)


def _check(file: Path, wanted: str) -> None:
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != wanted:
        sys.exit(f"Go {_VERSION} is not what it was: SHA-256 {found}, expected {wanted}")


def _make_executable(go: Path) -> None:
    """Modules carry no modes."""
    for folder in ("bin", "pkg/tool"):
        for path in go.joinpath(folder).rglob("*"):
            path.chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
