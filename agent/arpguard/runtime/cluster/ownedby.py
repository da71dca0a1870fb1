"""Writes the annotation arpguard.io/owned-by of Services (`services.owned_by`), with best effort: nothing waits for it.

One Service at a time, at most 20 in a second. It compares with what the watch shows, so where nothing has changed it
writes nothing, also after a restart. Another node that disagrees costs one write in AGAIN_NS, not a storm.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.backoff import Backoff
from arpguard.core.bounding import some
from arpguard.core.cluster import OWNED_BY, Key, Service
from arpguard.core.ownedby import Correction, correction
from arpguard.core.tenures import Tenures
from arpguard.kube.annotating import correct_owned_by
from arpguard.kube.client import Client
from arpguard.kube.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from arpguard.runtime.cluster.objects import Cluster
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

LOOK_S = 1.0
EACH_S = 0.05
GONE_NS = 10 * NS_PER_S  # a name waits so long before it goes: usually the next owner replaces it
AGAIN_NS = 10 * NS_PER_S  # between two writes to one Service
REFUSED_NS = 60 * NS_PER_S
RETRY_S, MAX_RETRY_S = 1.0, 60.0
AT_ONCE = 500
_REMEDY = "apply the component owned-by (the Helm chart includes the right), or set services.owned_by: false"


class OwnedBy:
    """Makes Services name this node as the owner of their addresses that its kernel answers for (`tenures`).

    Asks for a pass (`look`) when its problems have changed.
    """

    def __init__(self, client: Client, node: str, cluster: Cluster, tenures: Tenures, look: Callable[[], None]) -> None:
        self._client = client
        self._node = node
        self._cluster = cluster
        self._tenures = tenures
        self._look = look
        self._on: bool | None = None  # None: never yet, so no Service names this node by this agent's doing
        self._leaving = False
        self._seen: tuple[int, int] | None = None
        self._due_ns: dict[Key, int] = {}
        self._resting_ns: dict[Key, int] = {}  # not before then, by Service
        self._not_before_ns = 0
        self._refused: dict[Key, str] = {}
        self._backoff = Backoff(RETRY_S, MAX_RETRY_S, random.random)
        self._turn = asyncio.Lock()

    def follow(self, *, on: bool) -> None:
        """Whether Services are to name their owners. If they were before, and no longer are, this node's name goes."""
        if on is not self._on and (on or self._on is not None):
            self._on, self._seen, self._not_before_ns = on, None, 0

    @property
    def _names(self) -> bool:
        """Whether to write this node's name; otherwise only to remove it."""
        return bool(self._on) and not self._leaving

    @property
    def problem(self) -> str:
        """Why Services cannot be annotated; empty if they can."""
        if not (self._on and self._refused):
            return ""
        names = some(sorted("/".join(key) for key in self._refused))
        return f"cannot write the annotation {OWNED_BY} on {names}: {next(iter(self._refused.values()))}"

    async def run(self) -> None:
        """Writes until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._keep()

    async def withdraw(self, limit_s: float) -> None:
        """Removes this node's name everywhere, as far as that takes no longer than the limit."""
        if self._on is None:
            return
        self._leaving, self._seen, self._not_before_ns = True, None, 0
        try:
            async with asyncio.timeout(limit_s):
                await self._keep()
                while self._due_ns:
                    await asyncio.sleep(LOOK_S)
                    await self._keep()
        except TimeoutError:
            log.warning(
                "the annotation %s still names this node on %s", OWNED_BY, some(sorted(map("/".join, self._due_ns)))
            )

    async def _keep(self) -> None:
        if self._on is None:
            return
        async with self._turn:
            now = self._cluster.service_changes, self._tenures.changes
            if now != self._seen:
                self._seen = now
                await self._find()
            before = self.problem
            await self._write_what_is_due()
        if self.problem != before:
            self._look()

    # ---- what is to be written ----

    @property
    def _mine(self) -> AbstractSet[Address]:
        return self._tenures.vips if self._names else frozenset()

    def _wanted(self, service: Service) -> Correction | None:
        return correction(service, self._mine, self._node)

    async def _find(self) -> None:
        """Looks at all Services, and lets other tasks in between: there may be thousands."""
        due_ns: dict[Key, int] = {}
        now_ns = boot_ns()
        for number, (key, service) in enumerate([*self._cluster.services.items()], 1):
            wanted = self._wanted(service)
            if wanted is not None:
                wait_ns = GONE_NS if self._names and not wanted.urgent else 0
                due_ns[key] = min(self._due_ns.get(key, now_ns + wait_ns), now_ns + wait_ns)
            if not number % AT_ONCE:
                await asyncio.sleep(0)

        self._due_ns = due_ns
        self._resting_ns = {key: until_ns for key, until_ns in self._resting_ns.items() if until_ns > now_ns}
        self._refused = {key: why for key, why in self._refused.items() if key in due_ns}

    # ---- requests ----

    async def _write_what_is_due(self) -> None:
        for key in sorted(self._due_ns, key=self._due_ns.__getitem__):
            now_ns = boot_ns()
            if now_ns < self._not_before_ns or key not in self._due_ns:
                return
            if now_ns >= max(self._due_ns[key], self._resting_ns.get(key, 0) if self._names else 0):
                await self._write(key)
                await asyncio.sleep(EACH_S if self._names else 0)

    async def _write(self, key: Key) -> None:
        try:
            await correct_owned_by(self._client, key, self._wanted)
        except ConflictError:
            return  # stays due, and is read again
        except (UnavailableError, ThrottledError) as error:
            wait_s = max(self._backoff.next_s(), min(error.failure.retry_after_s, MAX_RETRY_S))
            self._not_before_ns = boot_ns() + int(wait_s * NS_PER_S)
            return
        except NotFoundError:
            log.debug("Service %s/%s is gone", *key)
        except ClusterError as error:
            self._refuse(key, error)
            return

        self._backoff.reset()
        del self._due_ns[key]
        self._refused.pop(key, None)
        self._resting_ns[key] = boot_ns() + AGAIN_NS

    def _refuse(self, key: Key, error: ClusterError) -> None:
        """Tries again later, but not to remove a name; without the right it tries no other Service before that."""
        if not self._names:
            self._on = None
            self._due_ns.clear()
            return
        until_ns = boot_ns() + REFUSED_NS
        self._resting_ns[key] = until_ns
        if isinstance(error, ForbiddenError):
            self._not_before_ns = until_ns
            self._refused = {key: f"{error.failure.text}: {_REMEDY}"}
        else:
            self._refused[key] = str(error)
