"""The file that `arpguard early` reads: when the agent writes it, and when it cannot."""

from ipaddress import ip_network

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config, read_config
from arpguard.core.closing import NOTHING, Closing
from arpguard.model import Link, Surroundings
from arpguard.runtime.early import EarlyFile

CONFIG = parse_config("{mode: enforce}")
ETH0 = Link(2, "eth0", MacAddress.parse("02:00:00:00:00:01"), up=True)
HERE = Surroundings(links=(ETH0,))
FIRST, SECOND = ip_network("198.51.100.0/25"), ip_network("198.51.100.128/25")


def keep(file: EarlyFile, *closed) -> None:
    file.keep(CONFIG, Closing(closed) if closed else NOTHING, (ETH0,), HERE)


def test_it_is_written_when_what_is_closed_changes_and_only_then(tmp_path):
    path = tmp_path / "made" / "early.yaml"
    file = EarlyFile(path)
    keep(file, FIRST)
    assert read_config(path).closed == (FIRST,)
    path.write_text("somebody else's", encoding="utf-8")
    keep(file, FIRST)
    assert path.read_text(encoding="utf-8") == "somebody else's"
    keep(file, FIRST, SECOND)
    assert read_config(path).closed == (FIRST, SECOND)
    assert [each.name for each in path.parent.iterdir()] == ["early.yaml"], "no draft is left"


def test_it_goes_when_nothing_is_closed_also_one_of_an_earlier_agent(tmp_path):
    path = tmp_path / "early.yaml"
    path.write_text("of an earlier agent", encoding="utf-8")
    keep(EarlyFile(path))
    assert not path.exists()


def test_what_cannot_be_written_is_a_problem_until_it_can(tmp_path):
    place = tmp_path / "place"
    place.write_text("no folder", encoding="ascii")
    file = EarlyFile(place / "early.yaml")
    keep(file, FIRST)
    assert file.problems == [
        f"{place}/early.yaml cannot be written (File exists): after a boot nothing is closed early"
    ]
    place.unlink()
    keep(file, FIRST)
    assert (file.problems, (place / "early.yaml").exists()) == ([], True)


def test_an_agent_that_keeps_none_writes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keep(EarlyFile(None), FIRST)
    assert list(tmp_path.iterdir()) == []
