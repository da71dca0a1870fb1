"""Claims that the kernel reports, in a cluster: whose they are, and which of them are told of."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from itertools import count, islice

import pytest

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.core.conflicts import KnownOwner
from arpguard.core.decisions import ConflictLog, DecisionLog, Report
from arpguard.core.ownership.stages import Idle, Owned
from arpguard.dataplane.prober import LISTEN_S
from arpguard.errors import DataPlaneError
from arpguard.model import Decision, EntryKey
from arpguard.runtime.cluster.judging import CHECKS, WAITING, Judge
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.controlplane import Standalone
from arpguard.runtime.settings import Settings
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType
from arpguard_lab.cluster import objects
from support.frames.builders import a_claim
from support.kube.agent_side import CONFIG, LEASES, LINK, Announcing, Side, a_side, mac_of, vip, waited
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

A, B = vip(50), vip(51)
NODE, OTHER, BARE = "node-1", "node-2", "node-3"
STRANGER, NEW_MAC = mac_of(99), mac_of(77)
GRACE_NS = 2 * NS_PER_S
EPOCH, HOLDER_EPOCH = "arpguard.io/epoch", "arpguard.io/holder-epoch"
# Leases outlast a test machine that freezes for a few seconds: an agent without a lease judges reports differently.
LASTING = CONFIG.replace("duration: 3s, renew: 500ms, margin: 1s", "duration: 15s, renew: 500ms, margin: 3s")


@dataclass
class Ear:
    """What the kernel reports to an agent, and what becomes of it."""

    side: Side
    other: Side
    decisions: DecisionLog = field(default_factory=lambda: DecisionLog(100))

    def hear(
        self,
        address: IPv4Address,
        mac: MacAddress,
        verdict=Verdict.CONFLICT,
        reason=Reason.CONFLICT,
        at_ns: int | None = None,
    ) -> None:
        """A report of a frame that came now, or at a time of the boot clock."""
        came_ns = boot_ns() if at_ns is None else at_ns
        decision = replace(a_claim(address, mac, came_ns), verdict=verdict, reason=reason)
        self.side.kube.claimed(self.decisions.add(decision, LINK))

    @property
    def defended(self) -> list[Decision]:
        return self.side.announcing.defended

    def told(self) -> list[tuple[IPv4Address, str]]:
        return [(claim.key.vip, str(claim.claimant)) for claim in self.side.conflicts.newest()]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A shorter grace, so that tests are."""
    monkeypatch.setattr("arpguard.core.conflicts.GRACE_NS", GRACE_NS)
    monkeypatch.setattr("arpguard.core.conflicts.AGAIN_NS", GRACE_NS // 4)
    monkeypatch.setattr("arpguard.core.conflicts.CHECK_NS", GRACE_NS // 4)


@pytest.fixture
def less_quick(quick, monkeypatch):
    """For a test that has to do something before the grace is over, and before the agent gives up reading a Lease."""
    monkeypatch.setattr("arpguard.core.conflicts.GRACE_NS", 2 * GRACE_NS)
    monkeypatch.setattr("arpguard.core.conflicts.CHECK_NS", GRACE_NS)


@pytest.fixture
def neighbours(monkeypatch):
    """The neighbour table, and how often it was read."""
    table, reads = {}, []

    async def read():
        reads.append(boot_ns())
        return list(table.items())

    monkeypatch.setattr("arpguard.runtime.cluster.judging.read_neighbours", read)
    read.table, read.reads = table, reads
    return read


@pytest.fixture
def cluster(scene):
    """Two nodes that take part, and one without an agent."""
    scene.nodes(NODE, OTHER, BARE)
    scene.publish("web", [A], {"owner": "elect"})
    return scene


@asynccontextmanager
async def two_nodes(cluster, config=LASTING):
    """Two agents; the ear is at the one that has A."""
    async with a_side(cluster, NODE, config=config) as one, a_side(cluster, OTHER, config=config) as two:
        await until(lambda: len(one.membership.alive) == 2 and len(two.membership.alive) == 2, 10)
        await until(lambda: A in one.kernel.owned() | two.kernel.owned(), 10)
        mine, theirs = (one, two) if A in one.kernel.owned() else (two, one)
        yield Ear(mine, theirs), mac_of(int(theirs.node[-1])), theirs.node


async def _a_while(after_ns: int = GRACE_NS) -> None:
    """For what must not happen in it."""
    await asyncio.sleep(after_ns / NS_PER_S)


def _settled(ear: Ear) -> bool:
    """Whether the VIP has been the node's for longer than a late frame may take."""
    since_ns = ear.side.kube.owner_of(A).own_since_ns
    return since_ns is not None and since_ns < boot_ns() - GRACE_NS


@in_loop
async def test_host_outside_is_told_of_and_defended_against_at_once(cluster, neighbours):
    async with two_nodes(cluster) as (ear, _, _):
        ear.hear(A, STRANGER)
        await until(lambda: ear.told() == [(A, "outside")])
        await waited(lambda: cluster.events("VIPConflict"))

        (event,) = cluster.events("VIPConflict")
        assert event["note"] == (
            f"{STRANGER} claims {A} on {LINK} of {ear.side.node}, but is not its owner: "
            "remove the address from that host"
        )
        assert event["regarding"]["name"] == "web"
        assert [decision.sha for decision in ear.defended] == [STRANGER]
        assert len(neighbours.reads) == 1


@in_loop
async def test_virtual_router_is_named_and_needs_no_neighbour_table(cluster, neighbours):
    router = MacAddress.parse("00:00:5e:00:01:33")
    async with two_nodes(cluster) as (ear, _, _):
        ear.hear(A, router)
        await until(lambda: ear.told() == [(A, "VRRP router 51")])
        await waited(lambda: cluster.events("VIPConflict"))

        (event,) = cluster.events("VIPConflict")
        assert event["note"].startswith(f"{router} (VRRP router 51) claims {A} on")
        assert neighbours.reads == []
        assert ear.defended


@in_loop
async def test_c11_node_with_an_agent_is_a_split_brain_and_not_defended_against(cluster, neighbours):
    """A user-space speaker of that node, beside its guard."""
    async with two_nodes(cluster) as (ear, mac, name):
        await until(lambda: _settled(ear))
        heard_ns = boot_ns()
        ear.hear(A, mac)
        await until(lambda: ear.told() == [(A, f"{name} (cluster node)")])
        assert boot_ns() - heard_ns >= GRACE_NS
        await waited(lambda: cluster.events("VIPSplitBrain"))

        (event,) = cluster.events("VIPSplitBrain")
        assert event["note"] == (
            f"{ear.side.node} hears {name} (cluster node) claim {A} on {LINK} with MAC {mac}, "
            f"but {ear.side.node} owns it: "
            "two nodes may be answering"
        )
        assert not cluster.events("VIPConflict")
        assert ear.defended == []


@in_loop
async def test_c11_own_claim_is_read_at_once_and_lost_when_it_is_not_there_any_more(cluster, neighbours):
    """The watch hears nothing; somebody has edited the claim, and another node answers."""
    async with two_nodes(cluster) as (ear, mac, name):
        me, path = ear.side.node, f"{LEASES}/vip.{A}"
        cluster.fault(me, freeze=True)
        claim = cluster.get(path)
        claim["spec"]["holderIdentity"] = name
        claim["metadata"]["annotations"][HOLDER_EPOCH] = cluster.lease(f"node.{name}")["annotations"][EPOCH]
        assert cluster.api.ask("PUT", path, claim).code == 200
        await _a_while()
        assert A in ear.side.kernel.owned(), "the watch stands still"

        ear.hear(A, mac)
        await until(lambda: A not in ear.side.kernel.owned())


@in_loop
async def test_node_without_an_agent_is_known_by_the_neighbour_table(cluster, neighbours):
    neighbours.table[vip(3)] = STRANGER  # the address of node-3
    async with two_nodes(cluster) as (ear, _, _):
        await until(lambda: _settled(ear))
        ear.hear(A, STRANGER)
        await until(lambda: ear.told() == [(A, f"{BARE} (cluster node without an agent)")])

        assert ear.defended == []
        await waited(lambda: cluster.events("VIPSplitBrain"))


@in_loop
async def test_new_owner_that_is_heard_before_its_claim_is_read_is_nothing(cluster, neighbours, monkeypatch):
    grace_ns = 6 * NS_PER_S  # for the whole hand-over
    monkeypatch.setattr("arpguard.core.conflicts.GRACE_NS", grace_ns)
    async with two_nodes(cluster) as (ear, mac, name):
        await until(lambda: _settled(ear))
        cluster.api.ask("PUT", f"/api/v1/nodes/{ear.side.node}", _cordoned(cluster, ear.side.node))
        ear.hear(A, mac)
        await until(lambda: A not in ear.side.kernel.owned(), 10)
        ear.hear(A, mac)
        await waited(lambda: cluster.holder(A) == name)
        ear.hear(A, mac)
        await _a_while(grace_ns + NS_PER_S)

        assert ear.told() == []
        assert not cluster.events("VIPSplitBrain")


@in_loop
async def test_agent_that_stood_still_takes_no_earlier_owner_for_a_rival(cluster, neighbours):
    """When the agent resumes, it may read every move from the watch before it reads the kernel's reports."""
    began_ns = boot_ns()
    async with two_nodes(cluster) as (ear, mac, _):
        await until(lambda: _settled(ear))
        ear.hear(A, mac, at_ns=began_ns - GRACE_NS)
        ear.hear(A, mac, at_ns=began_ns)
        await _a_while(2 * GRACE_NS)

        assert ear.told() == []


@in_loop
async def test_owner_between_two_others_is_no_rival_where_the_vip_is_not_elected(cluster, neighbours, less_quick):
    """As with an announcer that moves a VIP twice within seconds."""
    neighbours.table[vip(3)] = STRANGER  # the address of node-3
    cluster.publish("named", [B], {"owner": f"node/{NODE}"})
    async with two_nodes(cluster) as (ear, _, _):
        await until(lambda: ear.side.kube.owner_of(B).node == NODE, 10)
        ear.hear(B, STRANGER)
        await _a_while(GRACE_NS // 2)
        ear.hear(B, STRANGER)
        cluster.publish("named", [B], {"owner": f"node/{OTHER}"})
        await until(lambda: ear.side.kube.owner_of(B).node == OTHER)
        await _a_while(2 * GRACE_NS)
        assert ear.told() == []

        ear.hear(B, STRANGER)
        await _a_while(GRACE_NS // 2)
        ear.hear(B, STRANGER)
        await until(lambda: ear.told() == [(B, f"{BARE} (cluster node without an agent)")])


@in_loop
async def test_lease_is_read_before_a_node_counts_as_a_rival_for_the_watch_may_lag(cluster, neighbours, less_quick):
    """The VIP has moved to that node and back meanwhile."""
    async with two_nodes(cluster) as (ear, mac, _):
        me = ear.side.node
        await until(lambda: _settled(ear))
        ear.hear(A, mac)
        await until(lambda: cluster.count(me, "get", "leases"))
        await _a_while(GRACE_NS // 3)
        ear.hear(A, mac)
        again_ns = boot_ns()
        await until(lambda: ear.side.kube.owner_of(A).seen_ns > again_ns)

        cluster.fault(me, freeze=True)
        claim = cluster.get(f"{LEASES}/vip.{A}")
        claim["spec"]["leaseTransitions"] = claim["spec"].get("leaseTransitions", 0) + 2
        before = cluster.count(me, "get", "leases")
        assert cluster.api.ask("PUT", f"{LEASES}/vip.{A}", claim).code == 200
        await until(lambda: cluster.count(me, "get", "leases") > before, 60)
        await _a_while(2 * GRACE_NS)

        assert ear.told() == []


@in_loop
async def test_owner_with_a_new_mac_is_no_stranger_to_the_others(cluster, neighbours):
    """It announces its VIPs as soon as its link has the MAC, before any node can have read of it."""
    async with two_nodes(cluster) as (ear, _, _):
        owner, hearer = ear.side, Ear(ear.other, ear.side)
        hearer.hear(A, NEW_MAC)
        owner.has_mac(NEW_MAC)
        await until(lambda: hearer.side.kube.state.published().get(NEW_MAC) == owner.node, 10)
        hearer.hear(A, NEW_MAC)
        await _a_while(3 * GRACE_NS)

        assert hearer.told() == []
        assert not cluster.events("VIPConflict")


@in_loop
async def test_mac_that_a_node_had_before_stays_its_own(cluster, neighbours):
    """A bond's MAC may change back; and the node may be cut off from the API server by then."""
    async with two_nodes(cluster) as (ear, mac, name):
        await until(lambda: ear.side.kube.state.published().get(mac) == name, 10)
        ear.other.has_mac(NEW_MAC)
        await until(lambda: ear.side.kube.state.published().get(NEW_MAC) == name, 10)

        assert str(await ear.side.kube.who(mac)) == f"{name} (cluster node)"
        assert str(await ear.side.kube.who(STRANGER)) == "outside"


@in_loop
async def test_stranger_that_goes_on_claiming_a_vip_of_another_node_counts(cluster, neighbours, monkeypatch):
    monkeypatch.setattr("arpguard.core.conflicts.PERSISTS_NS", GRACE_NS)
    async with two_nodes(cluster) as (ear, _, _):
        hearer = Ear(ear.other, ear.side)
        hearer.hear(A, STRANGER)
        await _a_while(GRACE_NS // 2)
        hearer.hear(A, STRANGER)
        await _a_while(GRACE_NS)
        assert hearer.told() == []

        hearer.hear(A, STRANGER)
        await until(lambda: hearer.told() == [(A, "outside")])
        assert hearer.side.conflicts.problems(boot_ns())


@in_loop
async def test_claims_of_an_owner_that_could_not_publish_its_mac_in_time_are_withdrawn(
    cluster, neighbours, monkeypatch
):
    """As when the API server was away meanwhile."""
    monkeypatch.setattr("arpguard.core.conflicts.PERSISTS_NS", 0)
    async with two_nodes(cluster) as (ear, _, _):
        owner, hearer = ear.side, Ear(ear.other, ear.side)
        hearer.hear(A, NEW_MAC)
        hearer.hear(B, STRANGER)
        await until(lambda: len(hearer.told()) == 2)

        owner.has_mac(NEW_MAC)
        await until(lambda: hearer.told() == [(B, "outside")], 10)


@in_loop
async def test_a_node_that_announces_what_its_keepalived_has_is_no_split_brain(cluster, neighbours):
    config = f"{LASTING[:-1]}, vips: [{{address: {B}, owner: {{keepalived: VI_1}}}}]}}"
    async with two_nodes(cluster, config) as (ear, mac, _):
        await until(lambda: ear.side.kernel.kind(B) is Kind.FOREIGN, 10)
        ear.hear(B, mac)
        await _a_while(GRACE_NS // 2)
        ear.hear(B, mac)
        await _a_while(2 * GRACE_NS)

        assert ear.told() == []


def _cordoned(cluster, name: str) -> dict:
    body = cluster.get(f"/api/v1/nodes/{name}")
    body["spec"] = {**body.get("spec", {}), "unschedulable": True}
    return body


@in_loop
async def test_nothing_is_judged_while_leases_are_not_heard_of(cluster, neighbours):
    """A VIP may have moved to whom it likes meanwhile."""
    async with two_nodes(cluster) as (ear, mac, _):
        await until(lambda: _settled(ear))
        cluster.server.run(lambda it: it.go_down())
        await until(lambda: not ear.side.kube.owner_of(A).is_sure, 10)
        ear.hear(A, mac)
        await _a_while(GRACE_NS // 2)
        ear.hear(A, mac)
        await _a_while(2 * GRACE_NS)

        assert ear.told() == []


@in_loop
async def test_macs_that_are_made_up_make_one_look_at_the_neighbours_a_second(cluster, neighbours):
    async with two_nodes(cluster) as (ear, _, _):
        began, made_up = boot_ns(), (MacAddress(b"\x06\x00" + number.to_bytes(4, "big")) for number in count())
        for mac in islice(made_up, 10 * WAITING):
            ear.hear(A, mac)
            if int.from_bytes(mac.octets[2:], "big") % WAITING == 0:
                await asyncio.sleep(0)
        # The host keeps claiming, because an agent drops reports while it cannot be sure of its own claim.
        await until(lambda: ear.hear(A, next(made_up)) or len(ear.side.conflicts.latest_by_key()) == 1)

        assert len(neighbours.reads) <= 1 + (boot_ns() - began) // NS_PER_S


async def _until_elections_are_over(side):
    """Two that want the same VIP read what became of it."""
    claims = side.membership._ownership.claims
    await until(lambda: {claims.stage(address) for address in claims.all} <= {Idle, Owned}, 30)


@in_loop
async def test_macs_of_nodes_that_are_made_up_make_few_requests(cluster, neighbours):
    cluster.publish("many", [vip(number) for number in range(100, 250)], {"owner": "elect"})
    async with two_nodes(cluster) as (ear, mac, _):
        me = ear.side.node
        await until(lambda: len(ear.side.kernel.owned()) + len(ear.other.kernel.owned()) == 151, 20)
        assert len(ear.side.kernel.owned()) > 3 * CHECKS
        await _until_elections_are_over(ear.side)
        began, before = boot_ns(), cluster.count(me, "get", "leases")
        for address in ear.side.kernel.owned():
            ear.hear(address, mac)
        await until(lambda: cluster.count(me, "get", "leases") > before)
        await _a_while()
        reads, spent = cluster.count(me, "get", "leases") - before, boot_ns() - began

        seconds = 2 + spent // NS_PER_S  # that have begun
        assert reads <= CHECKS * seconds


@in_loop
async def test_neighbours_that_cannot_be_read_make_nobody_a_node(cluster, monkeypatch, caplog):
    async def fail():
        raise DataPlaneError("no rtnetlink here")

    monkeypatch.setattr("arpguard.runtime.cluster.judging.read_neighbours", fail)
    async with two_nodes(cluster) as (ear, _, _):
        ear.hear(A, STRANGER)
        ear.hear(A, mac_of(98))
        await until(lambda: len(ear.told()) == 2)

        assert {who for _, who in ear.told()} == {"outside"}
        assert sum("no rtnetlink here" in record.message for record in caplog.records) == 1


@in_loop
async def test_probe_that_finds_a_node_without_an_agent_says_so(cluster, neighbours, segment):
    neighbours.table[vip(3)] = STRANGER
    segment.strangers[B] = STRANGER
    async with two_nodes(cluster):
        cluster.publish("more", [B], {"owner": "elect"})
        await waited(lambda: cluster.events("VIPTakenOutside"))

        (event,) = cluster.events("VIPTakenOutside")
        assert event["note"] == (
            f"{B} is in use by {BARE} (cluster node without an agent), {STRANGER}: "
            "no node answers for it until that host falls silent"
        )


@in_loop
async def test_c16_probe_begins_before_what_a_dead_node_had_can_be_taken(cluster, segment):
    """It takes as long as a real one, so takeover does not wait for it; how long before, tests of the core tell."""
    revoked_by_then = []

    async with a_side(cluster, OTHER) as survivor:

        async def probe(_self, _link, _address):
            revoked_by_then.append(survivor.writes["revocation", "applied"])
            await asyncio.sleep(LISTEN_S)

        async with a_side(cluster, NODE) as dead:
            await until(lambda: len(dead.membership.alive) == len(survivor.membership.alive) == 2, 10)
            cluster.put({**objects.node(OTHER, vip(2)), "spec": {"unschedulable": True}})
            await until(lambda: A in dead.kernel.owned(), 10)
            cluster.put(objects.node(OTHER, vip(2)))
            segment.probe = probe
        await until(lambda: A in survivor.kernel.owned(), 10)

        assert revoked_by_then == [0]
        assert survivor.writes["revocation", "applied"] == 1


@in_loop
async def test_hand_over_needs_no_probe(cluster, segment):
    async with two_nodes(cluster) as (ear, _, name):
        segment.asked.clear()
        cluster.put({**objects.node(ear.side.node, vip(1)), "spec": {"unschedulable": True}})
        await waited(lambda: cluster.holder(A) == name)

        assert A not in segment.asked


def test_without_a_cluster_there_are_routers_and_hosts_outside():
    log, announcing, decisions = ConflictLog(), Announcing(), DecisionLog(10)
    plane = Standalone(Settings(None), Conflicts(log, announcing))
    for mac in (STRANGER, MacAddress.parse("00:00:5e:00:01:33")):
        decision = Decision(
            1,
            EntryKey(2, A),
            Verdict.CONFLICT,
            Reason.CONFLICT,
            Hook.TC_INGRESS,
            Mode.ENFORCE,
            Kind.OWNED,
            1,
            A,
            A,
            mac,
            mac,
            mac,
            BROADCAST_MAC,
        )
        plane.claimed(decisions.add(decision, LINK))

    assert [claim.claimant for claim in log.newest()] == [
        Claimant(ClaimantKind.VRRP_ROUTER, router=51),
        Claimant(ClaimantKind.OUTSIDE),
    ]
    assert len(announcing.defended) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, 0),
        ({"op": NdType.ADVERTISEMENT}, 0),
        ({"op": ArpOp.REQUEST}, 1),
        ({"eth_dst": BROADCAST_MAC}, 1),
        ({"reason": Reason.CONFLICT, "verdict": Verdict.CONFLICT}, 1),
    ],
    ids=str,
)
def test_answer_to_this_node_that_may_be_the_owners_is_no_claim(changes, told, caplog):
    """`arpguard whohas` asks for a VIP whose owner's MAC is unknown, and the owner answers."""
    log, decisions = ConflictLog(), DecisionLog(10)
    plane = Standalone(Settings(None), Conflicts(log, Announcing()))
    unverified = {"verdict": Verdict.REPORT, "reason": Reason.UNVERIFIED_CLAIM, "kind": Kind.FOREIGN}
    answer = {"op": ArpOp.REPLY, "eth_dst": mac_of(1)} | unverified | changes
    plane.claimed(decisions.add(replace(a_claim(A, STRANGER), **answer), LINK))

    assert len(list(log.newest())) == told
    assert caplog.text.count("claim: ") == told


def a_report(number: int, mac: MacAddress) -> Report:
    return Report(number, LINK, a_claim(vip(number), mac, 1), 1, 1)


@dataclass
class Forged:
    """A cluster whose nodes' MACs somebody forges; this node has every VIP."""

    macs: dict[MacAddress, str]
    read: list[IPv4Address] = field(default_factory=list)

    def published(self):
        return self.macs

    def addresses(self):
        return {}

    def unheard(self):
        return frozenset()

    def owner_of(self, _vip):
        return KnownOwner("me", own_since_ns=0)

    def recheck(self, vip):
        self.read.append(vip)


@pytest.mark.parametrize(("nodes", "window_s"), [(2, 1), (100, 10)])
@in_loop
async def test_all_nodes_together_read_no_more_claims_than_they_renew(monkeypatch, nodes, window_s):
    """A forger of nodes' MACs is heard by each of them."""
    forged = Forged({mac_of(number): f"node-{number}" for number in range(1, nodes + 1)})
    judge = Judge(forged, None, None)
    for second, expected in ((0, CHECKS), (window_s - 1, CHECKS), (window_s, 2 * CHECKS)):
        monkeypatch.setattr("arpguard.runtime.cluster.judging.boot_ns", lambda at=second: (1000 + at) * NS_PER_S)
        for number in range(3 * CHECKS):
            judge.heard(a_report(second * 3 * CHECKS + number, mac_of(1)))
        await judge._judge()
        assert len(forged.read) == expected


@in_loop
async def test_macs_of_a_deleted_heartbeat_stay_its_nodes():
    """Until it comes back, the node's announcements are no stranger's."""
    judge = Judge(Forged({mac_of(1): "node-1"}), None, None)

    judge.macs_changed("node-2", frozenset({mac_of(2)}), frozenset())

    assert str(await judge.who(mac_of(2))) == "node-2 (cluster node)"


@pytest.mark.parametrize(
    ("owner", "counts"),
    [
        (KnownOwner("", is_sure=False), False),
        (KnownOwner("node-2"), False),
        (KnownOwner("", seen_ns=1), False),
        (KnownOwner("me", is_sure=False, is_here=True), True),
        (KnownOwner(""), True),
    ],
)
@in_loop
async def test_stranger_counts_at_once_only_where_no_other_node_can_have_the_vip(monkeypatch, owner, counts):
    """An agent that has just started does not know yet who has it."""
    told = []
    judge = Judge(Forged({}), None, None)
    monkeypatch.setattr(judge, "_tell", lambda report, _claimant: told.append(report))
    monkeypatch.setattr(Forged, "owner_of", lambda _self, _vip: owner)
    report = a_report(1, STRANGER)

    judge.heard(report)
    await judge._judge()

    assert told == [report] * counts
