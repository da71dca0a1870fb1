"""Every threat of SECURITY.md has an answer, and the tests that it names are there."""

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "SECURITY.md"
THREAT = re.compile(r"^\| (S\d+) \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
SHOWN = re.compile(r"^\| (S\d+) \| ([^|]+) \|$", re.MULTILINE)
THREATS = [f"S{number}" for number in range(1, 23)]


@cache
def shown() -> dict[str, str]:
    """The tests, by the threat."""
    return dict(SHOWN.findall(PAGE.read_text(encoding="utf-8")))


@cache
def there() -> frozenset[str]:
    """Test functions, and files of tests without their ending."""
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__)]
    texts = [path.read_text(encoding="utf-8") for path in files]
    functions = (name for text in texts for name in re.findall(r"^(?:async )?def (test_\w+)\(", text, re.MULTILINE))
    return frozenset((*functions, *(path.stem for path in files)))


def test_page_has_every_threat_once():
    assert THREAT.findall(PAGE.read_text(encoding="utf-8")) == THREATS
    assert list(shown()) == THREATS


@pytest.mark.parametrize("threat", THREATS)
def test_threat_names_tests_that_are_there(threat):
    named = re.findall(r"`(\w+)`", shown()[threat])
    assert named
    assert not set(named) - there()
