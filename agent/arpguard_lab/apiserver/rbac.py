"""RBAC over the Roles and bindings that are in the store, so that what is applied holds at once.

It tells what a client may do (`grants`), so that a test can compare it with what the client did.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.clients import Client
from arpguard_lab.apiserver.paths import Target
from arpguard_lab.apiserver.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from arpguard_lab.apiserver.store import Store

Json: TypeAlias = dict[str, Any]

_ADMINISTRATORS = "system:masters"
_ALL = "*"
_FOR_EVERYBODY = "system:"  # the bindings below

DEFAULT_MANIFESTS: list[Json] = list(
    yaml.safe_load_all("""
kind: ClusterRole
metadata: {name: cluster-admin}
rules:
  - {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
  - {nonResourceURLs: ["*"], verbs: ["*"]}
---
kind: ClusterRole
metadata: {name: "system:discovery"}
rules:
  - nonResourceURLs: [/api, /api/*, /apis, /apis/*, /openapi, /openapi/*]
    verbs: [get]
---
kind: ClusterRole
metadata: {name: "system:public-info-viewer"}
rules:
  - nonResourceURLs: [/healthz, /livez, /readyz, /version, /version/]
    verbs: [get]
---
kind: ClusterRole
metadata: {name: "system:basic-user"}
rules:
  - {apiGroups: [authorization.k8s.io], resources: [selfsubjectaccessreviews], verbs: [create]}
  - {apiGroups: [authentication.k8s.io], resources: [selfsubjectreviews], verbs: [create]}
---
kind: ClusterRoleBinding
metadata: {name: "system:discovery"}
roleRef: {kind: ClusterRole, name: "system:discovery"}
subjects: [{kind: Group, name: "system:authenticated"}]
---
kind: ClusterRoleBinding
metadata: {name: "system:public-info-viewer"}
roleRef: {kind: ClusterRole, name: "system:public-info-viewer"}
subjects: [{kind: Group, name: "system:authenticated"}, {kind: Group, name: "system:unauthenticated"}]
---
kind: ClusterRoleBinding
metadata: {name: "system:basic-user"}
roleRef: {kind: ClusterRole, name: "system:basic-user"}
subjects: [{kind: Group, name: "system:authenticated"}]
""")
)


@dataclass(frozen=True, slots=True)
class Use:
    """What a request needs: a verb on a resource in a namespace, or ("") in the whole cluster."""

    verb: str
    group: str
    resource: str  # with a subresource: `nodes/status`
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a rule allows: as a use, with wildcards."""

    verb: str
    group: str
    resource: str
    namespace: str = ""  # "": everywhere
    names: tuple[str, ...] = ()  # (): whatever its name

    def covers(self, use: Use) -> bool:
        """Whether it allows a use."""
        wanted = ((self.verb, use.verb), (self.group, use.group), (self.resource, use.resource))
        return (
            all(
                _ALL in (allowed, *_of_any_subresource(allowed, asked)) or allowed == asked for allowed, asked in wanted
            )
            and self.namespace in ("", use.namespace)
            and (not self.names or use.name in self.names)
        )


def use_of(target: Target, name: str) -> Use:
    """The use that a request for a resource is. A list with a selector for one name has that name."""
    return Use(target.verb, target.resource.group, target.resource_path, target.namespace, name)


class Rbac:
    """The authorizer. Without manifests of one's own it is off, and everybody may do everything."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.enabled = False

    def require(self, client: Client, use: Use) -> None:
        """403 unless the client may."""
        if self.allows(client, use):
            return
        where = f'in the namespace "{use.namespace}"' if use.namespace else "at the cluster scope"
        what = f'cannot {use.verb} resource "{use.resource}" in API group "{use.group}" {where}'
        plural = use.resource.partition("/")[0]
        raise statuses.forbidden_use(plural, use.group, use.name, f'User "{client.user}" {what}')

    def require_path(self, client: Client, verb: str, path: str) -> None:
        """403 unless the client may use a path without a resource."""
        if not self.enabled or _ADMINISTRATORS in client.groups:
            return
        for rule, _namespace in self._rules(client):
            if verb in rule["verbs"] and any(_path_matches(each, path) for each in rule.get("nonResourceURLs", ())):
                return
        raise statuses.forbidden_path(client.user, verb, path)

    def allows(self, client: Client, use: Use) -> bool:
        """Whether the client may."""
        if not self.enabled or _ADMINISTRATORS in client.groups:
            return True
        return any(grant.covers(use) for grant in self.grants(client))

    def grants(self, client: Client, *, own: bool = False) -> Iterator[Grant]:
        """All that the client may do with resources; `own` leaves out what everybody may."""
        for rule, namespace in self._rules(client, own=own):
            for group in rule.get("apiGroups", ()):
                for resource in rule.get("resources", ()):
                    names = tuple(rule.get("resourceNames", ()))
                    yield from (Grant(verb, group, resource, namespace, names) for verb in rule["verbs"])

    def _rules(self, client: Client, *, own: bool = False) -> Iterator[tuple[Json, str]]:
        """The rules that are bound to a client, each with the namespace that it holds in."""
        for table in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            for (namespace, name), binding in self._store.table(table).live.items():
                if own and name.startswith(_FOR_EVERYBODY):
                    continue
                if any(_is_subject(subject, client) for subject in binding.body.get("subjects") or ()):
                    reference = binding.body["roleRef"]
                    yield from ((rule, namespace) for rule in self._rules_of(reference, namespace))

    def _rules_of(self, reference: Json, namespace: str) -> list[Json]:
        resource = CLUSTER_ROLES if reference["kind"] == "ClusterRole" else ROLES
        key = (namespace if resource.namespaced else "", reference["name"])
        role = self._store.table(resource).live.get(key)
        return list(role.body.get("rules") or ()) if role else []


def _is_subject(subject: Json, client: Client) -> bool:
    if subject["kind"] == "Group":
        return subject["name"] in client.groups
    if subject["kind"] == "ServiceAccount":
        return client.user == f"system:serviceaccount:{subject.get('namespace', '')}:{subject['name']}"
    return bool(subject["name"] == client.user)


def _of_any_subresource(allowed: str, asked: str) -> tuple[str, ...]:
    """`*/status` allows the status of everything."""
    return (_ALL,) if allowed.startswith("*/") and asked.endswith(allowed[1:]) else ()


def _path_matches(allowed: str, path: str) -> bool:
    return path.startswith(allowed[:-1]) if allowed.endswith(_ALL) else path == allowed
