"""The annotation arpguard.io/owned-by, written to exactly the version of a Service that was read."""

from collections.abc import Callable

from arpguard.core.cluster import OWNED_BY, Key, Service
from arpguard.core.ownedby import Correction
from arpguard.kube.client import Client
from arpguard.kube.projections import service, version_of
from arpguard.kube.resources import SERVICES, Request


async def correct_owned_by(client: Client, key: Key, wanted: Callable[[Service], Correction | None]) -> bool:
    """Reads a Service, and writes what is `wanted` of it; returns whether it wrote anything.

    Raises ClusterError, and ConflictError where another program wrote in between.
    """
    namespace, name = key
    raw = await client.find(Request("get", SERVICES, namespace, name))
    found = wanted(service(raw)) if raw is not None else None
    if raw is None or found is None:
        return False

    annotations = {OWNED_BY: found.text or None}  # null deletes (RFC 7386)
    metadata = {"resourceVersion": version_of(raw), "annotations": annotations}
    await client.call(Request("patch", SERVICES, namespace, name, body={"metadata": metadata}))
    return True
