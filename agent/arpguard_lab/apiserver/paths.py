"""URLs to what they ask for: resource, namespace, name, subresource, and the verb that RBAC knows it by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.resources import Catalogue, Resource

_VERBS = {
    ("GET", False): "list",
    ("POST", False): "create",
    ("DELETE", False): "deletecollection",
    ("GET", True): "get",
    ("POST", True): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
}
_ON_STATUS = ("get", "update", "patch")
_SUBRESOURCES = {
    ("namespaces", "finalize"): ("update",),
    ("serviceaccounts", "token"): ("create",),
    ("pods", "exec"): ("get",),
    ("pods", "log"): ("get",),
}
_IN_ALL_NAMESPACES = ("list", "watch")
_TRUE = ("1", "true")
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about."""

    verb: str
    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Its key in the store."""
        return self.namespace, self.name

    @property
    def resource_path(self) -> str:
        """Its resource as RBAC calls it: `nodes`, `nodes/status`."""
        return f"{self.resource.plural}/{self.subresource}".rstrip("/")


def is_true(query: Mapping[str, str], name: str) -> bool:
    """A switch in a query."""
    return query.get(name, "").lower() in _TRUE


def parse(catalogue: Catalogue, method: str, path: str, query: Mapping[str, str]) -> Target | None:
    """The target of a URL below /api or /apis; None if it has no resource. 404 or 405 if there is no such thing."""
    prefix, *parts = path.strip("/").split("/")
    head = {"api": 1, "apis": 2}.get(prefix)
    if head is None or len(parts) <= head:
        return None

    group, version = ("", parts[0]) if head == 1 else (parts[0], parts[1])
    namespace, rest = _split_namespace(parts[head:])
    plural, name, subresource = [*rest, "", "", ""][:3]

    resource = catalogue.find(group, version, plural)
    if resource is None or len(rest) > 3 or bool(namespace) > resource.namespaced:
        raise statuses.no_such_path()
    if name and resource.namespaced and not namespace:
        raise statuses.no_such_path()

    verb = _verb(method, bool(name), query)
    target = Target(verb, resource, namespace, name, subresource)
    _check(target)
    return target


def _split_namespace(parts: Sequence[str]) -> tuple[str, Sequence[str]]:
    """/namespaces/NAME is an object, as is its status; anything else below it is in it."""
    if parts[0] == "namespaces" and len(parts) > 2 and parts[2] not in ("status", "finalize"):
        return parts[1], parts[2:]
    return "", parts


def _verb(method: str, named: bool, query: Mapping[str, str]) -> str:  # noqa: FBT001 - a key of the table
    verb = _VERBS.get((method, named))
    if verb is None:
        raise statuses.method_not_allowed()
    return "watch" if verb == "list" and is_true(query, "watch") else verb


def _check(target: Target) -> None:
    resource = target.resource
    if target.subresource and target.verb not in _verbs_on(resource, target.subresource):
        raise statuses.method_not_allowed()
    if target.verb == "create" and target.name and not target.subresource:
        raise statuses.method_not_allowed()
    if resource.namespaced and not target.namespace and target.verb not in _IN_ALL_NAMESPACES:
        raise statuses.method_not_allowed()


def _verbs_on(resource: Resource, subresource: str) -> Sequence[str]:
    """What may be done with a subresource; 404 if there is no such thing."""
    if subresource == "status" and resource.status:
        return _ON_STATUS
    verbs = _SUBRESOURCES.get((resource.plural, subresource))
    if verbs is None:
        raise statuses.no_such_path()
    return verbs
