"""The objects of the lab: plain JSON, as `kubectl apply` would send it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, TypeAlias

from arpguard.addresses import Address
from arpguard.config.model import VouchingConfig
from arpguard_lab.topology import NETWORK, NETWORK6

Json: TypeAlias = dict[str, Any]

PREFIX = "arpguard.io/"
LAB_LABEL = "arpguard-lab"  # on all that is in no namespace of the lab; on Services: which lab they are of
RANGES = (f"{NETWORK}.0/24", "198.18.0.0/15", f"{NETWORK6}::/64")
FINALIZER = "arpguard-lab/kubelet"  # holds a deleted Pod until the lab, as its kubelet, lets it go
ACCOUNT = "arpguard"
SECRET = VouchingConfig().secret
METALLB = "metallb-system"
METALLB_GROUP = "metallb.io"
L2_STATUSES = "servicel2statuses"
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"

_RBAC = "rbac.authorization.k8s.io"
_READ = ("get", "list", "watch")
_CONTAINER = {"name": "agent", "image": "arpguard:lab"}


def _object(api_version: str, kind: str, metadata: Json, **parts: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **parts}


def namespace(name: str) -> Json:
    """A Namespace."""
    return _object("v1", "Namespace", {"name": name, "labels": {LAB_LABEL: "home"}})


def lease(home: str, name: str, spec: Json) -> Json:
    """A Lease."""
    metadata = {"namespace": home, "name": name, "labels": {LAB_LABEL: "node"}}
    return _object("coordination.k8s.io/v1", "Lease", metadata, spec=spec)


def node(name: str, address: IPv4Address) -> Json:
    """A Node; what it is like goes into its status, see `node_status`."""
    labels = {"kubernetes.io/hostname": name, LAB_LABEL: "node"}
    return _object("v1", "Node", {"name": name, "labels": labels}, spec={}, status=node_status(address, ready=True))


def node_status(address: IPv4Address, *, ready: bool) -> Json:
    """The status of a Node."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "reason": "Lab",
        "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"conditions": [condition], "addresses": [{"type": "InternalIP", "address": str(address)}]}


def service(
    home: str,
    name: str,
    vips: Iterable[Address],
    annotations: Mapping[str, str] | None = None,
    *,
    local: bool = False,
) -> Json:
    """A Service with externalIPs; `annotations` without their prefix; `local`: externalTrafficPolicy Local."""
    notes = {f"{PREFIX}{key}": text for key, text in (annotations or {}).items()}
    policy = {"externalTrafficPolicy": "Local"} if local else {}
    spec = {"type": "ClusterIP", "ports": _ports(), "externalIPs": [str(vip) for vip in vips], **policy}
    return _object("v1", "Service", {**_of_the_lab(home, name), "annotations": notes}, spec=spec)


def load_balancer(home: str, name: str) -> Json:
    """A Service of another announcer; its address is in its status, see `ingress`."""
    return _object("v1", "Service", _of_the_lab(home, name), spec={"type": "LoadBalancer", "ports": _ports()})


def _ports() -> list[Json]:
    return [{"port": 80, "protocol": "TCP", "targetPort": 80}]


def _of_the_lab(home: str, name: str) -> Json:
    return {"namespace": home, "name": name, "labels": {LAB_LABEL: home}}


def ingress(vip: IPv4Address) -> Json:
    """The status of a Service that has been given an address."""
    return {"loadBalancer": {"ingress": [{"ip": str(vip), "ipMode": "VIP"}]}}


def l2_status_definition() -> Json:
    """MetalLB's CustomResourceDefinition (0.14.8 and later), as far as it matters here: what a status names stays."""
    kept = {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    }

    links = {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}
    status = {"node": kept, "serviceName": kept, "serviceNamespace": kept, "interfaces": links}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object"}, "status": {"type": "object", "properties": status}},
    }
    version = {"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}
    versions = [{**version, "schema": {"openAPIV3Schema": schema}}]

    names = {"plural": L2_STATUSES, "singular": "servicel2status", "kind": "ServiceL2Status"}
    spec = {"group": METALLB_GROUP, "scope": "Namespaced", "names": names, "versions": versions}
    name = f"{L2_STATUSES}.{METALLB_GROUP}"
    return _object("apiextensions.k8s.io/v1", "CustomResourceDefinition", {"name": name}, spec=spec)


def l2_status(home: str, service_name: str, node_name: str) -> Json:
    """What MetalLB's speaker on a node writes first about a Service; then its status, see `l2_status_of`."""
    labels = {
        "metallb.io/node": node_name,
        "metallb.io/service-name": service_name,
        "metallb.io/service-namespace": home,
    }
    metadata = {"generateName": "l2-", "namespace": METALLB, "labels": labels}
    return _object(f"{METALLB_GROUP}/v1beta1", "ServiceL2Status", metadata, spec={})


def l2_status_of(home: str, service_name: str, node_name: str) -> Json:
    """The status of a ServiceL2Status."""
    named = {"node": node_name, "serviceName": service_name, "serviceNamespace": home}
    return {"status": {**named, "interfaces": [{"name": "eth0"}]}}


def follow_access(home: str) -> list[Json]:
    """The right to read MetalLB's objects and Events, as `deploy/components/follow-metallb` gives it."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    rule = _rule(METALLB_GROUP, (L2_STATUSES,), ("list", "watch"))
    events = _rule("", ("events",), ("list",))
    name = "arpguard-follow-metallb"
    return [
        _role("Role", METALLB, name, [rule]),
        _binding("Role", METALLB, name, subject),
        _role("ClusterRole", "", f"{name}-{home}", [events]),
        _binding("ClusterRole", "", f"{name}-{home}", subject),
    ]


def endpoint_slice(home: str, name: str, ready: Mapping[str, bool]) -> Json:
    """An EndpointSlice of a Service with one endpoint on each node."""
    endpoints = [
        {"addresses": [f"10.244.{number}.10"], "conditions": {"ready": is_ready}, "nodeName": node_name}
        for number, (node_name, is_ready) in enumerate(sorted(ready.items()), 1)
    ]
    metadata = {"namespace": home, "name": name, "labels": {"kubernetes.io/service-name": name}}
    ports = [{"port": 80, "protocol": "TCP", "name": ""}]
    parts = {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
    return _object("discovery.k8s.io/v1", "EndpointSlice", metadata, **parts)


def config_map(home: str, name: str, text: str) -> Json:
    """The agents' ConfigMap."""
    return _object("v1", "ConfigMap", {"namespace": home, "name": name}, data={"config.yaml": text})


def daemon_set(home: str, name: str) -> Json:
    """The agents' DaemonSet: nothing runs it but the lab, since it fits no Node."""
    labels = {"app": name}
    template = {"nodeSelector": {LAB_LABEL: "none"}, "containers": [_CONTAINER]}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}
    return _object("apps/v1", "DaemonSet", {"namespace": home, "name": name}, spec=spec)


def pod(home: str, name: str, node_name: str) -> Json:
    """An agent's Pod on a node. No DaemonSet owns it: its controller, where one runs, would delete it."""
    spec = {"nodeName": node_name, "serviceAccountName": ACCOUNT, "containers": [_CONTAINER]}
    return _object("v1", "Pod", {**_of_the_lab(home, name), "finalizers": [FINALIZER]}, spec=spec)


def _vouching_access(home: str, subject: Json) -> list[Json]:
    """The right to read the cluster's secret, and to make it, as `deploy/base` gives it."""
    secrets = {"apiGroups": [""], "resources": ["secrets"]}
    rules = [{**secrets, "resourceNames": [SECRET], "verbs": ["get"]}, {**secrets, "verbs": ["create"]}]
    return [_role("Role", home, SECRET, rules), _binding("Role", home, SECRET, subject)]


def access(home: str) -> list[Json]:
    """The agents' ServiceAccount with its rights, where no manifests are at hand."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    wide = f"arpguard-{home}"
    at_home = [
        _rule("coordination.k8s.io", ("leases",), (*_READ, "create", "update", "patch", "delete")),
        _rule("", ("configmaps",), _READ),
        _rule("", ("pods",), ("get",)),
        _rule("apps", ("daemonsets",), ("get",)),
    ]
    everywhere = [
        _rule("", ("services", "nodes"), _READ),
        _rule("discovery.k8s.io", ("endpointslices",), _READ),
        _rule("events.k8s.io", ("events",), ("create", "patch")),
    ]
    return [
        _object("v1", "ServiceAccount", {"namespace": home, "name": ACCOUNT}),
        _role("Role", home, ACCOUNT, at_home),
        _binding("Role", home, ACCOUNT, subject),
        *_vouching_access(home, subject),
        _role("ClusterRole", "", wide, everywhere),
        _binding("ClusterRole", "", wide, subject),
    ]


def moved(documents: Iterable[Json], old: str, new: str) -> list[Json]:
    """The RBAC objects among some manifests, and the ServiceAccounts, for another namespace.

    What belongs to the whole cluster gets a name of its own, so that it is nobody else's.
    """
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    kept = [json.loads(json.dumps(each)) for each in documents if each.get("kind") in kinds]
    for each in kept:
        _move(each, old, new)
    return kept


def _move(body: Json, old: str, new: str) -> None:
    metadata = body["metadata"]
    if body["kind"].startswith("Cluster"):
        metadata["name"] = f"{metadata['name']}-{new}"
        metadata["labels"] = {**metadata.get("labels", {}), LAB_LABEL: "wide"}
        metadata.pop("namespace", None)
    else:
        metadata["namespace"] = new
    reference = body.get("roleRef", {})
    if reference.get("kind") == "ClusterRole":
        reference["name"] = f"{reference['name']}-{new}"
    for subject in body.get("subjects", ()):
        if subject.get("namespace", old) == old:
            subject["namespace"] = new


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Json:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(kind: str, home: str, name: str, rules: Sequence[Json]) -> Json:
    return _object(f"{_RBAC}/v1", kind, _named(home, name), rules=list(rules))


def _binding(kind: str, home: str, name: str, subject: Json) -> Json:
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    return _object(f"{_RBAC}/v1", f"{kind}Binding", _named(home, name), roleRef=reference, subjects=[dict(subject)])


def _named(home: str, name: str) -> Json:
    return {"name": name, **({"namespace": home} if home else {})}
