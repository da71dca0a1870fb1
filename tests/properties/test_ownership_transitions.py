"""A claim moves by the table alone, and by all of it: the page about the protocol shows what the code does."""

from itertools import count

import pytest

from arpguard.core.ownership import claims, steps
from arpguard.core.ownership.stages import TRANSITIONS
from properties.walks import RandomWalk, TroubledWalk
from support.protocol.one_node import VIP, Bench, WriteHeartbeat

LONGEST = 40  # walks of each kind; eight are enough


@pytest.fixture
def taken(monkeypatch):
    """The rows of the table that were looked up, and which stage followed which, however it was set."""
    rows, edges = set(), set()
    after, set_it = claims.after, steps.VipState.__setattr__

    def noted(stage, cause, *holds):
        rows.add((type(stage) if stage else None, cause))
        return after(stage, cause, *holds)

    def set_and_note(vip, name, value):
        if name == "stage":
            before = getattr(vip, name, None)
            edges.add((type(before) if before else None, type(value)))
        set_it(vip, name, value)

    monkeypatch.setattr(claims, "after", noted)
    monkeypatch.setattr(steps, "after", noted)
    monkeypatch.setattr(steps.VipState, "__setattr__", set_and_note)
    return rows, edges


def a_list_without_a_claim_that_is_being_confirmed():
    """Chance seldom has it: the claim is another's, and of all that could say so a list is first."""
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)
    bench.serve(bench.core.own_claims_listed([], bench.now + 1, bench.now + 1))


def test_chance_takes_every_row_of_the_table_and_nothing_else(taken):
    rows, edges = taken
    a_list_without_a_claim_that_is_being_confirmed()
    for seed in count():
        if rows == set(TRANSITIONS) or seed == LONGEST:
            break
        for walk in (RandomWalk(seed, (1.0, 1.18, 0.82)), TroubledWalk(seed, (1.0, 1.18, 0.82))):
            for _ in range(3000):
                walk.step()

    assert set(TRANSITIONS) - rows == set()
    assert edges == {(before, to) for (before, _), to in TRANSITIONS.items()}
