"""The values that the layers exchange. No behaviour beyond what a value can say about itself."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from arpguard.addresses import ZERO_MAC, Address, MacAddress, Network, address_order, is_everywhere
from arpguard.overlay import Overlay
from arpguard.units import NS_PER_MS
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict


class EntryKey(NamedTuple):
    """A VIP on a link; entries, counters and decisions are all about one. Families do not compare: see `order`.

    A tuple, as nothing is looked up more often: hashing a dataclass takes twice as long.
    """

    ifindex: int
    vip: Address

    @property
    def order(self) -> tuple[int, int, int]:
        """What to sort by: link, family, address."""
        return self.ifindex, *address_order(self.vip)


@dataclass(frozen=True, slots=True)
class RangeKey:
    """A network on a link: for an address without an entry, the smallest network that it is in decides."""

    ifindex: int
    network: Network

    @property
    def order(self) -> tuple[int, int, int, int]:
        """What to sort by: link, family, address, length of the prefix."""
        return self.ifindex, *address_order(self.network.network_address), self.network.prefixlen

    def is_in(self, other: "RangeKey") -> bool:
        """Whether it is a part of another one, on the same link."""
        if (self.ifindex, self.network.version) != (other.ifindex, other.network.version):
            return False
        return self.network.subnet_of(other.network)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class VipEntry:
    """The kernel's entry for a VIP on a link, or for a range there (kinds CLOSED and OPEN).

    `primary` is the link's own address, of the VIP's family and scope; None when it has none.
    `unfenced`: owned without a fence; in epoch 0 forever, otherwise in the node's epoch only.
    """

    kind: Kind
    mode: Mode = Mode.INHERIT
    unfenced: bool = False
    epoch: int = 0
    link_mac: MacAddress = ZERO_MAC
    answer_mac: MacAddress = ZERO_MAC
    owner_mac: MacAddress = ZERO_MAC
    primary: Address | None = None

    def is_stale(self, control: "NodeControl") -> bool:
        """Whether it was made in another epoch than the node's."""
        static = self.unfenced and not self.epoch
        return not static and self.epoch != control.epoch


ALL_IPV4 = (IPv4Address(0), IPv4Address(0xFFFFFFFF))


@dataclass(frozen=True, slots=True)
class NodeControl:
    """The node's mode and fence. `fence_ns` is CLOCK_BOOTTIME nanoseconds; 0: passed.

    No IPv4 address outside `vips4` (first and last) is looked up at all. `strictest` is ENFORCE if any entry
    enforces: it is for frames that cannot be read far enough to tell which entry they are about. `strictest6` is the
    same of IPv6 entries and closed ranges, INHERIT when there is none. `closed`: there are ranges.
    `term` is the number of the one in which a voucher's grants bind this node, and `ethertype` that of frames of
    vouching; 0: there is none.
    """

    mode: Mode
    generation: int
    strictest: Mode = Mode.ENFORCE
    strictest6: Mode = Mode.INHERIT
    closed: bool = False
    epoch: int = 0
    fence_ns: int = 0
    lease_ns: int = 0
    vips4: tuple[IPv4Address, IPv4Address] = ALL_IPV4
    term: int = 0
    ethertype: int = 0

    def trusted_fence_ns(self, now_ns: int) -> int:
        """The fence as programs take it: one further ahead than `lease_ns` is a mistake, and has passed (0)."""
        return _trusted_ns(self.fence_ns, self.lease_ns, now_ns)


@dataclass(frozen=True, slots=True)
class LinkTerm:
    """The term whose pings and grants a link takes: its number, the key of its frames, and d - m (`window_ns`)."""

    number: int
    key: bytes = field(repr=False)
    window_ns: int


UNHEARD_NS = 150 * NS_PER_MS  # three pings


@dataclass(frozen=True, slots=True)
class Grants:
    """What the kernel has of its voucher: only programs change it. Times are CLOCK_BOOTTIME nanoseconds.

    `fence_ns` counts while `bound_term` is the node's present term; one further ahead than `window_ns` has passed.
    `pinged_ns`: when the latest ping came.
    """

    fence_ns: int = 0
    bound_term: int = 0
    window_ns: int = 0
    pinged_ns: int = field(default=0, compare=False)

    def binds(self, term: int) -> bool:
        """Whether a node with this term answers before its voucher's fence only; 0: it has none."""
        return term != 0 and self.bound_term == term

    @property
    def is_unheard(self) -> bool:
        """Whether pings came for long after the last one whose pong was granted: the voucher may not hear the pongs."""
        return self.pinged_ns - (self.fence_ns - self.window_ns) > UNHEARD_NS

    def trusted_fence_ns(self, now_ns: int) -> int:
        """The voucher's fence as programs take it: one further ahead than `window_ns` has passed (0)."""
        return _trusted_ns(self.fence_ns, self.window_ns, now_ns)


def _trusted_ns(fence_ns: int, furthest_ns: int, now_ns: int) -> int:
    return fence_ns if fence_ns - now_ns <= furthest_ns else 0


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An address on a link with its prefix length.

    Of IPv6 addresses (RFC 4862, RFC 8981), one that is not `usable` is tentative or was found taken, a `deprecated`
    one is not for new conversations, and a `temporary` one changes every day.
    """

    address: Address
    network: Network
    usable: bool = True
    deprecated: bool = False
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A network device of this node. `kind` is rtnetlink's (veth, bridge, vlan...), empty for hardware.

    `up`: it is set up, and frames come and go (RFC 2863: it has a carrier, and is not dormant). `losses`: how often
    it lost its carrier, however short that was.
    `mtu`: nothing reads it, but one that changes makes another link: below IPv6's the kernel forgets multicast groups.
    `parent` is the device that a macvlan shares its segment with, if that is in this network namespace.
    `alternatives` are its other names (`ip link property add altname`). `on_link` are further networks on the
    segment: a route without a next hop leads there, though the link has no address in them.
    Of the `addresses` in a family the oldest comes first, but for link-local ones of IPv6, which are the last.
    """

    ifindex: int
    name: str
    mac: MacAddress
    up: bool
    mtu: int = 1500
    kind: str = ""
    loopback: bool = False
    no_arp: bool = False
    ethernet: bool = True
    master: int = 0
    parent: int = 0
    addresses: tuple[InterfaceAddress, ...] = ()
    alternatives: tuple[str, ...] = ()
    on_link: tuple[Network, ...] = ()
    losses: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be called by: its name, and its other names."""
        return self.name, *self.alternatives

    @property
    def subnets(self) -> tuple[Network, ...]:
        """The networks on its segment. A host address is not a subnet, nor is what every link has (fe80::/64)."""
        networks = dict.fromkeys([*(own.network for own in self.addresses), *self.on_link])
        return tuple(network for network in networks if network.num_addresses > 1 and not is_everywhere(network))

    def reaches(self, address: Address) -> bool:
        """Whether neighbours on its segment ask for an address there, and not for a router's."""
        return any(address in network for network in self.subnets)


class GroupMembership(NamedTuple):
    """A multicast group on a link, that a host listens to."""

    ifindex: int
    group: IPv6Address


@dataclass(frozen=True, slots=True)
class Route:
    """A route of any table but `local`. `via` is the next hop.

    `ifindex` is 0 for a route that leads nowhere (blackhole, unreachable, prohibit). `main`: of the table that is
    looked up for everybody; other tables are for what `ip rule` singles out.
    """

    network: Network
    ifindex: int
    metric: int = 0
    via: Address | None = None
    main: bool = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rtnetlink says of this network namespace."""

    links: tuple[Link, ...] = ()
    routes: tuple[Route, ...] = ()

    def link(self, ifindex: int) -> Link | None:
        """The link with this index, if there is one."""
        return next((link for link in self.links if link.ifindex == ifindex), None)


class OwnerKind(Enum):
    """How a configuration names the owner of a VIP."""

    NODE = "node"
    EXTERNAL = "external"
    ELECT = "elect"
    FOLLOW = "follow"
    KEEPALIVED = "keepalived"


@dataclass(frozen=True, slots=True)
class Owner:
    """Who is to answer.

    A node (itself, or a program on it), a host outside the cluster (perhaps pinned to a MAC), whichever node
    the cluster elects, the node that another announcer is found to have chosen (`node` empty: none yet), or the node
    whose keepalived has an instance of that name as MASTER (`node` empty: not this node).
    """

    kind: OwnerKind
    node: str = ""
    delegated: bool = False
    mac: MacAddress | None = None
    instance: str = ""

    def __str__(self) -> str:
        if self.kind is OwnerKind.KEEPALIVED:
            return f"keepalived {self.instance}"
        if self.kind is OwnerKind.NODE:
            return f"{self.node} (delegated)" if self.delegated else self.node
        if self.kind is OwnerKind.FOLLOW:
            return f"follow ({self.node or 'nobody yet'})"
        return f"{self.kind.value} {self.mac}" if self.mac else self.kind.value


SERVICE_SOURCE = "service "  # and namespace/name


@dataclass(frozen=True, slots=True)
class Vip:
    """A guarded address, its owner, and its own mode if it has one.

    `source` names the object that makes it a VIP ("service shop/web"), and is empty for an item of `vips:`.
    `interface`: the only link to guard it on. `nodes`: the only ones that may own it, if it is elected (None: any).
    `unfenced` (`hold` in the configuration): its owner answers on while the API server is down, so that for a time two
    nodes may answer.
    `lead`: the VIP whose owner is to own this one too; of a dual-stack Service's IPv6 addresses its first IPv4 one.
    """

    address: Address
    owner: Owner
    mode: Mode = Mode.INHERIT
    source: str = ""
    interface: str = ""
    nodes: frozenset[str] | None = None
    unfenced: bool = False
    lead: Address | None = None

    @property
    def elected(self) -> bool:
        """Whether the cluster elects its owner."""
        return self.owner.kind is OwnerKind.ELECT

    @property
    def settings(self) -> tuple[Owner, Mode, str, bool]:
        """What all addresses of a Service have in common, and what sources that share an address agree on."""
        return self.owner, self.mode, self.interface, self.unfenced

    @property
    def service(self) -> tuple[str, str] | None:
        """Namespace and name of the Service that it is from; None for an item of `vips:`."""
        namespace, _, name = self.source.removeprefix(SERVICE_SOURCE).partition("/")
        return (namespace, name) if self.source else None


@dataclass(frozen=True, slots=True)
class Standing:
    """Who has an elected VIP, as far as this node knows.

    `epoch` (the kernel's number) is of this node's claim; `mac` is that of the owner, where it is known.
    """

    kind: Kind
    epoch: int = 0
    mac: MacAddress = ZERO_MAC


class Datapath(Enum):
    """Which hook judges incoming frames."""

    AUTO = "auto"
    TC = "tc"
    XDP = "xdp"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A program on a link, as the kernel reports it. `how` is tcx, clsact or xdp; `fresh`: attached just now."""

    ifindex: int
    hook: Hook
    how: str
    program_id: int
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of the kernel; `time_ns` is CLOCK_BOOTTIME. Two that differ in nothing else are equal."""

    time_ns: int = field(compare=False)
    key: EntryKey
    verdict: Verdict
    reason: Reason
    hook: Hook
    mode: Mode
    kind: Kind
    op: int
    spa: Address
    tpa: Address
    sha: MacAddress
    tha: MacAddress
    eth_src: MacAddress
    eth_dst: MacAddress


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts by reason, summed over CPUs: what was carried out, and what was only observed."""

    enforced: dict[Reason, int] = field(default_factory=dict)
    observed: dict[Reason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventAccount:
    """Events the kernel produced: delivered to the ring buffer, kept back by the rate limit, lost to a full ring."""

    delivered: int
    limited: int
    lost: int


@dataclass(slots=True)
class Drift:
    """Changes by other programs that the agent found and repaired, since it started."""

    entries: int = 0
    programs: int = 0
    control: int = 0


@dataclass(slots=True)
class NodeState:
    """What the last pass of the reconciler, and elections since then, found and did.

    `ownership_changes` counts VIPs that this node began or ceased to speak for, since the agent started.
    `left_out` are the entries that found no room in the kernel's map. `ranges` are those in which addresses without an
    entry are suppressed, and the exceptions in them.
    """

    links: tuple[Link, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    guarded: Overlay[EntryKey, VipEntry] = field(default_factory=Overlay)
    ranges: dict[RangeKey, VipEntry] = field(default_factory=dict)
    control: NodeControl | None = None
    problems: tuple[str, ...] = ()
    drift: Drift = field(default_factory=Drift)
    ownership_changes: int = 0
    left_out: frozenset[EntryKey] = frozenset()
    _ordered: tuple[dict[EntryKey, VipEntry], list[EntryKey]] | None = None
    _counted: tuple[dict[EntryKey, VipEntry], list[tuple[VipEntry, int]]] | None = None

    @property
    def entries(self) -> dict[EntryKey, VipEntry]:
        """What the kernel has: another object when it is something else."""
        return self.guarded.whole

    @property
    def variety(self) -> list[tuple[VipEntry, int]]:
        """The different entries, and how many there are of each: of 100,000 VIPs nearly all have one of a few."""
        if self._counted is None or self._counted[0] is not self.entries:
            same = {id(entry): entry for entry in self.entries.values()}
            counts = Counter(map(id, self.entries.values()))
            self._counted = self.entries, [(same[number], count) for number, count in counts.items()]
        return self._counted[1]

    @property
    def keys(self) -> list[EntryKey]:
        """The keys of `entries` by link and address."""
        if self._ordered is None or self._ordered[0] is not self.entries:
            self._ordered = self.entries, sorted(self.entries, key=lambda key: key.order)
        return self._ordered[1]
