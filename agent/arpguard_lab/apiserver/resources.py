"""The kinds of objects that the server keeps: one table row each, and custom ones as they are registered."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arpguard_lab.apiserver import naming

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object: where it is found, and the rules of its registry that differ from kind to kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    status: bool = False  # `status` is written through its own subresource only
    generation: bool = False  # metadata.generation counts the changes of the specification
    unconditional: bool = True  # PUT may leave the resourceVersion out
    upsert: bool = False  # PUT creates what is not there
    custom: bool = False  # from a CustomResourceDefinition
    name_rule: naming.Rule = naming.SUBDOMAIN
    keeps: tuple[str, str] | None = None  # the (group, plural) under which it is stored, if that is another one
    renames: tuple[tuple[str, str], ...] = ()  # (field here, field there), where it is stored as another one
    deprecated: str = ""  # the Warning that every request gets
    schema: Mapping[str, Any] | None = field(default=None, compare=False)  # of a custom one's definition

    @property
    def api_version(self) -> str:
        """As in manifests: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """As in messages: `services`, `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def table(self) -> tuple[str, str]:
        """Where the store keeps it; all versions of a resource are one."""
        return self.keeps or (self.group, self.plural)

    @property
    def path(self) -> str:
        """The root of its URLs, without a namespace."""
        return f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"


_EVENT_RENAMES = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)
_RBAC = "rbac.authorization.k8s.io"
_OLD_ENDPOINTS = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"

NAMESPACES = Resource(
    "", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), status=True, name_rule=naming.LABEL
)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True)
SERVICES = Resource("", "v1", "services", "Service", short=("svc",), status=True, name_rule=naming.OLD_LABEL)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",))
PODS = Resource("", "v1", "pods", "Pod", short=("po",), status=True, generation=True)
EVENTS = Resource("", "v1", "events", "Event", short=("ev",), upsert=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", unconditional=False, upsert=True)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True)
NEW_EVENTS = Resource(
    "events.k8s.io", "v1", "events", "Event", short=("ev",), upsert=True, keeps=EVENTS.table, renames=_EVENT_RENAMES
)
ROLES = Resource(_RBAC, "v1", "roles", "Role", upsert=True, name_rule=naming.SEGMENT)
ROLE_BINDINGS = Resource(_RBAC, "v1", "rolebindings", "RoleBinding", upsert=True, name_rule=naming.SEGMENT)
CLUSTER_ROLES = Resource(
    _RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, upsert=True, name_rule=naming.SEGMENT
)
CLUSTER_ROLE_BINDINGS = Resource(
    _RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False, upsert=True, name_rule=naming.SEGMENT
)
CUSTOM_RESOURCES = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    short=("crd", "crds"),
    status=True,
    generation=True,
    unconditional=False,
)
BUILT_IN = (
    NAMESPACES,
    NODES,
    SERVICES,
    EVENTS,
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Resource("", "v1", "secrets", "Secret"),
    SERVICE_ACCOUNTS,
    PODS,
    Resource("", "v1", "endpoints", "Endpoints", short=("ep",), upsert=True, deprecated=_OLD_ENDPOINTS),
    Resource("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), status=True, generation=True),
    Resource("apps", "v1", "deployments", "Deployment", short=("deploy",), status=True, generation=True),
    LEASES,
    ENDPOINT_SLICES,
    NEW_EVENTS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    CUSTOM_RESOURCES,
    Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", short=("netpol",), generation=True),
    Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), status=True),
)


class Catalogue:
    """The resources that there are now."""

    def __init__(self) -> None:
        self._by_path = {(each.group, each.version, each.plural): each for each in BUILT_IN}

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._by_path.values())

    def register(self, resource: Resource) -> None:
        """Adds one, or replaces it."""
        self._by_path[resource.group, resource.version, resource.plural] = resource

    def forget(self, group: str, plural: str) -> None:
        """Takes every version of one away."""
        self._by_path = {path: each for path, each in self._by_path.items() if path[::2] != (group, plural)}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """By its URL."""
        return self._by_path.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """By what a manifest says."""
        return next((each for each in self if (each.api_version, each.kind) == (api_version, kind)), None)

    def versions(self) -> dict[str, list[str]]:
        """Group -> its versions."""
        found: dict[str, list[str]] = {}
        for each in self:
            versions = found.setdefault(each.group, [])
            if each.version not in versions:
                versions.append(each.version)
        return found


def from_definition(definition: dict[str, Any]) -> list[Resource]:
    """The resources of a CustomResourceDefinition, one per served version."""
    spec = definition["spec"]
    names = spec["names"]

    return [
        Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            short=tuple(names.get("shortNames", ())),
            status="status" in version.get("subresources", {}),
            generation=True,
            unconditional=False,
            custom=True,
            schema=version.get("schema", {}).get("openAPIV3Schema"),
        )
        for version in spec["versions"]
        if version.get("served")
    ]
