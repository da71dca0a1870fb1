"""Exit codes, and one clear line for what is wrong."""

import pytest

from arpguard import __version__
from arpguard.cli import commands, reading
from arpguard.cli.main import main
from arpguard.cli.render import table
from arpguard.errors import DataPlaneError


def _run(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(words))
    captured = capsys.readouterr()
    return caught.value.code, captured.out, captured.err


def test_version(capsys):
    assert _run(capsys, "--version") == (0, f"arpguard {__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["fly"], ["agent"], ["config"], ["whohas"]], ids=str)
def test_bad_usage_exits_2(words, capsys):
    code, _, err = _run(capsys, *words)

    assert code == 2
    assert "usage: arpguard" in err


def test_good_configuration_exits_0(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("vips: [{address: 192.0.2.1, owner: external}]")

    assert _run(capsys, "config", "check", str(path)) == (0, f"{path}: ok, mode observe, 1 VIPs\n", "")


@pytest.mark.parametrize("words", [["config", "check"], ["agent", "--config"]], ids=["check", "agent"])
def test_wrong_configuration_exits_2_with_a_line_for_each_problem(words, tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("mode: fast\ndatapath: slow")
    code, out, err = _run(capsys, *words, str(path))

    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{path}: mode: fast: one of observe, enforce",
        f"{path}: datapath: slow: one of auto, tc, xdp",
    ]


@pytest.mark.parametrize("address", ["localhost", "192.0.2", "224.0.0.1", "0.0.0.0", "::1"])
def test_whohas_of_no_host_exits_2(address, capsys):
    code, _, err = _run(capsys, "whohas", address)

    assert code == 2
    assert address in err


def test_unknown_scenario_exits_2(capsys, monkeypatch):
    monkeypatch.setattr(commands, "need_root", lambda: None)
    code, _, err = _run(capsys, "lab", "--scenario", "nonsense")

    assert code == 2
    assert "one of flux, lvs-dr, external, can-reach, observe, restart" in err


def test_what_cannot_be_reached_exits_3(capsys, tmp_path):
    code, _, err = _run(capsys, "status", "--pin-dir", str(tmp_path / "nothing"))

    assert code == 3
    assert err.startswith("arpguard status: no arpguard data plane under")
    assert "start `arpguard agent`" in err


def test_system_error_is_one_line(capsys, monkeypatch):
    def refuse(_options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(reading, "show_vips", refuse)
    code, _, err = _run(capsys, "vips")

    assert code == 3
    assert len(err.splitlines()) == 1
    assert "run as root" in err


def test_interrupted_command_says_so_by_its_code(capsys, monkeypatch):
    def interrupt(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "show_vips", interrupt)

    assert _run(capsys, "vips")[0] == 130


def test_lab_lists_its_scenarios(capsys):
    code, out, _ = _run(capsys, "lab", "--list")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "flux",
        "lvs-dr",
        "external",
        "can-reach",
        "observe",
        "restart",
    ]


def test_table_is_aligned():
    assert table(("A", "LONGER"), [("xxx", 1), ("y", 22)]) == "A    LONGER\nxxx  1\ny    22"


def test_error_of_the_data_plane_is_one_line(capsys, monkeypatch):
    def refuse(_options):
        raise DataPlaneError("no; do this")

    monkeypatch.setattr(reading, "show_vips", refuse)

    assert _run(capsys, "vips") == (3, "", "arpguard vips: no; do this\n")
