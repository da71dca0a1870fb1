"""What an object must say to be let in (422), and what is filled in for it.

Metadata is checked as a kube-apiserver does. Of specifications only those that an agent writes are: Leases and Events.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any, TypeAlias

from arpguard.lab.apiserver import naming, schemas, statuses
from arpguard.lab.apiserver.resources import (
    CUSTOM_RESOURCES,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    SERVICES,
    Resource,
    from_definition,
)
from arpguard.lab.apiserver.statuses import FieldError

Json: TypeAlias = dict[str, Any]
_Check: TypeAlias = Callable[[Json, Resource], Iterator[FieldError]]

_INVALID = "FieldValueInvalid"
_REQUIRED = "FieldValueRequired"
_FORBIDDEN = "FieldValueForbidden"
_ANNOTATIONS_MAX = 256 * 1024
_NOTE_MAX = 1024
_SERVICE_ADDRESSES = IPv4Network("10.96.0.0/16")


def validate(resource: Resource, body: Json, before: Json | None = None) -> None:
    """422 with everything that is wrong; `before` is what the object replaces."""
    checks: list[_Check] = [_metadata, *_CHECKS.get(resource.table, ())]
    errors = [error for check in checks for error in check(body, resource)]
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


def _metadata(body: Json, resource: Resource) -> Iterator[FieldError]:
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


def _lease(body: Json, _resource: Resource) -> Iterator[FieldError]:
    spec = body.get("spec") or {}
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield invalid_value("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0")
    if spec.get("leaseTransitions", 0) < 0:
        why = "must be greater than or equal to 0"
        yield invalid_value("spec.leaseTransitions", spec["leaseTransitions"], why)
    if spec.get("preferredHolder") and not spec.get("strategy"):
        why = "may only be specified when `strategy` is defined"
        yield FieldError("spec.preferredHolder", _FORBIDDEN, f"Forbidden: {why}")


_TIMED_EVENT_NEEDS = {  # as stored, and as it is called
    "reportingComponent": "reportingController",
    "reportingInstance": "reportingInstance",
    "action": "action",
    "reason": "reason",
}


def _event(body: Json, resource: Resource) -> Iterator[FieldError]:
    """An Event of a cluster-scoped object belongs into `default`; one with an eventTime must say who and what."""
    about = body.get("involvedObject") or {}
    given = about.get("namespace", "")
    if (given or "default") != body["metadata"].get("namespace"):
        yield invalid_value("involvedObject.namespace", given, "does not match event.namespace")
    if body.get("eventTime"):
        yield from (required(field) for stored, field in _TIMED_EVENT_NEEDS.items() if not body.get(stored))
    if len(body.get("message", "")) > _NOTE_MAX:
        yield invalid_value("message", "", "can have at most 1024 characters")
    if resource.group and not body.get("eventTime"):
        yield required("eventTime")
    if resource.group and body.get("type") not in ("Normal", "Warning"):
        yield invalid_value("type", "", f"has invalid value: {body.get('type', '')}")


def _service(body: Json, _resource: Resource) -> Iterator[FieldError]:
    ingress = ((body.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if ingress and (body.get("spec") or {}).get("type") != "LoadBalancer":
        why = "Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
        yield FieldError("status.loadBalancer.ingress", _FORBIDDEN, why)


_CHECKS: Mapping[tuple[str, str], tuple[_Check, ...]] = {
    LEASES.table: (_lease,),
    EVENTS.table: (_event,),
    SERVICES.table: (_service,),
}


class Defaults:
    """Fills in what the server decides: defaults of Services and EndpointSlices, and the first state of namespaces."""

    def __init__(self) -> None:
        self._addresses = itertools.islice(_SERVICE_ADDRESSES.hosts(), 9, None)

    def fill(self, resource: Resource, body: Json) -> None:
        """Changes a new object in place."""
        fillers = {
            SERVICES.table: self._service,
            ENDPOINT_SLICES.table: _endpoint_slice,
            NAMESPACES.table: _namespace,
            CUSTOM_RESOURCES.table: _definition,
        }
        if resource.table in fillers:
            fillers[resource.table](body)

    def _service(self, body: Json) -> None:
        spec = body["spec"] = {"sessionAffinity": "None", "type": "ClusterIP", **(body.get("spec") or {})}
        if spec["type"] == "ExternalName":
            return
        if "clusterIP" not in spec:
            spec["clusterIP"] = str(next(self._addresses))
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec["type"] != "ClusterIP" or spec.get("externalIPs"):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec.get("ports"):
            spec["ports"] = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec["ports"]]
        body.setdefault("status", {"loadBalancer": {}})


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
