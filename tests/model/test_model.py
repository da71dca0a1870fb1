"""The part of `make model` that takes seconds."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from model.run import CASES, REACHED, SAFE, ModelError, search, wrong

ROOT = Path(__file__).resolve().parents[2]
QUICK = [case for case in CASES if case.quick]


@pytest.fixture
def _spin():
    lacking = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if lacking and "spin" in os.environ.get("ARPGUARD_REQUIRE", "").split(","):
        pytest.fail(f"ARPGUARD_REQUIRE=spin, but {lacking[0]} is not installed")
    if lacking:
        pytest.skip(f"{lacking[0]} is not installed")


@pytest.mark.usefixtures("_spin")
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_two_answer_only_where_a_rule_is_broken(case):
    assert wrong(case, search(case)) == ""


@pytest.mark.usefixtures("_spin")
def test_search_that_ends_early_is_not_taken_for_safe():
    with pytest.raises(ModelError, match="not finished"):
        search(replace(SAFE[0], flags=()), depth=45)


def test_page_has_every_case():
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (\S+) \|$", text, flags=re.MULTILINE))

    assert told == {case.name: str(case.steps or "safe") for case in CASES if case not in REACHED}
