"""Who manages which fields (metadata.managedFields), and server-side apply.

A write by anybody gives them the fields that it changed; an apply gives its manager all fields that it names, and takes
away what that manager named before and nobody else does. What another manages with another value is a conflict (409),
unless it is forced.
Source: k8s.io/apimachinery/pkg/util/managedfields, sigs.k8s.io/structured-merge-diff (FieldsV1). Lists are of one
piece, but those in `_KEYS` and those that a custom resource's schema calls a map.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.deleting import now
from arpguard_lab.apiserver.resources import Resource
from arpguard_lab.apiserver.statuses import ApiError

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str, ...]  # of elements as FieldsV1 has them: `f:NAME`, `k:{KEYS}`, `v:VALUE`, `.`

APPLY, UPDATE = "Apply", "Update"
_MISSING = object()
_SET = ()
_KEYS: Mapping[str, tuple[str, ...]] = {
    "finalizers": _SET,
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "containers": ("name",),
    "initContainers": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
}
_PORT_KEYS = (("port", "protocol"), ("containerPort", "protocol"))
_MAPS = ("labels", "annotations", "data", "binaryData", "selector", "matchLabels")  # have a field for themselves
_NOBODYS = {("f:apiVersion",), ("f:kind",)} | {
    ("f:metadata", f"f:{name}")
    for name in (
        "name", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "generateName",
        "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Manager:
    """Who writes: a name, how, and to which part of an object."""

    name: str
    operation: str = UPDATE
    subresource: str = ""


def track(resource: Resource, before: Json | None, after: Json, manager: Manager) -> None:
    """Notes in an object, in place, what a write that is not an apply has changed."""
    old = _Fields(resource, before or {"metadata": {}})
    new = _Fields(resource, after, dots=True)
    changed = {path for path, value in new.values.items() if old.values.get(path, _MISSING) != value}
    if before is not None:  # a map that was there before has no new owner
        changed -= {path for path in changed if path[-1] == "." and old.has(path[:-1])}
    owned = {
        each: (paths & new.values.keys()) - (changed if each != manager else set())
        for each, paths in _owned(before).items()
    }
    owned[manager] = owned.get(manager, set()) | changed
    _write(resource, before, after, owned)


def apply(resource: Resource, before: Json, applied: Json, manager: Manager, *, force: bool) -> Json:
    """What becomes of an object by an apply; 409 for conflicts."""
    wanted, live = _Fields(resource, applied), _Fields(resource, before)
    owned = _owned(before)
    others = {each: paths for each, paths in owned.items() if each != manager}
    changed = {path for path, value in wanted.values.items() if live.values.get(path, value) != value}
    conflicts = {each: sorted(paths & changed) for each, paths in others.items() if paths & changed}
    if conflicts and not force:
        raise _conflict(resource, conflicts)

    after: Json = _merged(resource.schema, before, applied, "")
    for path in sorted(owned.get(manager, set()) - wanted.values.keys() - set().union(*others.values()), reverse=True):
        _remove(after, path)

    left = _Fields(resource, after).values
    kept = {
        each: {path for path in paths if path in left or path[-1] == "."} - changed for each, paths in others.items()
    }

    _write(resource, before, after, kept | {manager: set(wanted.values)})
    return after


def name_of(query: Mapping[str, str], user_agent: str) -> str:
    """The manager of a write that names none: the program."""
    return query.get("fieldManager") or user_agent.partition("/")[0][:128] or "unknown"


class _Fields:
    """The fields of an object: path -> value, for every leaf."""

    def __init__(self, resource: Resource, body: Json, *, dots: bool = False) -> None:
        self._dots = dots
        self.values: dict[Path, Any] = {}
        self._take(resource.schema, body, (), "")

    def has(self, path: Path) -> bool:
        """Whether there is anything at or below a path."""
        return any(each[: len(path)] == path for each in self.values)

    def _take(self, schema: Any, value: Any, path: Path, name: str) -> None:
        if path in _NOBODYS:
            return

        if isinstance(value, dict) and (value or not path):
            if self._dots and name in _MAPS:
                self.values[*path, "."] = None
            for key, item in value.items():
                self._take(_inner(schema, key), item, (*path, f"f:{key}"), key)
        elif (keys := _keys(schema, name, value)) is None:
            self.values[path] = value
        else:
            for element, item in _elements(keys, value):
                if keys:
                    self.values[*path, element, "."] = None
                    self._take((schema or {}).get("items"), item, (*path, element), "")
                else:
                    self.values[*path, element] = item


def _inner(schema: Any, name: str) -> Any:
    schema = schema if isinstance(schema, Mapping) else {}
    return schema.get("properties", {}).get(name) or schema.get("additionalProperties")


def _keys(schema: Any, name: str, value: Any) -> tuple[str, ...] | None:
    """The keys of the items of a list; none of them: it is a set; None: it is of one piece, or no list."""
    if not isinstance(value, list):
        return None
    if isinstance(schema, Mapping) and schema.get("x-kubernetes-list-type") == "map":
        return tuple(schema["x-kubernetes-list-map-keys"])
    if isinstance(schema, Mapping) and schema.get("x-kubernetes-list-type") == "set":
        return _SET
    if name == "ports":
        return next((keys for keys in _PORT_KEYS if any(keys[0] in item for item in value)), None)
    return _KEYS.get(name)


def _elements(keys: tuple[str, ...], value: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for item in value:
        if keys:
            found = {key: item[key] for key in keys if key in item}
            yield "k:" + json.dumps(found, separators=(",", ":"), sort_keys=True), item
        else:
            yield "v:" + json.dumps(item, separators=(",", ":")), item


def _merged(schema: Any, live: Any, applied: Any, name: str) -> Any:
    if isinstance(live, dict) and isinstance(applied, dict):
        new = {key: _merged(_inner(schema, key), live.get(key), item, key) for key, item in applied.items()}
        return {**copy.deepcopy(live), **new}
    keys = _keys(schema, name, applied)
    if keys is None or not isinstance(live, list):
        return copy.deepcopy(applied)
    items = dict(_elements(keys, live))
    inner = (schema or {}).get("items")
    return list(
        (items | {each: _merged(inner, items.get(each), item, "") for each, item in _elements(keys, applied)}).values()
    )


def _remove(body: Any, path: Path) -> None:
    """Takes a field away, and maps that it leaves empty."""
    element, rest = path[0], path[1:]
    if element == ".":
        return

    if isinstance(body, list):
        keys = tuple(json.loads(element[2:])) if element.startswith("k:") else _SET
        at = next((index for index, (each, _) in enumerate(_elements(keys, body)) if each == element), None)
        if at is not None and (not rest or rest == (".",)):
            del body[at]
        elif at is not None:
            _remove(body[at], rest)
        return

    name = element.removeprefix("f:")
    if not isinstance(body, dict) or name not in body:
        return
    if rest:
        _remove(body[name], rest)
    if not rest or body[name] in ({}, []):
        del body[name]


def _owned(body: Json | None) -> dict[Manager, set[Path]]:
    entries = (body or {"metadata": {}})["metadata"].get("managedFields") or ()
    return {
        Manager(entry["manager"], entry["operation"], entry.get("subresource", "")): set(_paths(entry["fieldsV1"]))
        for entry in entries
    }


def _paths(trie: Json, path: Path = ()) -> Iterator[Path]:
    for element, inner in trie.items():
        if inner:
            yield from _paths(inner, (*path, element))
        else:
            yield (*path, element)


def _trie(paths: Iterable[Path]) -> Json:
    root: Json = {}
    for path in sorted(paths):
        node = root
        for element in path:
            node = node.setdefault(element, {})
    return root


def _write(resource: Resource, before: Json | None, after: Json, owned: Mapping[Manager, set[Path]]) -> None:
    """Puts the managers into an object; the time of one is when its fields changed last."""
    metadata = after["metadata"] = dict(after["metadata"])
    known, entries, stamp = _owned(before), [], now()
    times = {
        Manager(entry["manager"], entry["operation"], entry.get("subresource", "")): entry["time"]
        for entry in (before or {"metadata": {}})["metadata"].get("managedFields") or ()
    }

    for manager, paths in owned.items():
        if paths:
            entry = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": resource.api_version,
                "time": times[manager] if known.get(manager) == paths else stamp,
                "fieldsType": "FieldsV1",
                "fieldsV1": _trie(paths),
            }
            entries.append(entry | ({"subresource": manager.subresource} if manager.subresource else {}))

    entries.sort(key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)


def _conflict(resource: Resource, conflicts: Mapping[Manager, list[Path]]) -> ApiError:
    found = []
    for manager, paths in sorted(conflicts.items(), key=lambda item: item[0].name):
        using = f" using {resource.api_version}" if manager.operation == UPDATE else ""
        using = f' with subresource "{manager.subresource}"{using}' if manager.subresource else using
        found.append((f'"{manager.name}"{using}', [_shown(path) for path in paths]))

    count = sum(len(fields) for _, fields in found)
    listed = [
        f"conflict with {who}: {fields[0]}"
        if count == 1
        else f"conflicts with {who}:\n" + "\n".join(f"- {field}" for field in fields)
        for who, fields in found
    ]

    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
        for who, fields in found
        for field in fields
    ]

    message = f"Apply failed with {count} conflict{'s' if count > 1 else ''}: " + "\n".join(listed)
    return statuses.ApiError(409, "Conflict", message, {"causes": causes})


def _shown(path: Path) -> str:
    parts = []
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            parts.append(f".{rest}")
        elif kind == "k":
            shown = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items())
            parts.append(f"[{shown}]")
        elif kind == "v":
            parts.append(f"[={rest}]")
    return "".join(parts)
