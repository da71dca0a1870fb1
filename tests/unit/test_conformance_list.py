"""Every case of docs/conformance.md is a named test, or README says why it is none."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
README = TESTS.parent / "README.md"

LAST = {"A": 12, "B": 12, "C": 17, "D": 10, "E": 15, "N": 38}
CASES = [f"{section}{number}" for section, last in LAST.items() for number in range(1, last + 1)]

# A function by its name, or a row of a table: "B4_hlen_0", "D6 VID 0".
FUNCTION = re.compile(r"^(?:async )?def test_(\w+)\(", re.MULTILINE)
ROW = re.compile(r'"([A-EN]\d{1,2})[_ ]')
PART = re.compile(r"([a-en])0?(\d{1,2})")

# case -> the test that it is without having its number
BY_ANOTHER_NAME = {
    "C15": "ipv4_address_that_nobody_can_own_is_refused",
    "C17": "takeover_is_announced_at_once_and_again_beyond_the_neighbours_locktime",
    "E1": "nothing_is_heard_from_a_node_that_does_not_own_it",
    "E10": "a_scenario_comes_out_as_expected",
    "E12": "expired_fence_is_silent",
    "E13": "entry_of_another_epoch_is_not_owned",
    "N36": "groups_of_owned_vips_are_followed",
}
# case -> what README says of it. D2 and D3 would need VLAN devices, which not every machine has.
IN_README = {
    "D2": "guard the VLAN device",
    "D3": "guard the VLAN device",
    "D8": "On a parent link frames with a VID other than 0 pass",
    "E9": "Before the agent has started for the first time",
    "N33": "no advertisements to all routers",
    "N35": "anycast",
}


def functions() -> Iterator[str]:
    """Names of test functions, without `test_`."""
    for path in TESTS.rglob("test_*.py"):
        yield from FUNCTION.findall(path.read_text(encoding="utf-8"))


def cases_with_a_test() -> set[str]:
    """Those that a function or a row is named after."""
    rows = {row for path in TESTS.rglob("test_*.py") for row in ROW.findall(path.read_text(encoding="utf-8"))}
    parts = (PART.fullmatch(part) for name in functions() for part in name.split("_"))
    return rows | {part[1].upper() + part[2] for part in parts if part}


def test_every_case_is_a_named_test_or_answered():
    assert set(CASES) - cases_with_a_test() == {*BY_ANOTHER_NAME, *IN_README}


@pytest.mark.parametrize("name", BY_ANOTHER_NAME.values(), ids=BY_ANOTHER_NAME)
def test_the_other_name_is_a_tests(name):
    assert name in set(functions())


@pytest.mark.parametrize("words", IN_README.values(), ids=IN_README)
def test_readme_says_so(words):
    assert words in README.read_text(encoding="utf-8").partition("## What it does not promise")[2]
