"""Follows this node's keepalived, for the VIPs whose owner is one of its instances."""

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.basis import Asked
from arpguard.core.keepalived import FifoReading, InstanceStates, followers, resolved, splits, unknown_states
from arpguard.dataplane.fifo import Fifo, UnfitFifoError, provide, recall, remember
from arpguard.model import Vip
from arpguard.node import ThisNode
from arpguard.runtime.waking import Alarm

log = logging.getLogger(__name__)

POLL_S = 0.2  # whether another FIFO is at the path, and times; what is written to this one wakes at once


class Keepalived:
    """Reads its FIFO while a VIP follows an instance, and wakes `passes` when a state changes."""

    def __init__(self, node: ThisNode, passes: Alarm) -> None:
        self._node = node
        self._passes = passes
        self._path = Path()
        self._fifo: Fifo | None = None
        self._reading: FifoReading | None = None
        self._written = ""  # beside the FIFO
        self._followed: dict[Address, str] = {}
        self._needed = Alarm()
        self._vips: Mapping[Address, Vip] = {}  # the last ones that were asked for
        self._resolved: Mapping[Address, Vip] = {}  # and the same with their owners
        self._by: InstanceStates | None = None  # by what was known then

    @property
    def problems(self) -> Sequence[str]:
        """The instances whose state is not known, and those that are MASTER elsewhere, too."""
        node, known, followed = self._node, self._node.keepalived, self._followed
        return [*unknown_states(followed, known, waits=node.waits), *splits(followed, known, node.audits.wrong())]

    def follow(self, asked: Asked) -> Asked:
        """The wanted VIPs, with this node as the owner of those whose instance is MASTER here."""
        if asked.vips is not self._vips:
            self._followed = followers(asked.vips)
        if not self._followed:
            self._vips = self._resolved = asked.vips
            return asked

        if asked.config.keepalived.fifo != self._path:
            self._begin(asked.config.keepalived.fifo)
        self._resolve(asked.vips)
        return replace(asked, vips=self._resolved)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        try:
            while True:
                await self._needed.sleep_for(POLL_S if self._followed else None)
                self._needed.clear()
                if self._followed:
                    self._look()
                else:
                    self._end()
        finally:
            self._close()

    # ---- VIPs ----

    def _resolve(self, vips: Mapping[Address, Vip]) -> None:
        """A VIP that has changed is another object, and any other is the same."""
        known = self._node.keepalived
        if vips is self._vips and known is self._by:
            return

        last, whole = self._resolved, dict(vips)
        for address in self._followed:
            vip = resolved(vips[address], self._node.name, known)
            before = last.get(address)
            whole[address] = before if before is not None and before == vip else vip
        self._vips, self._resolved, self._by = vips, whole, known

    # ---- the FIFO ----

    def _begin(self, path: Path) -> None:
        """Reads another FIFO from now on; the pass that asks for it already knows what is in it."""
        self._close()
        self._path, self._reading = path, None
        self._look()
        self._needed.wake()

    def _end(self) -> None:
        """No VIP follows an instance any more."""
        self._close()
        self._path, self._node.keepalived = Path(), InstanceStates()

    def _look(self) -> None:
        """Takes note of what is in the FIFO now."""
        try:
            known = self._read()
        except (OSError, UnfitFifoError) as error:
            self._close()
            self._reading, known = None, InstanceStates(trouble=self._trouble(error))

        before = self._node.keepalived
        if known != before:
            self._node.keepalived = known
            self._log(before, known)
            self._passes.wake()

    def _read(self) -> InstanceStates:
        fifo, reading = self._open()
        taken = reading.take(fifo.look(), boot_ns())
        if reading.remembered != self._written:
            remember(self._path, reading.remembered)
            self._written = reading.remembered
        fifo.take_out(taken)
        return reading.known

    def _open(self) -> tuple[Fifo, FifoReading]:
        """The FIFO that is at the path now."""
        reading = self._reading
        if self._fifo is not None and reading is not None:
            if self._fifo.is_current:
                return self._fifo, reading
            reading.take(self._fifo.look(), boot_ns())  # its last words
            reading.replaced()

        self._close()
        provide(self._path)
        self._fifo = fifo = Fifo(self._path)
        asyncio.get_running_loop().add_reader(fifo.ready.fileno(), self._look)
        if reading is None:
            self._written = recall(self._path)
            reading = self._reading = FifoReading(str(self._path), self._written)
        return fifo, reading

    def _close(self) -> None:
        if self._fifo is not None:
            asyncio.get_running_loop().remove_reader(self._fifo.ready.fileno())
            self._fifo.close()
            self._fifo = None

    def _trouble(self, error: OSError | UnfitFifoError) -> str:
        if isinstance(error, UnfitFifoError):
            return str(error)
        return f"cannot create or read {self._path}, or write to its folder ({os.strerror(error.errno or 0)})"

    def _log(self, before: InstanceStates, known: InstanceStates) -> None:
        for instance in sorted(set(self._followed.values())):
            if known.word(instance) != before.word(instance):
                log.info("keepalived: instance=%s state=%s", instance, known.word(instance).lower())
