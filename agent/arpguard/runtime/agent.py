"""The agent: wires configuration, netlink, the kernel, the wire and Kubernetes together, and runs until told to stop.

Stopping leaves the guard in place: programs, maps and links are pinned. `arpguard cleanup` removes them, and so does
the agent when its DaemonSet is gone.
"""

import asyncio
import gc
import logging
import signal
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arpguard import __version__
from arpguard.addresses import MacAddress
from arpguard.api.server import ApiServer
from arpguard.api.standby import Standby
from arpguard.clock import boot_ns
from arpguard.config.model import AgentConfig
from arpguard.core.admission import avoided
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked
from arpguard.core.choosing import choose_links
from arpguard.core.closing import closing_of
from arpguard.core.decisions import ConflictLog, DecisionLog, Report
from arpguard.core.sourcing import Sourcing
from arpguard.dataplane import bpffs, loader, privileges
from arpguard.dataplane.announcementsocket import AnnouncementSocket
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.build import Build, read_build
from arpguard.dataplane.events import EventReader
from arpguard.dataplane.kernelclock import require_the_kernels_clock
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.dataplane.netlink import read_surroundings, watch_changes
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError, ListenError, LockedError
from arpguard.model import Decision, EntryKey, Link, OwnerKind, Surroundings
from arpguard.node import ThisNode
from arpguard.observe.exporter import Exporter
from arpguard.observe.metrics import ApiMetrics, node_registry
from arpguard.runtime.cluster.conflicts import Conflicts
from arpguard.runtime.cluster.leaving import End, KubernetesOptions, remove_guard
from arpguard.runtime.filewatch import FileWatch
from arpguard.runtime.kernel.hearing import Hearing
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.kernel.reconciler import Reconciler, some
from arpguard.runtime.loglimit import LogLimit
from arpguard.runtime.settings import Settings
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Verdict

if TYPE_CHECKING:
    from arpguard.runtime.cluster.kubernetes import Kubernetes

log = logging.getLogger(__name__)

AUDIT_INTERVAL_S = 0.5
AUDIT_SHARE = 0.05  # of one core, at most: a map of 100,000 entries is read back less often
TURN_S = 0.05
SETTLE_S = 0.02  # netlink messages come in flocks, and so do objects
LOOK_PAUSE = 3  # times as long as a look at links and routes takes: routes by BGP may change all the time


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The agent's command line. `kubernetes` None: it runs standalone, on the file.

    `standby`: an agent that runs on this node already is waited for.
    """

    config: Path | None
    node: str
    kubernetes: KubernetesOptions | None = None
    standby: bool = False


class Agent:
    """One running agent. `run` returns after SIGTERM or SIGINT."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        # Before the first look into it: no change goes unnoticed.
        self._file = FileWatch(options.config) if options.config else None
        self._settings = Settings(options.config, options.kubernetes.configmap if options.kubernetes else "")

        self._surroundings = Surroundings()
        self._sourcing = Sourcing()
        self._links_changed = True
        self._look_s = 0.0

        self._changed = asyncio.Event()
        self._due = asyncio.Event()
        self._looked = asyncio.Event()
        self._stopping = asyncio.Event()

        self._schedule = AnnouncementSchedule()
        self._listening = Listening()
        self._announced = LogLimit()
        self._in_the_way: tuple[str, ...] = ()

        self._kubernetes: Kubernetes | None = None
        self._found_guard = False
        self._found_other_maps = False

        self._started_ns = boot_ns()
        self._warm = False
        self._complete = False
        self._is_ready = False
        self._end: End | None = None
        self._pass_error = ""

    @property
    def _config(self) -> AgentConfig:
        return self._settings.config

    async def run(self) -> None:
        """Brings the guard up, keeps it right, and leaves it in place.

        Raises ConfigError or DataPlaneError when it cannot be brought up.
        """
        log.info("starting: version=%s node=%s pin_dir=%s", __version__, self._options.node, self._config.bpf.pin_dir)
        # From the beginning: process 1 of a container does not hear of signals that it has no handler for.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stopping.set)

        pin_dir = self._config.bpf.pin_dir
        privileges.require()
        require_the_kernels_clock()
        self._refuse_if_nothing_to_guard(await read_surroundings())
        bpffs.prepare(pin_dir)

        self._build = read_build(self._config.bpf.max_entries)
        lock = await self._wait_for_turn(pin_dir) if self._options.standby else bpffs.lock(pin_dir)
        if lock is None:
            return

        with lock, AnnouncementSocket() as announcements, self._listening:
            loaded = await _load(pin_dir, self._build)
            privileges.keep_only()
            self._loaded = loaded
            self._warm = loaded.warm
            self._assemble(loaded)
            await self._listen()
            await self._connect()
            async with self._shown():
                await self._first_pass()
                await self._serve()
                self._say_when_ready()
                await self._run_until_stopped(EventReader(loaded.maps["events"], self._decision), announcements)
            if self._end is End.REMOVED:
                await remove_guard(pin_dir)

        if self._end is End.REMOVED:
            bpffs.remove_all(pin_dir)
            log.info("stopped: the guard is removed")

    async def _wait_for_turn(self, pin_dir: Path) -> Fd | None:
        """The lock, once no other agent of this node has it; None when this one is to stop before that.

        Meanwhile probes hear that it is well, as soon as all is done that can be done before its turn: what keeps it
        from its work shows while the other agent still does it.
        """
        standby = Standby(self._config.grpc)

        try:
            while not self._stopping.is_set():
                try:
                    return bpffs.lock(pin_dir)
                except LockedError:
                    if not standby.started:
                        await self._get_ready(pin_dir)
                        await standby.start()
                        log.info("standby: another agent runs on %s; this one takes over when that ends", pin_dir)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), TURN_S)
        finally:
            await standby.stop()
        log.info("stopped in standby")
        return None

    async def _get_ready(self, pin_dir: Path) -> None:
        """Programs accepted by the kernel, and modules in memory."""
        await _load(pin_dir, self._build)
        if self._options.kubernetes is not None:
            import arpguard.runtime.cluster.kubernetes  # noqa: F401, PLC0415 - 10 MB, not for everybody

    def _assemble(self, loaded: loader.Loaded) -> None:
        """The reconciler over the kernel's objects, and what others read of both."""
        table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        control = ControlValue(loaded.maps["control"])

        self._found_guard = control.read() is not None
        self._found_other_maps = not self._found_guard and loader.has_other_maps(self._config.bpf.pin_dir, self._build)

        attacher = Attacher(self._config.bpf.pin_dir, loaded.programs)
        ranges = RangeTable(loaded.maps["ranges"], loaded.maps["counters"])
        self._reconciler = Reconciler(self._options.node, table, ranges, control, attacher, self._schedule)

        self._node = ThisNode(
            name=self._options.node,
            table=table,
            ranges=ranges,
            control=control,
            totals=loaded.maps["totals"],
            programs=loaded.programs,
            state=self._reconciler.state,
            surroundings=self._surroundings,
            decisions=DecisionLog(self._config.decisions.capacity),
            conflicts=ConflictLog(),
            started_ns=self._started_ns,
            in_force=self._settings.in_force,
        )

        self._conflicts = Conflicts(self._node.conflicts, self._defend)

    async def _connect(self) -> None:
        """To Kubernetes, if it is used; whether the server is there shows later."""
        options = self._options.kubernetes
        if options is not None:
            from arpguard.runtime.cluster.kubernetes import Kubernetes  # noqa: PLC0415 - 10 MB, not for everybody

            self._kubernetes = await Kubernetes.connect(
                options, self._options.node, self._reconciler, self._settings, self._changed, self._due
            )
            self._kubernetes.hear_of(self._conflicts)
            self._node.cluster = self._kubernetes.state

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        """With API and metrics, as soon as `_serve` is called."""
        self._registry = node_registry(self._node)
        self._api = ApiServer(self._node, ApiMetrics(self._registry), self._config.grpc)
        self._exporter = Exporter()
        try:
            yield
        finally:
            self._exporter.close()
            await self._api.stop()

    async def _serve(self) -> None:
        """Starts API and metrics where they are not served yet.

        What is in their way does not keep the guard from its work: it is a problem, and they are tried again.
        """
        in_the_way = await self._api.serve()
        try:
            if not self._exporter.port:
                self._exporter.start(self._settings.started_with.metrics.listen, self._registry)
        except ListenError as error:
            in_the_way.append(str(error))
        if tuple(in_the_way) != self._in_the_way:
            self._in_the_way = tuple(in_the_way)
            self._changed.set()

    async def _listen(self) -> None:
        """For questions about the VIPs that this node owns now."""
        if await self._listening.follow(self._reconciler.entries, self._reconciler.state.links):
            self._changed.set()

    async def _keep_listening(self) -> None:
        """After every pass, and apart from them, for they must not wait: ten thousand groups take a second."""
        while True:
            self._looked.clear()
            await self._listen()
            await self._looked.wait()

    def _refuse_if_nothing_to_guard(self, surroundings: Surroundings) -> None:
        """Before anything is loaded: with no link now, and none that may yet appear, there is nothing to do."""
        if self._options.kubernetes is not None:
            return
        vips, closed = [vip.address for vip in self._config.vips], self._config.closed
        choice = choose_links(self._config.interfaces, surroundings, vips, closed=closed)
        if not choice.links and not choice.may_appear:
            raise DataPlaneError("; ".join(choice.problems))

    async def _first_pass(self) -> None:
        await self._apply()
        state = self._reconciler.state
        if state.links and not state.attachments:
            raise DataPlaneError("; ".join(state.problems))
        self._reconciler.log_problems()

    async def _apply(self, *, whole: bool = True) -> None:
        """A pass; one that is not whole does what has changed, where that will do."""
        if self._links_changed:
            self._links_changed = False
            began_s = time.thread_time()
            try:
                self._node.surroundings = self._surroundings = await read_surroundings()
                self._look_s = time.thread_time() - began_s
            except BaseException:
                self._links_changed = True  # what has changed is still not known
                raise

        self._changed.clear()
        asked = await self._asked()
        if self._has_to_wait(asked):
            self._reconciler.wait(asked.problems)
            return

        if whole or not self._reconciler.update(asked, self._surroundings, boot_ns()):
            await self._reconciler.apply(asked, self._surroundings, boot_ns())

        if self._kubernetes is not None:
            self._kubernetes.passed()
        self._complete = asked.complete

    def _has_to_wait(self, asked: Asked) -> bool:
        """What an agent before this one was told is newer than the file, and more than nothing."""
        awaits_configmap = self._settings.awaited and self._found_guard
        knows_less = self._found_other_maps or self._reconciler.knows_less
        return awaits_configmap or (not asked.complete and knows_less)

    async def _asked(self) -> Asked:
        if self._kubernetes is None:
            config = self._config
            avoid = avoided(self._surroundings)
            own = self._sourcing.collect(config, {}, None, {}, avoid)
            problems = [*self._problems(), *own.problems, *_unfit_vips(config)]
            closing = closing_of(config, self._surroundings, avoid, ())
            return Asked(config, self._settings.in_force.generation, own.vips, problems=problems, closing=closing)
        self._kubernetes.read_configmap()
        config, generation = self._config, self._settings.in_force.generation
        found = await self._kubernetes.collect(config, self._surroundings)
        problems = [*self._problems(), *found.problems]
        return Asked(config, generation, found.vips, found.complete, problems, found.closing)

    def _problems(self) -> list[str]:
        """What is wrong on this node, whatever the VIPs."""
        return [*self._settings.problems(), *self._in_the_way, *self._listening.problems]

    def _say_when_ready(self) -> None:
        """Once all that says what to guard was read, and done."""
        if self._is_ready or not self._complete:
            return

        loader.discard_others(self._settings.started_with.bpf.pin_dir, self._build)
        self._found_other_maps = False
        self._is_ready = True
        gc.collect()
        gc.freeze()  # what thousands of objects come to stays: to look through it again and again takes 0.1 s each time

        log.info(
            "ready: node=%s mode=%s vips=%d links=%s programs=%s start_ms=%d",
            self._options.node,
            self._config.mode.name.lower(),
            len({key.vip for key in self._reconciler.state.entries}),
            ",".join(link.name for link in self._reconciler.state.links) or "none",
            "reopened" if self._warm else "loaded",
            (boot_ns() - self._started_ns) // NS_PER_MS,
        )

        owners = sorted({vip.owner.node for vip in self._config.vips if vip.owner.node})
        if owners and self._options.node not in owners:
            log.info(
                "no VIP names this node (%s) as its owner; they name %s", self._options.node, ", ".join(owners[:9])
            )

    async def _run_until_stopped(self, events: EventReader, announcements: AnnouncementSocket) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stopping.set)

        with closing(events), Hearing(events):
            async with asyncio.TaskGroup() as tasks:
                works = [self._keep_right(), self._keep_listening(), self._watch_links(), self._watch_file()]
                works.append(self._announce(announcements))
                if self._kubernetes is not None:
                    works.append(self._kubernetes.run())
                workers = [tasks.create_task(work) for work in works]
                await self._stopping.wait()
                if self._kubernetes is not None:
                    self._end = await self._kubernetes.leave()
                for worker in workers:
                    worker.cancel()
        if self._end is not End.REMOVED:
            log.info("stopped: the guard stays in place; `arpguard cleanup` removes it")

    async def _keep_right(self) -> None:
        """A pass after every change, and now and then for what changed behind the agent's back.

        Programs and control are looked after twice a second; reading back all entries, and links and routes after
        a change, as often as a small share of a core allows.
        """
        next_pass_s = settled_s = 0.0

        while True:
            try:
                async with asyncio.timeout(AUDIT_INTERVAL_S):
                    await self._changed.wait()
                # An owner that changes by itself is not kept waiting: two nodes may answer until it is performed.
                await asyncio.sleep(SETTLE_S if self._links_changed else settled_s - time.monotonic())
            except TimeoutError:
                pass

            began_s = time.thread_time()
            try:
                whole = time.monotonic() >= next_pass_s
                if whole or self._changed.is_set():
                    await self._apply(whole=whole)
                if whole:
                    next_pass_s = time.monotonic() + (time.thread_time() - began_s) / AUDIT_SHARE
                else:
                    await self._reconciler.keep_attached(self._config.datapath, self._surroundings)
                self._keep_pinned()
                self._reconciler.log_problems()
                await self._serve()
                self._say_when_ready()
                self._pass_error = ""
            except (OSError, DataPlaneError) as error:
                self._log_pass_error(str(error))

            self._due.set()
            self._looked.set()
            settled_s = time.monotonic() + SETTLE_S

    def _keep_pinned(self) -> None:
        repinned = loader.keep_pinned(self._settings.started_with.bpf.pin_dir, self._build, self._loaded)
        if repinned:
            log.warning("drift: %d pins were removed; pinned again", repinned)

    def _log_pass_error(self, error: str) -> None:
        """Once, however often a pass fails for the same reason."""
        if error != self._pass_error:
            log.error("cannot bring the kernel up to date, trying again: %s", error)
        self._pass_error = error

    async def _watch_links(self) -> None:
        while True:
            try:
                async for _ in watch_changes():
                    self._look_at_links()
                    await asyncio.sleep(LOOK_PAUSE * self._look_s)
            except DataPlaneError as error:
                log.warning("%s; looking again", error)
                self._look_at_links()
                await asyncio.sleep(AUDIT_INTERVAL_S)

    def _look_at_links(self) -> None:
        self._links_changed = True
        self._changed.set()

    async def _watch_file(self) -> None:
        if self._file is None:
            return
        async for _ in self._file.changes():
            while not self._settings.read_file():
                self._changed.set()
                await asyncio.sleep(AUDIT_INTERVAL_S)
            self._changed.set()

    def _decision(self, decision: Decision) -> None:
        report = self._node.decisions.add(decision, self._node.link_name(decision.key.ifindex))
        self._api.publish(report)
        if decision.verdict in (Verdict.CONFLICT, Verdict.REPORT):
            self._claimed(decision, report)

    def _claimed(self, decision: Decision, report: Report) -> None:
        """Somebody claims a VIP. Before this node knows whose they are it only defends what it has."""
        if self._kubernetes is None or self._is_ready:
            self._conflicts.claimed(report)
        elif not self._kubernetes.is_member(decision.sha):
            self._defend(decision)

    def _defend(self, decision: Decision) -> None:
        if self._reconciler.conflict(decision, boot_ns()):
            self._due.set()

    async def _announce(self, announcements: AnnouncementSocket) -> None:
        """Sends what the schedule has due; asks again, before each one, whether this node may speak for the VIP."""
        while True:
            self._due.clear()

            for key in self._schedule.take_due(boot_ns()):
                speaker = self._reconciler.announceable(key)
                if speaker is None:
                    continue
                self._listening.hear(key)  # before: whoever hears it may ask at once
                if announcements.announce(key, *speaker):
                    self._schedule.sent(key, boot_ns())
                    self._log_announced(key, *speaker)

            next_ns = self._schedule.next_ns(boot_ns())
            delay = None if next_ns is None else max(0.0, (next_ns - boot_ns()) / NS_PER_S)
            try:
                async with asyncio.timeout(delay):
                    await self._due.wait()
            except TimeoutError:
                pass

    def _log_announced(self, key: EntryKey, link: Link, mac: MacAddress) -> None:
        """Not each one: there may be a hundred in a second, as long as somebody forges claims."""
        if not self._announced.admits(boot_ns()):
            return
        left_out = self._announced.take_left_out()
        more = f" ({left_out} more since the last line)" if left_out else ""
        log.info("announced: vip=%s interface=%s mac=%s%s", key.vip, link.name, mac, more)


async def _load(pin_dir: Path, build: Build) -> loader.Loaded:
    """In a thread, as the verifier takes a second, and one that ends: threads keep what capabilities they have."""
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, loader.load, pin_dir, build)


def _unfit_vips(config: AgentConfig) -> list[str]:
    elected = [str(vip.address) for vip in config.vips if vip.owner.kind is OwnerKind.ELECT]
    if not elected:
        return []
    return [f"vips: owner elect needs Kubernetes, nobody answers for {some(elected)}: name a node, or external"]
