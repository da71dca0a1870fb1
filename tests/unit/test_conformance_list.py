"""Every case of docs/conformance.md is a named test, or docs/limits.md says why it has none."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LIMITS = TESTS.parent / "docs/limits.md"

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
# case -> what docs/limits.md says of it
IN_LIMITS = {
    "E9": "Before the agent has started for the first time",
    "N33": "no advertisements to all routers",
    "N35": "anycast",
}


PAGE = TESTS.parent / "docs/conformance.md"
LINE = re.compile(r"^\| ([A-EN]\d+) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
NOT_PROMISED = "[not promised](limits.md)"


@cache
def sources() -> dict[str, str]:
    """The text of each file of tests, by its path from here on."""
    paths = sorted({*TESTS.rglob("test_*.py")} - {Path(__file__)})
    return {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in paths}


def functions() -> Iterator[str]:
    """Names of test functions, without `test_`."""
    for text in sources().values():
        yield from FUNCTION.findall(text)


@cache
def files_by_case() -> dict[str, tuple[str, ...]]:
    """The files with a function or a row that is named after a case, by case."""
    found: dict[str, dict[str, None]] = {}
    for file, text in sources().items():
        names = FUNCTION.findall(text)
        parts = (PART.fullmatch(part) for name in names for part in name.split("_"))
        cases = {*ROW.findall(text), *(part[1].upper() + part[2] for part in parts if part)}
        cases |= {case for case, name in BY_ANOTHER_NAME.items() if name in names}
        for case in cases:
            found.setdefault(case, {})[file] = None
    return {case: tuple(files) for case, files in found.items()}


def proof(case: str) -> str:
    """The last cell of a case's row in the page."""
    return ", ".join(f"`{file}`" for file in files_by_case().get(case, ())) or NOT_PROMISED


def test_every_case_is_a_named_test_or_answered():
    assert set(CASES) - files_by_case().keys() == {*IN_LIMITS}


def test_page_tells_of_every_case_where_it_is_tested():
    rows = dict(LINE.findall(PAGE.read_text(encoding="utf-8")))
    assert rows == {case: proof(case) for case in CASES}


@pytest.mark.parametrize("name", BY_ANOTHER_NAME.values(), ids=BY_ANOTHER_NAME)
def test_the_other_name_is_a_tests(name):
    assert name in set(functions())


@pytest.mark.parametrize("words", IN_LIMITS.values(), ids=IN_LIMITS)
def test_limits_say_so(words):
    assert words in LIMITS.read_text(encoding="utf-8")
