"""The part of `make model` that takes a minute or two."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from model.run import BROKEN, CASES, PROGRESS, REACHED, SAFE, V_REACHED, ModelError, search, wrong
from support.required import do_without

ROOT = Path(__file__).resolve().parents[2]
QUICK = [case for case in CASES if case.quick]


@pytest.fixture
def _spin():
    lacking = [tool for tool in ("spin", "gcc", "clang") if shutil.which(tool) is None]
    if lacking:
        do_without("spin", f"{lacking[0]} is not installed")


@pytest.mark.usefixtures("_spin")
@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.name)
def test_two_answer_or_none_only_where_a_rule_is_broken(case):
    assert wrong(case, search(case)) == ""


@pytest.mark.usefixtures("_spin")
def test_search_that_ends_early_is_not_taken_for_safe():
    with pytest.raises(ModelError, match="not finished"):
        search(replace(SAFE[0], flags=()), depth=45)


@pytest.mark.usefixtures("_spin")
def test_symmetry_hides_no_trace_and_makes_none_longer():
    case = replace(BROKEN[0], flags=(*BROKEN[0].flags, "V=2"))

    reduced, full = search(case), search(case, symmetry=False)

    assert reduced.steps == full.steps == BROKEN[0].steps
    assert reduced.states < full.states


def test_quick_part_has_three_nodes_two_vips_progress_and_the_rules_that_matter_most():
    names = {case.name for case in QUICK}

    assert any(case.nodes > 2 for case in QUICK)
    assert any(case.vips > 1 for case in QUICK)
    assert PROGRESS[0] in QUICK
    assert names >= {"no-revocation", "no-epoch", "late-fence", "bad-release", "no-cas", "thin-margin"}


def test_quick_part_has_the_chain_and_the_rules_of_vouching_that_matter_most():
    names = {case.name for case in QUICK}

    assert names >= {"v-chain", "v-mutual-no-right", "v-chain-unbound", "v-chain-grants-on", "v-no-bound", "v-early"}
    assert names >= {"v-grants-on", "v-late-fence", "v-unbinds-early", "v-too-soon"}
    assert names >= {"v-quiet", "v-quiet-lease-shown"}


def test_pages_have_every_case():
    pages = ("protocol-model.md", "vouching-model.md")
    text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages)
    told = dict(re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", text, flags=re.MULTILINE))

    assert told == {case.name: case.expected for case in CASES if case not in REACHED + V_REACHED}
