"""Bytes to an object: what a body must be before anybody looks at what it says. 400 for what is not.

Types are checked where an agent's mistakes end up: metadata everywhere, Leases and the times of Events whole.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from arpguard_lab.apiserver import schemas, statuses
from arpguard_lab.apiserver.resources import EVENTS, LEASES, Resource

Json: TypeAlias = dict[str, Any]

_GO_VALUE = "Go value"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_SECONDS = {"2006": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"}
_ZONE = {"Z07:00": r"(Z|[+-]\d\d:\d\d)$"}
_PARTS = {**_SECONDS, "": r"(\.\d+)?", **_ZONE}
_MICRO_PARTS = {**_SECONDS, ".000000": r"\.\d{6}", **_ZONE}


class _WrongTypeError(ValueError):
    """Says what Go's decoder says."""


def _text(value: Any) -> str:
    return str(_of_type(value, str, "string"))


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise _WrongTypeError(f"json: cannot unmarshal bool into {_GO_VALUE} of type int32")
    return int(_of_type(value, int, "int32"))


def _strings(value: Any) -> dict[str, str]:
    return {key: _text(item) for key, item in _of_type(value, dict, "map[string]string").items()}


def _names(value: Any) -> list[str]:
    return [_text(item) for item in _of_type(value, list, "[]string")]


def _micro_time(value: Any) -> str:
    """Six digits after the second, and a zone: Go's decoder refuses the whole second, and three or nine digits."""
    return _parse_time(_text(value), _MICRO_LAYOUT, _MICRO_PARTS).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _time(value: Any) -> str:
    return _parse_time(_text(value), _LAYOUT, _PARTS).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_time(text: str, layout: str, parts: Mapping[str, str]) -> datetime:
    """Reads part after part, so that the message can name the one that is missing."""
    rest = text
    for element, pattern in parts.items():
        match = re.match(pattern, rest)
        if match is None:
            message = f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"'
            raise _WrongTypeError(message)
        rest = rest[match.end() :]
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError as error:
        raise _WrongTypeError(f'parsing time "{text}": day out of range') from error


def _of_type(value: Any, kind: type[Any], name: str) -> Any:
    if isinstance(value, kind):
        return value
    kinds = {str: "string", bool: "bool", int: "number", float: f"number {value}", list: "array", dict: "object"}
    raise _WrongTypeError(f"json: cannot unmarshal {kinds[type(value)]} into {_GO_VALUE} of type {name}")


_Reader: TypeAlias = Callable[[Any], Any]

_METADATA: Mapping[str, _Reader] = {
    "metadata.name": _text,
    "metadata.generateName": _text,
    "metadata.namespace": _text,
    "metadata.uid": _text,
    "metadata.resourceVersion": _text,
    "metadata.labels": _strings,
    "metadata.annotations": _strings,
    "metadata.finalizers": _names,
}
_FIELDS: Mapping[tuple[str, str], Mapping[str, _Reader]] = {
    LEASES.table: {
        "spec.acquireTime": _micro_time,
        "spec.holderIdentity": _text,
        "spec.leaseDurationSeconds": _integer,
        "spec.leaseTransitions": _integer,
        "spec.preferredHolder": _text,
        "spec.renewTime": _micro_time,
        "spec.strategy": _text,
    },
    ("", "configmaps"): {"data": _strings},
    EVENTS.table: {
        "eventTime": _micro_time,
        "series.lastObservedTime": _micro_time,
        "firstTimestamp": _time,
        "lastTimestamp": _time,
    },
}
_CLOSED = {LEASES.table: ("spec",)}  # parts that are always there, and in which every field is known
_KIND = ("apiVersion", "kind")


def parse_json(body: bytes) -> Any:
    """A body's JSON."""
    try:
        return json.loads(body)
    except ValueError as error:
        raise statuses.bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def decode(resource: Resource, value: Any) -> tuple[Json, list[str]]:
    """An object as it is stored, and the fields that nobody knows and that are left out."""
    value = copy.deepcopy(value) if resource.schema is not None else value
    if not isinstance(value, dict):
        raise statuses.bad_request(f"the object provided is unrecognized (must be of type {resource.kind})")
    _check_kind(resource, value)
    there = dict(resource.renames)
    body: Json = {str(there.get(name, name)): item for name, item in value.items() if name not in _KIND}
    body["metadata"] = dict(_dict(resource, body.get("metadata"), "ObjectMeta"))
    body["metadata"].pop("managedFields", None)
    for path, reader in {**_METADATA, **_FIELDS.get(resource.table, {})}.items():
        _read(resource, body, path.split("."), reader)
    return body, list(_drop_unknown(resource, body))


def _check_kind(resource: Resource, value: Json) -> None:
    version, kind = value.get("apiVersion", resource.api_version), value.get("kind", resource.kind)
    if resource.schema is not None:  # only a custom object itself knows its kind
        _check_custom_kind(resource, value)
        return
    if (version, kind) == (resource.api_version, resource.kind):
        return
    short = str(version).rpartition("/")[2]
    message = f'{kind} in version "{short}" cannot be handled as a {resource.kind}: no kind "{kind}" is registered for'
    raise statuses.bad_request(f'{message} version "{version}" in scheme "pkg/runtime/scheme.go:111"')


def _check_custom_kind(resource: Resource, value: Json) -> None:
    version, kind = value.get("apiVersion", ""), value.get("kind", "")
    if not kind:
        why = f"(must be of type {resource.kind}): Object 'Kind' is missing in '{json.dumps(value)}'"
        raise statuses.bad_request(f"the object provided is unrecognized {why}")
    if version != resource.api_version:
        why = f"({version}) does not match the expected API version ({resource.api_version})"
        raise statuses.bad_request(f"the API version in the data {why}")
    if kind != resource.kind:
        name = (value.get("metadata") or {}).get("name", "")
        wrong = statuses.FieldError("kind", "FieldValueInvalid", f'Invalid value: "{kind}": must be {resource.kind}')
        raise statuses.invalid(resource, name, [wrong])


def _read(resource: Resource, body: Json, path: list[str], reader: _Reader) -> None:
    """Replaces a field by what was read from it; null is as if it were not there."""
    *way, last = path
    for part in way:
        inner = _dict(resource, body.get(part), part)
        if part in body:
            body[part] = inner = dict(inner)
        body = inner

    value = body.get(last)
    if value is None:
        body.pop(last, None)
        return

    try:
        body[last] = reader(value)
    except _WrongTypeError as error:
        struct = "ObjectMeta" if way == ["metadata"] else "".join([resource.kind, *(part.title() for part in way)])
        why = str(error).replace(_GO_VALUE, f"Go struct field {struct}.{'.'.join(path)}")
        raise statuses.unreadable(resource, why) from error


def _dict(resource: Resource, value: Any, name: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise statuses.unreadable(resource, f"json: cannot unmarshal into Go struct field {resource.kind}.{name}")
    return value


def _drop_unknown(resource: Resource, body: Json) -> Iterator[str]:
    if resource.schema is not None:
        yield from schemas.prune(resource.schema, body)
    known = _FIELDS.get(resource.table, {})
    for part in _CLOSED.get(resource.table, ()):
        for field in [each for each in body.setdefault(part, {}) if f"{part}.{each}" not in known]:
            del body[part][field]
            yield f"{part}.{field}"
