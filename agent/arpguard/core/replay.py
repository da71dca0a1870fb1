"""What a capture is replayed against: the node as the configuration has it, on a link whose MAC alone matters.

Each node whose MAC is given has a link of its own, so that its frames can be judged as its guard would have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_network

from arpguard.addresses import ZERO_MAC, Address, MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.desired import primary_addresses, strictest6_mode, strictest_mode, vips4_of, wanted_entries
from arpguard.model import EntryKey, InterfaceAddress, Link, NodeControl, Owner, OwnerKind, Standing, Vip, VipEntry
from arpguard.verdict import Kind, Mode, Reason, Verdict
from arpguard.wire.capture import Captured
from arpguard.wire.cooked import LINKTYPE_ETHERNET, LINKTYPE_SLL, LINKTYPE_SLL2, Uncooked, uncooked
from arpguard.wire.ethernet import ETHERTYPE_ARP, ETHERTYPE_IPV6, VLAN_ETHERTYPES

PLACEHOLDER_MAC = MacAddress.parse("02:ff:ff:ff:ff:fd")  # locally administered, and used by no host
PLACEHOLDER_ADDRESSES = (IPv4Address("192.0.0.8"), IPv6Address("100::8"))  # RFC 7600, RFC 6666
OWN_LINK = 1
_HEADER_LEN, _TAG_LEN, _ARP_LEN, _IPV6_LEN = 14, 4, 28, 40
_LONGEST = 2000  # what fits a test run, which takes one page, and its answer
_LONGEST_ARP = 1514  # what is behind an ARP body means nothing
_ICMPV6, _ND_TYPES = 58, (135, 136)
_EXTENSION_HEADERS = (0, 43, 44, 60)
_COOKED = (LINKTYPE_SLL, LINKTYPE_SLL2)


@dataclass(frozen=True, slots=True)
class ReplayScene:
    """The node to replay for, and what replay assumes.

    `owners`: of elected VIPs, which no file names. `macs`: with the nodes that have them; a node's first is its
    link's. `addresses`: this node's own on the link. `link` and `vlan` choose from the capture; empty and None: all.
    """

    node: str
    config: AgentConfig
    mode: Mode = Mode.INHERIT
    owners: Mapping[Address, str] = field(default_factory=dict)
    macs: Mapping[MacAddress, str] = field(default_factory=dict)
    addresses: Sequence[Address] = ()
    link: str = ""
    vlan: int | None = None

    @property
    def own_mac(self) -> MacAddress | None:
        """This node's MAC on the captured link, if it is given."""
        return self._mac_of(self.node)

    @property
    def vips(self) -> list[Vip]:
        """The VIPs of the configuration, and those that only have an owner here; `mode` overrides their own mode."""
        named = {vip.address: vip for vip in self.config.vips}
        for address in self.owners:
            known = named.get(address, Vip(address, Owner(OwnerKind.ELECT)))
            named[address] = replace(known, owner=Owner(OwnerKind.ELECT))
        return [replace(vip, mode=Mode.INHERIT) if self.mode else vip for vip in named.values()]

    def control(self, entries: Mapping[EntryKey, VipEntry]) -> NodeControl:
        """The node's control value. No entry needs a fence: none passes in a capture."""
        mode = self.mode or self.config.mode
        return NodeControl(
            mode=mode,
            generation=1,
            strictest=strictest_mode(mode, entries),
            strictest6=strictest6_mode(mode, entries),
            vips4=vips4_of(entries),
        )

    def entries(self) -> dict[EntryKey, VipEntry]:
        """The entries of this node, and those of the others whose MAC is given, each on its link."""
        vips = self.vips
        found: dict[EntryKey, VipEntry] = {}
        for node, ifindex in self._links().items():
            found |= self._entries_of(node, self._link(ifindex, node), vips)
        return found

    def links(self) -> dict[MacAddress, int]:
        """The index of the link of each given MAC."""
        links = self._links()
        return {mac: links[node] for mac, node in self.macs.items()}

    def _links(self) -> dict[str, int]:
        """This node, and the others whose MAC is given."""
        return {node: ifindex for ifindex, node in enumerate(dict.fromkeys((self.node, *self.macs.values())), OWN_LINK)}

    def _entries_of(self, node: str, link: Link, vips: Sequence[Vip]) -> dict[EntryKey, VipEntry]:
        standings = {address: self._standing(owner, node) for address, owner in self.owners.items()}
        primaries = primary_addresses([link], [vip.address for vip in vips])
        return wanted_entries(vips, [link], [], primaries, node, standings)

    def _mac_of(self, node: str) -> MacAddress | None:
        return next((mac for mac, name in self.macs.items() if name == node), None)

    def _standing(self, owner: str, node: str) -> Standing:
        """Of an elected VIP an agent knows the owner's MAC, too."""
        if owner == node:
            return Standing(Kind.OWNED)
        return Standing(Kind.FOREIGN, mac=self._mac_of(owner) or ZERO_MAC)

    def _link(self, ifindex: int, node: str) -> Link:
        own = self.addresses if node == self.node else ()
        versions = {address.version for address in own}
        others = [address for address in PLACEHOLDER_ADDRESSES if address.version not in versions]
        return Link(
            ifindex=ifindex,
            name="capture",
            mac=self._mac_of(node) or PLACEHOLDER_MAC,
            up=True,
            addresses=tuple(InterfaceAddress(each, ip_network(each)) for each in (*own, *others)),
        )


# ---- frames ------------------------------------------------------------------------------------------------------


class Protocol(Enum):
    """The protocols that are judged."""

    ARP = "ARP"
    NDP = "NDP"


class Passed(Enum):
    """Why a frame of the capture is not judged."""

    OTHER_TYPE = "of a link type that is not read"
    OTHER_LINK = "of other interfaces"
    OTHER_VLAN = "of other VLANs"
    TOO_SHORT = "shorter than an Ethernet header"
    TOO_LONG = "too long for a test run of the programs"
    CUT_OFF = "cut off by the capture before their end"
    OTHER = "neither ARP nor NDP"


@dataclass(frozen=True, slots=True)
class Seen:
    """A frame as it was on the link, and whether this node sent it."""

    frame: bytes
    outgoing: bool
    link: str
    protocol: Protocol

    @property
    def source(self) -> MacAddress:
        """The MAC of the host that sent the frame."""
        return MacAddress(self.frame[6:12])


def look_at(captured: Captured, scene: ReplayScene) -> Seen | Passed:
    """The frame in a record of the capture, if it is ARP or NDP, and the scene is about it."""
    found = _on_ethernet(captured, scene)
    if isinstance(found, Passed):
        return found

    frame = found.frame if scene.vlan is None else _on_vlan(found.frame, scene.vlan)
    if frame is None:
        return Passed.OTHER_VLAN

    protocol, at = _protocol(frame)
    if protocol is None:
        return Passed.OTHER if len(frame) >= _HEADER_LEN else Passed.TOO_SHORT
    if captured.length > len(captured.data) and not _is_enough(protocol, frame[at:]):
        return Passed.CUT_OFF

    frame = frame[:_LONGEST_ARP] if protocol is Protocol.ARP else frame
    if len(frame) > _LONGEST:
        return Passed.TOO_LONG

    sent = scene.macs.get(MacAddress(frame[6:12])) == scene.node
    return Seen(frame, sent or found.outgoing, found.link, protocol)


def _on_ethernet(captured: Captured, scene: ReplayScene) -> Uncooked | Passed:
    """The frame as it was on an interface that the scene is about."""
    if captured.linktype == LINKTYPE_ETHERNET:
        found: Uncooked | None = Uncooked(captured.data, bool(captured.outgoing), captured.link)
    elif captured.linktype in _COOKED:
        found = uncooked(captured.linktype, captured.data, scene.own_mac or PLACEHOLDER_MAC)
    else:
        found = None
    if found is None:
        return Passed.OTHER_TYPE
    if scene.link and scene.link not in (found.link, captured.link):
        return Passed.OTHER_LINK
    return found if found.link else found._replace(link=captured.link)


def _is_enough(protocol: Protocol, body: bytes) -> bool:
    """Whether what is left of a frame that was cut off is judged like the whole: of ARP, all but padding."""
    return protocol is Protocol.ARP and len(body) >= _ARP_LEN


def _on_vlan(frame: bytes, vid: int) -> bytes | None:
    """The frame as it is on the device of its VLAN, without the outermost tag; None for one of another VLAN."""
    tagged = int.from_bytes(frame[12:14], "big") in VLAN_ETHERTYPES and len(frame) >= _HEADER_LEN + _TAG_LEN
    if not tagged or int.from_bytes(frame[14:16], "big") & 0xFFF != vid:
        return None
    return frame[:12] + frame[16:]


def _protocol(frame: bytes) -> tuple[Protocol | None, int]:
    """What is behind the tags, and where; extension headers may hide NDP, and the program will tell."""
    at = 12
    ethertype = int.from_bytes(frame[12:14], "big")
    while ethertype in VLAN_ETHERTYPES:
        at += _TAG_LEN
        ethertype = int.from_bytes(frame[at : at + 2], "big")
    body = at + 2
    if ethertype == ETHERTYPE_ARP:
        return Protocol.ARP, body
    if ethertype == ETHERTYPE_IPV6 and len(frame) > body + _IPV6_LEN:
        following = frame[body + 6]
        asks = following == _ICMPV6 and frame[body + _IPV6_LEN] in _ND_TYPES
        return (Protocol.NDP if asks or following in _EXTENSION_HEADERS else None), body
    return None, body


# ---- decisions ---------------------------------------------------------------------------------------------------

ABOUT_NO_VIP = frozenset(
    {Reason.NOT_GUARDED, Reason.OTHER_VLAN, Reason.NOT_ARP, Reason.NOT_ND, Reason.UNWALKABLE, Reason.UNCONFIGURED}
)
_ABOUT_TARGET = frozenset(range(Reason.ANSWERED, Reason.OWN_ECHO)) | {
    Reason.ND_INVALID,
    Reason.ND_CHECKSUM,
    Reason.UNVOUCHED,
}


@dataclass(frozen=True, slots=True)
class About:
    """A decision, and the VIP that it is about; None: it is about no VIP, or the VIP is unknown."""

    vip: Address | None
    verdict: Verdict
    reason: Reason


def attributed(
    decisions: Sequence[tuple[Verdict, Reason]],
    claimed: Address | None,
    asked: Address | None,
    vips: Mapping[Address, object],
) -> tuple[About, ...]:
    """Assigns the decisions about a frame to VIPs: of two, the sender's address comes first."""
    if len(decisions) == 2:
        return tuple(About(vip, *decision) for vip, decision in zip((claimed, asked), decisions, strict=True))
    return tuple(About(_only_one(reason, claimed, asked, vips), verdict, reason) for verdict, reason in decisions)


def _only_one(
    reason: Reason, claimed: Address | None, asked: Address | None, vips: Mapping[Address, object]
) -> Address | None:
    if reason in ABOUT_NO_VIP:
        return None
    likely, other = (asked, claimed) if reason in _ABOUT_TARGET else (claimed, asked)
    return likely if likely in vips else other
