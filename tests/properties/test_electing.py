"""Elections: everybody comes to the same, VIPs move as little as can be, and moving ends."""

import os
import random
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from arpguard.core.electing import SETTLE_NS, STEADY_NS, Election
from arpguard.core.members import Member, Pools
from arpguard.core.rendezvous import fingerprint
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.units import NS_PER_MS, NS_PER_S

SEED = int(os.environ.get("ARPGUARD_SEED") or random.SystemRandom().getrandbits(32))
RUNS = int(os.environ.get("ARPGUARD_RUNS", "60"))
LAN = ip_network("10.0.0.0/16")
BASE = ip_address("10.0.0.0")
STEP_NS = 100 * NS_PER_MS


def a_member(name, **changes):
    return replace(Member(name, links=(("eth0", LAN),)), **changes)


def some_vips(count, rng=None):
    start = BASE + (rng.randrange(1 << 15) if rng else 0)
    return {start + n: Vip(start + n, Owner(OwnerKind.ELECT)) for n in range(count)}


def first_choices(vips, members):
    pools = Pools(members)
    return {address: pools.of(vip).first(fingerprint(str(address))) for address, vip in vips.items()}


class Cluster:
    """Nodes that see the same at once. Who wants a free VIP gets it; who has one and does not want it frees it.

    `rushed`: time may pass before what was freed is taken, so that the next choices step in too.
    """

    def __init__(self, vips, members, holders=None, *, rushed=False):
        self.vips, self.members, self.holders = vips, tuple(members), dict(holders or {})
        self.rushed = rushed
        self.now_ns = NS_PER_S
        self.elections = {member.name: Election(member.name, self.now_ns) for member in self.members}
        self.moves = Counter()

    def join(self, member):
        self.members = (*self.members, member)
        self.elections[member.name] = Election(member.name, self.now_ns)

    def change(self, name, **changes):
        self.members = tuple(replace(each, **changes) if each.name == name else each for each in self.members)

    def round(self):
        """Everybody decides by the same view, then all of it is done. Returns whether anything was, and when to ask."""
        alive = {member.name for member in self.members if member.alive}
        self.holders = {vip: node if node in alive else "" for vip, node in self.holders.items()}
        wishes = {name: self._ask(name) for name in sorted(alive)}
        before = dict(self.holders)
        for name, wish in wishes.items():
            for vip in wish.wanted:
                if not before.get(vip):
                    assert self.rushed or not self.holders.get(vip), (
                        f"{vip}: {name} and {self.holders[vip]} want it at once"
                    )
                    self.holders[vip] = name
                    self.moves[vip] += 1
            for vip, holder in before.items():
                if holder == name and vip not in wish.wanted:
                    self.holders[vip] = ""
        times = [wish.next_ns for wish in wishes.values() if wish.next_ns is not None]
        return self.holders != before, min(times, default=None)

    def _ask(self, name):
        return self.elections[name].wanted(self.vips, self.members, self.holders, self.now_ns)

    def rest(self, limit=5000):
        """Lets time pass until nothing happens any more for longer than any timer of an election."""
        quiet_ns = self.now_ns
        for _ in range(limit):
            acted, next_ns = self.round()
            if acted:
                quiet_ns = self.now_ns
            elif next_ns is None or self.now_ns - quiet_ns > 3 * STEADY_NS:
                return
            self.now_ns = self.now_ns + STEP_NS if acted else next_ns
        pytest.fail(f"ARPGUARD_SEED={SEED}: still moving")

    def counts(self):
        return Counter(self.holders.values())


@pytest.mark.parametrize("run", range(RUNS // 2))
def test_free_vips_come_to_their_first_choice_and_nobody_else_wants_them(run):
    rng = random.Random(SEED + run)
    members = [a_member(f"n{n}", ready=rng.random() < 0.8, cordoned=rng.random() < 0.2) for n in range(8)]
    cluster = Cluster(some_vips(50, rng), members)
    cluster.now_ns += SETTLE_NS

    cluster.round()

    firsts = first_choices(cluster.vips, members)
    assert cluster.holders == {vip: first for vip, first in firsts.items() if first}
    cordoned = {member.name for member in members if member.cordoned}
    usable = {member.name for member in members if member.ready}
    assert set(firsts.values()) <= (usable - cordoned or usable or {""})


def test_vips_are_spread():
    counts = Counter(first_choices(some_vips(1000), [a_member(f"n{n}") for n in range(10)]).values())

    assert max(counts.values()) <= 1.35 * 100
    assert min(counts.values()) >= 0.65 * 100


@pytest.mark.parametrize("gone", range(10))
def test_node_that_leaves_moves_only_its_own(gone):
    vips, members = some_vips(1000), [a_member(f"n{n}") for n in range(10)]
    before = first_choices(vips, members)
    after = first_choices(vips, [member for member in members if member.name != f"n{gone}"])

    assert {vip for vip in vips if before[vip] != after[vip]} == {vip for vip in vips if before[vip] == f"n{gone}"}


def test_death_moves_only_what_the_dead_had_and_return_moves_about_its_share_back():
    cluster = Cluster(some_vips(300), [a_member(f"n{n}") for n in range(6)])
    cluster.rest()
    before, cluster.moves = dict(cluster.holders), Counter()

    cluster.change("n2", alive=False)
    cluster.rest()
    assert set(cluster.moves) == {vip for vip, holder in before.items() if holder == "n2"}

    cluster.moves = Counter()
    cluster.change("n2", alive=True)
    cluster.rest()
    assert cluster.counts()["n2"] > 0.7 * 300 / 6
    assert sum(cluster.moves.values()) == cluster.counts()["n2"] < 1.3 * 300 / 6


@pytest.mark.parametrize("run", range(RUNS // 6))
def test_from_any_assignment_moving_ends_with_each_vip_moved_once_at_most(run):
    rng = random.Random(SEED + run)
    members = [a_member(f"n{n}") for n in range(rng.randrange(2, 7))]
    vips, names = some_vips(rng.randrange(1, 200), rng), [member.name for member in members]
    weights = [rng.random() ** 3 for _ in names]
    cluster = Cluster(vips, members, {vip: rng.choices(names, weights)[0] for vip in vips})
    before = cluster.counts()

    cluster.rest()

    firsts, after = first_choices(vips, members), cluster.counts()
    assert max(cluster.moves.values(), default=0) <= 1
    assert all(cluster.holders[vip] == firsts[vip] for vip in cluster.moves)
    assert max(after.values()) <= max(before.values())
    for vip, holder in cluster.holders.items():
        assert holder == firsts[vip] or after[holder] <= after[firsts[vip]] + 1, f"ARPGUARD_SEED={SEED + run}"


def test_node_that_joins_takes_about_its_share_and_nothing_else_moves():
    cluster = Cluster(some_vips(300), [a_member(f"n{n}") for n in range(5)])
    cluster.rest()
    before, cluster.moves = dict(cluster.holders), Counter()

    cluster.join(a_member("new"))
    cluster.rest()

    moved = {vip for vip in before if cluster.holders[vip] != before[vip]}
    assert {cluster.holders[vip] for vip in moved} == {"new"}
    assert set(cluster.moves) == moved
    assert 0.7 * 50 <= len(moved) <= 1.3 * 50


@pytest.mark.parametrize("run", range(RUNS // 2))
def test_after_random_changes_everything_that_can_be_held_is(run):
    rng = random.Random(SEED + run)
    cluster = Cluster(some_vips(30, rng), [a_member(f"n{n}") for n in range(5)], rushed=True)
    for _ in range(20):
        name = f"n{rng.randrange(5)}"
        what = rng.choice(["alive", "ready", "cordoned", "excluded", "nodes", "time"])
        if what == "nodes":
            vip = rng.choice(sorted(cluster.vips))
            nodes = rng.choice([None, frozenset({name}), frozenset(f"n{n}" for n in range(5) if rng.random() < 0.5)])
            cluster.vips = {**cluster.vips, vip: replace(cluster.vips[vip], nodes=nodes)}
        elif what == "time":
            cluster.now_ns += rng.randrange(100 * NS_PER_S)
        else:
            cluster.change(name, **{what: rng.random() < 0.5})
        cluster.round()

    cluster.rest()

    pools = Pools(cluster.members)
    for vip, value in cluster.vips.items():
        pool, holder = pools.of(value), cluster.holders.get(vip, "")
        assert bool(holder) == bool(pool), f"ARPGUARD_SEED={SEED + run}"
        assert holder == "" or holder in pool
