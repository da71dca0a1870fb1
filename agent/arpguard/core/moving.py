"""Why an elected VIP moves, in the words of `arpguard explain`: nodes log it when they take a VIP or give it up."""

from collections.abc import Iterable, Mapping

from arpguard.addresses import Address
from arpguard.core.members import Member, Pools, why_not
from arpguard.model import Vip

NOBODYS = "no node has it"
FIRST_CHOICE = "this node is its first choice"


class Moves:
    """Says why VIPs move, for a fixed set of VIPs and nodes. `pools`: which nodes may own which VIP."""

    def __init__(self, vips: Mapping[Address, Vip], members: Iterable[Member], pools: Pools) -> None:
        self._vips = vips
        self._members = {member.name: member for member in members}
        self._pools = pools

    def refusal(self, node: str, address: Address, together: Iterable[Address] = ()) -> str:
        """Why a node may not own a VIP. `together`: those that go with it."""
        group = (self._vips[address], *(self._vips[each] for each in together if each != address))
        return why_not(group, self._members.get(node, Member(node, exists=False)), self._pools)

    def refused(self, node: str, address: Address, together: Iterable[Address] = ()) -> str:
        """The same, for a node that has the VIP, or had it last."""
        return f"{node} cannot own the VIP: {self.refusal(node, address, together)}"


def to_lead(node: str, lead: Address) -> str:
    """A VIP is given up because it must have the same owner as its lead."""
    return f"{node} owns {lead}, which must have the same owner"


def to_balance(node: str) -> str:
    """A VIP is given up because its first choice has fewer."""
    return f"{node} is the VIP's first choice, and owns at least 2 fewer VIPs than this node"


def as_choice(place: int, first: str, lead: Address | None) -> str:
    """Why this node takes a VIP. `place`: which choice it is, from 0 on; `lead`: what the VIP goes with, or None."""
    if place:
        return f"the VIP's first choice, {first}, has not taken it"
    return FIRST_CHOICE if lead is None else f"it must have the same owner as {lead}"
