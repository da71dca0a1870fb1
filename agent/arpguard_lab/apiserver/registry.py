"""What writes do to the store, by the rules of a kube-apiserver's generic registry.

A PUT is a compare-and-swap on resourceVersion and uid. A write that changes nothing does not count: no new
revision, no event.
"""

import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from arpguard_lab.apiserver import admission, decoding, managing, patching, resources, schemas, selectors, statuses
from arpguard_lab.apiserver.deleting import Deleting, may_go, now
from arpguard_lab.apiserver.managing import Manager
from arpguard_lab.apiserver.paths import Target, is_true
from arpguard_lab.apiserver.resources import (
    CUSTOM_RESOURCES,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Catalogue,
    Resource,
)
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import Key, Store, Stored, renamed, to_bytes

Json: TypeAlias = dict[str, Any]

_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels: no words (k8s.io/apimachinery/util/rand)
_SERVERS_OWN = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink")
_KEEPS_STATUS = ("nodes", "namespaces")  # whose creation may set it
_RETURNS_OBJECT = ("services", "pods", "namespaces", "serviceaccounts")  # by a deletion; others return a Status
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_DEFAULT_ACCOUNT = "default"
APPLY_PATCH = "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_MERGE_PATCH = "application/merge-patch+json"
_STRATEGIC_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Write:
    """A write that was asked for."""

    target: Target
    body: Any  # JSON, or None
    query: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    program: str = "lab"  # that writes, where the query names no manager

    @property
    def dry(self) -> bool:
        """Whether nothing may come of it."""
        return "dryRun" in self.query

    @property
    def manager(self) -> Manager:
        """Who manages what is written."""
        operation = managing.APPLY if self.content_type == APPLY_PATCH else managing.UPDATE
        return Manager(self.program, operation, self.target.subresource)


@dataclass(frozen=True, slots=True)
class Done:
    """What a write answers."""

    code: int
    stored: Stored | None = None
    status: Json | None = None
    items: tuple[Stored, ...] | None = None
    warnings: tuple[str, ...] = ()


class Registry:
    """All verbs that write."""

    def __init__(self, store: Store, catalogue: Catalogue, *, bare: bool) -> None:
        """`bare`: as where no kube-controller-manager runs."""
        self._store = store
        self._catalogue = catalogue
        self._bare = bare
        self._defaults = admission.Defaults()
        self._deleting = Deleting(store, catalogue, bare=bare)
        for name in _FIRST_NAMESPACES:
            self.create(Write(Target("create", NAMESPACES), {"metadata": {"name": name}}))

    def perform(self, write: Write, may_create: Callable[[], None]) -> Done:
        """Does a write; `may_create` refuses a PUT that turns out to create."""
        if write.target.subresource == "finalize":
            return self._finalize(write)
        if write.target.verb == "update":
            return self._update(write, may_create)
        if write.target.verb == "patch":
            return self._patch(write, may_create)
        verbs: dict[str, Callable[[Write], Done]] = {
            "create": self.create,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        return verbs[write.target.verb](write)

    def create(self, write: Write) -> Done:
        """POST."""
        body, unknown = self._decoded(write)
        target = write.target
        metadata = body["metadata"]
        if metadata.get("resourceVersion"):
            raise statuses.internal("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + "".join(random.choices(_NAME_LETTERS, k=5))  # noqa: S311
        key = (target.namespace, metadata.get("name", ""))
        if target.resource.status and target.resource.plural not in _KEEPS_STATUS:
            body.pop("status", None)
        return self._insert(write, key, body, unknown)

    def put(self, resource: Resource, body: Json) -> Stored:
        """Puts an object as it is, `status` too, whatever is there: how tests and manifests set the scene."""
        body, _unknown = decoding.decode(resource, body)
        metadata = body["metadata"]
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
            self._ensure_namespace(metadata["namespace"])

        key = (metadata.get("namespace", ""), metadata.get("name", ""))
        before = self._store.table(resource).live.get(key)
        metadata.pop("resourceVersion", None)
        if before is None:
            self._begin(resource, key, body)
        else:
            _keep_own(before.body, body)
            self._defaults.refill(resource, body, before.body)

        admission.validate(resource, body)
        stored = self._store.write(resource, key, body)
        self._follow(resource, stored)
        return stored

    def _ensure_namespace(self, name: str) -> None:
        if ("", name) not in self._store.table(NAMESPACES).live:
            self.put(NAMESPACES, {"metadata": {"name": name}})

    def _insert(self, write: Write, key: Key, body: Json, unknown: list[str]) -> Done:
        resource = write.target.resource
        self._check_namespace(resource, key)
        if resource == PODS:
            self._check_account(key, body)

        self._begin(resource, key, body)
        _complete(resource, body)
        admission.validate(resource, body)
        if write.manager.operation == managing.UPDATE:
            managing.track(resource, None, body, write.manager)

        if key in self._store.table(resource).live:
            raise statuses.already_exists(resource, key[1])

        stored = Stored(body, 0) if write.dry else self._store.write(resource, key, body)
        if not write.dry:
            self._follow(resource, stored)
        return Done(201, stored, warnings=_warnings(resource, body, unknown))

    def _begin(self, resource: Resource, key: Key, body: Json) -> None:
        """Gives a new object what only the server gives."""
        metadata = body["metadata"]
        for name in _SERVERS_OWN:
            metadata.pop(name, None)
        if resource.namespaced:
            metadata["namespace"] = key[0]
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = now()
        if resource.generation:
            metadata["generation"] = 1
        self._defaults.fill(resource, body)

    def _check_namespace(self, resource: Resource, key: Key) -> None:
        if not resource.namespaced:
            return
        namespace = self._store.table(NAMESPACES).live.get(("", key[0]))
        if namespace is None:
            raise statuses.not_found(NAMESPACES, key[0])
        if namespace.body["metadata"].get("deletionTimestamp"):
            raise statuses.terminating(resource, *key)

    def _check_account(self, key: Key, body: Json) -> None:
        """A Pod needs its ServiceAccount; the one that is called `default` is made by kube-controller-manager."""
        name = (body.get("spec") or {}).get("serviceAccountName") or _DEFAULT_ACCOUNT
        is_there = (key[0], name) in self._store.table(SERVICE_ACCOUNTS).live
        if not is_there and (self._bare or name != _DEFAULT_ACCOUNT):
            why = f'error looking up service account {key[0]}/{name}: serviceaccount "{name}" not found'
            raise statuses.forbidden_use("pods", "", key[1], why)

    def _finalize(self, write: Write) -> Done:
        """PUT of what a namespace waits for before it goes."""
        before = self._store.table(NAMESPACES).live.get(write.target.key)
        if before is None:
            raise statuses.not_found(NAMESPACES, write.target.name)
        finalizers = (write.body.get("spec") or {}).get("finalizers") or []
        return Done(200, before if write.dry else self._deleting.finalize(write.target.key, before, finalizers))

    def _update(self, write: Write, may_create: Callable[[], None]) -> Done:
        """PUT."""
        target, resource = write.target, write.target.resource
        body, unknown = self._decoded(write)
        metadata = body["metadata"]

        _check_name(target, metadata.get("name", ""))
        before = self._store.table(resource).live.get(target.key)
        if metadata.get("uid") and (before or resource.upsert):
            _check_uid(target, before, metadata["uid"])

        if before is None:
            if not resource.upsert or target.subresource:
                raise statuses.not_found(resource, target.name)
            may_create()
            metadata.pop("resourceVersion", None)  # that of a missing object is not compared
            return self._insert(write, target.key, body, unknown)

        version = metadata.get("resourceVersion")
        if not version and not resource.unconditional:
            raise statuses.version_required(resource, target.name)
        _check_version(target, before, version)

        return self._replace(write, before, body, unknown)

    def _apply(self, write: Write, before: Stored | None, may_create: Callable[[], None]) -> Done:
        """Server-side apply."""
        target, resource = write.target, write.target.resource
        applied = _applicable(write)
        metadata = applied["metadata"]

        _check_name(target, metadata.get("name", target.name))
        metadata["name"] = target.name

        if before is not None:
            _check_uid(target, before, metadata.get("uid") or before.body["metadata"]["uid"])
            _check_version(target, before, metadata.get("resourceVersion"))
        elif target.subresource:
            raise statuses.not_found(resource, target.name)

        body, unknown = self._decoded(write, applied)
        for part in ("status",) if resource.status and not target.subresource else ():
            body.pop(part, None)
        if target.subresource:
            body = {"status": body.get("status") or {}}

        force = is_true(write.query, "force")
        if before is None:
            may_create()
            made = managing.apply(resource, {"metadata": {}}, body, write.manager, force=force)
            return self._insert(write, target.key, made, unknown)

        shown = {**before.body, "metadata": {**before.body["metadata"]}}
        return self._replace(write, before, managing.apply(resource, shown, body, write.manager, force=force), unknown)

    def _patch(self, write: Write, may_create: Callable[[], None]) -> Done:
        """PATCH, of whichever kind the content type says."""
        target, resource = write.target, write.target.resource
        before = self._store.table(resource).live.get(target.key)
        if write.content_type == APPLY_PATCH:
            return self._apply(write, before, may_create)
        if write.content_type not in _PATCHES or (resource.custom and write.content_type == _STRATEGIC_PATCH):
            raise statuses.unsupported_patch()
        if before is None:
            raise statuses.not_found(resource, target.name)
        body, unknown = self._patched(write, before)
        _check_uid(target, before, body["metadata"].get("uid", ""))
        _check_version(target, before, body["metadata"].get("resourceVersion"))
        return self._replace(write, before, body, unknown)

    def _patched(self, write: Write, before: Stored) -> tuple[Json, list[str]]:
        resource = write.target.resource
        kind, apply = _PATCHES[write.content_type]
        if not isinstance(write.body, kind):
            message = f"error decoding patch: json: cannot unmarshal {type(write.body).__name__}"
            raise statuses.bad_request(message)
        shown = {"apiVersion": resource.api_version, "kind": resource.kind, **renamed(before.body, resource)}
        patched = apply(shown, write.body)
        try:
            return self._decoded(write, patched)
        except ApiError as error:
            why = error.message.rpartition(f"as a {resource.kind}: ")[2]
            raise statuses.unfit_patch(to_bytes(patched).decode(), why) from error

    def _replace(self, write: Write, before: Stored, body: Json, unknown: list[str]) -> Done:
        """The end of PUT and PATCH."""
        target, resource = write.target, write.target.resource
        managed = body["metadata"].get("managedFields")  # by an apply

        _complete(resource, body)
        _keep_own(before.body, body)
        after = _parts(resource, before.body, body, subresource=target.subresource)
        self._defaults.refill(resource, after, before.body, subresource=target.subresource)
        admission.validate_update(resource, before.body, after)
        admission.validate(resource, after, before.body)
        if resource.generation and _specification(before.body) != _specification(after):
            after["metadata"]["generation"] = before.body["metadata"].get("generation", 0) + 1

        warnings = _warnings(resource, after, unknown)
        if managed is not None:
            after["metadata"] = {**after["metadata"], "managedFields": managed}
        else:
            managing.track(resource, before.body, after, write.manager)

        if after == before.body:
            return Done(200, before, warnings=warnings)
        if write.dry:
            return Done(200, Stored(after, before.revision), warnings=warnings)
        if may_go(after):
            self._deleting.remove(resource, target.key)
            return Done(200, Stored(after, before.revision), warnings=warnings)

        stored = self._store.write(resource, target.key, after)
        self._follow(resource, stored)
        return Done(200, stored, warnings=warnings)

    def _delete(self, write: Write) -> Done:
        """DELETE of one object."""
        target, resource = write.target, write.target.resource
        before = self._store.table(resource).live.get(target.key)
        if before is None:
            raise statuses.not_found(resource, target.name)
        _check_preconditions(target, before, write.body or {})
        left = before if write.dry else self._deleting.finish(resource, target.key, before)
        if left is not None and (not write.dry or resource.plural in _RETURNS_OBJECT):
            return Done(200, left)
        if resource.plural in _RETURNS_OBJECT:
            return Done(200, before)
        return Done(200, status=statuses.success(resource, target.name, before.body["metadata"]["uid"]))

    def _delete_collection(self, write: Write) -> Done:
        """DELETE of what is in a namespace, or matches."""
        target, resource = write.target, write.target.resource
        query = write.query
        wanted = selectors.parse(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
        chosen = {
            key: stored
            for key, stored in self._store.table(resource).live.items()
            if key[0] == target.namespace and (wanted is None or wanted(stored.body))
        }
        for key, stored in chosen.items():
            if not write.dry:
                self._deleting.finish(resource, key, stored)
        return Done(200, items=tuple(chosen.values()))

    def _follow(self, resource: Resource, stored: Stored) -> None:
        """A CustomResourceDefinition brings its resources along."""
        if resource == CUSTOM_RESOURCES:
            for defined in resources.from_definition(stored.body):
                self._catalogue.register(defined)

    def _decoded(self, write: Write, body: Any = None) -> tuple[Json, list[str]]:
        target, resource = write.target, write.target.resource
        decoded, unknown = decoding.decode(resource, write.body if body is None else body)
        if unknown and write.query.get("fieldValidation") == "Strict":
            listed = ", ".join(f'unknown field "{each}"' for each in unknown)
            raise statuses.unreadable(resource, f"strict decoding error: {listed}")
        if write.query.get("fieldValidation") == "Ignore":
            unknown = []
        if decoded["metadata"].setdefault("namespace", target.namespace) != target.namespace:
            why = "the namespace of the provided object does not match the namespace sent on the request"
            raise statuses.bad_request(why)
        if not resource.namespaced:
            del decoded["metadata"]["namespace"]
        return decoded, unknown


_PATCHES: Mapping[str, tuple[type, Callable[[Json, Any], Json]]] = {
    _JSON_PATCH: (list, patching.apply_operations),
    _MERGE_PATCH: (dict, patching.merge),
    _STRATEGIC_PATCH: (dict, patching.merge_strategically),
}


def _complete(resource: Resource, body: Json) -> None:
    if resource.schema is not None:
        schemas.complete(resource.schema, body)


def _applicable(write: Write) -> Json:
    """The body of an apply; 400 or 422 for what cannot be applied."""
    applied, resource = write.body, write.target.resource
    if not write.query.get("fieldManager"):
        raise statuses.manager_required()
    if not isinstance(applied, dict) or not (applied.get("apiVersion") and applied.get("kind")):
        found = applied if isinstance(applied, dict) else {}
        raise statuses.bad_request(f"invalid object type: {found.get('apiVersion', '/')}, Kind={found.get('kind', '')}")
    if (applied["apiVersion"], applied["kind"]) != (resource.api_version, resource.kind):
        why = f"({applied['apiVersion']}, Kind={applied['kind']}) does not match"
        raise statuses.bad_request(f"invalid object type: {why}")
    metadata = dict(applied.get("metadata") or {})
    if metadata.get("managedFields"):
        raise statuses.bad_request("metadata.managedFields must be nil")
    return {**applied, "metadata": metadata}


def _warnings(resource: Resource, body: Json, unknown: list[str]) -> tuple[str, ...]:
    return (*(f'unknown field "{each}"' for each in unknown), *admission.warnings(resource, body))


def _check_name(target: Target, name: str) -> None:
    if name != target.name:
        raise statuses.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({target.name})"
        )


def _check_uid(target: Target, before: Stored | None, wanted: str) -> None:
    found = before.body["metadata"]["uid"] if before else ""
    if wanted != found:
        raise statuses.other_uid(target.resource, target.key, wanted, found)


def _check_version(target: Target, before: Stored, version: str | None) -> None:
    if not version:
        return
    if not version.isdigit():
        raise statuses.internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if int(version) != before.revision:
        raise statuses.modified(target.resource, target.name)


def _check_preconditions(target: Target, before: Stored, options: Json) -> None:
    found = before.body["metadata"]
    for name, shown in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = (options.get("preconditions") or {}).get(name)
        if wanted and wanted != found[name]:
            raise statuses.deletion_conflict(target.resource, target.name, shown, wanted, found[name])


def _keep_own(before: Json, after: Json) -> None:
    """What only the server writes stays as it was."""
    old, new = before["metadata"], after["metadata"]
    for name in (*_SERVERS_OWN, "namespace", "resourceVersion", "generateName", "managedFields"):
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)


def _parts(resource: Resource, before: Json, after: Json, *, subresource: str) -> Json:
    """The status subresource writes the status and nothing else; the object itself everything but."""
    if not resource.status:
        return after
    status = (after if subresource else before).get("status")
    result = dict(before if subresource else after)
    if subresource:
        result["metadata"] = dict(before["metadata"])
    result.pop("status", None)
    return result if status is None else {**result, "status": status}


def _specification(body: Json) -> Json:
    return {name: value for name, value in body.items() if name not in ("metadata", "status")}
