"""Which VIPs are to have one owner."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.core.groups import group_of, groups
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.verdict import Mode

VIP = Vip(ip_address("198.51.100.50"), Owner(OwnerKind.ELECT))
SIX = Vip(ip_address("2001:db8::50"), VIP.owner, lead=VIP.address)
OTHER6 = replace(SIX, address=SIX.address + 1)
OTHER = replace(VIP, address=VIP.address + 1)


def by_address(*vips):
    return {vip.address: vip for vip in vips}


def test_group_has_the_lead_first_then_those_that_go_with_it_by_address():
    vips = by_address(OTHER6, SIX, OTHER, VIP)

    assert groups(vips) == {VIP.address: (VIP, SIX, OTHER6), OTHER.address: (OTHER,)}
    assert [group_of(vip, vips) for vip in (VIP, OTHER6, OTHER)] == [(VIP, SIX, OTHER6)] * 2 + [(OTHER,)]


def test_vip_that_is_not_elected_is_in_no_group():
    assert groups(by_address(replace(VIP, owner=Owner(OwnerKind.EXTERNAL)))) == {}


@pytest.mark.parametrize(
    "lead",
    [(), (replace(VIP, owner=Owner(OwnerKind.NODE, node="n1")),), (replace(VIP, lead=OTHER.address),)],
    ids=["gone", "not elected", "has a lead itself"],
)
def test_address_whose_lead_leads_nobody_is_by_itself(lead):
    vips = by_address(*lead, SIX)

    assert groups(vips)[SIX.address] == (SIX,)
    assert group_of(SIX, vips) == (SIX,)


@pytest.mark.parametrize("other", [{"mode": Mode.ENFORCE}, {"interface": "eth1"}, {"unfenced": True}], ids=str)
def test_what_has_other_settings_than_its_lead_goes_alone(other):
    """It is of a Service that has no say about the lead, and would leave to it the nodes of its own choice."""
    strange = replace(OTHER6, nodes=frozenset({"n1"}), **other)

    assert groups(by_address(VIP, SIX, strange)) == {VIP.address: (VIP, SIX), strange.address: (strange,)}


def test_one_that_is_no_vip_is_by_itself():
    assert group_of(SIX, by_address(VIP)) == (SIX,)
