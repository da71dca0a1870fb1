"""The configuration: a YAML file (or the ConfigMap key of the same name) to an `AgentConfig`, or all its problems.

Scalars are read as text and given their type by the field they stand in. So a MAC such as 12:34:56:10:20:30,
which YAML 1.1 takes for a number in base 60, and a node called "no" are what they look like.
"""

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeAlias, TypeVar

import yaml

from arpguard.addresses import Address, MacAddress, Network, vip_refusal
from arpguard.errors import ConfigError, Problem
from arpguard.model import Datapath, Owner, OwnerKind, Vip
from arpguard.names import is_label, is_subdomain
from arpguard.units import NS_PER_MS
from arpguard.verdict import Mode

T = TypeVar("T")
Raw: TypeAlias = Any  # what YAML gives: str, list or dict, nested

# What anybody may put into a file is bounded: bytes, values (a VIP is about seven), and what is said of it all.
MAX_FILE_BYTES = 32 << 20
MAX_VALUES = 1 << 21
MAX_PROBLEMS = 100
MAX_INTERFACES = 256
MAX_LISTEN = 16
MAX_LABELS = 64
MAX_CLOSED = 64
_MAX_DEPTH = 16
_ANY_IFNAME = re.compile(r"[^\s/:]{1,127}")  # altnames are longer (linux/if.h: ALTIFNAMSIZ)
# In ASCII: Python takes the digits of all scripts for digits.
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)(ms|s|m)")
_DURATION_NS = {"ms": NS_PER_MS, "s": 1000 * NS_PER_MS, "m": 60_000 * NS_PER_MS}
_HOST_PORT = re.compile(r"(?:\[(?P<host6>[0-9a-fA-F:.]+)\]|(?P<host>[0-9.]+)):(?P<port>[0-9]{1,5})")
_MAX_UNIX_URL = len("unix://") + 107  # unix(7): sun_path
_MAX_PIN_DIR = 1024  # bytes, a quarter of PATH_MAX: there are folders and files below it
NOT_A_PIN_DIR = (Path("/"), Path("/sys/fs/bpf"))
_TRUTH = {"true": True, "false": False}
# Of IPv6 all but global unicast and unique local addresses (RFC 4291 2.4, RFC 4193 3.1).
_NEVER_CLOSED: tuple[Network, ...] = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"),
        *("::/3", "4000::/2", "8000::/2", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/7"),
    )
)


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


class Unknown(Enum):
    """What becomes of frames about an address of a range that no entry is about."""

    PASS = "pass"  # noqa: S105 - no password
    SUPPRESS = "suppress"


@dataclass(frozen=True, slots=True)
class LeaseConfig:
    """Times of the node's lease in nanoseconds: how long it lasts, how often it is renewed, and the safety margin."""

    duration_ns: int = 3000 * NS_PER_MS
    renew_ns: int = 1000 * NS_PER_MS
    margin_ns: int = 1000 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class ServicesConfig:
    """Which Services bring VIPs, and who owns those by default; `hold` as in `Vip`."""

    enabled: bool = True
    selector: tuple[tuple[str, str], ...] = ()
    owner: str = "elect"
    hold: bool = False


@dataclass(frozen=True, slots=True)
class FollowConfig:
    """Where other announcers write who announces what: their namespaces, and kube-vip's Lease for all Services."""

    metallb: str = "metallb-system"
    cilium: str = "kube-system"
    openelb: str = "openelb-system"
    kube_vip: str = "kube-system"
    kube_vip_lease: str = "plndr-svcs-lock"


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
class AgentConfig:
    """A whole, valid configuration. `closed`: those of `ranges` in which what no entry is about is suppressed."""

    mode: Mode = Mode.OBSERVE
    datapath: Datapath = Datapath.AUTO
    interfaces: tuple[InterfaceSelector, ...] = (InterfaceSelector(SelectorKind.AUTO),)
    vips: tuple[Vip, ...] = ()
    ranges: tuple[Network, ...] = ()
    closed: tuple[Network, ...] = ()
    services: ServicesConfig = field(default_factory=ServicesConfig)
    follow: FollowConfig = field(default_factory=FollowConfig)
    lease: LeaseConfig = field(default_factory=LeaseConfig)
    bpf: BpfConfig = field(default_factory=BpfConfig)
    grpc: GrpcConfig = field(default_factory=GrpcConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    decisions: DecisionsConfig = field(default_factory=DecisionsConfig)


def read_config(path: Path) -> AgentConfig:
    """The configuration in a file; ConfigError with every problem in it, also when it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), [Problem("(file)", "no regular file", "name a readable YAML file")])
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(str(path), [Problem("(file)", "too large", f"at most {MAX_FILE_BYTES >> 20} MiB")])
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(str(path), [Problem("(file)", reason, "name a readable YAML file")]) from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "configuration") -> AgentConfig:
    """The configuration in YAML text; ConfigError with its problems, all or MAX_PROBLEMS. `source` is named in it."""
    problems = _Problems()
    try:
        raw = _Composer(text).document()
    except yaml.YAMLError as error:
        raise ConfigError(source, [_yaml_problem(error)]) from error
    config = _Reader(problems).config(raw)
    if problems:
        raise ConfigError(source, problems.told)
    return config


class _Composer:
    """Makes str, list and dict of YAML's events: tags do nothing, scalars stay text, and no key is there twice.

    Aliases to aliases stand for billions of items, and deep nesting overflows the stack of whoever reads it. PyYAML's
    own composer makes a node for each value first, which takes ten times as long and as much memory.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_FILE_BYTES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_FILE_BYTES >> 20} MiB")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:  # JSON can write half a character
            raise yaml.MarkedYAMLError(problem="not Unicode text") from error
        self._events = yaml.parse(data, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        self._values = 0

    def document(self) -> Raw:
        """What the only document says; None where there is none."""
        document = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                document = self._value(next(self._events), 0)
                break
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise _trouble("a second document begins here", event)
        return document

    def _value(self, event: yaml.Event, depth: int) -> Raw:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _trouble(f"more than {MAX_VALUES} values", event)
        if isinstance(event, yaml.ScalarEvent):
            return event.value
        if isinstance(event, yaml.AliasEvent):
            raise _trouble("aliases are not supported", event)
        if depth == _MAX_DEPTH:
            raise _trouble("nested too deep", event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]
        return self._mapping(depth + 1)

    def _mapping(self, depth: int) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _trouble("a key has to be text", event)
            if event.value in found:
                raise _trouble(f"{_short(event.value)!r} stands here twice", event)
            found[event.value] = self._value(next(self._events), depth)
        return found

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := next(self._events), end):
            yield event


def _trouble(problem: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]


def _yaml_problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "(file)"
    return Problem(where, str(getattr(error, "problem", None) or "not YAML"), "correct the YAML there")


class _Problems:
    """What is wrong. Nobody reads a hundred thousand problems, so the first are told, and the rest counted."""

    def __init__(self) -> None:
        self._first: list[Problem] = []
        self._more = 0

    def __bool__(self) -> bool:
        return bool(self._first)

    def add(self, path: str, value: Raw, allowed: str) -> None:
        if len(self._first) < MAX_PROBLEMS:
            self._first.append(Problem(path or "(file)", _shown(value), allowed))
        else:
            self._more += 1

    @property
    def told(self) -> list[Problem]:
        rest = Problem("(file)", f"{self._more} more problems", "correct the first ones, and look again")
        return [*self._first, rest] if self._more else self._first


@dataclass(frozen=True, slots=True)
class _Range:
    """An item of `ranges:`; `unknown` None: as the configuration's."""

    network: Network
    path: str
    unknown: Unknown | None = None


class _Reader:
    """Turns raw YAML into values; what is wrong is noted with its path, and the default stands in."""

    def __init__(self, problems: _Problems) -> None:
        self._problems = problems

    def config(self, raw: Raw) -> AgentConfig:
        fields: dict[str, Callable[[Raw, str], Any]] = {
            "mode": self._mode,
            "datapath": self._choice({item.value: item for item in Datapath}, Datapath.AUTO),
            "interfaces": self._interfaces,
            "vips": self._vips,
            "ranges": lambda value, path: tuple(self._items(value, path, self._range)),
            "unknown": self._unknown,
            "services": self._services,
            "follow": self._follow,
            "lease": self._lease,
            "bpf": self._bpf,
            "grpc": self._grpc,
            "metrics": self._metrics,
            "decisions": self._decisions,
        }
        if raw in (None, ""):
            self._wrong("", "empty", "a mapping; `vips: []` is how to guard nothing")
            return AgentConfig()
        values = self._mapping(raw, "", fields)
        ranges, unknown = values.get("ranges", ()), values.pop("unknown", Unknown.PASS)
        values |= {"ranges": tuple(each.network for each in ranges), "closed": self._close(ranges, unknown)}
        return AgentConfig(**{name: value for name, value in values.items() if value is not None})

    # ---- shapes ----

    def _wrong(self, path: str, value: Raw, allowed: str) -> None:
        self._problems.add(path, value, allowed)

    def _mapping(self, raw: Raw, path: str, fields: dict[str, Callable[[Raw, str], Any]]) -> dict[str, Any]:
        if not isinstance(raw, dict):
            self._wrong(path, raw, f"a mapping with {', '.join(fields)}")
            return {}
        values = {}
        for key, value in raw.items():
            inner = f"{path}.{key}" if path else key
            if key in fields:
                values[key] = fields[key](value, inner)
            else:
                self._wrong(f"{path}.{_shown(key)}".lstrip("."), "unknown key", f"one of {', '.join(fields)}")
        return values

    def _items(self, raw: Raw, path: str, parse: Callable[[Raw, str], T | None], most: int = MAX_VALUES) -> Iterator[T]:
        if not isinstance(raw, list):
            self._wrong(path, raw, "a list")
            return
        if len(raw) > most:
            self._wrong(path, f"{len(raw)} items", f"a list of at most {most}")
            return
        for index, item in enumerate(raw):
            value = parse(item, f"{path}[{index}]")
            if value is not None:
                yield value

    def _choice(self, allowed: dict[str, T], default: T) -> Callable[[Raw, str], T]:
        def parse(raw: Raw, path: str) -> T:
            if isinstance(raw, str) and raw in allowed:
                return allowed[raw]
            self._wrong(path, raw, f"one of {', '.join(allowed)}")
            return default

        return parse

    def _duration(self, raw: Raw, path: str) -> int | None:
        match = _DURATION.fullmatch(raw) if isinstance(raw, str) else None
        if match is None:
            self._wrong(path, raw, "a duration such as 3s or 500ms")
            return None
        return round(float(match[1]) * _DURATION_NS[match[2]])

    # ---- addresses ----

    def _network(self, raw: Raw, path: str) -> Network | None:
        try:
            return ip_network(raw if isinstance(raw, str) and "%" not in raw else "")
        except ValueError:
            self._wrong(path, raw, "a network without host bits such as 192.0.2.0/24")
            return None

    def _range(self, raw: Raw, path: str) -> _Range | None:
        if not isinstance(raw, dict):
            network = self._network(raw, path)
            return _Range(network, path) if network else None
        values = self._mapping(raw, path, {"network": self._network, "unknown": self._unknown})
        if "network" not in raw:
            self._wrong(f"{path}.network", "missing", "a network such as 192.0.2.0/24")
        network = values.get("network")
        return _Range(network, path, values.get("unknown")) if network else None

    def _unknown(self, raw: Raw, path: str) -> Unknown:
        return self._choice({item.value: item for item in Unknown}, Unknown.PASS)(raw, path)

    def _close(self, ranges: Sequence[_Range], default: Unknown) -> tuple[Network, ...]:
        """The networks that are closed; what cannot be is a problem."""
        closed = [each for each in ranges if (each.unknown or default) is Unknown.SUPPRESS]
        for each in closed:
            if any(other.overlaps(each.network) for other in _NEVER_CLOSED if other.version == each.network.version):
                allowed = "a range of hosts' addresses: no loopback, link-local or multicast ones can be closed"
                self._wrong(each.path, str(each.network), f"{allowed} (unknown: suppress)")
        if len(closed) > MAX_CLOSED:
            self._wrong("ranges", f"{len(closed)} closed ranges", f"at most {MAX_CLOSED} with unknown: suppress")
        return tuple(dict.fromkeys(each.network for each in closed))

    def _address(self, raw: Raw, path: str) -> Address | None:
        try:
            return ip_address(raw if isinstance(raw, str) and "%" not in raw else "")
        except ValueError:
            self._wrong(path, raw, "an IP address such as 192.0.2.10, without a zone")
            return None

    def _mac(self, raw: Raw, path: str) -> MacAddress | None:
        try:
            mac = MacAddress.parse(raw if isinstance(raw, str) else "")
        except ValueError:
            mac = None
        if mac is None or mac.is_group or mac.is_zero:
            self._wrong(path, raw, "the MAC address of one host such as 02:00:00:00:00:aa")
            return None
        return mac

    # ---- sections ----

    def _mode(self, raw: Raw, path: str) -> Mode:
        return self._choice({"observe": Mode.OBSERVE, "enforce": Mode.ENFORCE}, Mode.OBSERVE)(raw, path)

    def _interfaces(self, raw: Raw, path: str) -> tuple[InterfaceSelector, ...]:
        selectors = tuple(self._items(raw, path, self._selector, MAX_INTERFACES))
        if raw == []:
            self._wrong(path, raw, "at least one item; leave the key out for auto")
        return selectors

    def _selector(self, raw: Raw, path: str) -> InterfaceSelector | None:
        kind, _, argument = raw.partition(":") if isinstance(raw, str) else ("", "", "")
        if raw == "auto":
            return InterfaceSelector(SelectorKind.AUTO)
        if kind == "cidr":
            network = self._network(argument, path)
            return InterfaceSelector(SelectorKind.CIDR, network=network) if network else None
        if kind == "can_reach":
            address = self._address(argument, path)
            return InterfaceSelector(SelectorKind.CAN_REACH, address=address) if address else None
        if not isinstance(raw, str) or not raw.isprintable() or not _ANY_IFNAME.fullmatch(raw):
            self._wrong(path, raw, "auto, an interface name or glob (eth0, eth*), can_reach:ADDRESS or cidr:NETWORK")
            return None
        if raw == "lo":
            self._wrong(path, raw, "an interface that faces the network; nobody asks for addresses on lo")
            return None
        glob = any(sign in raw for sign in "*?[")
        return InterfaceSelector(SelectorKind.GLOB if glob else SelectorKind.NAME, pattern=raw)

    def _vips(self, raw: Raw, path: str) -> tuple[Vip, ...]:
        vips: dict[Address, Vip] = {}
        for index, vip in enumerate(self._items(raw, path, self._vip)):
            if vip.address in vips:
                self._wrong(f"{path}[{index}].address", str(vip.address), "an address that is not in the list already")
            vips[vip.address] = vip
        return tuple(vips.values())

    def _vip(self, raw: Raw, path: str) -> Vip | None:
        fields: dict[str, Callable[[Raw, str], Any]] = {
            "address": self._vip_address,
            "owner": self._owner,
            "mode": self._mode,
            "hold": self._choice(_TRUTH, default=False),
        }
        values = self._mapping(raw, path, fields)
        for name in ("address", "owner"):
            if isinstance(raw, dict) and name not in raw:
                self._wrong(f"{path}.{name}", "missing", "every VIP needs an address and an owner")
        if values.get("address") is None or values.get("owner") is None:
            return None
        mode, hold = values.get("mode", Mode.INHERIT), values.get("hold", False)
        return Vip(values["address"], values["owner"], mode, hold=hold)

    def _vip_address(self, raw: Raw, path: str) -> Address | None:
        address = self._address(raw, path)
        if address is None:
            return None
        refusal = vip_refusal(address)
        if refusal is not None:
            self._wrong(path, raw, f"{address} {refusal}: a unicast address that a host can own")
            return None
        return address

    def _owner(self, raw: Raw, path: str) -> Owner | None:
        if isinstance(raw, str) and raw in ("external", "elect"):
            return Owner(OwnerKind(raw))
        if isinstance(raw, dict) and "external" in raw:
            mac = self._mapping(raw, path, {"external": self._mac}).get("external")
            return Owner(OwnerKind.EXTERNAL, mac=mac) if mac else None
        if isinstance(raw, dict) and "node" in raw:
            delegated = self._choice(_TRUTH, default=False)
            values = self._mapping(raw, path, {"node": self._node_name, "delegated": delegated})
            node = values.get("node")
            return Owner(OwnerKind.NODE, node=node, delegated=values.get("delegated", False)) if node else None
        self._wrong(path, raw, "{node: NAME}, {node: NAME, delegated: true}, external, {external: MAC} or elect")
        return None

    def _node_name(self, raw: Raw, path: str) -> str | None:
        if isinstance(raw, str) and is_subdomain(raw):
            return raw
        self._wrong(path, raw, "a node name as Kubernetes writes it (lower case letters, digits, - and .)")
        return None

    def _services(self, raw: Raw, path: str) -> ServicesConfig:
        values = self._mapping(
            raw,
            path,
            {
                "enabled": self._choice(_TRUTH, default=True),
                "selector": self._labels,
                "owner": self._choice({"elect": "elect", "follow": "follow"}, "elect"),
                "hold": self._choice(_TRUTH, default=False),
            },
        )
        return ServicesConfig(**values)

    def _follow(self, raw: Raw, path: str) -> FollowConfig:
        place = {"namespace": self._object_name(is_label, "namespace")}
        places = dict.fromkeys(("metallb", "cilium", "openelb"), place)
        places["kube_vip"] = {**place, "lease": self._object_name(is_subdomain, "Lease")}
        given = self._given(raw, path, {name: partial(self._given, fields=fields) for name, fields in places.items()})
        found = {
            name if key == "namespace" else f"{name}_{key}": text
            for name, values in given.items()
            for key, text in values.items()
        }
        return FollowConfig(**found)

    def _object_name(self, fits: Callable[[str], bool], what: str) -> Callable[[Raw, str], str | None]:
        def parse(raw: Raw, path: str) -> str | None:
            if isinstance(raw, str) and fits(raw):
                return raw
            self._wrong(path, raw, f"the name of a {what} (lower case letters, digits and -)")
            return None

        return parse

    def _labels(self, raw: Raw, path: str) -> tuple[tuple[str, str], ...]:
        if isinstance(raw, dict) and len(raw) <= MAX_LABELS and all(isinstance(value, str) for value in raw.values()):
            return tuple(sorted(raw.items()))
        self._wrong(path, raw, f"a mapping of labels to values, at most {MAX_LABELS}")
        return ()

    def _lease(self, raw: Raw, path: str) -> LeaseConfig:
        names = ("duration", "renew", "margin")
        values = self._mapping(raw, path, dict.fromkeys(names, self._duration))
        lease = LeaseConfig(**{f"{name}_ns": value for name, value in values.items() if value is not None})
        for smaller, larger in (("margin", "duration"), ("renew", "duration less the margin")):
            limit = lease.duration_ns if larger == "duration" else lease.duration_ns - lease.margin_ns
            value = getattr(lease, f"{smaller}_ns")
            if not 0 < value < limit:
                self._wrong(f"{path}.{smaller}", f"{value / 1e9:g}s", f"more than 0 and less than the {larger}")
        return lease

    def _bpf(self, raw: Raw, path: str) -> BpfConfig:
        return BpfConfig(**self._given(raw, path, {"pin_dir": self._pin_dir, "max_entries": self._max_entries}))

    def _given(self, raw: Raw, path: str, fields: dict[str, Callable[[Raw, str], Any]]) -> dict[str, Any]:
        return {name: value for name, value in self._mapping(raw, path, fields).items() if value is not None}

    def _pin_dir(self, raw: Raw, path: str) -> Path | None:
        folder = Path(raw if isinstance(raw, str) else "")
        text = str(folder)
        plain = text.isprintable() and not set(text) & set('"\\') and ".." not in folder.parts  # it is a string in C
        if folder.is_absolute() and folder not in NOT_A_PIN_DIR and plain and len(text.encode()) <= _MAX_PIN_DIR:
            return folder
        self._wrong(path, raw, "an absolute folder below a BPF file system such as /sys/fs/bpf/arpguard")
        return None

    def _max_entries(self, raw: Raw, path: str) -> int | None:
        return self._number(raw, path, 1 << 20, "each costs about 500 bytes for each CPU")

    def _number(self, raw: Raw, path: str, largest: int, cost: str) -> int | None:
        if isinstance(raw, str) and raw.isascii() and raw.isdigit() and len(raw) < 9 and 0 < int(raw) <= largest:
            return int(raw)
        self._wrong(path, raw, f"a number from 1 to {largest}; {cost}")
        return None

    def _decisions(self, raw: Raw, path: str) -> DecisionsConfig:
        capacity = lambda value, inner: self._number(value, inner, 100_000, "each costs about a kilobyte")  # noqa: E731
        return DecisionsConfig(**self._given(raw, path, {"capacity": capacity}))

    def _grpc(self, raw: Raw, path: str) -> GrpcConfig:
        listen = lambda value, inner: tuple(self._items(value, inner, self._listen, MAX_LISTEN))  # noqa: E731
        grpc = GrpcConfig(**self._given(raw, path, {"listen": listen, "tls": self._tls}))
        for index, address in enumerate(grpc.listen):
            if grpc.tls is None and not is_local(address):
                allowed = "a loopback address, or unix:///PATH; any other needs grpc.tls with cert, key and client_ca"
                self._wrong(f"{path}.listen[{index}]", address, allowed)
            if address in grpc.listen[:index]:
                self._wrong(f"{path}.listen[{index}]", address, "an address that is not in the list already")
        return grpc

    def _tls(self, raw: Raw, path: str) -> TlsConfig | None:
        names = ("cert", "key", "client_ca")
        values = self._given(raw, path, dict.fromkeys(names, self._file))
        missing = [name for name in names if isinstance(raw, dict) and name not in raw]
        for name in missing:
            self._wrong(f"{path}.{name}", "missing", "a PEM file: grpc.tls needs cert, key and client_ca")
        return TlsConfig(**values) if len(values) == len(names) else None

    def _file(self, raw: Raw, path: str) -> Path | None:
        if isinstance(raw, str) and raw.startswith("/") and raw.isprintable():
            return Path(raw)
        self._wrong(path, raw, "the absolute path of a PEM file")
        return None

    def _metrics(self, raw: Raw, path: str) -> MetricsConfig:
        return MetricsConfig(**self._given(raw, path, {"listen": self._metrics_listen}))

    def _metrics_listen(self, raw: Raw, path: str) -> str | None:
        return "" if raw == "off" else self._host_port(raw, path, "HOST:PORT such as 0.0.0.0:9469, or off")

    def _listen(self, raw: Raw, path: str) -> str | None:
        allowed = "unix:///PATH or HOST:PORT such as 127.0.0.1:50051; the host is an IP address"
        if not isinstance(raw, str) or not raw.startswith("unix:"):
            return self._host_port(raw, path, allowed)
        if raw.startswith("unix:///") and len(raw.encode()) <= _MAX_UNIX_URL and raw.isprintable():
            return raw
        self._wrong(path, raw, "unix:///PATH with a path of at most 107 bytes")
        return None

    def _host_port(self, raw: Raw, path: str, allowed: str) -> str | None:
        match = _HOST_PORT.fullmatch(raw) if isinstance(raw, str) else None
        if match and 0 < int(match["port"]) < 1 << 16 and _ip(match["host"] or match["host6"]):
            return match[0]
        self._wrong(path, raw, allowed)
        return None


def is_local(listen: str) -> bool:
    """Whether only this machine can reach an address of `grpc.listen`."""
    match = _HOST_PORT.fullmatch(listen)
    address = _ip(match["host"] or match["host6"]) if match else None
    return listen.startswith("unix:") or (address is not None and address.is_loopback)


def _ip(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


_MAX_SHOWN = 60
_SHORT = Repr()  # of what is large only the beginning is looked at
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 4, 4, _MAX_SHOWN


def _shown(value: Raw) -> str:
    """The beginning of a value, in a line that is safe to print."""
    if isinstance(value, str) and value and value[:_MAX_SHOWN].isprintable():
        return _short(value)
    return _short(_SHORT.repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
