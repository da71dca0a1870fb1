"""The objects of the lab: plain JSON, as `kubectl apply` would send it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from ipaddress import IPv4Address
from typing import Any, TypeAlias

from arpguard.addresses import Address
from arpguard_lab.topology import NETWORK, NETWORK6

Json: TypeAlias = dict[str, Any]

PREFIX = "arpguard.io/"
LAB_LABEL = "arpguard-lab"  # on all that is in no namespace of the lab; on Services: which lab they are of
RANGES = (f"{NETWORK}.0/24", "198.18.0.0/15", f"{NETWORK6}::/64")
FINALIZER = "arpguard-lab/kubelet"  # holds a deleted Pod until the lab, as its kubelet, lets it go
ACCOUNT = "arpguard"
METALLB = "metallb-system"
METALLB_GROUP = "metallb.io"
L2_STATUSES = "servicel2statuses"
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"

_LEASES = {
    "apiGroups": ["coordination.k8s.io"],
    "resources": ["leases"],
    "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"],
}
_CONFIG = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_DAEMONSETS = {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]}
_WATCHED = {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]}
_SLICES = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
_EVENTS = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}
_RBAC = "rbac.authorization.k8s.io"


def namespace(name: str) -> Json:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LAB_LABEL: "home"}}}


def lease(home: str, name: str, spec: Json) -> Json:
    """A Lease."""
    metadata = {"namespace": home, "name": name, "labels": {LAB_LABEL: "node"}}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def node(name: str, address: IPv4Address) -> Json:
    """A Node; what it is like goes into its status, see `node_status`."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, LAB_LABEL: "node"}},
        "spec": {},
        "status": node_status(address, ready=True),
    }


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
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": home,
            "name": name,
            "labels": {LAB_LABEL: home},
            "annotations": {f"{PREFIX}{key}": text for key, text in (annotations or {}).items()},
        },
        "spec": {
            "type": "ClusterIP",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "externalIPs": [str(vip) for vip in vips],
            **({"externalTrafficPolicy": "Local"} if local else {}),
        },
    }


def load_balancer(home: str, name: str) -> Json:
    """A Service of another announcer; its address is in its status, see `ingress`."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": home, "name": name, "labels": {LAB_LABEL: home}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
    }


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

    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{L2_STATUSES}.{METALLB_GROUP}"},
        "spec": {
            "group": METALLB_GROUP,
            "scope": "Namespaced",
            "names": {"plural": L2_STATUSES, "singular": "servicel2status", "kind": "ServiceL2Status"},
            "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def l2_status(home: str, service_name: str, node_name: str) -> Json:
    """What MetalLB's speaker on a node writes first about a Service; then its status, see `l2_status_of`."""
    return {
        "apiVersion": f"{METALLB_GROUP}/v1beta1",
        "kind": "ServiceL2Status",
        "metadata": {
            "generateName": "l2-",
            "namespace": METALLB,
            "labels": {
                "metallb.io/node": node_name,
                "metallb.io/service-name": service_name,
                "metallb.io/service-namespace": home,
            },
        },
        "spec": {},
    }


def l2_status_of(home: str, service_name: str, node_name: str) -> Json:
    """The status of a ServiceL2Status."""
    named = {"node": node_name, "serviceName": service_name, "serviceNamespace": home}
    return {"status": {**named, "interfaces": [{"name": "eth0"}]}}


def follow_access(home: str) -> list[Json]:
    """The right to read MetalLB's objects and Events, as `deploy/components/follow-metallb` gives it."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    rule = {"apiGroups": [METALLB_GROUP], "resources": [L2_STATUSES], "verbs": ["list", "watch"]}
    events = {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}
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
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": home, "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
    }


def config_map(home: str, name: str, text: str) -> Json:
    """The agents' ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": home, "name": name},
        "data": {"config.yaml": text},
    }


def daemon_set(home: str, name: str) -> Json:
    """The agents' DaemonSet: nothing runs it but the lab, since it fits no Node."""
    labels = {"app": name}
    template = {"nodeSelector": {LAB_LABEL: "none"}, "containers": [_CONTAINER]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"namespace": home, "name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


_CONTAINER = {"name": "agent", "image": "localhost/arpguard:lab"}


def pod(home: str, name: str, node_name: str) -> Json:
    """An agent's Pod on a node. No DaemonSet owns it: its controller, where one runs, would delete it."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": home, "name": name, "labels": {LAB_LABEL: home}, "finalizers": [FINALIZER]},
        "spec": {"nodeName": node_name, "serviceAccountName": ACCOUNT, "containers": [_CONTAINER]},
    }


def access(home: str) -> list[Json]:
    """The agents' ServiceAccount with its rights, where no manifests are at hand."""
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home}
    wide = f"arpguard-{home}"
    made = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": home, "name": ACCOUNT}},
        _role("Role", home, ACCOUNT, [_LEASES, _CONFIG, _PODS, _DAEMONSETS]),
        _binding("Role", home, ACCOUNT, subject),
        _role("ClusterRole", "", wide, [_WATCHED, _SLICES, _EVENTS]),
        _binding("ClusterRole", "", wide, subject),
    ]
    return deepcopy(made)  # whoever gets them may change them


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


def _role(kind: str, home: str, name: str, rules: Sequence[Json]) -> Json:
    metadata = {"name": name, **({"namespace": home} if home else {})}
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def _binding(kind: str, home: str, name: str, subject: Json) -> Json:
    metadata = {"name": name, **({"namespace": home} if home else {})}
    reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
    body = {"apiVersion": f"{_RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata}
    return {**body, "roleRef": reference, "subjects": [subject]}
