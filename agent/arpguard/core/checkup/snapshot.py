"""What the doctor has found. What it could not read is `Unread`, with the reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from arpguard.addresses import Address, MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.checkup.sysctls import Sysctls
from arpguard.core.cluster import Node, Service
from arpguard.model import EntryKey, Surroundings, VipEntry
from arpguard.verdict import Mode

T = TypeVar("T")

_RECENT_S = 600


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read, and why."""

    why: str


class UnreadError(Exception):
    """A check needs what could not be read: its result is `unknown`, for that reason."""


def needed(found: T | Unread) -> T:
    """What a check cannot do without. Raises UnreadError."""
    if isinstance(found, Unread):
        raise UnreadError(found.why)
    return found


NOT_ASKED = Unread("the doctor did not ask")


@dataclass(frozen=True, slots=True)
class AttachedProgram:
    """A BPF program on a link. `place` is its position at the hook, 0 first; `pin_dir`: of the guard that has it.

    `hook` is "tcx ingress", "tcx egress", "clsact ingress", "clsact egress" or "xdp".
    """

    ifindex: int
    hook: str
    place: int
    id: int
    name: str = ""
    ours: bool = False
    pin_dir: str = ""


@dataclass(frozen=True, slots=True)
class Guard:
    """What an agent has pinned for links of this network namespace, or is configured to pin.

    `running`: whether an agent has the folder locked, None where that cannot be seen. `mode` is None before the kernel
    has one.
    """

    pin_dir: str
    running: bool | None = None
    mode: Mode | None = None
    entries: Mapping[EntryKey, VipEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KubeProxy:
    """What kube-proxy's ConfigMap says; `mode` is empty for the default."""

    mode: str = ""
    strict_arp: bool = False


@dataclass(frozen=True, slots=True)
class Eip:
    """An address pool of OpenELB whose `interface` is can_reach:ADDRESS."""

    name: str
    address: Address


@dataclass(frozen=True, slots=True)
class Followable:
    """A kind of object that names an announcing node (`core.following.Source`); `unread`: why it cannot be read."""

    kind: str
    unread: str = ""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the API server said."""

    services: Mapping[tuple[str, str], Service] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    api_servers: frozenset[Address] = frozenset()
    kube_proxy: KubeProxy | Unread = NOT_ASKED
    eips: tuple[Eip, ...] | Unread = ()
    announcers: tuple[Followable, ...] = ()

    @property
    def node_of(self) -> dict[Address, str]:
        """The names of nodes by their addresses."""
        return {address: name for name, node in self.nodes.items() for address in node.addresses}


@dataclass(frozen=True, slots=True)
class AddressOnLink:
    """An address that is asked for on a link."""

    address: Address
    ifindex: int


@dataclass(frozen=True, slots=True)
class Wire:
    """The hosts that answered, by request; `left_out`: how many VIPs got no request, because there were too many."""

    answers: Mapping[AddressOnLink, tuple[MacAddress, ...]] = field(default_factory=dict)
    unheard: Mapping[int, str] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Rival:
    """A claim to a VIP, as the running agent reports it. `who`: the host in words; `of_node`: it is a cluster node."""

    vip: str
    link: str
    mac: str
    who: str
    count: int = 1
    of_node: bool = False
    ago_s: float = 0.0

    @property
    def is_recent(self) -> bool:
        """Whether it still matters."""
        return self.ago_s < _RECENT_S


@dataclass(frozen=True, slots=True)
class AgentWord:
    """What the running agent says about itself. `lacks_right`: to vouching's Secret; vouching is only a default."""

    node: str
    problems: tuple[str, ...] = ()
    claims: tuple[Rival, ...] = ()
    lacks_right: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """The kernel, and what is installed. `jited`: the kernel compiled a small program that was loaded to find out.

    `virtual`: whether the machine runs on a hypervisor, None if that is unknown.
    """

    release: str = ""
    jited: bool | Unread = True
    tcx: bool | Unread = True
    bpffs: bool = True
    capabilities: frozenset[str] = frozenset()
    clock: str | Unread = "tsc"
    virtual: bool | None = None
    strips_tags: frozenset[str] = frozenset()


KernelRoutes: TypeAlias = Mapping[Address, str | Unread]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the doctor found. `config` is the default one if `source`, the file or ConfigMap, is empty.

    `host_scoped`: addresses that the kernel keeps to this host (`scope host`). `kernel_routes`: the link that the
    kernel names for an address, `local` table included, as `ip route get` does.
    """

    node: str
    surroundings: Surroundings
    config: AgentConfig = field(default_factory=AgentConfig)
    source: str = ""
    start: str = ""
    host_scoped: frozenset[Address] = frozenset()
    sysctls: Sysctls = field(default_factory=Sysctls)
    kernel_routes: KernelRoutes = field(default_factory=dict)
    guards: tuple[Guard, ...] | Unread = ()
    programs: tuple[AttachedProgram, ...] | Unread = ()
    machine: Machine = field(default_factory=Machine)
    cluster: ClusterView | Unread = NOT_ASKED
    wire: Wire | Unread = NOT_ASKED
    agent: AgentWord | Unread = NOT_ASKED
