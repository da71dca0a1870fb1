"""What the schema of a CustomResourceDefinition (structural OpenAPI v3) does to its objects.

Fields that it does not know are left out, defaults filled in, and values that do not fit refused (422). Of the rules
in CEL (`x-kubernetes-validations`) those are checked that `_RULES` has: that of immutable fields is the one that other
announcers trip over. A definition with any other rule is taken with a Warning that names it.
"""

import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from arpguard_lab.apiserver.statuses import FieldError

Schema: TypeAlias = Mapping[str, Any]

_INVALID = "FieldValueInvalid"
_PRESERVES = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_VALIDATIONS = "x-kubernetes-validations"
_SERVERS_OWN = ("apiVersion", "kind", "metadata")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_RULES: Mapping[str, Callable[[Any, Any], bool]] = {"self == oldSelf": operator.eq}
_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str, str], ...] = (
    ("minimum", lambda value, limit: value >= limit, _INVALID, "{path} in body should be greater than or equal to {}"),
    ("maximum", lambda value, limit: value <= limit, _INVALID, "{path} in body should be less than or equal to {}"),
    (
        "minLength",
        lambda value, limit: len(value) >= limit,
        _INVALID,
        "{path} in body should be at least {} chars long",
    ),
    ("minItems", lambda value, limit: len(value) >= limit, _INVALID, "{path} in body should have at least {} items"),
    ("maxLength", lambda value, limit: len(value) <= limit, "FieldValueTooLong", "may not be more than {} bytes"),
    ("maxItems", lambda value, limit: len(value) <= limit, "FieldValueTooMany", "must have at most {} items"),
)
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def complete(schema: Schema, value: Any) -> None:
    """Fills in the defaults of a value, in place."""
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name, inner in known.items():
            if value.get(name) is None and "default" in inner:
                value[name] = copy.deepcopy(inner["default"])
        for name, item in value.items():
            inner = known.get(name, more)
            if isinstance(inner, dict):
                complete(inner, item)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            complete(schema["items"], item)


def prune(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Leaves out of a value, in place, what its schema does not know; yields what went."""
    if isinstance(value, dict):
        yield from _prune_object(schema, value, path)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from prune(schema["items"], item, f"{path}[{index}]")


def _prune_object(schema: Schema, value: dict[str, Any], path: str) -> Iterator[str]:
    known, more = schema.get("properties", {}), schema.get("additionalProperties")
    for name in [name for name, inner in known.items() if name in value and not inner.get("nullable")]:
        if value[name] is None:
            del value[name]
    for name in list(value):
        if not path and name in _SERVERS_OWN:
            continue
        field = f"{path}.{name}".lstrip(".")
        inner = known.get(name, more if isinstance(more, dict) else None)
        if inner is not None:
            yield from prune(inner, value[name], field)
        elif not schema.get(_PRESERVES) and more is not True:
            del value[name]
            yield field


def errors(schema: Schema, body: Any, before: Any = None) -> Iterator[FieldError]:
    """What is wrong with an object; `before` is what it replaces. Rules are for objects that are right otherwise."""
    found = list(_errors(schema, body, ""))
    yield from found or _broken_rules(schema, body, before, "")
    if found and _has_rules(schema):
        yield FieldError("<nil>", _INVALID, f"Invalid value: null: {_UNCHECKED}")


def _errors(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    problem = _type_problem(schema, value, path)
    if problem is not None:
        yield problem
        return
    yield from _value_errors(schema, value, path)
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            if name not in value:
                yield FieldError(f"{path}.{name}".lstrip("."), "FieldValueRequired", "Required value")
    for inner, name, item in _parts(schema, value, path):
        yield from _errors(inner, item, name)


def _parts(schema: Schema, value: Any, path: str) -> Iterator[tuple[Schema, str, Any]]:
    """What is in a value: the schema, the path and the value of each."""
    if isinstance(value, dict):
        known, more = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inner = known.get(name, more)
            if isinstance(inner, dict) and not (not path and name in _SERVERS_OWN):
                yield inner, f"{path}.{name}".lstrip("."), item
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield schema["items"], f"{path}[{index}]", item


def unchecked(schema: Schema) -> Iterator[str]:
    """The rules of a schema, and of all schemas in it, that are not checked here."""
    yield from (rule["rule"] for rule in schema.get(_VALIDATIONS, ()) if _normal(rule["rule"]) not in _RULES)
    more = schema.get("additionalProperties")
    for inner in (*schema.get("properties", {}).values(), schema.get("items"), more):
        if isinstance(inner, dict):
            yield from unchecked(inner)


def _has_rules(schema: Schema) -> bool:
    more = (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties"))
    return _VALIDATIONS in schema or any(_has_rules(inner) for inner in more if isinstance(inner, dict))


def _type_problem(schema: Schema, value: Any, path: str) -> FieldError | None:
    wanted = ("integer", "string") if schema.get(_INT_OR_STRING) else (schema["type"],) if "type" in schema else _TYPES
    if any(_is_a(value, name) for name in wanted) or (value is None and schema.get("nullable")):
        return None
    found = next((name for name in _TYPES if _is_a(value, name)), "null")
    why = f'Invalid value: "{found}": {path} in body must be of type {",".join(wanted)}: "{found}"'
    return FieldError(path, "FieldValueTypeInvalid", why)


def _is_a(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _value_errors(schema: Schema, value: Any, path: str) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        supported = ", ".join(f'"{each}"' for each in schema["enum"])
        message = f'Unsupported value: "{value}": supported values: {supported}'
        yield FieldError(path, "FieldValueNotSupported", message)
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        why = f"{path} in body should match '{schema['pattern']}'"
        yield FieldError(path, _INVALID, f'Invalid value: "{value}": {why}')
    for name, holds, reason, says in _LIMITS:
        if name in schema and not holds(value, schema[name]):
            yield FieldError(path, reason, _HEADS[reason](value) + says.format(schema[name], path=path))


_HEADS: Mapping[str, Callable[[Any], str]] = {
    _INVALID: lambda value: f"Invalid value: {_shown(value)}: ",
    "FieldValueTooLong": lambda _: "Too long: ",
    "FieldValueTooMany": lambda value: f"Too many: {len(value)}: ",
}


def _broken_rules(schema: Schema, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    """A rule about the past is about changes: where there was nothing before, it does not apply."""
    for rule in schema.get(_VALIDATIONS, ()):
        holds = _RULES.get(_normal(rule["rule"]))
        if holds is not None and old is not None and not holds(value, old):
            message = rule.get("message") or f"failed rule: {rule['rule']}"
            shown = "" if isinstance(value, dict | list) else f" {_shown(value)}:"
            yield FieldError(path, _INVALID, f"Invalid value:{shown} {message}")
    past = old if isinstance(old, dict) else {}  # a list is atomic: its items have none
    for inner, name, item in _parts(schema, value, path):
        yield from _broken_rules(inner, item, past.get(name.rpartition(".")[2]), name)


def _shown(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _normal(rule: str) -> str:
    return " ".join(rule.split())
