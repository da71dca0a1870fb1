"""The Table form of objects (`Accept: application/json;as=Table`): the columns that `kubectl get` shows."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

from arpguard_lab.apiserver.resources import EVENTS, LEASES, NAMESPACES, NODES, SERVICES, Resource
from arpguard_lab.apiserver.selectors import look_up
from arpguard_lab.apiserver.store import Stored

Json: TypeAlias = dict[str, Any]
_Cell: TypeAlias = Callable[[Json], object]

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def _at(path: str, otherwise: str = "") -> _Cell:
    return lambda body: look_up(body, path) or otherwise


def _age(body: Json) -> str:
    created = datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    seconds = int((datetime.now(UTC) - created).total_seconds())
    for length, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{letter}"
    return f"{seconds}s"


def _external_ips(body: Json) -> str:
    spec, status = body.get("spec", {}), body.get("status", {})
    ingress = status.get("loadBalancer", {}).get("ingress") or ()
    found = [*(each.get("ip") or each.get("hostname", "") for each in ingress), *(spec.get("externalIPs") or ())]
    return ",".join(found) or "<none>"


def _ports(body: Json) -> str:
    ports = body.get("spec", {}).get("ports") or ()
    return ",".join(f"{port['port']}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _ready(body: Json) -> str:
    conditions = {each["type"]: each["status"] for each in body.get("status", {}).get("conditions") or ()}
    return {"True": "Ready", None: "Unknown"}.get(conditions.get("Ready"), "NotReady")


def _object(body: Json) -> str:
    about = body.get("involvedObject", {})
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


_AGE: tuple[str, _Cell] = ("Age", _age)
_COLUMNS: Mapping[tuple[str, str], tuple[tuple[str, _Cell], ...]] = {
    LEASES.table: (("Holder", _at("spec.holderIdentity")), _AGE),
    NAMESPACES.table: (("Status", _at("status.phase")), _AGE),
    NODES.table: (("Status", _ready), _AGE, ("Version", _at("status.nodeInfo.kubeletVersion"))),
    SERVICES.table: (
        ("Type", _at("spec.type")),
        ("Cluster-IP", _at("spec.clusterIP", "<none>")),
        ("External-IP", _external_ips),
        ("Port(s)", _ports),
        _AGE,
    ),
    EVENTS.table: (
        ("Last Seen", _age),
        ("Type", _at("type")),
        ("Reason", _at("reason")),
        ("Object", _object),
        ("Message", _at("message")),
    ),
}


def to_table(resource: Resource, items: list[Stored], metadata: Json, *, head: bool = True) -> Json:
    """Objects as a Table; a watch sends the head with its first event only."""
    columns = (("Name", _at("metadata.name")), *_COLUMNS.get(resource.table, (_AGE,)))
    definitions = [
        {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "", "priority": 0}
        for name, _cell in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions if head else None,
        "rows": [
            {"cells": [cell(stored.body) for _name, cell in columns], "object": _partial(stored)} for stored in items
        ],
    }


def _partial(stored: Stored) -> Json:
    metadata = stored.body["metadata"]
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
