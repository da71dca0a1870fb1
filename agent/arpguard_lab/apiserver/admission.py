"""What an object must say to be let in (422), and what is filled in for it.

Metadata is checked as a kube-apiserver does. Of specifications those are that an agent reads or writes: Leases, Events,
Services, EndpointSlices, ConfigMaps, and those of custom resources.
"""

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any, TypeAlias

from arpguard_lab.apiserver import naming, schemas, services, statuses
from arpguard_lab.apiserver.resources import (
    CUSTOM_RESOURCES,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    SERVICES,
    Resource,
    from_definition,
)
from arpguard_lab.apiserver.statuses import FieldError

Json: TypeAlias = dict[str, Any]
_Check: TypeAlias = Callable[[Json, Resource, Json | None], Iterator[FieldError]]

_INVALID = "FieldValueInvalid"
_REQUIRED = "FieldValueRequired"
_FORBIDDEN = "FieldValueForbidden"
_ANNOTATIONS_MAX = 256 * 1024
_NOTE_MAX = 1024
_COORDINATED = ("strategy", "preferredHolder")


def validate(resource: Resource, body: Json, before: Json | None = None) -> None:
    """422 with everything that is wrong; `before` is what the object replaces."""
    checks: list[_Check] = [_metadata, *_CHECKS.get(resource.table, ())]
    errors = [error for check in checks for error in check(body, resource, before)]
    if resource.schema is not None:
        errors += schemas.errors(resource.schema, body, before)
    if errors:
        raise statuses.invalid(resource, body["metadata"].get("name", ""), errors)


def warnings(resource: Resource, body: Json) -> Iterator[str]:
    """What a write is warned of."""
    if resource.table == SERVICES.table and (body.get("spec") or {}).get("externalIPs"):
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if resource.table == CUSTOM_RESOURCES.table:
        for rule in [rule for each in from_definition(body) if each.schema for rule in schemas.unchecked(each.schema)]:
            yield f"the lab's API server does not check the rule: {' '.join(rule.split())}"


def validate_update(resource: Resource, before: Json, after: Json) -> None:
    """422 for what may not be changed."""
    old, new = before["metadata"], after["metadata"]
    added = [each for each in new.get("finalizers", ()) if each not in old.get("finalizers", ())]
    if old.get("deletionTimestamp") and added:
        listed = ", ".join(f'"{each}"' for each in added)
        why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers "
        error = FieldError("metadata.finalizers", _FORBIDDEN, why + f"[]string{{{listed}}}")
        raise statuses.invalid(resource, new["name"], [error])


def invalid_value(field: str, value: object, why: str) -> FieldError:
    """An error about a value."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return FieldError(field, _INVALID, f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> FieldError:
    """An error about a value that is not there."""
    return FieldError(field, _REQUIRED, "Required value" + (f": {why}" if why else ""))


def _metadata(body: Json, resource: Resource, _before: Json | None) -> Iterator[FieldError]:
    metadata = body["metadata"]
    if not metadata.get("name"):
        yield required("metadata.name", "name or generateName is required")
    elif problem := resource.name_rule.problem(metadata["name"]):
        yield invalid_value("metadata.name", metadata["name"], problem)
    yield from _labels(metadata)
    yield from _finalizers(metadata)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if problem := naming.QUALIFIED.problem(key.lower()):
            yield invalid_value("metadata.annotations", key, problem)
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_MAX:
        yield FieldError("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes")


def _labels(metadata: Json) -> Iterator[FieldError]:
    for key, value in (metadata.get("labels") or {}).items():
        for text, rule in ((key, naming.QUALIFIED), (value, naming.LABEL_VALUE)):
            if problem := rule.problem(text):
                yield invalid_value("metadata.labels", text, problem)


def _finalizers(metadata: Json) -> Iterator[FieldError]:
    for text in metadata.get("finalizers") or ():
        if problem := naming.QUALIFIED.problem(text):
            yield invalid_value("metadata.finalizers", text, problem)


def _lease(body: Json, _resource: Resource, _before: Json | None) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        why = "must be greater than or equal to 0"
        yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], why)


_TIMED_EVENT_NEEDS = {  # as stored: as it is called, and its longest
    "reportingComponent": ("reportingController", 63 + 254),
    "reportingInstance": ("reportingInstance", 128),
    "action": ("action", 128),
    "reason": ("reason", 128),
}
_FIXED_IN_EVENTS = {  # as stored: as it is called
    **{name: name for name in ("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp")},
    **{name: name for name in ("count", "type", "eventTime", "action", "related", "reportingInstance")},
    "reportingComponent": "reportingController",
}
_OLD_EVENT_FIELDS = ("firstTimestamp", "lastTimestamp", "count", "source")


def _event(body: Json, resource: Resource, before: Json | None) -> Iterator[FieldError]:
    """One with an eventTime must say who and what. Those of events.k8s.io must have it, and hardly change."""
    given, namespace = (body.get("involvedObject") or {}).get("namespace", ""), body["metadata"].get("namespace")
    is_timed = bool(body.get("eventTime"))
    places = (given,) if given else ("default", "kube-system") if is_timed else ("default",)

    if namespace not in places and not (given and is_timed):
        yield invalid_value("involvedObject.namespace", given, "does not match event.namespace")
    if is_timed:
        yield from _timed_event(body)

    if resource.group and before is None:
        yield from _new_event(body)
    elif resource.group and before is not None:
        if body.get("series") != before.get("series"):
            yield from _series(body)
        for stored, name in _FIXED_IN_EVENTS.items():
            if body.get(stored) != before.get(stored):
                yield invalid_value(name, body.get(stored), "field is immutable")


def _timed_event(body: Json) -> Iterator[FieldError]:
    for stored, (name, longest) in _TIMED_EVENT_NEEDS.items():
        text = body.get(stored)
        if not text:
            yield required(name)
        elif len(text) > longest:
            yield invalid_value(name, "", f"can have at most {longest} characters")
    controller = body.get("reportingComponent")
    if controller and (problem := naming.QUALIFIED.problem(controller)):
        yield invalid_value("reportingController", controller, problem)
    if len(body.get("message", "")) > _NOTE_MAX:
        yield invalid_value("message", "", "can have at most 1024 characters")


def _new_event(body: Json) -> Iterator[FieldError]:
    yield from _series(body)
    if not body.get("eventTime"):
        yield required("eventTime")
    if body.get("type") not in ("Normal", "Warning"):
        yield invalid_value("type", "", f"has invalid value: {body.get('type', '')}")
    yield from (invalid_value(name, "", "needs to be unset") for name in _OLD_EVENT_FIELDS if body.get(name))


def _series(body: Json) -> Iterator[FieldError]:
    series = body.get("series")
    if series is not None:
        if series.get("count", 0) < 2:
            yield invalid_value("series.count", "", "should be at least 2")
        if not series.get("lastObservedTime"):
            yield required("series.lastObservedTime")


def _service(body: Json, _resource: Resource, before: Json | None) -> Iterator[FieldError]:
    yield from services.errors(body, before)


_FAMILIES = {"IPv4": 4, "IPv6": 6}


def _slice(body: Json, _resource: Resource, before: Json | None) -> Iterator[FieldError]:
    kind = body.get("addressType")
    if not kind:
        yield required("addressType")
    elif before is not None and kind != before.get("addressType"):
        yield invalid_value("addressType", kind, "field is immutable")
    for index, endpoint in enumerate(body.get("endpoints") or ()):
        path, addresses = f"endpoints[{index}].addresses", endpoint.get("addresses") or ()
        if not addresses:
            yield required(path, "must contain at least 1 address")
        for text in addresses:
            if kind in _FAMILIES and not _is_of(text, _FAMILIES[kind]):
                yield invalid_value(path, text, f"must be an {kind} address")


def _is_of(text: str, version: int) -> bool:
    try:
        return ip_address(text).version == version
    except ValueError:
        return False


def _config_map(body: Json, _resource: Resource, _before: Json | None) -> Iterator[FieldError]:
    for key in (body.get("data") or {}).keys() | (body.get("binaryData") or {}).keys():
        if problem := naming.CONFIG_KEY.problem(key):
            yield invalid_value(f"data[{key}]", key, problem)


_CHECKS: Mapping[tuple[str, str], tuple[_Check, ...]] = {
    LEASES.table: (_lease,),
    EVENTS.table: (_event,),
    SERVICES.table: (_service,),
    ENDPOINT_SLICES.table: (_slice,),
    ("", "configmaps"): (_config_map,),
}


class Defaults:
    """Fills in what the server decides: defaults of Services and EndpointSlices, and the first state of namespaces."""

    def __init__(self) -> None:
        self._services = services.Allocator()

    def fill(self, resource: Resource, body: Json) -> None:
        """Changes a new object in place."""
        fillers = {
            SERVICES.table: self._services.fill,
            LEASES.table: _plain_lease,
            ENDPOINT_SLICES.table: _endpoint_slice,
            NAMESPACES.table: _namespace,
            CUSTOM_RESOURCES.table: _definition,
        }
        if resource.table in fillers:
            fillers[resource.table](body)

    def refill(self, resource: Resource, body: Json, before: Json, *, subresource: str = "") -> None:
        """Changes an object in place that replaces another, or the status of one."""
        if resource.table == SERVICES.table and subresource:
            services.fill_status(body)
        elif resource.table == SERVICES.table:
            self._services.fill(body, before)
        elif resource.table == LEASES.table:
            _plain_lease(body)


def _plain_lease(body: Json) -> None:
    """Coordinated leader election is not enabled by default: its fields are dropped."""
    body["spec"] = {name: item for name, item in (body.get("spec") or {}).items() if name not in _COORDINATED}


def _definition(body: Json) -> None:
    """What controllers of a kube-apiserver say of a definition after a moment; here it is served at once."""
    spec = body["spec"]
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    spec["names"] = names
    met = [("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted")]
    stamp = body["metadata"]["creationTimestamp"]
    body["status"] = {
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": stamp}
            for kind, reason in met
        ],
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }


def _endpoint_slice(body: Json) -> None:
    body["endpoints"] = [{"conditions": {}, **endpoint} for endpoint in body.get("endpoints") or ()]
    body["ports"] = [{"name": "", "protocol": "TCP", **port} for port in body.get("ports") or ()]


def _namespace(body: Json) -> None:
    metadata = body["metadata"]
    metadata["labels"] = {"kubernetes.io/metadata.name": metadata.get("name", ""), **(metadata.get("labels") or {})}
    body["spec"] = {"finalizers": ["kubernetes"]}
    body["status"] = {"phase": "Active"}
