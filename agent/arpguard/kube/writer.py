"""Leases, written by comparing and swapping, and read past every cache.

A replacement names both uid and resourceVersion: for a missing object the server compares no version, and PUT would
recreate a deleted Lease (kubernetes, registry/generic/registry/store.go, Update). The one PATCH names both, too, so
that it cannot apply to a version that nobody has seen. The outcome of a write is a value, not an exception: the caller
expects each of them.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from time import time_ns
from typing import TypeAlias

from arpguard.core.cluster import Lease, Pairs
from arpguard.core.times import micro_time
from arpguard.kube.client import Answer, Client
from arpguard.kube.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    JsonObject,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.projections import lease as project
from arpguard.kube.resources import LEASES, Request

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseContent:
    """All that this program puts into a Lease. A replacement drops what others put into it.

    `absent`: annotations that a renewal takes away, should an earlier one have put them there.
    """

    holder: str
    duration_s: int
    annotations: Pairs = ()
    labels: Pairs = ()
    finalizers: tuple[str, ...] = ()
    transitions: int = 0
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """The server has done it. `lease` is what the server has now or, if it is gone, what it had.

    `sent_ns` was read from the boot clock directly before the request was sent: a fence counts from there.
    """

    lease: Lease
    sent_ns: int


@dataclass(frozen=True, slots=True)
class Conflicted:
    """Nothing was done: another version, another object or, on creating, one that exists already. Read it."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing was done: there is no such Lease, or no such namespace."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Maybe it was done, maybe it still will be: the request may have arrived, but no answer came. Read it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was done, and nothing will be. `passing`: a later try may succeed by itself."""

    reason: str
    passing: bool = False
    retry_after_s: float = 0.0


Written: TypeAlias = Applied | Conflicted | Missing | Unknown | Refused


class LeaseWriter:
    """The Leases of one namespace. `timeout_s` limits each request, and must be less than the fence's margin."""

    def __init__(self, client: Client, namespace: str, timeout_s: float) -> None:
        self._client = client
        self._namespace = namespace
        self.timeout_s = timeout_s
        self._may_patch = True

    async def create(self, name: str, content: LeaseContent) -> Written:
        """Creates a Lease; Conflicted if it exists."""
        body = self._body({"name": name}, content)
        return await self._write(Request("create", LEASES, self._namespace, body=body), name)

    async def replace(self, seen: Lease, content: LeaseContent) -> Written:
        """Replaces exactly this object and version."""
        if not (seen.uid and seen.version):
            return Refused(f"cannot replace lease {seen.name} without its uid and version")
        body = self._body({"name": seen.name, "uid": seen.uid, "resourceVersion": seen.version}, content)
        return await self._write(Request("update", LEASES, self._namespace, seen.name, body=body), seen.name, seen.uid)

    async def renew(self, seen: Lease, content: LeaseContent) -> Written:
        """Patches exactly this object and version; keeps what others put into it.

        Only by this verb can an API server tell renewals from claims, and serve those later
        (flowcontrol.apiserver.k8s.io/v1, ResourcePolicyRule). Replaces instead if the role does not allow patches yet.
        """
        if not (self._may_patch and seen.uid and seen.version):
            return await self.replace(seen, content)
        body = self._body({"name": seen.name, "uid": seen.uid, "resourceVersion": seen.version}, content)
        body["metadata"]["annotations"] |= dict.fromkeys(content.absent)  # null deletes (RFC 7386)
        request = Request("patch", LEASES, self._namespace, seen.name, body=body)
        try:
            answer = await self._client.call(request, self.timeout_s)
        except ForbiddenError as error:
            log.warning("%s; renewing with update requests (PUT) until the agent restarts", error)
            self._may_patch = False
            return await self.replace(seen, content)
        except ClusterError as error:
            return _refusal(error)
        return _applied(answer, _written(answer.body, seen.name, seen.uid))

    async def delete(self, seen: Lease) -> Written:
        """Deletes exactly this object and version; with finalizers it stays, marked as deleted, until they go."""
        if not (seen.uid and seen.version):
            return Refused(f"cannot delete lease {seen.name} without its uid and version")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": seen.uid, "resourceVersion": seen.version},
        }
        request = Request("delete", LEASES, self._namespace, seen.name, body=options)
        return await _outcome(self._client.call(request, self.timeout_s), lambda answer: _deleted(answer.body, seen))

    async def read(self, name: str) -> Lease | None:
        """The Lease as it is now, from etcd (API Concepts, "Get"); None when there is none. Raises ClusterError."""
        found = await self._client.find(Request("get", LEASES, self._namespace, name), self.timeout_s)
        return project(found) if found is not None else None

    async def list(self, labels: str) -> tuple[tuple[Lease, ...], int]:
        """All Leases with these labels, as of one moment after the time on the boot clock. Raises ClusterError."""
        scope = Scope(self._namespace, labels)
        found: dict[str, Lease] = {}
        sent_ns = None
        async with aclosing(read_pages(self._client, LEASES, scope, timeout_s=self.timeout_s)) as pages:
            async for page in pages:
                sent_ns = page.sent_ns if sent_ns is None else sent_ns
                leases = (project(raw) for raw in page.items if isinstance(raw, dict))
                found.update((lease.name, lease) for lease in leases)
        return tuple(found.values()), sent_ns or 0

    async def _write(self, request: Request, name: str, uid: str = "") -> Written:
        return await _outcome(
            self._client.call(request, self.timeout_s), lambda answer: _written(answer.body, name, uid)
        )

    def _body(self, metadata: JsonObject, content: LeaseContent) -> JsonObject:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **metadata,
                "namespace": self._namespace,
                "labels": dict(content.labels),
                "annotations": dict(content.annotations),
                "finalizers": list(content.finalizers),
            },
            "spec": {
                "holderIdentity": content.holder,
                "leaseDurationSeconds": content.duration_s,
                "leaseTransitions": content.transitions,
                "renewTime": micro_time(time_ns()),
            },
        }


async def _outcome(call: Awaitable[Answer], read: Callable[[Answer], Lease | None]) -> Written:
    try:
        answer = await call
    except ClusterError as error:
        return _refusal(error)
    return _applied(answer, read(answer))


def _applied(answer: Answer, lease: Lease | None) -> Written:
    return Unknown("the answer is about another object") if lease is None else Applied(lease, answer.sent_ns)


def _refusal(error: ClusterError) -> Written:
    match error:
        case ConflictError():
            return Conflicted()
        case NotFoundError():
            return Missing()
        case UnavailableError(outcome_unknown=True):
            return Unknown(str(error))
    return Refused(str(error), isinstance(error, (UnavailableError, ThrottledError)), error.failure.retry_after_s)


def _written(body: JsonObject, name: str, uid: str) -> Lease | None:
    lease = project(body)
    is_it = lease.name == name and lease.version and lease.uid and uid in ("", lease.uid)
    return lease if is_it else None


def _deleted(body: JsonObject, seen: Lease) -> Lease | None:
    """The Lease that a delete left. The answer is a Status if it is gone, and the Lease while finalizers keep it."""
    return seen if body.get("kind") == "Status" else _written(body, seen.name, seen.uid)
