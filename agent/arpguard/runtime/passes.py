"""Passes, which bring the kernel up to date with VIPs and links, and the times at which the agent makes them."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from arpguard.clock import boot_ns
from arpguard.core.basis import Asked
from arpguard.core.cautions import misnamed
from arpguard.errors import DataPlaneError
from arpguard.node import ThisNode
from arpguard.runtime import memory
from arpguard.runtime.controlplane import ControlPlane
from arpguard.runtime.early import EarlyFile
from arpguard.runtime.keepalived import Keepalived
from arpguard.runtime.kernel.announcing import Announcing
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.kernel.pinned import Pinned
from arpguard.runtime.kernel.reconciler import Reconciler, SmallPass
from arpguard.runtime.linkwatch import LinkWatch
from arpguard.runtime.settings import Settings
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_MS

log = logging.getLogger(__name__)

AUDIT_INTERVAL_S = 0.5
SHARE = 0.002  # of one core, for what takes longer with more VIPs; but it is done once a minute
LONGEST_S = 60.0
SETTLE_S = 0.02  # netlink messages come in flocks, and so do objects


class Part(Protocol):
    """A part of the agent that finds problems."""

    @property
    def problems(self) -> Sequence[str]:
        """What is wrong now, a sentence each."""


@dataclass(slots=True)
class Passes:
    """Makes passes; the problems of `parts` are among theirs."""

    _node: ThisNode
    _settings: Settings
    _pinned: Pinned
    _plane: ControlPlane
    _kernel: Reconciler
    _links: LinkWatch
    _keepalived: Keepalived
    _early: EarlyFile
    _parts: Sequence[Part]
    _is_complete: bool = False
    _is_ready: bool = False
    _generation: int = 0  # of the configuration that the last pass was made for

    async def make_first(self) -> None:
        """Makes the first pass. Raises DataPlaneError when it can guard none of the links."""
        await self.make(whole=True)
        state = self._kernel.state
        if state.links and not state.attachments:
            raise DataPlaneError("; ".join(state.problems))
        self._kernel.log_problems()

    async def make(self, *, whole: bool) -> None:
        """Makes a pass; one that need not be `whole` does only what has changed, if that is enough."""
        # The kernel's word of a route may come later than an edit that was made after it, and a link that was chosen by
        # the old routes would stay guarded.
        generation = self._settings.in_force.generation
        surroundings = self._node.surroundings = await self._links.look(anew=generation != self._generation)
        self._generation = generation
        asked = self._keepalived.follow(await self._plane.ask(surroundings))
        self._node.waits = self._has_to_wait(asked)
        asked = replace(asked, problems=[*self._problems(), *asked.problems])
        if self._node.waits:
            self._kernel.wait(asked.problems)
            return

        if whole or self._kernel.update(asked, surroundings, boot_ns()) is SmallPass.NEEDS_WHOLE:
            await self._kernel.apply(asked, surroundings, boot_ns())

        self._plane.passed()
        self._is_complete = asked.complete
        if asked.complete:
            self._early.keep(asked.config, asked.closing, self._kernel.state.links, surroundings)

    async def keep_attached(self) -> None:
        """Does the part of a pass that costs the same however many VIPs there are."""
        await self._kernel.keep_attached(self._settings.config.datapath, self._node.surroundings)

    def _problems(self) -> list[str]:
        """What is wrong on this node, whatever its VIPs."""
        found = [problem for part in self._parts for problem in part.problems]
        return [*self._settings.problems(), *self._misnamed(), *found]

    def _misnamed(self) -> list[str]:
        """Standalone, a person typed this node's name; in a cluster, the API server knows all names."""
        if self._plane.state is not None:
            return []
        return misnamed(self._settings.config, self._node.name, by_host=self._settings.named_by_host)

    def _has_to_wait(self, asked: Asked) -> bool:
        """Whether the last agent told the kernel more than this one has read so far."""
        awaits_configmap = self._settings.awaited and self._pinned.was_told
        knows_less = self._pinned.has_others or self._kernel.knows_less
        return awaits_configmap or (not asked.complete and knows_less)

    def say_when_ready(self) -> None:
        """Logs, once, that the agent has read everything that says what to guard, and has told the kernel."""
        if self._is_ready or not self._is_complete:
            return

        self._pinned.discard_others()
        self._is_ready = True
        memory.freeze()

        name, config, state = self._node.name, self._settings.config, self._kernel.state
        log.info(
            "ready: node=%s mode=%s vips=%d links=%s programs=%s start_ms=%d",
            name,
            config.mode.name.lower(),
            len({key.vip for key in state.entries}),
            ",".join(link.name for link in state.links) or "none",
            "reopened" if self._pinned.warm else "loaded",
            (boot_ns() - self._settings.started_ns) // NS_PER_MS,
        )

        owners = sorted({vip.owner.node for vip in config.vips if vip.owner.node})
        if owners and name not in owners and not self._misnamed():  # which is a problem, and logged as one
            log.info("no VIP names this node (%s) as its owner; the VIPs name %s", name, ", ".join(owners[:9]))


@dataclass(slots=True)
class Allowance:
    """How often to do work that takes longer with more VIPs."""

    _next_s: float = 0.0
    _took_s: float = 0.0  # CPU of the last time

    @property
    def is_due(self) -> bool:
        """Whether it is time again."""
        return time.monotonic() >= self._next_s

    def took(self, took_s: float) -> None:
        """Notes how long it took. The shorter of two times counts: loading programs says nothing about the map."""
        usual_s, self._took_s = min(took_s, self._took_s), took_s
        self._next_s = time.monotonic() + min(usual_s / SHARE, LONGEST_S)


@dataclass(slots=True)
class Upkeep:
    """Asks for a pass after every change, and also now and then, because other programs may change the kernel's state.

    Whoever needs a pass wakes `wanted`. After each round `sleepers` may have something to do.
    """

    _passes: Passes
    _links: LinkWatch
    _kernel: Reconciler
    _pinned: Pinned
    _wanted: Alarm
    _sleepers: Sequence[Announcing | Listening]
    _whole: Allowance = field(default_factory=Allowance)
    _look: Allowance = field(default_factory=Allowance)
    _error: str = ""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        settled_s = 0.0
        while True:
            if await self._wanted.sleep_for(AUDIT_INTERVAL_S):
                # A single change of owner does not wait: until the kernel has it, two nodes may answer.
                await asyncio.sleep(SETTLE_S if self._links.changed else settled_s - time.monotonic())

            try:
                await self._keep_right()
                self._error = ""
            except (OSError, DataPlaneError) as error:
                self._log_error(str(error))
                self._whole = Allowance()  # the next round does what this pass left undone

            for sleeper in self._sleepers:
                sleeper.wake()
            settled_s = time.monotonic() + SETTLE_S

    async def _keep_right(self) -> None:
        """Checks programs and control twice a second, and entries, too, unless there are too many."""
        began_s = time.thread_time()
        whole = self._whole.is_due or self._is_touched()
        if whole or self._wanted.woken:
            self._wanted.clear()
            await self._passes.make(whole=whole)
        if whole:
            self._whole.took(time.thread_time() - began_s)
        else:
            await self._passes.keep_attached()

        self._pinned.keep()
        self._kernel.log_problems()
        self._passes.say_when_ready()

    def _is_touched(self) -> bool:
        if not self._look.is_due:
            return False
        began_s = time.thread_time()
        touched = self._kernel.is_touched()
        self._look.took(time.thread_time() - began_s)
        return touched

    def _log_error(self, error: str) -> None:
        """Logs an error once, however often passes fail with it."""
        if error != self._error:
            log.error("cannot update the kernel's maps and programs; trying again: %s", error)
        self._error = error
