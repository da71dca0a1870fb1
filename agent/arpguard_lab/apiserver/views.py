"""The forms that objects are sent in: JSON, or a Table for `kubectl get`."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses, tables
from arpguard_lab.apiserver.resources import Resource
from arpguard_lab.apiserver.store import Stored, to_bytes

Json: TypeAlias = dict[str, Any]

_ACCEPTED = ("*/*", "application/*", "application/json", "application/yaml")


class JsonView:
    """Whole objects. Bytes that were once made are used again: long lists are a join."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        """An object with its kind."""
        return stored.full(self._resource)

    def many(self, items: Iterable[Stored], metadata: Json) -> bytes:
        """A list; items of built-in kinds do not repeat their kind."""
        resource = self._resource
        form = Stored.full if resource.custom else Stored.bare
        head = to_bytes({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
        return head[:-1] + b',"items":[' + b",".join(form(stored, resource) for stored in items) + b"]}\n"


class TableView:
    """Rows."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def one(self, stored: Stored) -> bytes:
        """A table of one row."""
        version = stored.body["metadata"].get("resourceVersion", "")
        return to_bytes(tables.to_table(self._resource, [stored], {"resourceVersion": version}))

    def many(self, items: Iterable[Stored], metadata: Json) -> bytes:
        """A table."""
        return to_bytes(tables.to_table(self._resource, list(items), metadata))


View: TypeAlias = JsonView | TableView


def choose(resource: Resource, accept: str) -> View:
    """The first form of an Accept header that there is; 406 if there is none."""
    for wanted in (accept or "*/*").split(","):
        kind, *parameters = (part.strip() for part in wanted.split(";"))
        forms = [part.removeprefix("as=") for part in parameters if part.startswith("as=")]
        if kind in _ACCEPTED and forms == ["Table"]:
            return TableView(resource)
        if kind in _ACCEPTED and not forms:
            return JsonView(resource)
    raise statuses.not_acceptable()
