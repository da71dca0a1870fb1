"""Patches: JSON merge patch (RFC 7386), JSON patch (RFC 6902), and Kubernetes' strategic merge patch."""

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses

Json: TypeAlias = dict[str, Any]

# Lists that a strategic merge patch merges, and the key of their items; None: a set of plain values.
# A list that is not here is replaced.
_MERGE_KEYS: dict[str, str | None] = {
    "finalizers": None,
    "ownerReferences": "uid",
    "conditions": "type",
    "addresses": "type",
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "env": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "secrets": "name",
}
_PORT_KEYS = ("containerPort", "port")  # `ports` of containers, and of Services
_DIRECTIVE = "$patch"
_REMOVE = "$deleteFromPrimitiveList/"
_IGNORED = ("$setElementOrder/", "$retainKeys")


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def merge_strategically(target: Any, patch: Json) -> Json:
    """Strategic merge: as RFC 7386, but known lists are merged by the key of their items."""
    merged: Json = dict(target) if isinstance(target, dict) else {}
    if patch.get(_DIRECTIVE) == "replace":
        merged = {}
    for key, value in patch.items():
        if key == _DIRECTIVE or key.startswith(_IGNORED):
            continue
        if key.startswith(_REMOVE):
            field = key.removeprefix(_REMOVE)
            merged[field] = [item for item in merged.get(field, ()) if item not in value]
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(key, merged.get(key), value)
    return merged


def _merge_value(field: str, target: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return merge_strategically(target, value)
    if isinstance(value, list) and isinstance(target, list):
        return _merge_list(field, target, value)
    return value


def _merge_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    key = _merge_key(field, patch)
    if field in _MERGE_KEYS and key is None:
        return target + [item for item in patch if item not in target]
    if key is None or {_DIRECTIVE: "replace"} in patch:
        return [item for item in patch if item != {_DIRECTIVE: "replace"}]
    merged = {item.get(key): item for item in target}
    for item in patch:
        if item.get(_DIRECTIVE) == "delete":
            merged.pop(item.get(key), None)
        else:
            merged[item.get(key)] = merge_strategically(merged.get(item.get(key)), item)
    return list(merged.values())


def _merge_key(field: str, patch: list[Any]) -> str | None:
    if field != "ports":
        return _MERGE_KEYS.get(field)
    items = [item for item in patch if isinstance(item, dict)]
    return next((key for key in _PORT_KEYS if any(key in item for item in items)), None)


def apply_operations(target: Json, operations: list[Json]) -> Json:
    """RFC 6902; 422 if an operation cannot be done."""
    document: Any = {"": copy.deepcopy(target)}
    for operation in operations:
        try:
            _OPERATIONS[operation["op"]](document, operation)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            message = "the server rejected our request due to an error in our request"
            raise statuses.ApiError(422, "Invalid", message, {}) from error
    result: Json = document[""]
    return result


def _add(document: Any, operation: Json) -> None:
    _put(document, operation["path"], operation["value"])


def _remove(document: Any, operation: Json) -> None:
    _take(document, operation["path"])


def _replace(document: Any, operation: Json) -> None:
    parent, last = _find(document, operation["path"])
    parent[last]
    parent[last] = operation["value"]


def _move(document: Any, operation: Json) -> None:
    _put(document, operation["path"], _take(document, operation["from"]))


def _copy(document: Any, operation: Json) -> None:
    parent, last = _find(document, operation["from"])
    _put(document, operation["path"], copy.deepcopy(parent[last]))


def _test(document: Any, operation: Json) -> None:
    parent, last = _find(document, operation["path"])
    if parent[last] != operation["value"]:
        raise ValueError("test failed")


_OPERATIONS: dict[str, Callable[[Any, Json], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _find(document: Any, pointer: str) -> tuple[Any, Any]:
    """The container that a pointer leads into, and the key or index there."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]
    for part in way:
        document = document[_index(document, part)]
    return document, _index(document, last)


def _index(container: Any, part: str) -> Any:
    if isinstance(container, list):
        return len(container) if part == "-" else int(part)
    return part


def _put(document: Any, pointer: str, value: Any) -> None:
    parent, last = _find(document, pointer)
    if isinstance(parent, list):
        if last > len(parent):
            raise IndexError(last)
        parent.insert(last, value)
    else:
        parent[last] = value


def _take(document: Any, pointer: str) -> Any:
    parent, last = _find(document, pointer)
    return parent.pop(last)
