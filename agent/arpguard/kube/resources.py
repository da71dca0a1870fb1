"""The kinds of objects that the agent reads and writes, and requests about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from arpguard.kube.errors import JsonObject


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind by its place in the API; `group` is empty for the core group."""

    group: str
    version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The URL path of a collection, or of one object; without a namespace, for the whole cluster."""
        prefix = ("apis", self.group) if self.group else ("api",)
        scope = ("namespaces", namespace) if namespace else ()
        parts = (*prefix, self.version, *scope, self.plural, *((name,) if name else ()))
        return "".join("/" + quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


SERVICES = Resource("", "v1", "services")
NODES = Resource("", "v1", "nodes")
CONFIG_MAPS = Resource("", "v1", "configmaps")
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices")
LEASES = Resource("coordination.k8s.io", "v1", "leases")
L2_STATUSES = Resource("metallb.io", "v1beta1", "servicel2statuses")
SECRETS = Resource("", "v1", "secrets")
PODS = Resource("", "v1", "pods")
DAEMON_SETS = Resource("apps", "v1", "daemonsets")
EVENTS = Resource("events.k8s.io", "v1", "events")
CORE_EVENTS = Resource("", "v1", "events")  # the same objects, in the form that most programs write

# RBAC's verbs, and HTTP's methods for them.
METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, by its RBAC verb."""

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None
    subresource: str = ""

    @property
    def path(self) -> str:
        """The URL path."""
        below = f"/{self.subresource}" if self.subresource else ""
        return self.resource.path(self.namespace, self.name) + below

    @property
    def what(self) -> str:
        """The resource as messages name it: "leases.coordination.k8s.io arpguard/node.a"."""
        place = "/".join(part for part in (self.namespace, self.name) if part)
        below = f"/{self.subresource}" if self.subresource else ""
        return f"{self.resource}{below} {place}".rstrip()


@dataclass(frozen=True, slots=True)
class Discovery(Request):
    """A request for the list of resources in a group and version; every authenticated user may ask."""

    @property
    def path(self) -> str:
        """The URL path of the group and version."""
        return self.resource.path().rpartition("/")[0]
