"""What the agent knows of the cluster becomes messages, and the health of `kubernetes`."""

from collections import Counter
from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.api import clustering
from arpguard.api.messages import MessageClock
from arpguard.clock import boot_ns
from arpguard.core.claimwords import Candidate, ClaimState
from arpguard.core.cluster import Node, SourceState
from arpguard.core.members import Member
from arpguard.core.ownership.records import Holder
from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.state import VouchedNode, VouchingState
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from support.kube.cluster_states import a_cluster, an_elected

VIP = ip_address("192.0.2.50")
EPOCH = "00000000-0000-0007-0000-000000000000"
HELD = Holder("n1", EPOCH, alive=True, void=False, known=True, exists=True, transitions=3)
LOST = {"services": SourceState(lost="403 Forbidden", failures=2), "nodes": SourceState()}


@pytest.mark.parametrize(
    ("changes", "state", "well"),
    [
        ({}, "FOLLOWING", True),
        ({"complete": False}, "CONNECTING", False),
        ({"sources": LOST}, "LOST", False),
        ({"sources": LOST, "complete": False}, "CONNECTING", False),
        ({"renewal_lost": "timed out"}, "FOLLOWING", False),
        ({"yielding": True}, "FOLLOWING", False),
    ],
    ids=str,
)
def test_connection_is_well_when_all_is_followed_and_the_lease_renewed(changes, state, well):
    found = a_cluster(**changes)

    assert pb.Kubernetes.State.Name(clustering.connection(found)) == f"STATE_{state}"
    assert clustering.is_well(found) is well


def test_message_has_sources_nodes_writes_and_events():
    now_ns = boot_ns()
    state = a_cluster(
        sources=LOST,
        members=(Member("n1"), Member("n2", alive=False)),
        published=lambda: {MacAddress(b"\x02" + bytes(4) + bytes([last])): "n1" for last in (1, 2)},
        nodes={"n1": Node("n1", addresses=(ip_address("192.0.2.1"), ip_address("2001:db8::1")))},
        renewed_ns=now_ns,
        renewal_lost="timed out",
        yielding=True,
        writes=Counter({("heartbeat", "applied"): 5}),
        events=Counter(written=4, dropped=1),
    )
    clock = MessageClock.now()

    assert clustering.kubernetes(state, clock) == pb.Kubernetes(
        state=pb.Kubernetes.STATE_LOST,
        server="https://api.example:6443",
        namespace="arpguard",
        sources=[{"name": "nodes"}, {"name": "services", "lost": "403 Forbidden", "failures": 2}],
        renewal_time=clock.timestamp(now_ns),
        renewal_problem="timed out",
        yielding=True,
        nodes=[
            {
                "name": "n1",
                "alive": True,
                "addresses": ["192.0.2.1", "2001:db8::1"],
                "macs": ["02:00:00:00:00:01", "02:00:00:00:00:02"],
            },
            {"name": "n2", "refusal": "its agent has not renewed its lease in time"},
        ],
        writes=[{"kind": "heartbeat", "outcome": "applied", "count": 5}],
        events_written=4,
        events_dropped=1,
    )


def test_who_vouches_for_whom():
    clock, now_ns = MessageClock.now(), boot_ns()
    gaps = Gaps().with_gap(50 * NS_PER_MS).with_gap(90 * NS_PER_MS)
    state = VouchingState(
        voucher="n2",
        d_ns=600 * NS_PER_MS,
        since_ns=now_ns,
        bound=True,
        vouched=(VouchedNode("n3", NS_PER_S, now_ns, trial=False, bound=True, pings=4, pongs=3, gaps=gaps),),
        priority="nice",
        unbinds=1,
        revocations=2,
        decided=3,
    )
    found = clustering.kubernetes(a_cluster(vouching=state), clock)

    assert not clustering.kubernetes(a_cluster(), clock).HasField("vouching")
    assert found.vouching == pb.Vouching(
        voucher="n2",
        timeout={"nanos": 600 * NS_PER_MS},
        since_time=clock.timestamp(now_ns),
        bound=True,
        vouched_nodes=[
            pb.VouchedNode(
                node="n3",
                timeout={"seconds": 1},
                since_time=clock.timestamp(now_ns),
                bound=True,
                pings=4,
                pongs=3,
                usual_interval={"nanos": 90 * NS_PER_MS},
                longest_interval={"nanos": 90 * NS_PER_MS},
            )
        ],
        priority="nice",
        unbinds=1,
        revocations=2,
        found_dead=3,
    )


def test_claim_has_the_kernels_number_of_the_epoch():
    clock = MessageClock.now()

    assert clustering.claim(HELD, clock) == pb.Claim(
        holder="n1", epoch=7, state=pb.Claim.STATE_VALID, alive=True, transitions=3
    )


@pytest.mark.parametrize("epoch", ["", "seven"])
def test_epoch_that_cannot_be_read_has_no_number(epoch):
    holder = Holder("n1", epoch, known=True, exists=True, unreadable="epoch")

    assert clustering.claim(holder, MessageClock.now()) == pb.Claim(holder="n1", state=pb.Claim.STATE_UNREADABLE)


def test_every_state_of_a_claim_has_a_value_of_its_own():
    assert {f"STATE_{state.name}" for state in ClaimState} == set(pb.Claim.State.keys()) - {"STATE_UNSPECIFIED"}


def test_claim_says_since_when_it_was_seen_so():
    clock, now_ns = MessageClock.now(), boot_ns()
    found = clustering.claim(Holder("n1", EPOCH, known=True, exists=True, seen_ns=now_ns), clock)

    assert found.seen_time == clock.timestamp(now_ns)


CANDIDATES = (Candidate("n1", True, True, "choice 1"), Candidate("n2", True, False, "choice 2"))


@pytest.mark.parametrize(
    ("holder", "chosen"),
    [
        (HELD, ["n1"]),
        (Holder("n2", EPOCH, alive=True, void=False, known=True, exists=True), ["n2"]),
        (Holder(known=True), []),
        (Holder(external="02:00:00:00:00:50", known=True, exists=True), []),
        (Holder("n1", EPOCH, void=True, known=True, exists=True), []),
    ],
    ids=["first", "second", "none", "outside", "void"],
)
def test_who_has_the_vip_is_chosen_and_nobody_else(holder, chosen):
    vip = an_elected(VIP)
    found = clustering.in_cluster(a_cluster([vip], holder, CANDIDATES), VIP, vip)

    assert [candidate.node for candidate in found.candidates if candidate.chosen] == chosen
    assert found.holder is holder


def test_of_a_vip_that_is_not_elected_nobody_is_asked_for():
    named = Vip(VIP, Owner(OwnerKind.NODE, node="n1"))
    found = clustering.in_cluster(a_cluster([named], HELD, CANDIDATES), VIP, named)

    assert (found.candidates, found.holder) == ((), Holder())
