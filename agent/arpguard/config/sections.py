"""The form of a configuration: its sections, each with its settings."""

import re
from collections.abc import Collection
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, NamedTuple

from arpguard.addresses import Address, Network, vip_refusal
from arpguard.config import model
from arpguard.config.reading import (
    Place,
    Raw,
    Schema,
    ValueReader,
    choice,
    each,
    items,
    number,
    reads,
    scalar,
    section,
    text,
)
from arpguard.config.values import LABEL, MODE, SUBDOMAIN, TRUTH, owner
from arpguard.errors import did_you_mean
from arpguard.model import Datapath, Owner, OwnerKind, Vip
from arpguard.names import is_label, is_subdomain
from arpguard.units import NS_PER_MS

# What anybody may put into a file is bounded.
MAX_LISTEN = 16
MAX_LABELS = 64
MAX_CLOSED = 64
_MAX_UNIX_URL = len("unix://") + 107  # unix(7): sun_path
_MAX_PIN_DIR = 1024  # bytes, a quarter of PATH_MAX: there are folders and files below it

_ANY_IFNAME = re.compile(r"[^\s/:]{1,127}")  # altnames are longer (linux/if.h: ALTIFNAMSIZ)
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9})?)(ms|s|m)")
_DURATION_NS = {"ms": NS_PER_MS, "s": 1000 * NS_PER_MS, "m": 60_000 * NS_PER_MS}
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{4}|[1-9][0-9]{3,4}")
_ETHERTYPES = range(0x0600, 0xFFFF)  # IEEE 802.3 3.2.6: what is smaller is a length; 0xFFFF is reserved
# What switches, NICs or kernels treat in a way of their own (IEEE registration authority, linux/if_ether.h).
_TAKEN_ETHERTYPES = {
    0x0800: "IPv4",
    0x0806: "ARP",
    0x8035: "RARP",
    0x86DD: "IPv6",
    **dict.fromkeys((0x8100, 0x88A8, 0x9100), "VLAN tags"),
    **dict.fromkeys((0x8847, 0x8848), "MPLS"),
    **dict.fromkeys((0x8863, 0x8864), "PPPoE"),
    0x8808: "flow control",
    0x8809: "LACP",
    0x888E: "EAPOL",
    0x88CC: "LLDP",
    0x88E5: "MACsec",
    0x88F7: "PTP",
    0x8902: "CFM",
    0x8906: "FCoE",
    0x8914: "FCoE",
    0x8915: "RoCE",
    0x9000: "loopback tests",
}
# Of IPv6 all but global unicast and unique local addresses (RFC 4291 2.4, RFC 4193 3.1).
_NEVER_CLOSED: tuple[Network, ...] = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"),
        *("::/3", "4000::/2", "8000::/2", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/7"),
    )
)


def whole(raw: Raw, place: Place) -> model.AgentConfig:
    """The configuration, if nothing is noted."""
    if raw in (None, ""):
        place.say("empty; to guard nothing, write `vips: []`")
        return model.AgentConfig()

    found = _WHOLE(raw, place) or {}
    ranges, unknown = found.pop("ranges", ()), found.pop("unknown", model.UnknownAddress.PASS)
    closed = [(item.network, at) for item, at in ranges if (item.unknown or unknown) is model.UnknownAddress.SUPPRESS]
    _refuse_to_close(closed, place.under("ranges"))
    return model.AgentConfig(
        **found,
        ranges=tuple(item.network for item, _ in ranges),
        closed=tuple(dict.fromkeys(network for network, _ in closed)),
    )


# ---- addresses ----


def _address(found: str) -> Address | None:
    return None if "%" in found else ip_address(found)


def _network(found: str) -> Network | None:
    return None if "%" in found else ip_network(found)


def _without_host_bits(found: str) -> str:
    try:
        return f"; did you mean {ip_network(found, strict=False)}?" if "%" not in found else ""
    except ValueError:
        return ""


_IP4, _IP6 = r"[0-9]{1,3}(\.[0-9]{1,3}){3}", r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*"
_ADDRESS: ValueReader[Address] = scalar(
    _address, "an IP address such as 192.0.2.10, without a zone", {"type": "string", "pattern": f"^({_IP4}|{_IP6})$"}
)
_NETWORK: ValueReader[Network] = scalar(
    _network,
    "a network without host bits such as 192.0.2.0/24",
    {"type": "string", "pattern": f"^({_IP4}|{_IP6})(/[0-9]{{1,3}})?$"},
    _without_host_bits,
)

# ---- interfaces ----


@reads({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": model.MAX_INTERFACES})
def _interfaces(raw: Raw, place: Place) -> tuple[model.InterfaceSelector, ...]:
    if raw == []:
        place.say("must not be empty; leave the key out for auto")
    return tuple(selector for selector, _ in each(_selector, raw, place, model.MAX_INTERFACES))


@reads({"type": "string"})
def _selector(raw: Raw, place: Place) -> model.InterfaceSelector | None:
    if raw == "lo":
        place.wrong(raw, "an interface that faces the network")
        return None

    kind, _, argument = raw.partition(":") if isinstance(raw, str) else ("", "", "")
    if kind == "cidr":
        network = _NETWORK(argument, place)
        return model.InterfaceSelector(model.SelectorKind.CIDR, network=network) if network else None
    if kind == "can_reach":
        address = _ADDRESS(argument, place)
        return model.InterfaceSelector(model.SelectorKind.CAN_REACH, address=address) if address else None
    return _OF_NAME(raw, place)


def _named(found: str) -> model.InterfaceSelector | None:
    if found == "auto":
        return model.InterfaceSelector(model.SelectorKind.AUTO)
    if not found.isprintable() or not _ANY_IFNAME.fullmatch(found):
        return None
    kind = model.SelectorKind.GLOB if any(sign in found for sign in "*?[") else model.SelectorKind.NAME
    return model.InterfaceSelector(kind, pattern=found)


_OF_NAME = scalar(
    _named, "auto, an interface name or glob (eth0, eth*), can_reach:ADDRESS or cidr:NETWORK", {"type": "string"}
)

# ---- vips ----


@reads(_ADDRESS.schema)
def _vip_address(raw: Raw, place: Place) -> Address | None:
    address = _ADDRESS(raw, place)
    refusal = vip_refusal(address) if address else None
    if refusal:
        place.say(f"must be a unicast address that a host can own; {address} {refusal}")
    return None if refusal else address


def _vip(*, hold: bool = False, **settings: Any) -> Vip:
    return Vip(**settings, unfenced=hold)


_VIP = section(
    _vip,
    {"address": _vip_address, "owner": owner, "mode": MODE, "hold": TRUTH},
    ["address", "owner"],
    "every VIP needs an address and an owner",
)


@reads({"type": "array", "items": _VIP.schema})
def _vips(raw: Raw, place: Place) -> tuple[Vip, ...]:
    vips: dict[Address, Vip] = {}
    for vip, at in each(_VIP, raw, place):
        if vip.address in vips:
            at.under("address").say(f"{vip.address} is in the list twice")
        vips[vip.address] = vip
    return tuple(vips.values())


# ---- ranges ----


class _Range(NamedTuple):
    network: Network
    unknown: model.UnknownAddress | None = None  # None: as the configuration's


_UNKNOWN = choice({item.value: item for item in model.UnknownAddress})
_LONG_RANGE = section(_Range, {"network": _NETWORK, "unknown": _UNKNOWN}, ["network"], "a network such as 192.0.2.0/24")


@reads({"anyOf": [_NETWORK.schema, _LONG_RANGE.schema]})
def _range(raw: Raw, place: Place) -> _Range | None:
    if isinstance(raw, dict):
        return _LONG_RANGE(raw, place)
    network = _NETWORK(raw, place)
    return _Range(network) if network else None


def _refuse_to_close(closed: Collection[tuple[Network, Place]], place: Place) -> None:
    """Notes which networks cannot be closed."""
    for network, at in closed:
        if any(other.overlaps(network) for other in _NEVER_CLOSED if other.version == network.version):
            advice = "loopback, link-local and multicast ranges cannot be closed: remove `unknown: suppress` here"
            at.wrong(str(network), f"a range of hosts' addresses; {advice}")

    if len(closed) > MAX_CLOSED:
        place.say(f"must have at most {MAX_CLOSED} items with unknown: suppress, not {len(closed)}")


# ---- services, follow, keepalived ----


_LABEL: Schema = {"type": ["string", "boolean", "number"]}  # YAML has other types than labels


@reads({"type": "object", "additionalProperties": _LABEL, "maxProperties": MAX_LABELS})
def _labels(raw: Raw, place: Place) -> tuple[tuple[str, str], ...] | None:
    if isinstance(raw, dict) and len(raw) <= MAX_LABELS and all(isinstance(value, str) for value in raw.values()):
        return tuple(sorted(raw.items()))
    place.wrong(raw, f"a mapping of at most {MAX_LABELS} label names to values")
    return None


_OWNERS = choice({kind.value: Owner(kind) for kind in (OwnerKind.ELECT, OwnerKind.FOLLOW)})
_SERVICES = section(
    model.ServicesConfig,
    {"enabled": TRUTH, "selector": _labels, "owner": _OWNERS, "hold": TRUTH, "owned_by": TRUTH},
)

_NAMESPACE = text(is_label, "the name of a namespace (lower case letters, digits and -)", LABEL)
_LEASE_NAME = text(is_subdomain, "the name of a Lease (lower case letters, digits, - and .)", SUBDOMAIN)
_ANNOUNCER: ValueReader[dict[str, str]] = section(dict, {"namespace": _NAMESPACE})
_KUBE_VIP: ValueReader[dict[str, str]] = section(dict, {"namespace": _NAMESPACE, "lease": _LEASE_NAME})


def _places(**given: dict[str, str]) -> model.FollowConfig:
    found = {(name, key): value for name, values in given.items() for key, value in values.items()}
    return model.FollowConfig(**{"_".join(at).removesuffix("_namespace"): value for at, value in found.items()})


_FOLLOW = section(_places, {**dict.fromkeys(("metallb", "cilium", "openelb"), _ANNOUNCER), "kube_vip": _KUBE_VIP})

_ABSOLUTE: Schema = {"type": "string", "pattern": "^/"}


def _file(found: str) -> Path | None:
    return Path(found) if found.startswith("/") and found.isprintable() else None


_KEEPALIVED = section(
    model.KeepalivedConfig,
    {"fifo": scalar(_file, f"the absolute path of a FIFO such as {model.KeepalivedConfig().fifo}", _ABSOLUTE)},
)

# ---- lease ----


def _duration_ns(found: str) -> int | None:
    match = _DURATION.fullmatch(found)
    return round(float(match[1]) * _DURATION_NS[match[2]]) if match else None


_TIME = scalar(_duration_ns, "a duration such as 3s or 500ms", {"type": "string", "pattern": f"^{_DURATION.pattern}$"})
_TIMES = dict.fromkeys(("duration", "renew", "margin"), _TIME)


@reads({"type": ["integer", "string"]})
def _ethertype(raw: Raw, place: Place) -> int | None:
    found = int(raw, 0) if isinstance(raw, str) and _NUMBER.fullmatch(raw) else 0
    taken = _TAKEN_ETHERTYPES.get(found)
    if taken is None and found in _ETHERTYPES:
        return found

    allowed = "an EtherType from 0x0600 to 0xFFFE that nothing else uses, such as 0x88B5"
    place.wrong(raw, f"{allowed}; this one is for {taken}" if taken else allowed)
    return None


_VOUCHING = section(
    model.VouchingConfig,
    {
        "secret": text(is_subdomain, "the name of a Secret (lower case letters, digits, - and .)", SUBDOMAIN),
        "ethertype": _ethertype,
        "profile": choice({item.value: item for item in model.VouchingProfile}),
    },
)
_OFF = ("off", "false")  # what rewrites YAML 1.1, as helm does with its values, makes `false` of `off`
_WORD = scalar(
    lambda found: found if found in (*_OFF, "auto") else None,
    "off, auto, or a mapping (keys: secret, ethertype, profile)",
    {"enum": ["off", "auto", False]},
    lambda found: did_you_mean(found, ("off", "auto")),
)


@reads({"anyOf": [_WORD.schema, _VOUCHING.schema]})
def _vouching(raw: Raw, place: Place) -> model.VouchingConfig | bool | None:
    """False: off. None is for what is wrong, and leaves the default."""
    if isinstance(raw, dict):
        found = _VOUCHING(raw, place)
        return replace(found, asked=True) if found is not None else None
    word = _WORD(raw, place)
    return None if word is None else word == "auto" and model.VouchingConfig(asked=True)


_SETTINGS: ValueReader[dict[str, Any]] = section(dict, {**_TIMES, "vouching": _vouching})


@reads(_SETTINGS.schema)
def _lease(raw: Raw, place: Place) -> model.LeaseConfig:
    found = _SETTINGS(raw, place) or {}
    times = {f"{name}_ns": found.pop(name) for name in _TIMES if name in found}
    vouching = found.pop("vouching", model.VouchingConfig()) or None
    lease = model.LeaseConfig(**times, **found, vouching=vouching)
    for name, value, what, limit in (
        ("margin", lease.margin_ns, "duration", lease.duration_ns),
        ("renew", lease.renew_ns, "duration minus the margin", lease.duration_ns - lease.margin_ns),
    ):
        if not 0 < value < limit:
            place.under(name).wrong(f"{value / 1e9:g}s", f"more than 0 and less than the {what}")
    return lease


# ---- bpf, grpc, metrics, decisions ----


def _pin_dir(found: str) -> Path | None:
    folder = Path(found)
    name = str(folder)
    plain = name.isprintable() and not set(name) & set('"\\') and ".." not in folder.parts  # it is a string in C
    fits = folder.is_absolute() and folder not in model.NOT_A_PIN_DIR and plain and len(name.encode()) <= _MAX_PIN_DIR
    return folder if fits else None


_BPF = section(
    model.BpfConfig,
    {
        "pin_dir": scalar(
            _pin_dir, "the absolute path of a folder in a BPF file system, such as /sys/fs/bpf/arpguard", _ABSOLUTE
        ),
        "max_entries": number(1 << 20, "each entry costs about 600 bytes for each CPU"),
    },
)


def _is_host_port(found: str) -> bool:
    return model.host_of(found) is not None and 0 < int(found.rpartition(":")[2]) < 1 << 16


_TCP = text(
    _is_host_port, "unix:///PATH or HOST:PORT such as 127.0.0.1:50051; HOST must be an IP address", ":[0-9]{1,5}$"
)
_UNIX = text(
    lambda found: found.startswith("unix:///") and len(found.encode()) <= _MAX_UNIX_URL and found.isprintable(),
    "unix:///PATH with a path of at most 107 bytes",
    "^unix:///",
)


@reads({"anyOf": [_UNIX.schema, _TCP.schema]})
def _listen(raw: Raw, place: Place) -> str | None:
    return (_UNIX if isinstance(raw, str) and raw.startswith("unix:") else _TCP)(raw, place)


_FILES = dict.fromkeys(("cert", "key", "client_ca"), scalar(_file, "the absolute path of a PEM file", _ABSOLUTE))
_TLS = section(model.TlsConfig, _FILES, _FILES, "grpc.tls needs the PEM files cert, key and client_ca")


def _grpc(listen: Collection[tuple[str, Place]] | None = None, tls: model.TlsConfig | None = None) -> model.GrpcConfig:
    if listen is None:
        return model.GrpcConfig(tls=tls)

    taken: dict[str, Place] = {}
    for address, place in listen:
        if tls is None and not model.is_local(address):
            allowed = (
                "a loopback address, or unix:///PATH; any other address needs grpc.tls with cert, key and client_ca"
            )
            place.wrong(address, allowed)
        if address in taken:
            place.say(f"{address} is in the list twice")
        taken[address] = place
    return model.GrpcConfig(tuple(taken), tls)


_GRPC = section(_grpc, {"listen": items(_listen, MAX_LISTEN), "tls": _TLS})


_SCRAPED: Schema = {"anyOf": [{"enum": ["off", False]}, _TCP.schema]}


def _scraped(found: str) -> str | None:
    return "" if found in _OFF else found if _is_host_port(found) else None


_LISTEN = scalar(_scraped, "HOST:PORT such as 0.0.0.0:9469, or off", _SCRAPED)
_METRICS = section(model.MetricsConfig, {"listen": _LISTEN})
_DECISIONS = section(model.DecisionsConfig, {"capacity": number(100_000, "each decision costs about a kilobyte")})

# ---- audit ----

_AUDIT_EVERY_NS = range(15_000 * NS_PER_MS, 3_600_000 * NS_PER_MS + 1)
_RATE = re.compile(r"([1-9][0-9]{0,2})/s")


def _audit_every_ns(found: str) -> int | None:
    if found in _OFF:
        return 0
    every_ns = _duration_ns(found)
    return every_ns if every_ns is not None and every_ns in _AUDIT_EVERY_NS else None


def _rate(found: str) -> int | None:
    match = _RATE.fullmatch(found)
    return int(match[1]) if match else None


def _audit(every: int = model.AuditConfig().every_ns, rate: int = model.AuditConfig().rate) -> model.AuditConfig:
    return model.AuditConfig(every, rate)


_AUDIT = section(
    _audit,
    {
        "every": scalar(
            _audit_every_ns,
            "a duration from 15s to 60m, such as 60s, or off",
            {"anyOf": [{"enum": ["off", False]}, _TIME.schema]},
        ),
        "rate": scalar(
            _rate,
            "a number of questions per second, from 1/s to 999/s, such as 20/s",
            {"type": "string", "pattern": f"^{_RATE.pattern}$"},
            lambda found: f"; did you mean {found}/s?" if _rate(f"{found}/s") else "",
        ),
    },
)

_WHOLE: ValueReader[dict[str, Any]] = section(
    dict,
    {
        "mode": MODE,
        "datapath": choice({item.value: item for item in Datapath}),
        "interfaces": _interfaces,
        "vips": _vips,
        "ranges": items(_range),
        "unknown": _UNKNOWN,
        "services": _SERVICES,
        "follow": _FOLLOW,
        "keepalived": _KEEPALIVED,
        "lease": _lease,
        "bpf": _BPF,
        "grpc": _GRPC,
        "metrics": _METRICS,
        "decisions": _DECISIONS,
        "audit": _AUDIT,
    },
)

SCHEMA: Schema = _WHOLE.schema
