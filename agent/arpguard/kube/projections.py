"""JSON of the API -> the values in `core.cluster`; trusts nothing, and never raises.

A Service may contain anything that its schema allows, and what a proxy sends has no schema at all. A field of the wrong
type, a text that is too long, an invalid address: each counts as missing, and becomes a problem of that object where
its kind has problems (`core.cluster`).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from ipaddress import ip_address, ip_network
from typing import TypeVar

from arpguard.addresses import Address
from arpguard.config.model import CONFIG_KEY
from arpguard.core.cluster import (
    EXCLUDE_LABEL,
    MARKS,
    OWNED_BY,
    PREFIX,
    Announcement,
    ConfigMap,
    EndpointSlice,
    Lease,
    Node,
    Pairs,
    Service,
)
from arpguard.kube.errors import JsonObject, cut

T = TypeVar("T")

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
METALLB = "metallb.io"

MAX_NAME = 253  # RFC 1123, as apimachinery's validation has it; label values are shorter
MAX_ANNOTATION = 4096
MAX_ITEMS = 1024
VERSION_DIGITS = 20  # of a 64-bit number
MAX_INT32 = 0x7FFFFFFF
MAX_PROBLEMS = 8
MAX_SHOWN = 80
KEPT = 1024  # names that many objects share


@lru_cache(KEPT)
def _kept(text: str) -> str:
    return text


def _once(text: str) -> str:
    """The same object for equal names, as thousands of objects name the same nodes.

    Not by `sys.intern`: its table counts dead texts, too, until it doubles, by a megabyte at a time.
    """
    return _kept(text) if len(text) <= MAX_NAME else text


class _Reading:
    """One object being read; collects its problems."""

    def __init__(self, raw: JsonObject) -> None:
        self._raw = raw
        self._problems: list[str] = []
        self._left_out = 0

    @property
    def problems(self) -> tuple[str, ...]:
        more = (f"and {self._left_out} more problems",) if self._left_out else ()
        return (*self._problems, *more)

    def problem(self, path: str, why: str, value: object = None) -> None:
        if len(self._problems) >= MAX_PROBLEMS:
            self._left_out += 1
            return
        shown = f" ({_show(value)})" if value is not None else ""
        self._problems.append(f"{path}: {why}{shown}")

    def value(self, path: str, kind: type[T], within: object = None) -> T | None:
        """The value at a dotted path, if it is of that type; None also if there is none."""
        found: object = self._raw if within is None else within
        for step in path.split("."):
            if found is None:
                return None
            if not isinstance(found, dict):
                self.problem(path, "the value that should contain it is not an object", found)
                return None
            found = found.get(step)
        return self.expect(path, found, kind)

    def expect(self, path: str, found: object, kind: type[T]) -> T | None:
        """The value if it is of that type. JSON's true is not a number, though Python's is; broken text is not text."""
        if isinstance(found, kind) and not (kind is int and isinstance(found, bool)) and not _is_broken(found):
            return found
        if found is not None:
            self.problem(path, f"is not {_KINDS[kind]}", found)
        return None

    def text(self, path: str, limit: int = MAX_NAME, within: object = None) -> str:
        found = self.value(path, str, within)
        return "" if found is None else self.short(path, found, limit)

    def name(self, path: str, within: object = None) -> str:
        """A text that thousands of objects may share; memory holds it once."""
        return _once(self.text(path, within=within))

    def short(self, path: str, text: str, limit: int) -> str:
        if len(text) <= limit:
            return text
        self.problem(path, f"has {len(text)} characters, more than {limit}")
        return ""

    def items(self, path: str, kind: type[T], within: object = None) -> Iterator[tuple[str, T]]:
        """The items of a list that are of that type, each with its own path."""
        found: list[object] = self.value(path, list, within) or []
        if len(found) > MAX_ITEMS:
            self.problem(path, f"has {len(found)} items, more than {MAX_ITEMS}; ignoring the rest")
        for index, item in enumerate(found[:MAX_ITEMS]):
            place = f"{path}[{index}]"
            expected = self.expect(place, item, kind)
            if expected is not None:
                yield place, expected

    def pairs(self, path: str, prefix: str = "", limit: int = MAX_NAME) -> Pairs:
        """Labels or annotations whose names have this prefix, sorted; equal ones are kept once."""
        found: dict[object, object] = self.value(path, dict) or {}
        wanted = [(key, item) for key, item in found.items() if isinstance(key, str) and key.startswith(prefix)]
        return self._pairs(path, wanted, limit)

    def marks(self) -> Pairs:
        """The annotations in `MARKS`. If the annotations are not an object, `pairs` has reported that."""
        metadata = self._raw.get("metadata")
        found = metadata.get("annotations") if isinstance(metadata, dict) else None
        wanted = [(key, found[key]) for key in MARKS & found.keys()] if isinstance(found, dict) else []
        return self._pairs("metadata.annotations", wanted, MAX_ANNOTATION)

    def _pairs(self, path: str, wanted: list[tuple[str, object]], limit: int) -> Pairs:
        if len(wanted) > MAX_ITEMS:
            self.problem(path, f"has {len(wanted)} items, more than {MAX_ITEMS}; ignoring the rest")
        return tuple(sorted(filter(None, (self._pair(path, key, item, limit) for key, item in wanted[:MAX_ITEMS]))))

    def parsed(self, path: str, text: str, parse: Callable[[str], T], what: str) -> T | None:
        """An address or a network; None, and a problem, for another text."""
        try:
            return parse(text)
        except ValueError:
            self.problem(path, f"is not {what}", text)
            return None

    def _pair(self, path: str, key: str, item: object, limit: int) -> tuple[str, str] | None:
        place = f"{path}[{_show(key)}]"
        text = self.expect(place, item, str)
        if text is None or len(key) > 2 * MAX_NAME or _is_broken(key):
            return None
        return (_once(key), _once(text)) if self.short(place, text, limit) == text else None


def _is_broken(found: object) -> bool:
    """Whether a text has a lone surrogate (RFC 8259, 8.2), which JSON can express, but UTF-8 cannot."""
    if isinstance(found, str) and not found.isascii():
        try:
            found.encode()
        except UnicodeEncodeError:
            return True
    return False


_KINDS: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def key_of(raw: JsonObject) -> tuple[str, str] | None:
    """Namespace (empty for cluster-wide objects) and name; None if no server would accept these.

    They end up in problems, logs and paths (apimachinery, ValidatePathSegmentName).
    """
    reading = _Reading(raw)
    key = reading.name("metadata.namespace"), reading.text("metadata.name")
    return key if key[1] and all(text.isprintable() and not set(text) & set("/%") for text in key) else None


def version_of(raw: JsonObject) -> str:
    """The resourceVersion, which only the server understands; empty when there is none."""
    return _Reading(raw).text("metadata.resourceVersion")


def is_deleting(raw: JsonObject) -> bool:
    """Whether it is being deleted. Any value counts: it is worse to miss a deletion than to assume one."""
    metadata = raw.get("metadata")
    return isinstance(metadata, dict) and metadata.get("deletionTimestamp") is not None


def service(raw: JsonObject) -> Service:
    """A core/v1 Service."""
    read = _Reading(raw)
    annotations = read.pairs("metadata.annotations", PREFIX, MAX_ANNOTATION)
    return Service(
        namespace=read.name("metadata.namespace"),
        name=read.text("metadata.name"),
        uid=read.text("metadata.uid"),
        labels=read.pairs("metadata.labels"),
        annotations=tuple(pair for pair in annotations if pair[0] != OWNED_BY),
        owned_by=next((text for key, text in annotations if key == OWNED_BY), ""),
        marks=read.marks(),
        external_ips=_addresses(read, read.items("spec.externalIPs", str)),
        ingress_ips=_addresses(read, _texts(read, "status.loadBalancer.ingress", "ip")),
        load_balancer_class=read.name("spec.loadBalancerClass") or None,
        local_only=read.text("spec.externalTrafficPolicy") == "Local",
        made=read.text("metadata.creationTimestamp"),
        problems=read.problems,
    )


_FAMILIES = {"IPv4": 4, "IPv6": 6}  # of addressType; the third is FQDN


def endpoint_slice(raw: JsonObject) -> EndpointSlice:
    """A discovery.k8s.io/v1 EndpointSlice. A missing condition `ready` means ready (see the API's comment)."""
    read = _Reading(raw)

    nodes = set()
    for _, endpoint in read.items("endpoints", dict):
        ready = read.value("conditions.ready", bool, endpoint)
        if ready is None or ready:
            nodes.add(read.name("nodeName", endpoint))

    labels: dict[str, object] = read.value("metadata.labels", dict) or {}
    owner = read.expect("metadata.labels", labels.get(SERVICE_NAME_LABEL), str) or ""

    return EndpointSlice(
        namespace=read.name("metadata.namespace"),
        name=read.text("metadata.name"),
        service=_once(read.short("metadata.labels", owner, MAX_NAME)),
        version=_FAMILIES.get(read.text("addressType"), 0),
        nodes=tuple(sorted(nodes - {""})),
    )


def node(raw: JsonObject) -> Node:
    """A core/v1 Node. One without the condition Ready is not ready."""
    read = _Reading(raw)
    labels: dict[str, object] = read.value("metadata.labels", dict) or {}

    conditions = [item for _, item in read.items("status.conditions", dict)]
    addresses = [
        (place, read.text("address", within=item))
        for place, item in read.items("status.addresses", dict)
        if read.text("type", within=item) in ("InternalIP", "ExternalIP")
    ]

    pod_cidrs = read.items("spec.podCIDRs", str)
    networks = (read.parsed(place, item, partial(ip_network, strict=False), "a network") for place, item in pod_cidrs)

    return Node(
        name=read.text("metadata.name"),
        uid=read.text("metadata.uid"),
        ready=any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions),
        excluded=EXCLUDE_LABEL in labels,
        unschedulable=read.value("spec.unschedulable", bool) or False,
        addresses=_addresses(read, iter(addresses)),
        pod_networks=tuple(network for network in networks if network is not None),
        deleting=is_deleting(raw),
        problems=read.problems,
    )


def lease(raw: JsonObject) -> Lease:
    """A coordination.k8s.io/v1 Lease."""
    read = _Reading(raw)
    return Lease(
        name=read.text("metadata.name"),
        uid=read.text("metadata.uid"),
        version=read.text("metadata.resourceVersion"),
        holder=read.name("spec.holderIdentity"),
        duration_s=_number(read, "spec.leaseDurationSeconds", MAX_INT32),
        transitions=_number(read, "spec.leaseTransitions", MAX_INT32),
        annotations=read.pairs("metadata.annotations", PREFIX, MAX_ANNOTATION),
        deleting=is_deleting(raw),
        problems=read.problems,
    )


def held(raw: JsonObject) -> Announcement:
    """A coordination.k8s.io/v1 Lease of another announcer: who holds it."""
    read = _Reading(raw)
    return Announcement(
        about=(read.name("metadata.namespace"), read.text("metadata.name")),
        node=read.name("spec.holderIdentity"),
        problems=read.problems,
    )


def l2_status(raw: JsonObject) -> Announcement:
    """A metallb.io/v1beta1 ServiceL2Status, by its labels as MetalLB itself reads it.

    Its status says the same, but later, and from 0.14.8 to 0.15.3 not after a move: there `status.node` cannot be
    changed, and a new speaker takes an object over by its label alone (metallb/metallb#2930). When the first speaker
    is the leader again, it finds itself in the status and writes nothing.
    """
    read = _Reading(raw)
    labels: dict[str, object] = read.value("metadata.labels", dict) or {}

    def said(label: str, field: str) -> str:
        known = read.expect("metadata.labels", labels.get(f"{METALLB}/{label}"), str) or ""
        return _once(read.short("metadata.labels", known, MAX_NAME)) or read.name(f"status.{field}")

    node, written = said("node", "node"), read.name("status.node")
    return Announcement(
        about=(said("service-namespace", "serviceNamespace"), said("service-name", "serviceName")),
        node=node,
        also=written if written != node else "",
        made=read.text("metadata.creationTimestamp"),
        version=ordered_version(read.text("metadata.resourceVersion")),
        problems=read.problems,
    )


_NODE_ASSIGNED = re.compile(r'announcing from node "([^"]+)" with protocol "layer2"')


def ordered_version(text: str) -> str:
    """A resourceVersion whose order as a text is that of the number."""
    return text.zfill(VERSION_DIGITS)


def l2_event(raw: JsonObject) -> Announcement:
    """A core/v1 Event that a MetalLB speaker writes on a Service when it begins to announce it, or checks it again.

    They are ordered by version, as the server took them (kubernetes/enhancements KEP-5504), not by the nodes' clocks.
    """
    read = _Reading(raw)
    said = _NODE_ASSIGNED.fullmatch(read.text("message", MAX_ANNOTATION))
    return Announcement(
        about=(read.name("involvedObject.namespace"), read.name("involvedObject.name")),
        node=_once(said[1]) if said else "",
        made=ordered_version(read.text("metadata.resourceVersion")),
        uid=read.text("involvedObject.uid"),
        problems=read.problems,
    )


def config_map(raw: JsonObject) -> ConfigMap:
    """A core/v1 ConfigMap; only the key config.yaml of its data."""
    read = _Reading(raw)
    data: dict[str, object] = read.value("data", dict) or {}
    text = read.expect(f"data[{CONFIG_KEY}]", data.get(CONFIG_KEY), str)
    return ConfigMap(
        namespace=read.name("metadata.namespace"),
        name=read.text("metadata.name"),
        uid=read.text("metadata.uid"),
        text=text,
    )


def _addresses(read: _Reading, texts: Iterable[tuple[str, str]]) -> tuple[Address, ...]:
    """The addresses, each once, in their order."""
    parsed = (read.parsed(place, text, _plain_address, "an IP address") for place, text in texts)
    return tuple(dict.fromkeys(address for address in parsed if address is not None))


def _texts(read: _Reading, path: str, field: str) -> Iterator[tuple[str, str]]:
    """One field of each object in a list, if it has it."""
    for place, item in read.items(path, dict):
        text = read.text(field, within=item)
        if text:
            yield place, text


def _plain_address(text: str) -> Address:
    address = ip_address(text)
    if getattr(address, "scope_id", None) is not None:
        raise ValueError("names a link of a host")
    return address


def _number(read: _Reading, path: str, most: int) -> int:
    found = read.value(path, int) or 0
    if 0 <= found <= most:
        return found
    read.problem(path, f"is not in 0..{most}")
    return 0


def _show(value: object) -> str:
    """The beginning of a value, printable; does not copy a large one."""
    if isinstance(value, (str, int, float)) and not (isinstance(value, int) and abs(value) >= 10**MAX_SHOWN):
        text = repr(value[:MAX_SHOWN] if isinstance(value, str) else value)
        return cut(text if text.isprintable() else ascii(value)[:MAX_SHOWN])
    return f"a {type(value).__name__}"
