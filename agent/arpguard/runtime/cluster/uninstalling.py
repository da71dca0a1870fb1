"""Takes arpguard out of a cluster in an order that leaves nothing behind: first its agents, then what they left.

Each agent that sees its DaemonSet go removes its guard, its claims and its heartbeat. So where a heartbeat is still
there afterwards, the guard may be, too: that node's agent had no time or no API server, or there was none.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from arpguard.kube import projections
from arpguard.kube.claims import FINALIZER, node_of, vip_of
from arpguard.kube.client import Client
from arpguard.kube.errors import ConflictError, JsonObject, NotFoundError, ThrottledError, UnavailableError
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.resources import DAEMON_SETS, LEASES, Request

log = logging.getLogger(__name__)

_POLL_S = 1.0
_WRITE_S = 10.0
_LATE_S = 2.0  # how late a renewal may come, and be seen


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What an uninstall leaves: nodes whose guard may be there, and how many Leases it removed.

    Nothing was removed where agents may run: `pods`: the DaemonSet was not gone in time, since so many of its Pods were
    not; `running`: the nodes whose heartbeats are still renewed.
    """

    nodes: tuple[str, ...] = ()
    leases: int = 0
    pods: int | None = None
    running: tuple[str, ...] = ()


async def uninstall(
    client: Client, namespace: str, name: str, timeout_s: float, tell: Callable[[str], None]
) -> Leftovers:
    """Ends the agents and removes what they leave in the API; says by `tell` what it waits for. Raises ClusterError."""
    found = await _delete_daemonset(client, namespace, name)
    tell(
        f"DaemonSet {namespace}/{name}: waiting for its Pods to end"
        if found
        else f"DaemonSet {namespace}/{name} is already gone"
    )

    pods = await _wait_until_gone(client, Request("get", DAEMON_SETS, namespace, name), timeout_s)
    if pods is not None:
        return Leftovers(pods=pods)

    before = await _leases(client, namespace)
    await _wait_for_renewals(before, tell)
    after = await _leases(client, namespace)

    running = _renewed(before, after)
    if running:
        return Leftovers(running=running)
    for lease in after:
        await _remove(client, namespace, lease)
    return Leftovers(_nodes_of(after), len(after))


async def _wait_for_renewals(leases: Iterable["_Lease"], tell: Callable[[str], None]) -> None:
    """Waits as long as the longest heartbeat lasts.

    There may be agents of a DaemonSet with another name, or orphaned Pods. While an agent runs, its claims must stay:
    otherwise two nodes could answer.
    """
    silence_s = max((lease.duration_s for lease in leases if lease.node), default=0)
    if silence_s:
        tell(f"waiting {silence_s + _LATE_S:g} s to see whether any agent still renews its heartbeat")
        await asyncio.sleep(silence_s + _LATE_S)


def _renewed(before: Iterable["_Lease"], after: Iterable["_Lease"]) -> tuple[str, ...]:
    """The nodes whose heartbeats have changed."""
    known = {(lease.name, lease.version) for lease in before}
    return _nodes_of(lease for lease in after if (lease.name, lease.version) not in known)


def _nodes_of(leases: Iterable["_Lease"]) -> tuple[str, ...]:
    return tuple(sorted(lease.node for lease in leases if lease.node))


async def _delete_daemonset(client: Client, namespace: str, name: str) -> bool:
    """In the foreground: the object stays until its Pods are gone, and so tells agents why they end."""
    query = {"propagationPolicy": "Foreground"}
    try:
        await client.call(Request("delete", DAEMON_SETS, namespace, name, query), _WRITE_S)
    except NotFoundError:
        return False
    return True


async def _wait_until_gone(client: Client, request: Request, timeout_s: float) -> int | None:
    """None once the object is gone; else how many Pods it counted last. Waits out a server that is away for a while."""
    until, count = time.monotonic() + timeout_s, 0
    while True:
        is_last = time.monotonic() >= until
        try:
            if (found := await client.find(request, _WRITE_S)) is None:
                return None
            count = _count_of(found)
        except (ThrottledError, UnavailableError):
            if is_last:
                raise
        if is_last:
            return count
        await asyncio.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))


def _count_of(daemonset: JsonObject) -> int:
    status = daemonset.get("status")
    count = status.get("currentNumberScheduled") if isinstance(status, dict) else None
    return count if isinstance(count, int) else 0


@dataclass(frozen=True, slots=True)
class _Lease:
    """A Lease of the agents. `node`: whose heartbeat it is; empty for a claim."""

    name: str
    version: str
    node: str
    duration_s: int
    finalizers: tuple[str, ...]


async def _leases(client: Client, namespace: str) -> list[_Lease]:
    """Claims and heartbeats."""
    found = [lease async for page in read_pages(client, LEASES, Scope(namespace)) for lease in map(_lease, page.items)]
    return [lease for lease in found if lease is not None]


def _lease(item: object) -> _Lease | None:
    """None for what is neither a claim nor a heartbeat."""
    raw = item if isinstance(item, dict) else {}
    found = projections.lease(raw)
    if node_of(found.name) is None and vip_of(found.name) is None:
        return None
    finalizers = tuple(raw["metadata"].get("finalizers") or ())
    return _Lease(found.name, found.version, node_of(found.name) or "", found.duration_s, finalizers)


async def _remove(client: Client, namespace: str, lease: _Lease) -> None:
    """The finalizer keeps claims from being deleted under running agents; there are none."""
    try:
        if FINALIZER in lease.finalizers:
            kept = {"metadata": {"finalizers": [each for each in lease.finalizers if each != FINALIZER]}}
            await client.call(Request("patch", LEASES, namespace, lease.name, body=kept), _WRITE_S)
        await client.call(Request("delete", LEASES, namespace, lease.name), _WRITE_S)
    except (NotFoundError, ConflictError):
        log.debug("Lease %s/%s was already gone", namespace, lease.name)
