"""The file that `arpguard early` reads: when the agent writes it, and when it cannot."""

import asyncio
import threading
from ipaddress import ip_network
from pathlib import Path

from arpguard.addresses import MacAddress
from arpguard.config.files import parse_config, read_config
from arpguard.core.closing import NOTHING, Closing
from arpguard.model import Link, Surroundings
from arpguard.runtime import early
from arpguard.runtime.early import EarlyFile
from support.netns.waiting import HUNG_S

CONFIG = parse_config("{mode: enforce}")
ETH0 = Link(2, "eth0", MacAddress.parse("02:00:00:00:00:01"), up=True)
HERE = Surroundings(links=(ETH0,))
FIRST, SECOND = ip_network("198.51.100.0/25"), ip_network("198.51.100.128/25")


def ask(file: EarlyFile, *closed) -> None:
    file.keep(CONFIG, Closing(closed) if closed else NOTHING, (ETH0,), HERE)


def keep(file: EarlyFile, *closed) -> None:
    async def go() -> None:
        ask(file, *closed)
        await file.written()

    asyncio.run(go())


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
        f"cannot update {place}/early.yaml (File exists): the next boot closes the old ranges, or none"
    ]
    place.unlink()
    keep(file, FIRST)
    assert (file.problems, (place / "early.yaml").exists()) == ([], True)


def test_an_agent_that_keeps_none_writes_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keep(EarlyFile(None), FIRST)
    assert list(tmp_path.iterdir()) == []


def test_no_pass_waits_for_the_disk_and_the_last_of_what_is_asked_for_meanwhile_is_kept(tmp_path, monkeypatch):
    path, going, written = tmp_path / "early.yaml", threading.Event(), []
    write = early._write

    def slow_write(to: Path, text: str) -> None:
        assert going.wait(HUNG_S)
        write(to, text)
        written.append(text)

    monkeypatch.setattr(early, "_write", slow_write)

    async def go() -> None:
        file = EarlyFile(path)
        ask(file, FIRST)
        await asyncio.sleep(0)  # its thread begins
        ask(file)
        ask(file, SECOND)
        assert not written, "nobody has waited"
        going.set()
        await file.written()

    asyncio.run(go())
    assert read_config(path).closed == (SECOND,)
    assert len(written) == 2


def test_more_links_than_it_may_have_are_a_problem(tmp_path):
    links = tuple(Link(n, f"eth{n}", ETH0.mac, up=True) for n in range(300))
    file = EarlyFile(tmp_path / "early.yaml")

    async def go(*closed) -> None:
        file.keep(CONFIG, Closing(closed), links, Surroundings(links=links))
        await file.written()

    asyncio.run(go(FIRST))
    assert len(read_config(tmp_path / "early.yaml").interfaces) == 256
    (problem,) = file.problems
    assert "has room for only 256 of 300 NICs" in problem
    asyncio.run(go())
    assert file.problems == []


def test_it_goes_with_the_guard_also_while_it_is_being_written(tmp_path):
    async def go() -> None:
        file = EarlyFile(tmp_path / "early.yaml")
        ask(file, FIRST)
        await file.remove()
        await EarlyFile(None).remove()

    asyncio.run(go())
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_removed_the_log_says_so(tmp_path, caplog):
    (tmp_path / "early.yaml").mkdir()
    asyncio.run(EarlyFile(tmp_path / "early.yaml").remove())
    assert "the next boot closes the old ranges, or none; remove the file by hand" in caplog.text
