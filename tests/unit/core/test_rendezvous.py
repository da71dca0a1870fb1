"""Whom everybody prefers: however it is reckoned, it comes to the same."""

import random

import pytest

from arpguard.core.members import Pool, Preference
from arpguard.core.rendezvous import Scales, fingerprint, ranked, weight


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 1000])
def test_all_at_once_weigh_what_each_weighs(count):
    rng = random.Random(count)
    fingerprints = [rng.getrandbits(64) for _ in range(count)]

    for number in (0, 1, (1 << 64) - 1, *(rng.getrandbits(64) for _ in range(20))):
        assert Scales(fingerprints).weights(number) == tuple(weight(number, each) for each in fingerprints)


def test_weights_are_those_of_every_release():
    """Nodes of different releases have to prefer the same one."""
    assert (fingerprint("node-1"), weight(1, 2)) == (0x8F57B755BCA4EB29, 0x1E535EEDE31428F0)


@pytest.mark.parametrize("seed", range(20))
def test_preference_in_a_pool_is_that_of_the_ranking_whoever_comes_and_goes(seed):
    rng = random.Random(seed)
    me, names = "n0", [f"n{n}" for n in range(rng.choice([2, 5, 40]))]
    known = {f"192.0.2.{n}": (Pool(()), Preference()) for n in range(20)}

    pool = Pool(())
    for _ in range(15):
        stay = [name for name in names if name in pool] if rng.random() < 0.8 else rng.sample(names, len(names) // 2)
        pool = Pool({*stay, *rng.sample(names, rng.randrange(2))} - {rng.choice(names)})
        for vip in rng.sample([*known], 15):  # the others have another pool before the next one
            before, found = known[vip]
            found = pool.preference_after(before, found, fingerprint(vip), fingerprint(me))
            known[vip] = pool, found

            order = ranked(vip, [name for name in names if name in pool])
            ahead = ranked(vip, {*order, me}).index(me)
            assert found == Preference(order[0] if order else "", ahead)
            if len(order) > 1:
                assert pool.prefers(fingerprint(vip), order[0], order[-1])
                assert not pool.prefers(fingerprint(vip), order[1], order[0])
