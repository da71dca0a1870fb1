"""What follows from a snapshot, for all checks: which VIPs there are, which links face them, and who guards them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import TypeAlias

from arpguard.addresses import Address, address_order, vip_refusal
from arpguard.config.model import InterfaceSelector, SelectorKind
from arpguard.core.admission import Avoided, avoided
from arpguard.core.checkup.answering import kernel_answers, places
from arpguard.core.checkup.findings import Finding, listed
from arpguard.core.checkup.snapshot import AddressOnLink, AttachedProgram, ClusterView, Guard, Snapshot, Unread
from arpguard.core.choosing import Choice, choose_links
from arpguard.core.sourcing import Collected, Sourcing
from arpguard.model import EntryKey, Link, OwnerKind, Vip, VipEntry
from arpguard.verdict import Kind, Mode

MAX_ASKED = 64
KUBE_PROXY_DEVICE = "kube-ipvs0"
_EVERY_LINK = (InterfaceSelector(SelectorKind.GLOB, pattern="*"),)


@dataclass(frozen=True, slots=True)
class Cover:
    """What a guard has about a VIP on a link."""

    entry: VipEntry
    enforced: bool

    @property
    def kind(self) -> Kind:
        """Who may answer."""
        return self.entry.kind


class Picture:
    """A snapshot with its consequences."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.surroundings = snapshot.surroundings
        self.sysctls = snapshot.sysctls
        self.config = snapshot.config
        self._sourcing = Sourcing()

    # ---- VIPs ----

    @cached_property
    def avoided(self) -> Avoided:
        """Addresses that are not VIPs: gateways, the API server's, this node's own."""
        return avoided(self.surroundings, self.cluster.api_servers)

    @cached_property
    def cluster(self) -> ClusterView:
        """What the API server answered; an empty view where it could not be asked."""
        return self.snapshot.cluster if isinstance(self.snapshot.cluster, ClusterView) else ClusterView()

    @cached_property
    def collected(self) -> Collected:
        """What the agent would guard."""
        return self._sourcing.collect(self.config, self.cluster.services, {}, self.cluster.nodes, self.avoided)

    def refusals(self, address: Address) -> tuple[str, ...]:
        """Why the agent leaves an address alone."""
        _ = self.collected
        return self._sourcing.origin(address).refusals

    @cached_property
    def vips(self) -> dict[Address, Vip | None]:
        """Every known VIP, from whatever source; None: it was only found bound here, or in the kernel."""
        found: dict[Address, Vip | None] = dict(self.collected.vips)
        asked_for = [address for each in self.cluster.services.values() for address in each.addresses]
        entries = [key.vip for guard in self.guards for key in guard.entries]
        for address in (*asked_for, *entries, *self.stray):
            if address not in self.settled and vip_refusal(address) is None:
                found.setdefault(address, None)
        return {address: found[address] for address in sorted(found, key=address_order)}

    @cached_property
    def stray(self) -> tuple[Address, ...]:
        """Addresses in a link's subnet that are bound on a device where no host asks, or on the link as host addresses.

        A tunnel's own address (flannel.1) is the first of the Pods' network, which no host has.
        """
        found = (
            own.address
            for link in self.surroundings.links
            for own in link.addresses
            if link.loopback or link.no_arp or (own.network.prefixlen == 32 and link.reaches(own.address))
        )
        unique = dict.fromkeys(address for address in found if vip_refusal(address) is None)
        return tuple(address for address in unique if any(_is_host_on(link, address) for link in self.segments))

    @cached_property
    def settled(self) -> frozenset[Address]:
        """Addresses with a fixed owner: this node's, other nodes', gateways', the API server's."""
        return self.avoided.own | self.avoided.gateways | self.avoided.api_servers | self.cluster.node_of.keys()

    # ---- links ----

    @cached_property
    def fit(self) -> tuple[Link, ...]:
        """The links that could be guarded."""
        return choose_links(_EVERY_LINK, self.surroundings, ()).links

    @cached_property
    def segments(self) -> tuple[Link, ...]:
        """Those of them that have a network: a node has hundreds that have none, one for each Pod."""
        return tuple(link for link in self.fit if link.addresses or link.on_link)

    @cached_property
    def choice(self) -> Choice:
        """The links that the configuration names here and now."""
        return choose_links(self.config.interfaces, self.surroundings, [*self.collected.vips, *self.stray])

    @cached_property
    def facing(self) -> tuple[Link, ...]:
        """The links on which VIPs are asked for: chosen, guarded, or in a VIP's subnet."""
        guarded = {key.ifindex for guard in self.guards for key in guard.entries}
        chosen = {link.ifindex for link in self.choice.links} | guarded
        return tuple(
            link
            for link in self.fit
            if link.ifindex in chosen or (link in self.segments and any(link.reaches(vip) for vip in self.vips))
        )

    def facing_of(self, vip: Address) -> tuple[Link, ...]:
        """The links where hosts may ask for a VIP: in its subnet, else all that face any."""
        near = tuple(link for link in self.facing if link.up and link.reaches(vip))
        return near or tuple(link for link in self.facing if link.up)

    # ---- guards ----

    @cached_property
    def guards(self) -> tuple[Guard, ...]:
        """The guards of this node, as far as the doctor can see them."""
        return () if isinstance(self.snapshot.guards, Unread) else self.snapshot.guards

    @cached_property
    def programs(self) -> tuple[AttachedProgram, ...]:
        """Programs on the links, as far as the doctor can see them."""
        return () if isinstance(self.snapshot.programs, Unread) else self.snapshot.programs

    def cover(self, vip: Address, link: Link) -> Cover | None:
        """What a guard does about a VIP on a link; None where nothing is attached, or it has no entry."""
        for guard in self.guards:
            entry = guard.entries.get(EntryKey(link.ifindex, vip))
            if entry is not None and self._is_attached(guard, link):
                return Cover(entry, (entry.mode or guard.mode) is Mode.ENFORCE)
        return None

    def _is_attached(self, guard: Guard, link: Link) -> bool:
        hooks = {
            each.hook.rpartition(" ")[2]
            for each in self.programs
            if each.ifindex == link.ifindex and each.ours and each.pin_dir in ("", guard.pin_dir)
        }
        return "egress" in hooks and bool({"ingress", "xdp"} & hooks)

    # ---- who answers ----

    def kernel_answers(self, vip: Address, link: Link) -> bool:
        """Whether the kernel would answer for a VIP on a link, were there no guard."""
        return kernel_answers(vip, link, self.surroundings, self.sysctls, self.snapshot.host_scoped)

    def is_open(self, vip: Address, link: Link) -> bool:
        """Whether the kernel answers for a VIP on a link, and no guard has an entry for it there."""
        return self.kernel_answers(vip, link) and self.cover(vip, link) is None

    def this_node_answers(self, vip: Address, link: Link) -> bool:
        """Whether this node answers now, by the guard or by its kernel."""
        cover = self.cover(vip, link)
        if cover is None or not cover.enforced or cover.kind is Kind.DELEGATED:
            return self.kernel_answers(vip, link)
        return cover.kind is Kind.OWNED

    def is_of_others(self, vip: Address) -> bool:
        """Whether the configuration names another host as the VIP's owner, or has the cluster elect the owner."""
        known = self.vips.get(vip)
        if known is None:
            return False
        return known.owner.kind is not OwnerKind.NODE or known.owner.node != self.snapshot.node

    def bound_on(self, vip: Address) -> str:
        """Where a VIP is bound, in words; empty when it is not."""
        return listed(link.name + ("" if link.up else " (down)") for link in places(vip, self.surroundings))


def _is_host_on(link: Link, address: Address) -> bool:
    """Whether an address is a host's on the link, and not the first or last of its subnet (RFC 1122 3.2.1.3)."""
    networks = [own.network for own in link.addresses if own.network.version == 4 and own.network.prefixlen < 31]
    edges = {edge for network in networks for edge in (network.network_address, network.broadcast_address)}
    return link.reaches(address) and address not in edges


def questions(picture: Picture) -> tuple[tuple[AddressOnLink, ...], int]:
    """The requests to send, for VIPs on the links that face them and for nodes, and how many VIPs are left out.

    Requests for nodes tell their MACs from strangers'.
    """
    vips = list(picture.vips)
    wanted = [*vips[:MAX_ASKED], *list(picture.cluster.node_of)[:MAX_ASKED]]
    asked = [
        AddressOnLink(address, link.ifindex)
        for address in wanted
        if address not in picture.avoided.own
        for link in picture.facing_of(address)
        if link.reaches(address) or address in picture.vips
    ]
    return tuple(dict.fromkeys(asked)), max(0, len(vips) - MAX_ASKED)


Inspection: TypeAlias = Callable[[Picture], Iterator[Finding]]


def otherwise(verdict: Callable[[Picture], Finding]) -> Callable[[Inspection], Inspection]:
    """Completes a check with what it says where nothing is wrong."""

    def complete(look: Inspection) -> Inspection:
        @wraps(look)
        def check(picture: Picture) -> Iterator[Finding]:
            return iter(list(look(picture)) or [verdict(picture)])

        return check

    return complete
