"""What readers see of the cluster is what those know who know it, at the moment at which they ask."""

from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.config.model import LeaseConfig
from arpguard.core.cluster import Node, SourceState
from arpguard.core.electing import Wishes
from arpguard.core.ownership.records import Holder, PublishedLink
from arpguard.model import Link, NodeState, OwnerKind
from arpguard.runtime.cluster.livestate import LiveState
from arpguard.runtime.cluster.outlook import Outlook

VIP = ip_address("192.0.2.50")
OWN, OTHER = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")


def a_state():
    """Of node-1, which is not a member yet; no Lease is known."""
    cluster = SimpleNamespace(
        complete=False,
        sources={"services": SourceState(lists=1)},
        nodes={"node-1": Node("node-1"), "node-2": Node("node-2", addresses=(ip_address("192.0.2.2"),))},
        heartbeats=(),
        leases_known=False,
        claims=(),
    )
    kernel = NodeState(links=(Link(2, "eth0", OWN, up=True),))
    events = SimpleNamespace(written=3, dropped=1)
    return LiveState(
        "https://192.0.2.9", "arpguard", "node-1", kernel, cluster, Outlook(LeaseConfig()), events
    ), cluster


def test_before_this_node_is_a_member_it_knows_no_other():
    state, _ = a_state()

    assert (state.members, state.nobody, state.renewed_ns, dict(state.vips)) == ((), frozenset(), None, {})
    assert state.published() == {OWN: "node-1"}
    assert state.unheard() == {"node-1", "node-2"}
    assert state.addresses() == {ip_address("192.0.2.2"): "node-2"}
    assert state.events == {"written": 3, "dropped": 1}


def test_what_has_changed_is_seen_at_once():
    state, cluster = a_state()

    cluster.complete, cluster.sources = True, {}

    assert (state.complete, state.sources) == (True, {})


def test_once_it_has_joined_the_member_says_all():
    state, cluster = a_state()
    cluster.sources["leases"] = SourceState(lists=1)
    heartbeat = SimpleNamespace(node="node-2", links=(PublishedLink("eth0", OTHER),))

    state.joined(
        SimpleNamespace(
            wishes=Wishes(nobody=frozenset({VIP})),
            heartbeats=(heartbeat,),
            alive=frozenset({"node-1", "node-2"}),
            holder=lambda _: Holder(node="node-2"),
            renewals=SimpleNamespace(lost=""),
        )
    )

    assert state.nobody == {VIP}
    assert state.published() == {OWN: "node-1", OTHER: "node-2"}
    assert state.unheard() == frozenset()
    assert state.holder(VIP).node == "node-2"

    cluster.sources["leases"] = SourceState(lost="503")
    assert state.nobody == frozenset(), "all others look dead"


def owner(holder: Holder, **sources: SourceState):
    """Of an elected VIP, by its claim."""
    elected = SimpleNamespace(elected=True, owner=SimpleNamespace(kind=OwnerKind.ELECT))
    outlook = SimpleNamespace(vip=lambda _vip: elected)
    cluster = SimpleNamespace(sources={"leases": SourceState(), **sources}, leases_seen_ns=7)
    state = LiveState("", "", "node-1", SimpleNamespace(), cluster, outlook, SimpleNamespace())
    state.joined(SimpleNamespace(holder=lambda _vip: holder, owned_since_ns=lambda _vip: 5))
    return state.owner_of(VIP)


@pytest.mark.parametrize("alive", [True, False])
def test_another_node_has_a_vip_until_its_epoch_ends_however_silent_it_is(alive):
    """Else what it sends meanwhile would look like a split brain once another node may take the VIP."""
    assert owner(Holder("node-2", "e", alive=alive)).node == "node-2"
    assert owner(Holder("node-2", "e", alive=alive, void=True)).node == ""


def test_who_has_an_elected_vip_depends_on_leases_alone():
    holder = Holder("node-2", "e", alive=True)

    assert owner(holder, endpointslices=SourceState(lost="503")).is_sure
    assert not owner(holder, leases=SourceState(lost="503")).is_sure


@pytest.mark.parametrize("answers", [True, False])
def test_this_node_has_a_vip_only_while_its_kernel_answers(answers):
    found = owner(Holder("node-1", "e", alive=True, answers=answers))

    assert (found.node, found.is_here, found.is_sure) == (("node-1", True, True) if answers else ("", False, False))
    assert found.own_since_ns == (5 if answers else None)
