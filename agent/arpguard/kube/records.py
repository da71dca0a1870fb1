"""The Leases of the claim protocol as heartbeats and claims.

This decodes every Lease of the protocol once, whether a watch, a read or a list brings it. Code above it sees a Lease
only in the outcome of a write, for its version. `arpguard uninstall` takes no part in the protocol, and reads its own.
"""

from dataclasses import dataclass
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.core.cluster import Lease
from arpguard.core.ownership.records import (
    Claim,
    DeleteClaim,
    DeleteHeartbeat,
    Heartbeat,
    Published,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.kube import claims, projections
from arpguard.kube.errors import JsonObject
from arpguard.kube.writer import Applied, LeaseContent, LeaseWriter, Missing, Written

Record: TypeAlias = Heartbeat | Claim | None  # None: a Lease that is neither

REMOVE_TRIES = 3


def record_of(raw: JsonObject) -> Record:
    """The heartbeat or claim in a Lease of the agent's namespace."""
    lease = projections.lease(raw)
    return claims.heartbeat_of(lease) or claims.claim_of(lease)


@dataclass(frozen=True, slots=True)
class OwnClaims:
    """The claims that name a node, all as of one moment after `sent_ns` (boot clock)."""

    claims: tuple[Claim, ...]
    sent_ns: int


class Records:
    """Reads and writes heartbeats and claims over one connection. Reads raise ClusterError; a write has an outcome."""

    def __init__(self, writer: LeaseWriter) -> None:
        self._writer = writer

    def set_timeout(self, seconds: float) -> None:
        """How long a request may take from now on."""
        self._writer.timeout_s = seconds

    # ---- heartbeats ----

    async def heartbeat(self, node: str) -> Heartbeat | None:
        """A node's heartbeat as it is now; None when there is none."""
        lease = await self._writer.read(claims.node_lease_name(node))
        return claims.heartbeat_of(lease) if lease else None

    async def renew(self, effect: WriteHeartbeat, published: Published) -> Written:
        """Writes this node's heartbeat."""
        name, content = claims.node_lease_name(effect.node), claims.heartbeat_content(effect, published)
        if effect.version is None:
            return await self._writer.create(name, content)
        return await self._writer.renew(_seen(name, effect.version), content)

    async def revoke(self, effect: WriteHeartbeat) -> Written:
        """Writes another node's heartbeat, to end its epoch."""
        return await self._put(claims.node_lease_name(effect.node), effect.version, claims.heartbeat_content(effect))

    async def remove_heartbeat(self, node: str) -> bool:
        """Deletes a heartbeat, whatever version it has; False when that failed. Raises ClusterError."""
        for _ in range(REMOVE_TRIES):
            found = await self.heartbeat(node)
            if found is None:
                return True
            outcome = await self._writer.delete(_seen(claims.node_lease_name(node), found.version))
            if isinstance(outcome, (Applied, Missing)):
                return True
        return False

    async def delete_heartbeat(self, effect: DeleteHeartbeat) -> Written:
        """Deletes another node's heartbeat."""
        return await self._writer.delete(_seen(claims.node_lease_name(effect.node), effect.version))

    # ---- claims ----

    async def claim(self, vip: Address) -> Claim | None:
        """The claim to a VIP as it is now; None when there is none."""
        lease = await self._writer.read(claims.lease_name(vip))
        return claims.claim_of(lease) if lease else None

    async def claims_of(self, node: str) -> OwnClaims:
        """All claims that name a node."""
        leases, sent_ns = await self._writer.list(claims.own_claims_selector(node))
        return OwnClaims(tuple(filter(None, map(claims.claim_of, leases))), sent_ns)

    async def write_claim(self, effect: WriteClaim, source: str) -> Written:
        """Creates or replaces a claim. `source`: the object that makes it a VIP, for people."""
        content = claims.claim_content(effect, source)
        return await self._put(claims.lease_name(effect.vip), effect.version, content)

    async def delete_claim(self, effect: DeleteClaim) -> Written:
        """Deletes exactly one version of a claim."""
        return await self._writer.delete(_seen(claims.lease_name(effect.vip), effect.version))

    async def _put(self, name: str, version: Version | None, content: LeaseContent) -> Written:
        if version is None:
            return await self._writer.create(name, content)
        return await self._writer.replace(_seen(name, version), content)


def _seen(name: str, version: Version) -> Lease:
    return Lease(name, version.uid, version.resource_version)
