"""Services: what the server fills in, keeps and drops, and what they must say.

As in k8s.io/kubernetes pkg/apis/core/v1/defaults.go, pkg/registry/core/service and pkg/apis/core/validation. Node ports
are given out in turn, and never run out.
"""

import itertools
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, ip_address
from typing import Any, TypeAlias

from arpguard_lab.apiserver.statuses import FieldError

Json: TypeAlias = dict[str, Any]

_ADDRESSES = IPv4Network("10.96.0.0/16")
_NODE_PORTS = range(30000, 32768)
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_POLICIES = ("Cluster", "Local")
_INVALID, _REQUIRED, _FORBIDDEN = "FieldValueInvalid", "FieldValueRequired", "FieldValueForbidden"
_SPECIAL = (
    ("is_unspecified", "may not be unspecified (0.0.0.0 or ::)"),
    ("is_loopback", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
    ("is_link_local", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
)
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_ONLY_LB = "Forbidden: may only be used when `type` is 'LoadBalancer'"
_ONLY_LB_STATUS = "Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
# Fields that go when the type that they belong to does, unless the same write changed them.
_OF_THE_TYPE: Mapping[str, tuple[str, ...]] = {
    "LoadBalancer": ("allocateLoadBalancerNodePorts", "loadBalancerClass"),
    "external": ("externalTrafficPolicy",),
    "health": ("healthCheckNodePort",),
    "cluster": ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}


class Allocator:
    """Gives out cluster IPs and node ports."""

    def __init__(self) -> None:
        self._addresses = itertools.islice(_ADDRESSES.hosts(), 9, None)
        self._ports = itertools.cycle(_NODE_PORTS)

    def fill(self, body: Json, before: Json | None = None) -> None:
        """Completes a Service in place; `before` is what it replaces."""
        spec = body["spec"] = dict(body.get("spec") or {})
        old = (before or {}).get("spec") or {}
        _default(body, spec)
        _keep(spec, old)
        _drop(spec, old)
        if before is not None and spec["type"] != "LoadBalancer":
            body["status"] = {"loadBalancer": {}}
        self._allocate(spec)

    def _allocate(self, spec: Json) -> None:
        if _is(spec, "cluster"):
            if not spec.get("clusterIP"):
                spec["clusterIP"] = str(next(self._addresses))
            spec.setdefault("clusterIPs", [spec["clusterIP"]])
            is_bare = spec["clusterIP"] == "None" and not spec.get("selector")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if is_bare else ["IPv4"])
            spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_bare else "SingleStack")
        if _has_node_ports(spec):
            spec["ports"] = [{**port, "nodePort": port.get("nodePort") or next(self._ports)} for port in _ports(spec)]
        if _is(spec, "health") and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = next(self._ports)


def fill_status(body: Json) -> None:
    """Completes the status of a Service in place."""
    for point in _ingress(body.get("status") or {}):
        if point.get("ip"):
            point.setdefault("ipMode", "VIP")


def _default(body: Json, spec: Json) -> None:
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("type", "ClusterIP")
    if _is(spec, "cluster"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if _is(spec, "external"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if _is(spec, "LoadBalancer"):
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec.get("ports"):
        spec["ports"] = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in _ports(spec)]
    body.setdefault("status", {"loadBalancer": {}})
    fill_status(body)


def _keep(spec: Json, old: Json) -> None:
    """What was given out stays, though a PUT does not name it."""
    if old and _is(spec, "cluster") and _is(old, "cluster"):
        for name in _OF_THE_TYPE["cluster"]:
            if not spec.get(name) and name in old:
                spec[name] = old[name]
    if old and _has_node_ports(spec) and _needs_node_ports(old):
        given = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in _ports(old)}
        for port in _ports(spec):
            if not port.get("nodePort") and (known := given.get((port["protocol"], port.get("port")))):
                port["nodePort"] = known
    if old and _is(spec, "health") and _is(old, "health") and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = old["healthCheckNodePort"]


def _drop(spec: Json, old: Json) -> None:
    for what, names in _OF_THE_TYPE.items():
        if old and _is(old, what) and not _is(spec, what) and all(spec.get(name) == old.get(name) for name in names):
            for name in names:
                spec.pop(name, None)
    if old and _needs_node_ports(old) and not _needs_node_ports(spec):
        given = [port.get("nodePort") for port in _ports(old)]
        if [port.get("nodePort") for port in _ports(spec)] == given:
            spec["ports"] = [{name: item for name, item in port.items() if name != "nodePort"} for port in _ports(spec)]


def errors(body: Json, before: Json | None) -> Iterator[FieldError]:
    """What is wrong with a Service that is complete."""
    spec = body.get("spec") or {}
    if spec["type"] not in _TYPES:
        yield _unsupported("spec.type", spec["type"], _TYPES)

    yield from _port_errors(spec)
    for index, text in enumerate(spec.get("externalIPs") or ()):
        yield from _address_errors(f"spec.externalIPs[{index}]", text)
    yield from _policy_errors(spec)
    yield from _status_errors(body, spec)

    old = (before or {}).get("spec") or {}
    if _is(spec, "cluster") and old.get("clusterIP") and _is(old, "cluster") and spec["clusterIP"] != old["clusterIP"]:
        shown = f'["{spec["clusterIP"]}"]'
        yield FieldError("spec.clusterIPs[0]", _INVALID, f"Invalid value: {shown}: may not change once set")

    given = spec.get("loadBalancerClass")
    if _is(spec, "LoadBalancer") and _is(old, "LoadBalancer") and given != old.get("loadBalancerClass"):
        why = f'Invalid value: "{given}": may not change once set' if given else "Required value: may not be cleared"
        yield FieldError("spec.loadBalancerClass", _INVALID, why)


def _port_errors(spec: Json) -> Iterator[FieldError]:
    ports = _ports(spec)
    if not ports and _is(spec, "cluster") and spec.get("clusterIP") != "None":
        yield FieldError("spec.ports", _REQUIRED, "Required value")
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if len(ports) > 1 and not port.get("name"):
            yield FieldError(f"{path}.name", _REQUIRED, "Required value")
        for name in ("port", "targetPort"):
            number = port.get(name)
            if not isinstance(number, str) and not 1 <= (number or 0) <= 65535:
                why = f"Invalid value: {number or 0}: must be between 1 and 65535, inclusive"
                yield FieldError(f"{path}.{name}", _INVALID, why)
        if port["protocol"] not in _PROTOCOLS:
            yield _unsupported(f"{path}.protocol", port["protocol"], _PROTOCOLS)


def _address_errors(path: str, text: str) -> Iterator[FieldError]:
    try:
        address = ip_address(text)
    except ValueError:
        yield FieldError(path, _INVALID, f'Invalid value: "{text}": {_NO_ADDRESS}')
        return
    for name, why in _SPECIAL:
        if getattr(address, name):
            yield FieldError(path, _INVALID, f'Invalid value: "{text}": {why}')


def _policy_errors(spec: Json) -> Iterator[FieldError]:
    policy = spec.get("externalTrafficPolicy")
    if policy and not _is(spec, "external"):
        why = f'Invalid value: "{policy}": may only be set for externally-accessible services'
        yield FieldError("spec.externalTrafficPolicy", _INVALID, why)
    elif policy and policy not in _POLICIES:
        yield _unsupported("spec.externalTrafficPolicy", policy, _POLICIES)
    for name in _OF_THE_TYPE["LoadBalancer"]:
        if spec.get(name) is not None and not _is(spec, "LoadBalancer"):
            yield FieldError(f"spec.{name}", _FORBIDDEN, _ONLY_LB)


def _status_errors(body: Json, spec: Json) -> Iterator[FieldError]:
    points = _ingress(body.get("status") or {})
    if points and not _is(spec, "LoadBalancer"):
        yield FieldError("status.loadBalancer.ingress", _FORBIDDEN, _ONLY_LB_STATUS)
    for index, point in enumerate(points):
        try:
            ip_address(point.get("ip") or "192.0.2.1")
        except ValueError:
            path = f"status.loadBalancer.ingress[{index}].ip"
            yield FieldError(path, _INVALID, f'Invalid value: "{point["ip"]}": {_NO_ADDRESS}')


def _is(spec: Json, what: str) -> bool:
    """Whether a Service is of a type, or such that a group of fields applies to it."""
    kind = spec.get("type")
    if what == "cluster":
        return kind != "ExternalName"
    if what == "external":
        return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if what == "health":
        return kind == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"
    return kind == what


def _needs_node_ports(spec: Json) -> bool:
    return spec.get("type") in ("NodePort", "LoadBalancer")


def _has_node_ports(spec: Json) -> bool:
    return spec.get("type") == "NodePort" or (_is(spec, "LoadBalancer") and bool(spec["allocateLoadBalancerNodePorts"]))


def _ports(spec: Json) -> list[Json]:
    return list(spec.get("ports") or ())


def _ingress(status: Json) -> list[Json]:
    return list((status.get("loadBalancer") or {}).get("ingress") or ())


def _unsupported(path: str, value: str, supported: tuple[str, ...]) -> FieldError:
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError(path, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}')
