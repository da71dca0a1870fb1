"""labelSelector and fieldSelector: their text to a predicate over an object."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.resources import EVENTS, NAMESPACES, NODES, SERVICES, Resource

Json: TypeAlias = dict[str, Any]
Predicate: TypeAlias = Callable[[Json], bool]

_NAME = r"[A-Za-z0-9][-A-Za-z0-9_./]*"
_VALUE = r"[A-Za-z0-9]?[-A-Za-z0-9_.]*"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_NAME})\s*"
    rf"(?:(?P<op>==|!=|=|>|<)\s*(?P<value>{_VALUE})|(?P<set>\s(?:not)?in)\s*\((?P<values>[^)]*)\))?\s*(?:,|$)"
)
_FIELD = re.compile(r"(?P<path>[A-Za-z.]+)(?P<op>==|!=|=)(?P<value>[^,]*)")
_OPERATORS: dict[str, Callable[[str | None, str], bool]] = {
    "=": lambda have, want: have == want,
    "==": lambda have, want: have == want,
    "!=": lambda have, want: have != want,
    ">": lambda have, want: have is not None and have.isdigit() and int(have) > int(want),
    "<": lambda have, want: have is not None and have.isdigit() and int(have) < int(want),
}
_ALWAYS = ("metadata.name", "metadata.namespace")
_FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    NAMESPACES.table: ("status.phase",),
    NODES.table: ("spec.unschedulable",),
    SERVICES.table: ("spec.clusterIP", "spec.type"),
    ("", "pods"): ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"),
    ("", "secrets"): ("type",),
    EVENTS.table: (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
        "reason", "reportingComponent", "source", "type",
    ),
}  # fmt: skip


def parse(resource: Resource, labels: str, fields: str) -> Predicate | None:
    """Both selectors as one predicate; None when everything is wanted. 400 if one cannot be read."""
    predicates = _label_predicates(labels) + _field_predicates(resource, fields)
    if not predicates:
        return None
    return lambda body: all(holds(body) for holds in predicates)


def named(fields: str) -> str:
    """The name that a field selector asks for; "" if it asks for none. RBAC's resourceNames go by it."""
    for path, operator, value in _FIELD.findall(fields):
        if path == "metadata.name" and operator != "!=":
            return str(value)
    return ""


def look_up(body: Json, path: str) -> str:
    """A field by its dotted path, as text; "" if it is not there."""
    value: Any = body
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _label_predicates(text: str) -> list[Predicate]:
    found = []
    position = 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise statuses.bad_request(f'unable to parse requirement: found "{text[position:]}"')
        found.append(_requirement(match))
        position = match.end()
    return found


def _requirement(match: re.Match[str]) -> Predicate:
    key, operator, value = match["key"], match["op"], match["value"]
    if operator:
        compare = _OPERATORS[operator]
        return lambda body: compare(_labels(body).get(key), value)
    if match["set"]:
        values = {each.strip() for each in match["values"].split(",")}
        wanted = match["set"].strip() == "in"
        return lambda body: (_labels(body).get(key) in values) == wanted
    present = not match["absent"]
    return lambda body: (key in _labels(body)) == present


def _labels(body: Json) -> Mapping[str, str]:
    return body["metadata"].get("labels") or {}


def _field_predicates(resource: Resource, text: str) -> list[Predicate]:
    found = []
    for part in filter(None, text.split(",")):
        match = _FIELD.fullmatch(part)
        if match is None:
            raise statuses.bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        found.append(_field(resource, match["path"], match["value"], equal=match["op"] != "!="))
    return found


def _field(resource: Resource, path: str, value: str, *, equal: bool) -> Predicate:
    there = dict(resource.renames)
    first, *rest = path.split(".")
    stored = ".".join([there.get(first, first), *rest])
    if stored not in _ALWAYS + _FIELDS.get(resource.table, ()):
        raise statuses.bad_request(
            f'"{path}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )
    return lambda body: (look_up(body, stored) == value) == equal
