"""Every fault of docs/faults.md is shown by something that is there, or it is said why not."""

import re
from functools import cache
from pathlib import Path

import pytest

from arpguard_lab import runner
from support.lab.schedules import a_schedule

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/faults.md"
FAULTS = [f"F{number}" for number in range(1, 33)]
ROW = re.compile(r"^\| (F\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
FUNCTION = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")
ROUNDS = 1000


@cache
def rows() -> dict[str, str]:
    """What shows each fault."""
    return dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


@cache
def functions() -> frozenset[str]:
    return frozenset(name for path in TESTS.rglob("test_*.py") for name in FUNCTION.findall(path.read_text()))


@cache
def deeds() -> frozenset[str]:
    """What random rounds do, by the names in their report."""
    schedules = a_schedule(1), a_schedule(1, vouching=True)
    drawn = (deed for schedule in schedules for _ in range(ROUNDS) for deed in schedule.draw()[0])
    return frozenset(deed.what.partition(":")[0] for deed in drawn if deed.harm)


@cache
def known() -> frozenset[str]:
    return (
        functions()
        | deeds()
        | {name for name, _ in runner.catalogue(kubernetes=True)}
        | {"make chaos", "make chaos VOUCHING=1"}
    )


def test_page_has_every_fault_once():
    assert list(rows()) == FAULTS


@pytest.mark.parametrize("fault", FAULTS)
def test_what_shows_it_is_there(fault):
    names = NAME.findall(rows()[fault])
    assert names or "not run here" in rows()[fault]
    assert set(names) <= known(), set(names) - known()


def test_page_tells_of_every_way_to_tamper_with_the_maps():
    text = PAGE.read_text(encoding="utf-8").partition("## Who may write the maps")[2]
    assert {deed for deed in deeds() if deed.startswith("map ")} <= set(NAME.findall(text))


def test_tests_of_certain_moments_are_all_in_the_page():
    named = {name for shown in rows().values() for name in NAME.findall(shown)}
    assert {name for name in functions() if re.match(r"test_f\d+_", name)} <= named
