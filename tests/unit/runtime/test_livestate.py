"""Who has a VIP, for those who judge rival claims."""

from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from arpguard.core.ownership.records import Holder
from arpguard.model import OwnerKind
from arpguard.runtime.cluster.livestate import LiveState

VIP = ip_address("192.0.2.50")
ME, OTHER = "n1", "n2"


def owner(holder: Holder):
    elected = SimpleNamespace(elected=True, owner=SimpleNamespace(kind=OwnerKind.ELECT))
    outlook = SimpleNamespace(vip=lambda _vip: elected)
    cluster = SimpleNamespace(sources={}, leases_seen_ns=7)
    state = LiveState("", "", ME, SimpleNamespace(), cluster, outlook, SimpleNamespace())
    state.joined(SimpleNamespace(holder=lambda _vip: holder, owned_since_ns=lambda _vip: 5))
    return state.owner_of(VIP)


@pytest.mark.parametrize("alive", [True, False])
def test_another_node_has_a_vip_until_its_epoch_ends_however_silent_it_is(alive):
    """Else what it sends meanwhile would look like a split brain once another node may take the VIP."""
    assert owner(Holder(OTHER, "e", alive=alive)).node == OTHER
    assert owner(Holder(OTHER, "e", alive=alive, void=True)).node == ""


@pytest.mark.parametrize("alive", [True, False])
def test_this_node_has_a_vip_only_while_it_renews(alive):
    found = owner(Holder(ME, "e", alive=alive))

    assert (found.node, found.is_here, found.is_sure) == ((ME, True, True) if alive else ("", False, False))
    assert found.own_since_ns == (5 if alive else None)
