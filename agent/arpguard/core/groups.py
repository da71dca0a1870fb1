"""Elections are about groups: VIPs that should have one owner.

The IPv6 addresses of a dual-stack Service go with its first IPv4 one, their lead (`Vip.lead`); any other VIP is a group
by itself. `Pools.divided` splits a group that no node may own as a whole.
"""

from collections.abc import Mapping
from typing import TypeAlias

from arpguard.addresses import Address, address_order
from arpguard.model import Vip

Group: TypeAlias = tuple[Vip, ...]  # the lead first, the others by address


def groups(vips: Mapping[Address, Vip]) -> dict[Address, Group]:
    """The elected VIPs, each in one group, by the address of the group's lead."""
    found: dict[Address, Group] = {address: (vip,) for address, vip in vips.items() if vip.elected}
    following: dict[Address, list[Vip]] = {}
    for vip in vips.values():
        if vip.lead is not None and vip.elected and _lead(vip, vips) != vip.address:
            following.setdefault(vip.lead, []).append(vip)
            del found[vip.address]

    for lead, those in following.items():
        found[lead] = (vips[lead], *sorted(those, key=lambda vip: address_order(vip.address)))
    return found


def group_of(vip: Vip, vips: Mapping[Address, Vip]) -> Group:
    """The group of one of the VIPs; one that is not among them is by itself."""
    lead = _lead(vip, vips)
    near = {each.address: each for each in vips.values() if lead in (each.address, each.lead)}
    group = groups(near).get(lead, ())
    return group if vip in group else (vip,)


def _lead(vip: Vip, vips: Mapping[Address, Vip]) -> Address:
    """The address that a VIP goes with, or its own.

    A lead that is gone, or not elected, leads nobody. Neither does one with other settings: that comes from another
    source, and this one must not choose its nodes.
    """
    lead = vips.get(vip.lead) if vip.lead is not None else None
    leads = lead is not None and lead.lead is None and lead.elected and lead.settings == vip.settings
    return lead.address if lead is not None and leads else vip.address
