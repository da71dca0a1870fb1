"""Simulated days in which nothing breaks; broken rules that they tell, in a list of steps that is short.

ARPGUARD_SEED=1 has other days, and `make walks` more of them.
"""

import pytest

from properties.broken_rules import RULES
from properties.vouched_rules import RULES as VOUCHED_RULES
from support.chance import SEED
from walks import run
from walks.days import Beginning, Step, a_life, beginning, live, play, shortened
from walks.shrinking import Shrinking

FOUND_WITHIN = 10  # days, from the first of these seeds on
FIRST_SEEDS = {"v-ring-no-right": 3}
TRIES = 25

# Rules that break in different ways, and how many steps are enough to see it.
BROKEN = {
    "revoked too early": 20,
    "released before it is cleared": 3,
    "v-no-cut": 2,
    "v-parts-swapped": 2,
    "v-ring-no-right": 4,
}
BY_NAME = {rule.name: rule for rule in (*RULES, *VOUCHED_RULES)}


def test_in_a_day_of_faults_and_upgrades_nothing_breaks(capsys):
    ended = run.main(["--days", "1", "--seed", str(SEED), "--jobs", "1"])

    said = capsys.readouterr().out
    assert ended == 0, said
    assert "1 days in" in said


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_found_and_the_run_shrinks(name, monkeypatch):
    BY_NAME[name].apply(monkeypatch)
    first = FIRST_SEEDS.get(name, 0)
    lives = (live(seed, 1) for seed in range(first, first + FOUND_WITHIN))

    found = next(played for played in lives if played.error)
    short = shortened(found, TRIES)
    assert short.error
    assert len(short.steps) <= BROKEN[name], [str(step) for step in short.steps]


def test_the_same_seed_is_the_same_life():
    start = beginning(7, judged=True)
    steps = list(a_life(7, len(start.rates), hours=2))

    assert steps == list(a_life(7, len(start.rates), hours=2))
    first, second = play(start, steps), play(start, steps)
    assert (first.simulated, first.calendar) == (second.simulated, second.calendar)


def test_agents_of_both_kinds_are_in_one_cluster_and_nodes_go_over_one_after_the_other():
    start = Beginning((1.0, 1.0, 1.0), 1, (False, False, False), judged=True)
    over = [Step("is replaced, with vouching", node) for node in range(3)]
    back = [Step("is replaced, without vouching", node) for node in range(3)]
    rests = [Step("is well"), Step("rests")]

    played = play(start, [step for one in (*over, *back) for step in (one, *rests)])
    assert played.error == ""
    assert played.calendar > played.simulated


def test_what_a_life_ends_with_is_said_with_its_seed(monkeypatch, capsys):
    BY_NAME["v-no-cut"].apply(monkeypatch)

    assert run.main(["--days", "1", "--seed", "3", "--jobs", "1", "--shrink", "20"]) == 1
    said = capsys.readouterr().out
    assert "make walks SEED=3 DAYS=1" in said
    assert "steps are enough" in said


def test_shrinking_leaves_what_is_needed():
    tried = []

    def fails(items):
        tried.append(list(items))
        return {3, 7} <= set(items)

    assert Shrinking(fails, lambda _: iter(()), 100).shortest(range(10)) == [3, 7]
    assert Shrinking(lambda items: sum(items) >= 5, lambda item: iter(range(item)), 100).shortest([4, 9, 2]) == [5]
    assert tried[0] == [9]


def test_shrinking_ends_after_so_many_tries():
    assert Shrinking(lambda _: True, lambda _: iter(()), 0).shortest([1, 2, 3]) == [1, 2, 3]
