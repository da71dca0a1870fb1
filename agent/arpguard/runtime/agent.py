"""The standalone agent: wires configuration, netlink, the kernel and the wire together, and runs until told to stop.

Stopping leaves the guard in place: programs, maps and links are pinned. `arpguard cleanup` removes them.
"""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from arpguard.api.server import ApiServer
from arpguard.clock import boot_ns
from arpguard.config import AgentConfig, read_config
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.choosing import choose_links
from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.announcer import Announcer
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.events import EventReader
from arpguard.dataplane.maps import ControlValue, EntryTable
from arpguard.dataplane.netlink import read_surroundings, watch_changes
from arpguard.dataplane.source import find_source
from arpguard.errors import ConfigError, DataPlaneError
from arpguard.model import Decision, Surroundings
from arpguard.node import ConfigInForce, Node
from arpguard.observe.exporter import Exporter
from arpguard.observe.metrics import ApiMetrics, node_registry
from arpguard.runtime.claimlog import ClaimLog
from arpguard.runtime.filewatch import FileWatch
from arpguard.runtime.reconciler import Reconciler
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Verdict

log = logging.getLogger(__name__)

AUDIT_INTERVAL_S = 0.5
AUDIT_SHARE = 0.05  # of one core, at most: a map of 100,000 entries is read back less often
SETTLE_S = 0.02  # netlink messages come in flocks


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The agent's command line."""

    config: Path
    node: str


class Agent:
    """One running agent. `run` returns after SIGTERM or SIGINT."""

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._file = FileWatch(options.config)  # before the first look into it: no change goes unnoticed
        self._in_force = ConfigInForce(str(options.config), read_config(options.config))
        self._surroundings = Surroundings()
        self._links_changed = True
        self._changed = asyncio.Event()
        self._due = asyncio.Event()
        self._stopping = asyncio.Event()
        self._schedule = AnnouncementSchedule()
        self._claims = ClaimLog()

    @property
    def _config(self) -> AgentConfig:
        return self._in_force.config

    async def run(self) -> None:
        """Brings the guard up, keeps it right, and leaves it in place.

        Raises ConfigError or DataPlaneError when it cannot be brought up.
        """
        started_ns = boot_ns()
        pin_dir = self._config.bpf.pin_dir
        self._refuse_if_nothing_to_guard(await read_surroundings())
        bpffs.prepare(pin_dir)
        with bpffs.lock(pin_dir), Announcer() as announcer:
            source = find_source(self._config.bpf.max_entries)
            loaded = await asyncio.to_thread(loader.load, pin_dir, source)
            self._assemble(loaded, started_ns)
            async with self._shown():
                await self._first_pass()
                await self._api.serve()
                loader.discard_others(pin_dir, source)
                self._log_ready(started_ns, warm=loaded.warm)
                await self._run_until_stopped(EventReader(loaded.maps["events"], self._decision), announcer)

    def _assemble(self, loaded: loader.Loaded, started_ns: int) -> None:
        """The reconciler over the kernel's objects, and what others read of both."""
        table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        control = ControlValue(loaded.maps["control"])
        attacher = Attacher(self._config.bpf.pin_dir, loaded.programs)
        self._reconciler = Reconciler(self._options.node, table, control, attacher, self._schedule)
        self._node = Node(
            name=self._options.node,
            table=table,
            control=control,
            totals=loaded.maps["totals"],
            programs=loaded.programs,
            state=self._reconciler.state,
            surroundings=self._surroundings,
            decisions=DecisionLog(self._config.decisions.capacity),
            conflicts=ConflictLog(),
            started_ns=started_ns,
            in_force=self._in_force,
        )

    @asynccontextmanager
    async def _shown(self) -> AsyncIterator[None]:
        """With API and metrics. Their addresses are taken before the kernel is changed, or it is left alone."""
        registry = node_registry(self._node)
        self._api = ApiServer(self._node, ApiMetrics(registry))
        exporter = Exporter()
        try:
            self._api.listen(self._config.grpc)
            exporter.start(self._config.metrics.listen, registry)
            yield
        finally:
            exporter.close()
            await self._api.stop()

    def _refuse_if_nothing_to_guard(self, surroundings: Surroundings) -> None:
        """Before anything is compiled: with no link now, and none that may yet appear, there is nothing to do."""
        choice = choose_links(self._config.interfaces, surroundings, [vip.address for vip in self._config.vips])
        if not choice.links and not choice.may_appear:
            raise DataPlaneError("; ".join(choice.problems))

    async def _first_pass(self) -> None:
        await self._apply()
        state = self._reconciler.state
        if state.links and not state.attachments:
            raise DataPlaneError("; ".join(state.problems))
        self._reconciler.log_problems()

    async def _apply(self) -> None:
        known = [self._in_force.problem] if self._in_force.problem else []
        if not self._options.config.exists():
            known.append(f"configuration: {self._options.config} is gone, the last good one stays")
        if self._links_changed:
            self._links_changed = False
            self._node.surroundings = self._surroundings = await read_surroundings()
        self._changed.clear()
        await self._reconciler.apply(self._config, self._in_force.generation, self._surroundings, boot_ns(), known)

    def _log_ready(self, started_ns: int, *, warm: bool) -> None:
        log.info(
            "ready: node=%s mode=%s vips=%d links=%s programs=%s start_ms=%d",
            self._options.node,
            self._config.mode.name.lower(),
            len(self._config.vips),
            ",".join(link.name for link in self._reconciler.state.links) or "none",
            "reopened" if warm else "compiled",
            (boot_ns() - started_ns) // NS_PER_MS,
        )
        owners = sorted({vip.owner.node for vip in self._config.vips if vip.owner.node})
        if owners and self._options.node not in owners:
            log.info(
                "no VIP names this node (%s) as its owner; they name %s", self._options.node, ", ".join(owners[:9])
            )

    async def _run_until_stopped(self, events: EventReader, announcer: Announcer) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_reader(events.fileno(), events.consume)
        try:
            async with asyncio.TaskGroup() as tasks:
                workers = [
                    tasks.create_task(work)
                    for work in (self._keep_right(), self._watch_links(), self._watch_file(), self._announce(announcer))
                ]
                await self._stopping.wait()
                for worker in workers:
                    worker.cancel()
        finally:
            loop.remove_reader(events.fileno())
            events.close()
        log.info("stopped: the guard stays in place; `arpguard cleanup` removes it")

    async def _keep_right(self) -> None:
        """A pass after every change, and now and then for what changed behind the agent's back.

        Programs and control are looked after twice a second; reading back all entries, and links and routes after
        a change, as often as a small share of a core allows.
        """
        next_pass_s = 0.0
        while True:
            try:
                async with asyncio.timeout(AUDIT_INTERVAL_S):
                    await self._changed.wait()
                await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                pass
            began_s = time.thread_time()
            try:
                if self._changed.is_set() or time.monotonic() >= next_pass_s:
                    await self._apply()
                    next_pass_s = time.monotonic() + (time.thread_time() - began_s) / AUDIT_SHARE
                else:
                    await self._reconciler.keep_attached(self._config.datapath, self._surroundings)
                self._reconciler.log_problems()
            except (OSError, DataPlaneError) as error:
                log.error("cannot bring the kernel up to date, trying again: %s", error)
            self._due.set()

    async def _watch_links(self) -> None:
        while True:
            try:
                async for _ in watch_changes():
                    self._look_at_links()
            except DataPlaneError as error:
                log.warning("%s; looking again", error)
                self._look_at_links()
                await asyncio.sleep(AUDIT_INTERVAL_S)

    def _look_at_links(self) -> None:
        self._links_changed = True
        self._changed.set()

    async def _watch_file(self) -> None:
        async for _ in self._file.changes():
            self._reload()

    def _reload(self) -> None:
        """Takes a changed configuration over; a wrong one changes nothing, and is reported."""
        try:
            config = read_config(self._options.config)
        except ConfigError as error:
            self._in_force.problem = f"configuration not taken over, the last good one stays: {error}"
            self._changed.set()
            return
        for name, old, new in _fixed_settings(self._config, config):
            log.error(
                "configuration: %s stays %s until the agent is started again (now %s in the file)", name, old, new
            )
        self._in_force.problem = ""
        self._in_force.config = config
        self._in_force.generation += 1
        self._in_force.loaded_ns = boot_ns()
        log.info("configuration taken over: mode=%s vips=%d", config.mode.name.lower(), len(config.vips))
        self._changed.set()

    def _decision(self, decision: Decision) -> None:
        report = self._node.decisions.add(decision, self._node.link_name(decision.key.ifindex))
        self._node.conflicts.add(report)
        self._api.publish(report)
        if decision.verdict in (Verdict.CONFLICT, Verdict.REPORT) and self._claims.is_news(decision, boot_ns()):
            log.warning(
                "claim: vip=%s interface=%s sha=%s verdict=%s reason=%s",
                decision.key.vip,
                report.link,
                decision.sha,
                decision.verdict.name.lower(),
                decision.reason.name.lower(),
            )
        if self._reconciler.conflict(decision, boot_ns()):
            self._due.set()

    async def _announce(self, announcer: Announcer) -> None:
        """Sends what the schedule has due; asks again, before each one, whether this node may speak for the VIP."""
        while True:
            self._due.clear()
            for key in self._schedule.take_due(boot_ns()):
                speaker = self._reconciler.announceable(key)
                if speaker is not None and announcer.announce(key, *speaker):
                    log.info("announced: vip=%s interface=%s mac=%s", key.vip, speaker[0].name, speaker[1])
            next_ns = self._schedule.next_ns(boot_ns())
            delay = None if next_ns is None else max(0.0, (next_ns - boot_ns()) / NS_PER_S)
            try:
                async with asyncio.timeout(delay):
                    await self._due.wait()
            except TimeoutError:
                pass


def _fixed_settings(old: AgentConfig, new: AgentConfig) -> list[tuple[str, object, object]]:
    """Settings that a running agent cannot follow: (name, old, new) of those that differ."""
    pairs = (
        ("bpf.pin_dir", old.bpf.pin_dir, new.bpf.pin_dir),
        ("bpf.max_entries", old.bpf.max_entries, new.bpf.max_entries),
        ("grpc.listen", ", ".join(old.grpc.listen), ", ".join(new.grpc.listen)),
        ("grpc.tls", old.grpc.tls, new.grpc.tls),
        ("metrics.listen", old.metrics.listen or "off", new.metrics.listen or "off"),
        ("decisions.capacity", old.decisions.capacity, new.decisions.capacity),
    )
    return [pair for pair in pairs if pair[1] != pair[2]]
