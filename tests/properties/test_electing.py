"""Elections: everybody comes to the same, VIPs move as little as can be, and moving ends."""

import random
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arpguard.core.electing import SETTLE_NS, STEADY_NS, Election
from arpguard.core.members import Member, Pools
from arpguard.core.rendezvous import fingerprint
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.units import NS_PER_MS, NS_PER_S
from support.chance import RUNS, SEED
from support.protocol.elections import wishes_of

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
    return {address: pools.of(vip).preference(fingerprint(str(address)), 0).first for address, vip in vips.items()}


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
        return wishes_of(self.elections[name], self.vips, self.members, self.holders, self.now_ns)

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


# ---- both families of a Service ----

LAN6 = ip_network("2001:db8::/64")
BASE6 = ip_address("2001:db8::")
EACH = {4: ("eth0", LAN), 6: ("eth0", LAN6)}
SOON_NS = 20 * NS_PER_S


def some_pairs(count, followers=1):
    """VIPs of Services with an IPv4 address and so many IPv6 ones."""
    leads = some_vips(count)
    six = {
        address: Vip(address, Owner(OwnerKind.ELECT), lead=lead)
        for n, lead in enumerate(leads)
        for address in (BASE6 + (n << 8) + more for more in range(1, followers + 1))
    }
    return leads | six


def dual(name, **changes):
    return replace(Member(name, links=tuple(EACH.values())), **changes)


def may_own(cluster, vip):
    """By itself, and cordoned or not. What is in nobody's subnet may be anybody's who has a link."""
    in_a_subnet = any(member.reaches(vip.address, "") for member in cluster.members)
    return {
        member.name
        for member in cluster.members
        if member.refusal is None
        and (member.reaches(vip.address, "") if in_a_subnet else member.links)
        and (vip.nodes is None or member.name in vip.nodes)
    }


def split(cluster):
    """The pairs that have two owners, or a wrong one, although one node may own both.

    Of several addresses that go with one lead the first count first: what no node may own with those is by itself.
    """
    found = []
    for lead in (vip for vip in cluster.vips.values() if vip.lead is None):
        common, together = may_own(cluster, lead), [lead.address]
        for vip in sorted(
            (vip for vip in cluster.vips.values() if vip.lead == lead.address), key=lambda it: it.address
        ):
            both = common & may_own(cluster, vip)
            if both:
                common = both
                together.append(vip.address)
        owners = {cluster.holders.get(address, "") for address in together}
        if len(together) > 1 and not (len(owners) == 1 and owners <= common):
            found.append(lead.address)
    return found


def together_after(cluster, limit_ns=SOON_NS):
    """How long it takes until no pair is split, and every VIP that may be owned is."""
    began_ns = cluster.now_ns
    while split(cluster) or any(not cluster.holders.get(a) for a, vip in cluster.vips.items() if may_own(cluster, vip)):
        assert cluster.now_ns - began_ns <= limit_ns, f"still apart: {split(cluster)}, {cluster.holders}"
        cluster.round()
        cluster.now_ns += STEP_NS
    return cluster.now_ns - began_ns


def test_pair_is_taken_by_one_node_at_once():
    cluster = Cluster(some_pairs(50), [dual(f"n{n}") for n in range(5)])
    cluster.now_ns += SETTLE_NS

    cluster.round()

    assert split(cluster) == []
    firsts = first_choices({a: vip for a, vip in cluster.vips.items() if vip.lead is None}, cluster.members)
    assert {a: cluster.holders[a] for a in firsts} == firsts
    assert set(cluster.moves.values()) == {1}


def test_death_of_the_owner_moves_both_at_once_and_nothing_else():
    cluster = Cluster(some_pairs(50), [dual(f"n{n}") for n in range(4)])
    cluster.rest()
    before, cluster.moves = dict(cluster.holders), Counter()

    cluster.change("n2", alive=False)
    cluster.round()

    assert split(cluster) == []
    cluster.rest()
    assert cluster.moves == {vip: 1 for vip, holder in before.items() if holder == "n2"}


@pytest.mark.parametrize("family", [4, 6])
def test_node_that_loses_one_family_hands_both_over(family):
    cluster = Cluster(some_pairs(50), [dual(f"n{n}") for n in range(4)])
    cluster.rest()
    cluster.moves = Counter()
    before = dict(cluster.holders)

    cluster.change("n1", links=tuple(link for number, link in EACH.items() if number != family))
    together_after(cluster)

    assert "n1" not in cluster.holders.values()
    assert cluster.moves == {vip: 1 for vip, holder in before.items() if holder == "n1"}


def test_families_that_no_node_has_both_of_are_elected_by_themselves_and_told():
    members = [dual("four", links=(EACH[4],)), dual("six", links=(EACH[6],))]
    cluster = Cluster(some_pairs(10), members)
    cluster.rest()

    assert {cluster.holders[a] for a in cluster.vips if a.version == 4} == {"four"}
    assert {cluster.holders[a] for a in cluster.vips if a.version == 6} == {"six"}
    assert cluster._ask("four").apart == {a for a in cluster.vips if a.version == 6}
    cluster.join(dual("both"))
    together_after(cluster)
    assert set(cluster.holders.values()) == {"both"}
    assert cluster._ask("four").apart == frozenset()


def test_balance_counts_a_pair_once_and_moves_it_whole():
    vips = some_pairs(60)
    cluster = Cluster(vips, [dual(f"n{n}") for n in range(3)], dict.fromkeys(vips, "n0"))

    cluster.rest()

    assert split(cluster) == []
    assert max(cluster.moves.values()) == 1
    leads = Counter(holder for vip, holder in cluster.holders.items() if vip.version == 4)
    assert leads["n0"] < 60
    assert all(cluster.moves[vip] == cluster.moves[item.lead] for vip, item in vips.items() if item.lead is not None)


def test_pairs_come_together_when_a_service_gets_its_second_family():
    """The IPv6 addresses have been elected by themselves before."""
    vips = some_pairs(40)
    cluster = Cluster({a: replace(vip, lead=None) for a, vip in vips.items()}, [dual(f"n{n}") for n in range(4)])
    cluster.rest()
    assert split(replace_vips(cluster, vips))
    leads = {a: holder for a, holder in cluster.holders.items() if a.version == 4}
    cluster.moves = Counter()

    together_after(cluster)

    assert {a: cluster.holders[a] for a in leads} == leads, "the leads stay"
    assert max(cluster.moves.values()) == 1


def replace_vips(cluster, vips):
    cluster.vips = vips
    return cluster


FAULTS = st.sampled_from(["alive", "ready", "cordoned", "excluded", "exists"])
NAMES = [f"n{n}" for n in range(4)]
CHANGES = st.one_of(
    st.tuples(st.sampled_from(NAMES), FAULTS, st.booleans()),
    st.tuples(st.sampled_from(NAMES), st.just("links"), st.sets(st.sampled_from([4, 6]))),
    st.tuples(st.just(""), st.just("time"), st.integers(1, 100)),
    st.tuples(st.just(""), st.just("nodes"), st.tuples(st.integers(0, 8), st.none() | st.sets(st.sampled_from(NAMES)))),
)


@settings(max_examples=RUNS * 2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    holders=st.lists(st.sampled_from(["", *NAMES]), max_size=9),
    changes=st.lists(CHANGES, max_size=12),
)
def test_whatever_happens_a_pair_comes_to_one_owner_within_seconds_and_stays(holders, changes):
    """From any assignment, after any changes: where a node may own both, it does; else each is where it may be."""
    vips = some_pairs(3, followers=2)
    order = sorted(vips, key=str)
    first = dict(zip(order, holders, strict=False))
    cluster = Cluster(vips, [dual(name) for name in NAMES], first, rushed=True)
    for name, what, value in changes:
        if what == "time":
            cluster.now_ns += value * NS_PER_S
        elif what == "links":
            cluster.change(name, links=tuple(EACH[number] for number in sorted(value)))
        elif what == "nodes":
            vip = order[value[0]]
            nodes = None if value[1] is None else frozenset(value[1])
            cluster.vips = {**cluster.vips, vip: replace(cluster.vips[vip], nodes=nodes)}
        else:
            cluster.change(name, **{what: value if what in ("alive", "ready", "exists") else not value})
        cluster.round()

    together_after(cluster)
    cluster.moves = Counter()
    cluster.rest()

    pools = Pools(cluster.members)
    for address, vip in cluster.vips.items():
        holder = cluster.holders.get(address, "")
        assert bool(holder) == bool(pools.of(vip))
        assert not holder or holder in may_own(cluster, vip)
    assert split(cluster) == []
    assert max(cluster.moves.values(), default=0) <= 1, "once for balance"
