"""What the kernel does about ARP and neighbour discovery without a guard: arp_process() and ndisc_recv_ns().

An address on any device is local, also on one that is down or does not speak ARP: the route in the table `local` is
there either way. Linux answers ARP for it on every link that is asked, unless `arp_ignore` *of that link* says no.
IPv6 is answered on the link that has the address, and nowhere else.
"""

from arpguard.addresses import Address
from arpguard.core.checkup.sysctls import Sysctls
from arpguard.core.choosing import route_to
from arpguard.model import Link, Surroundings


def places(address: Address, surroundings: Surroundings) -> tuple[Link, ...]:
    """The devices that an address is bound on."""
    return tuple(link for link in surroundings.links if any(own.address == address for own in link.addresses))


def has(link: Link, address: Address) -> bool:
    """Whether a link has the address itself, and may use it: one that was found taken may not be used."""
    return any(own.address == address and own.usable for own in link.addresses)


def in_subnet(link: Link, address: Address) -> bool:
    """Whether one of the link's addresses has the address in its subnet. A host address is not a subnet."""
    return any(own.network.num_addresses > 1 and address in own.network for own in link.addresses)


def kernel_answers(
    address: Address, link: Link, surroundings: Surroundings, sysctls: Sysctls, host_scoped: frozenset[Address]
) -> bool:
    """Whether the kernel answers a neighbour in the link's subnet that asks for the address there."""
    if not places(address, surroundings):
        return _answers_as_proxy(address, link, surroundings, sysctls)
    if address.version == 6:
        return has(link, address)
    ignore = sysctls.effective("ipv4/arp_ignore", link.name) or 0
    refusals = {
        1: not has(link, address),
        2: not (has(link, address) and in_subnet(link, address)),
        3: address in host_scoped,
        8: True,
    }
    return not refusals.get(ignore, False)


def leaks(address: Address, link: Link, sysctls: Sysctls) -> bool:
    """Whether the kernel asks in the name of an address of this node that it sends from: arp_solicit()."""
    if address.version == 6:
        return False
    announce = sysctls.effective("ipv4/arp_announce", link.name) or 0
    return announce == 0 or (announce == 1 and in_subnet(link, address))


def _answers_as_proxy(address: Address, link: Link, surroundings: Surroundings, sysctls: Sysctls) -> bool:
    """proxy_arp: for whatever this node forwards to another link."""
    if address.version == 6 or not sysctls.effective("ipv4/proxy_arp", link.name):
        return False
    route = route_to(address, surroundings.routes)
    forwards = bool(sysctls.effective("ipv4/forwarding", link.name))
    return forwards and route is not None and route.ifindex not in (0, link.ifindex)
