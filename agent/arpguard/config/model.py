"""A whole, valid configuration as values, with the default of each setting."""

import fnmatch
import re
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from pathlib import Path

from arpguard.addresses import Address, Network
from arpguard.model import Datapath, Owner, OwnerKind, Vip
from arpguard.units import NS_PER_MS
from arpguard.verdict import Mode

CONFIG_KEY = "config.yaml"  # of the ConfigMap that has the configuration
_ELECTED = Owner(OwnerKind.ELECT)
MAX_INTERFACES = 256
NOT_A_PIN_DIR = (Path("/"), Path("/sys/fs/bpf"))
_HOST_PORT = re.compile(r"(?:\[(?P<host6>[0-9a-fA-F:.]+)\]|(?P<host>[0-9.]+)):[0-9]{1,5}")


class SelectorKind(Enum):
    """How an `interfaces:` item names links."""

    AUTO = "auto"
    NAME = "name"
    GLOB = "glob"
    CIDR = "cidr"
    CAN_REACH = "can_reach"


@dataclass(frozen=True, slots=True)
class InterfaceSelector:
    """One item of `interfaces:`; `pattern` for names and globs, `network` or `address` for the other kinds."""

    kind: SelectorKind
    pattern: str = ""
    network: Network | None = None
    address: Address | None = None

    def matches(self, name: str) -> bool:
        """Whether a link's name is meant by a NAME or GLOB selector."""
        return fnmatch.fnmatchcase(name, self.pattern)

    def __str__(self) -> str:
        if self.kind in (SelectorKind.NAME, SelectorKind.GLOB):
            return self.pattern
        argument = self.network or self.address
        return f"{self.kind.value}:{argument}" if argument else self.kind.value


class UnknownAddress(Enum):
    """What happens to frames about an address of a range that has no entry."""

    PASS = "pass"  # noqa: S105 - no password
    SUPPRESS = "suppress"


class VouchingProfile(Enum):
    """How soon a voucher counts a node that does not return its pings as dead."""

    FAST = "fast"
    DEFAULT = "default"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class VouchingConfig:
    """How nodes vouch for each other: the Secret that their frames are authenticated with, and the frames' EtherType.

    `profile` None: by what the node runs on. `asked`: whether the configuration says so; if not, the agent reports no
    problem without the right to the Secret.
    """

    secret: str = "arpguard-vouching"  # noqa: S105 - its name
    ethertype: int = 0x88B5  # IEEE 802 9.2.4: for local experiments
    profile: VouchingProfile | None = None
    asked: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Times of the node's lease in nanoseconds: how long it lasts, how often it is renewed, and the safety margin.

    `vouching` None: nodes do not vouch for each other.
    """

    duration_ns: int = 3000 * NS_PER_MS
    renew_ns: int = 1000 * NS_PER_MS
    margin_ns: int = 1000 * NS_PER_MS
    vouching: VouchingConfig | None = VouchingConfig()


@dataclass(frozen=True, slots=True)
class ServicesConfig:
    """Which Services bring VIPs, and who owns those by default; `hold`: whether they are `unfenced`.

    `owned_by`: whether owners write the annotation arpguard.io/owned-by.
    """

    enabled: bool = True
    selector: tuple[tuple[str, str], ...] = ()
    owner: Owner = _ELECTED
    hold: bool = False
    owned_by: bool = False


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """Where other announcers write who announces what: their namespaces, and kube-vip's Lease for all Services."""

    metallb: str = "metallb-system"
    cilium: str = "kube-system"
    openelb: str = "openelb-system"
    kube_vip: str = "kube-system"
    kube_vip_lease: str = "plndr-svcs-lock"


@dataclass(frozen=True, slots=True)
class KeepalivedConfig:
    """The FIFO that this node's keepalived writes its states to (`vrrp_notify_fifo`)."""

    fifo: Path = Path("/run/arpguard/keepalived/states")


@dataclass(frozen=True, slots=True)
class BpfConfig:
    """Where the kernel objects are pinned, and for how many (link, VIP) pairs there is room."""

    pin_dir: Path = Path("/sys/fs/bpf/arpguard")
    max_entries: int = 1024


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """PEM files of mutual TLS: this agent's certificate chain and key, and the CA that signed its clients'."""

    cert: Path
    key: Path
    client_ca: Path


@dataclass(frozen=True, slots=True)
class GrpcConfig:
    """Addresses that the API listens on, unix:///PATH or HOST:PORT; those that are not local speak mutual TLS."""

    listen: tuple[str, ...] = ("unix:///run/arpguard/agent.sock", "127.0.0.1:50051")
    tls: TlsConfig | None = None


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Address that Prometheus scrapes, HOST:PORT; empty: none."""

    listen: str = "0.0.0.0:9469"


@dataclass(frozen=True, slots=True)
class DecisionsConfig:
    """How many different decisions are remembered."""

    capacity: int = 10_000


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """How often every VIP is audited (0: never), and how many requests a node sends in a second."""

    every_ns: int = 60_000 * NS_PER_MS
    rate: int = 20


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """A whole, valid configuration. `closed`: those of `ranges` in which addresses without an entry are suppressed."""

    mode: Mode = Mode.OBSERVE
    datapath: Datapath = Datapath.AUTO
    interfaces: tuple[InterfaceSelector, ...] = (InterfaceSelector(SelectorKind.AUTO),)
    vips: tuple[Vip, ...] = ()
    ranges: tuple[Network, ...] = ()
    closed: tuple[Network, ...] = ()
    services: ServicesConfig = field(default_factory=ServicesConfig)
    follow: FollowConfig = field(default_factory=FollowConfig)
    keepalived: KeepalivedConfig = field(default_factory=KeepalivedConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    bpf: BpfConfig = field(default_factory=BpfConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    decisions: DecisionsConfig = field(default_factory=DecisionsConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)


def is_local(listen: str) -> bool:
    """Whether only this machine can reach an address of `grpc.listen`."""
    host = host_of(listen)
    return listen.startswith("unix:") or (host is not None and host.is_loopback)


def host_of(listen: str) -> Address | None:
    """The host of HOST:PORT, or None if it is not an IP address."""
    match = _HOST_PORT.fullmatch(listen)
    try:
        return ip_address(match["host"] or match["host6"]) if match else None
    except ValueError:
        return None
