"""How objects end: at once, with their last finalizer, or with their namespace.

The last is what kube-controller-manager does. On a bare server nobody does it: a namespace that is deleted stays with
all that is in it, until somebody finalizes it.
"""

from datetime import UTC, datetime
from typing import Any, TypeAlias

from arpguard_lab.apiserver.resources import CUSTOM_RESOURCES, NAMESPACES, Catalogue, Resource
from arpguard_lab.apiserver.store import Key, Store, Stored

Json: TypeAlias = dict[str, Any]


class Deleting:
    """Ends objects of a store."""

    def __init__(self, store: Store, catalogue: Catalogue, *, bare: bool) -> None:
        self._store = store
        self._catalogue = catalogue
        self._bare = bare

    def finish(self, resource: Resource, key: Key, before: Stored) -> Stored | None:
        """Ends an object, or marks it if something has to happen first; what is left of it."""
        if resource == NAMESPACES:
            return self._terminate(key, before)
        metadata = before.body["metadata"]
        if not metadata.get("finalizers"):
            self.remove(resource, key)
            return None
        if metadata.get("deletionTimestamp"):
            return before
        marked = {**metadata, "deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
        return self._store.write(resource, key, {**before.body, "metadata": marked})

    def remove(self, resource: Resource, key: Key) -> None:
        """Takes an object away, and with it what depends on it."""
        gone = self._store.write(resource, key, None)
        if resource == CUSTOM_RESOURCES:
            self._forget(gone.body["spec"])
        if resource.namespaced:
            self._end_namespace(key[0])

    def finalize(self, key: Key, before: Stored, finalizers: list[str]) -> Stored:
        """What a namespace still waits for; one that is deleted goes when that is nothing, whatever is left in it."""
        if not finalizers and before.body["metadata"].get("deletionTimestamp"):
            self._store.write(NAMESPACES, key, None)
            return before
        return self._store.write(NAMESPACES, key, {**before.body, "spec": {"finalizers": finalizers}})

    def _forget(self, definition: Json) -> None:
        """A kind of objects goes, and all objects with it."""
        group, plural = definition["group"], definition["names"]["plural"]
        for resource in [each for each in self._catalogue if each.table == (group, plural)]:
            for key in list(self._store.table(resource).live):
                self._store.write(resource, key, None)
        self._catalogue.forget(group, plural)

    def _terminate(self, key: Key, before: Stored) -> Stored:
        """Marks a namespace, and deletes what is in it. It goes when nothing is left."""
        if not before.body["metadata"].get("deletionTimestamp"):
            marked = {**before.body["metadata"], "deletionTimestamp": now()}
            body = {**before.body, "metadata": marked, "status": {"phase": "Terminating"}}
            before = self._store.write(NAMESPACES, key, body)
        if self._bare:
            return before
        by_table = {resource.table: resource for resource in self._catalogue}
        for table, inner in self._store.names(key[1]):
            resource = by_table[table]
            self.finish(resource, inner, self._store.table(resource).live[inner])
        self._end_namespace(key[1])
        return before

    def _end_namespace(self, name: str) -> None:
        """Removes a marked namespace that is empty."""
        if self._bare:
            return
        namespace = self._store.table(NAMESPACES).live.get(("", name))
        if namespace and namespace.body["metadata"].get("deletionTimestamp") and not self._store.names(name):
            self._store.write(NAMESPACES, ("", name), None)


def may_go(body: Json) -> bool:
    """Whether nothing holds a deleted object up any more."""
    metadata = body["metadata"]
    return bool(metadata.get("deletionTimestamp")) and not metadata.get("finalizers")


def now() -> str:
    """The time as metadata has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
