"""The annotation arpguard.io/owned-by of a Service: which node has each of its addresses.

Its form is `192.0.2.40=node-1, 192.0.2.41=node-2`. Each node writes its own name, keeps the names of other nodes, and
removes addresses that the Service does not have.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from ipaddress import ip_address

from arpguard.addresses import Address, address_order
from arpguard.core.cluster import Service

MAX_TEXT = 4000  # of a longer one the agent would read nothing (`kube.projections`)
_REST = "..."


@dataclass(frozen=True, slots=True)
class Correction:
    """What the annotation should be; empty: none. `urgent`: this node has an address that lacks its name.

    Otherwise only this node's name has to be removed, which can wait: the next owner replaces it.
    """

    text: str
    urgent: bool = False


def correction(service: Service, mine: AbstractSet[Address], node: str) -> Correction | None:
    """What a node that has the addresses `mine` corrects in a Service's annotation; None: nothing."""
    addresses = service.addresses
    owns_some = not mine.isdisjoint(addresses)
    if not owns_some and node not in service.owned_by:
        return None

    said = _read(service.owned_by)
    if not owns_some and node not in said.values():
        return None
    others = {address: owner for address, owner in said.items() if owner != node}
    owners = {address: node if address in mine else others.get(address) for address in addresses}
    text = _text(owners.items())
    if text == service.owned_by:
        return None
    return Correction(text, any(owner == node and said.get(address) != node for address, owner in owners.items()))


def _read(text: str) -> dict[Address, str]:
    """What an annotation says, but for what cannot be read: anyone may write into it."""
    said = {}
    for part in text.split(","):
        address, _, owner = part.strip().partition("=")
        try:
            said[ip_address(address)] = owner
        except ValueError:
            continue
    return said


def _text(owners: Iterable[tuple[Address, str | None]]) -> str:
    """The annotation; if it gets too long, the first addresses and three dots."""
    text = ""
    for address, owner in sorted(owners, key=lambda each: address_order(each[0])):
        if not owner:
            continue
        part = f"{address}={owner}"
        if len(text) + len(part) > MAX_TEXT:
            return f"{text}, {_REST}"
        text = f"{text}, {part}" if text else part
    return text
