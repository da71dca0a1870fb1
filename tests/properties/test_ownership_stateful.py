"""Whatever Hypothesis thinks of, at most one answers; and when all is well again, exactly one does.

The same examples every time; ARPGUARD_RUNS=5000 has others besides, and ARPGUARD_SEED=1 quite others.
"""

import os

import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from properties.broken_rules import RULES
from properties.finds import FINDS
from properties.machine import Cluster, bounded
from support.chance import RUNS
from support.protocol.simulation import BrokenRuleError

BROKEN = {rule.name: rule for rule in RULES}
# Those that few examples are enough for. The others take minutes, or are told by a scenario alone.
SOON_FOUND = [
    "no margin",
    "half the margin",
    "late taken for void without a revocation",
    "missing heartbeat taken for void",
    "answered before a renewal confirms",
    "answered after a renewal that was sent before",
    "answered on the strength of a read",
    "released before it is cleared",
    "released before it is drained",
    "a shorter lease published under a longer fence",
]

if "ARPGUARD_SEED" in os.environ:
    seed(int(os.environ["ARPGUARD_SEED"]))(Cluster)


def test_never_two_answer_and_one_does_in_the_end():
    run_state_machine_as_test(Cluster, settings=bounded(2 * RUNS))


@pytest.mark.parametrize("name", SOON_FOUND)
def test_a_broken_rule_is_found_in_a_few_examples(name, monkeypatch):
    BROKEN[name].apply(monkeypatch)

    with pytest.raises(BrokenRuleError):
        run_state_machine_as_test(Cluster, settings=settings(bounded(60), phases=[Phase.generate]))


@pytest.mark.parametrize("name", FINDS)
def test_what_was_found_goes_well_and_did_not(name, monkeypatch):
    FINDS[name](Cluster())

    BROKEN[name].apply(monkeypatch)
    with pytest.raises(BrokenRuleError):
        FINDS[name](Cluster())
