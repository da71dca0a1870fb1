"""What is closed on this node (`unknown: suppress`): ranges in which addresses without an entry are suppressed.

The smallest range decides, so exceptions are smaller ranges: those with `unknown: pass`, and each of this node's own
addresses. These are:

- the addresses of its Node object,
- the first IPv4 address of each subnet on each of its links, and every IPv6 address in a subnet,
- the first address of a link without a subnet of that family (clouds give hosts a /32), if it could be guarded.

All others look like VIPs: host addresses, secondary ones, those on `lo` and on devices without ARP.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network

from arpguard.addresses import Address, Network
from arpguard.config.model import AgentConfig
from arpguard.core.admission import Avoided
from arpguard.core.choosing import unguardable
from arpguard.core.desired import NO_VIP, Primaries
from arpguard.model import InterfaceAddress, Link, RangeKey, Surroundings, VipEntry
from arpguard.verdict import Kind, Mode


@dataclass(frozen=True, slots=True)
class Closing:
    """Closed networks, exceptions in them, and the reasons why others could not be closed."""

    closed: tuple[Network, ...] = ()
    open: tuple[Network, ...] = ()
    problems: tuple[str, ...] = ()

    def is_closed(self, address: Address) -> bool:
        """Whether an address is suppressed unless it has an entry."""
        return _smallest(address, (*self.closed, *self.open)) in self.closed


NOTHING = Closing()


def closing_of(config: AgentConfig, surroundings: Surroundings, avoided: Avoided, own: Iterable[Address]) -> Closing:
    """What the configuration closes on this node; `own` are the addresses of its Node object."""
    if not config.closed:
        return NOTHING

    needed = [
        *((address, "this node's gateway") for address in sorted(avoided.gateways, key=str)),
        *((address, "the API server") for address in sorted(avoided.api_servers, key=str)),
    ]

    refused: dict[Network, str] = {}
    for address, what in needed:
        network = _smallest(address, config.ranges)
        if network is not None and network in config.closed:
            refused.setdefault(network, f"it contains {what}, {address}")

    closed = tuple(network for network in config.closed if network not in refused)
    exceptions = [network for network in config.ranges if network not in closed]
    exceptions += [ip_network(address) for address in {*own, *own_addresses(surroundings)}]

    return Closing(
        closed,
        tuple(dict.fromkeys(network for network in exceptions if _is_in_any(network, closed))),
        tuple(
            f"ranges: {network} is not closed on this node: {why}; close only the part that has the VIPs, "
            "or add that address to `ranges` with `unknown: pass`"
            for network, why in refused.items()
        ),
    )


def own_addresses(surroundings: Surroundings) -> Iterator[Address]:
    """This node's own addresses, those that cannot be VIPs."""
    for link in surroundings.links:
        if link.loopback or link.no_arp:
            continue
        for version in (4, 6):
            found = [own for own in link.addresses if own.address.version == version]
            in_subnets = list(_in_subnets(link, found))
            if not in_subnets and unguardable(link, surroundings) is None:
                in_subnets = found[:1]
            yield from (own.address for own in in_subnets)


def _in_subnets(link: Link, addresses: Iterable[InterfaceAddress]) -> Iterator[InterfaceAddress]:
    seen: set[Network] = set()
    for own in addresses:
        if own.network in link.subnets and (own.address.version == 6 or own.network not in seen):
            yield own
        seen.add(own.network)


def closed_ranges(closing: Closing, links: Sequence[Link], primaries: Primaries) -> dict[RangeKey, VipEntry]:
    """The ranges that the kernel should have, exceptions first."""
    wanted = {RangeKey(link.ifindex, network): VipEntry(Kind.OPEN) for link in links for network in closing.open}
    for link in links:
        for network in closing.closed:
            primary = primaries[link.ifindex, network.version]
            wanted[RangeKey(link.ifindex, network)] = VipEntry(Kind.CLOSED, link_mac=link.mac, primary=primary)
    return wanted


def with_ranges(vips4: tuple[IPv4Address, IPv4Address], ranges: Iterable[RangeKey]) -> tuple[IPv4Address, IPv4Address]:
    """The first and last of all guarded IPv4 addresses, those of ranges among them; NO_VIP when there are none."""
    networks = [key.network for key in ranges if key.network.version == 4]
    spans = [vips4] if vips4[0] != NO_VIP else []
    spans += [(IPv4Address(int(net.network_address)), IPv4Address(int(net.broadcast_address))) for net in networks]
    return min((first for first, _ in spans), default=NO_VIP), max((last for _, last in spans), default=NO_VIP)


def strictest_of_ranges(mode: Mode, ranges: Mapping[RangeKey, VipEntry]) -> Mode:
    """The node's mode if an IPv6 range is closed; INHERIT if not."""
    return mode if any(key.network.version == 6 for key in ranges) else Mode.INHERIT


def range_of(address: Address, ifindex: int, ranges: Mapping[RangeKey, VipEntry]) -> tuple[RangeKey, VipEntry] | None:
    """The range that decides on a link about an address without an entry."""
    here = {key.network: (key, entry) for key, entry in ranges.items() if key.ifindex == ifindex}
    network = _smallest(address, here)
    return here[network] if network is not None else None


def _smallest(address: Address, networks: Iterable[Network]) -> Network | None:
    around = (network for network in networks if address in network)
    return max(around, key=lambda network: network.prefixlen, default=None)


def _is_in_any(network: Network, others: Iterable[Network]) -> bool:
    return any(RangeKey(0, network).is_in(RangeKey(0, other)) for other in others)
