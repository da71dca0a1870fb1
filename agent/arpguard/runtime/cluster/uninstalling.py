"""Takes arpguard out of a cluster in the order in which nothing is left: its agents first, then what they left.

Each agent that sees its DaemonSet go removes its guard, its claims and its heartbeat. So where a heartbeat is still
there afterwards, the guard may be, too: that node's agent had no time or no API server, or there was none.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from arpguard.kube.claims import FINALIZER, node_of, vip_of
from arpguard.kube.client import Client
from arpguard.kube.errors import ConflictError, JsonObject, NotFoundError
from arpguard.kube.listing import Scope, read_pages
from arpguard.kube.resources import DAEMON_SETS, LEASES, Request

log = logging.getLogger(__name__)

_POLL_S = 1.0
_WRITE_S = 10.0


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What an uninstall leaves: nodes whose guard may be there, and how many Leases it removed.

    `pods`: the DaemonSet was not gone in time, since so many of its Pods were not; then nothing else was touched.
    """

    nodes: tuple[str, ...] = ()
    leases: int = 0
    pods: int | None = None


async def uninstall(
    client: Client, namespace: str, name: str, timeout_s: float, tell: Callable[[str], None]
) -> Leftovers:
    """Ends the agents and removes what they leave in the API; says by `tell` what it waits for. Raises ClusterError."""
    found = await _delete_daemonset(client, namespace, name)
    tell(f"DaemonSet {namespace}/{name}: waiting for its Pods" if found else f"DaemonSet {namespace}/{name} is gone")

    pods = await _wait_until_gone(client, Request("get", DAEMON_SETS, namespace, name), timeout_s)
    if pods is not None:
        return Leftovers(pods=pods)
    nodes, count = await _remove_leases(client, namespace)
    return Leftovers(nodes, count)


async def _delete_daemonset(client: Client, namespace: str, name: str) -> bool:
    """In the foreground: the object stays until its Pods are gone, and so tells agents why they end."""
    query = {"propagationPolicy": "Foreground"}
    try:
        await client.call(Request("delete", DAEMON_SETS, namespace, name, query), _WRITE_S)
    except NotFoundError:
        return False
    return True


async def _wait_until_gone(client: Client, request: Request, timeout_s: float) -> int | None:
    """None once the object is gone; else how many Pods it counted last."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            found = (await client.call(request, _WRITE_S)).body
        except NotFoundError:
            return None
        if time.monotonic() >= until:
            return _count_of(found)
        await asyncio.sleep(min(_POLL_S, max(0.0, until - time.monotonic())))


def _count_of(daemonset: JsonObject) -> int:
    status = daemonset.get("status")
    count = status.get("currentNumberScheduled") if isinstance(status, dict) else None
    return count if isinstance(count, int) else 0


async def _remove_leases(client: Client, namespace: str) -> tuple[tuple[str, ...], int]:
    """Claims and heartbeats that no agent removed; the nodes of the heartbeats, and how many there were of both."""
    nodes, count = [], 0
    async for page in read_pages(client, LEASES, Scope(namespace)):
        for item in page.items:
            metadata = item.get("metadata") if isinstance(item, dict) else None
            if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
                continue
            node = node_of(metadata["name"])
            if node is None and vip_of(metadata["name"]) is None:
                continue
            await _remove(client, namespace, metadata)
            nodes += [node] if node else []
            count += 1
    return tuple(sorted(nodes)), count


async def _remove(client: Client, namespace: str, metadata: JsonObject) -> None:
    """The finalizer keeps claims from being deleted under running agents; there are none."""
    name, finalizers = metadata["name"], metadata.get("finalizers") or []
    try:
        if FINALIZER in finalizers:
            kept = {"metadata": {"finalizers": [each for each in finalizers if each != FINALIZER]}}
            await client.call(Request("patch", LEASES, namespace, name, body=kept), _WRITE_S)
        await client.call(Request("delete", LEASES, namespace, name), _WRITE_S)
    except (NotFoundError, ConflictError):
        log.debug("Lease %s/%s went by itself", namespace, name)
