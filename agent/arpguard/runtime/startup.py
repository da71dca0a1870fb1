"""How an agent starts: it checks what it needs, waits for its turn on this node, and loads its programs; then it runs.

Stopping leaves the guard in place: programs, maps and links are pinned. `arpguard cleanup` removes them, and so does
the agent when its DaemonSet is gone.

A node that is not guarded yet answers freely, so an agent imports as little as it can before it guards.
"""

import asyncio
import logging
import math
import signal
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arpguard import __version__
from arpguard.core.choosing import choose_links
from arpguard.dataplane import bpffs, privileges
from arpguard.dataplane.announcementsocket import AnnouncementSocket
from arpguard.dataplane.attach import remove_guard
from arpguard.dataplane.build import Build, read_build
from arpguard.dataplane.kernelclock import require_the_kernels_clock
from arpguard.dataplane.netlink import read_surroundings
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError, LockedError
from arpguard.model import Surroundings
from arpguard.runtime import memory
from arpguard.runtime.kernel.pinned import Pinned
from arpguard.runtime.settings import KubernetesOptions, Settings
from arpguard.runtime.waking import is_set_within

if TYPE_CHECKING:
    from arpguard.api.standby import Standby

log = logging.getLogger(__name__)

TURN_S = 0.05
ENDING_S = 5.0  # for the voucher of an agent that has just ended: the kernel has killed it, but it may lack a CPU


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The agent's command line. `kubernetes` None: it runs standalone, on the file.

    `standby`: it waits for an agent that already runs on this node. `early_file`: as in EarlyFile.
    `named_by_host`: `node` was not given, and is the host's name.
    """

    config: Path | None
    node: str
    kubernetes: KubernetesOptions | None = None
    standby: bool = False
    early_file: Path | None = None
    named_by_host: bool = False


class Startup:
    """One agent's life. `run` returns after SIGTERM or SIGINT."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._settings = Settings(options.config, options.kubernetes.configmap if options.kubernetes else "")
        self._settings.named_by_host = options.named_by_host
        self._settings.trace = options.kubernetes.trace if options.kubernetes else None
        self._pin_dir = self._settings.config.bpf.pin_dir
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Brings the guard up, keeps it right, and leaves it in place. Raises ConfigError or DataPlaneError."""
        memory.keep_heap_small()
        node, pin_dir = self._options.node, self._pin_dir
        log.info("starting: version=%s node=%s pin_dir=%s", __version__, node, pin_dir)
        # At once: process 1 of a container gets no signal that it has no handler for.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)

        privileges.require()
        require_the_kernels_clock()
        self._refuse_if_nothing_to_guard(await read_surroundings())
        bpffs.prepare(pin_dir)

        programs = read_build(self._settings.config.bpf.max_entries)
        lock = await self._wait_for_turn(programs)
        if lock is None:
            return

        with lock, closing(AnnouncementSocket()) as announcements:
            loading = asyncio.create_task(Pinned.load(pin_dir, programs))
            await asyncio.sleep(0)  # it begins: the verifier works while this imports
            from arpguard.runtime.early import EarlyFile  # noqa: PLC0415
            from arpguard.runtime.wiring import build  # noqa: PLC0415

            pinned = await loading
            privileges.keep_only(privileges.KEPT_IN_CLUSTER if self._options.kubernetes else privileges.KEPT)
            early = EarlyFile(self._options.early_file)
            agent = await build(node, self._options.kubernetes, self._settings, pinned, announcements, early, lock)
            end = await agent.run(self._stopping)
            if end.removes_guard:
                await early.remove()
                await remove_guard(pin_dir)

        if end.removes_guard:
            bpffs.remove_all(pin_dir)
            log.info("stopped: the guard is removed")

    def _refuse_if_nothing_to_guard(self, surroundings: Surroundings) -> None:
        """Before it loads anything: with no link now, and none that may still appear, there is nothing to do."""
        if self._options.kubernetes is not None:
            return
        config = self._settings.config
        vips = [vip.address for vip in config.vips]
        choice = choose_links(config.interfaces, surroundings, vips, closed=config.closed)
        if not choice.links and not choice.may_appear:
            raise DataPlaneError("; ".join(choice.problems))

    async def _wait_for_turn(self, programs: Build) -> Fd | None:
        """Waits until no other agent of this node has the lock, and takes it; None if this agent has to stop before.

        Raises LockedError if the other agent outlasts `_begin_to_wait`.
        """
        deadline_s: float | None = None
        async with AsyncExitStack() as waiting:
            while not self._stopping.is_set():
                try:
                    return bpffs.lock(self._pin_dir)
                except LockedError:
                    if deadline_s is None:
                        deadline_s = await self._begin_to_wait(programs, waiting)
                    elif time.monotonic() >= deadline_s:
                        raise
                await is_set_within(self._stopping, TURN_S)

        log.info("stopped on standby" if self._options.standby else "stopped before the other agent did")
        return None

    async def _begin_to_wait(self, programs: Build, waiting: AsyncExitStack) -> float:
        """Returns how long to wait for the lock, by time.monotonic().

        An agent in standby waits for as long as it takes. It first prepares as far as it can, and only then tells
        probes that it is well: a fault shows while the other agent still guards the node. Any other agent waits for
        the voucher of an agent that has just ended.
        """
        if not self._options.standby:
            log.info(
                "another agent or its voucher process uses %s; waiting up to %.0f s for its exit",
                self._pin_dir,
                ENDING_S,
            )
            return time.monotonic() + ENDING_S

        standby = await self._get_ready(programs)
        waiting.push_async_callback(standby.stop)
        await standby.start()
        log.info("standby: another agent uses %s; this agent takes over when that one stops", self._pin_dir)
        return math.inf

    async def _get_ready(self, programs: Build) -> "Standby":
        """Loads the programs, and imports what this agent will run; returns what serves until then."""
        await Pinned.load(self._pin_dir, programs)
        import arpguard.observe.exporter  # noqa: PLC0415
        import arpguard.runtime.wiring  # noqa: PLC0415
        from arpguard.api.standby import Standby  # noqa: PLC0415 - and the API's server with it

        if self._options.kubernetes is not None:
            import arpguard.runtime.cluster.kubernetes  # noqa: F401, PLC0415 - 10 MB, not for everybody
        return Standby(self._settings.config.grpc)
