"""From boot to the agent's first start: ranges closed by programs and pinned maps that the agent then takes over."""

import asyncio
import logging
import os
import time
from pathlib import Path

from arpguard.config.model import MAX_INTERFACES, AgentConfig
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked
from arpguard.core.closing import Closing
from arpguard.core.early import early_config, early_links
from arpguard.dataplane import bpffs, clsact, loader, privileges
from arpguard.dataplane.attach import Attacher, read_pins
from arpguard.dataplane.build import PROGRAM_AT, Build, read_build
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.dataplane.netlink import read_surroundings
from arpguard.errors import DataPlaneError
from arpguard.model import Link, Surroundings
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.kernel.vouching import VouchingMaps
from arpguard.verdict import Hook

log = logging.getLogger(__name__)

_HOOKS = (Hook.TC_INGRESS, Hook.TC_EGRESS)
_GENERATION = 1  # of the configuration; to the programs, 0 means that no configuration was written yet
_LOOK_S = 0.02
_NOTHING = "nothing to do: an agent has guarded this node since boot ({})"


async def close_early(config: AgentConfig, wait_s: float) -> str:
    """Closes the ranges of the configuration, on those of its links that exist after `wait_s` at most.

    Returns what it has done: nothing if there is a guard. Raises LockedError while an agent runs, and
    DataPlaneError when nothing could be closed.
    """
    privileges.require()
    pin_dir, build = config.bpf.pin_dir, read_build(config.bpf.max_entries)
    bpffs.prepare(pin_dir)
    with bpffs.lock(pin_dir) as lock:
        sign = await _sign_of_guard(pin_dir, build)
        if sign:
            return _NOTHING.format(sign)

        loaded = loader.load_attached(pin_dir, build, [PROGRAM_AT[hook] for hook in _HOOKS])
        maps, control = loaded.maps, ControlValue(loaded.maps["control"])
        if control.read() is not None:
            return _NOTHING.format(f"the guard's maps are pinned under {pin_dir}")

        table, ranges = EntryTable(maps["entries"], maps["counters"]), RangeTable(maps["ranges"], maps["counters"])
        vouching = VouchingMaps(maps["vouching"], maps["control"], maps["grants"], lock)
        attacher = Attacher(pin_dir, loaded.programs)
        kernel = Reconciler("", table, ranges, control, attacher, AnnouncementSchedule(), vouching)
        surroundings = await _wait_for_links([str(each) for each in config.interfaces], wait_s)
        asked = Asked(config, _GENERATION, {}, closing=_closing(config))
        await kernel.apply(asked, surroundings, 0)

    kernel.log_problems()
    if not kernel.state.attachments:
        raise DataPlaneError("; ".join(kernel.state.problems))
    return f"closed on {', '.join(link.name for link in kernel.state.links)}: {', '.join(map(str, config.closed))}"


async def _sign_of_guard(pin_dir: Path, build: Build) -> str:
    """What shows that this node has a guard; empty if nothing does.

    Programs loaded now would replace that guard's and know none of its VIPs, so that the kernel would answer for them.
    """
    if read_pins(pin_dir):
        return f"the guard's programs are attached, and pinned under {pin_dir}"
    if loader.has_other_maps(pin_dir, build):
        return f"maps of another size or layout are pinned under {pin_dir}"
    if await clsact.find_all():
        return "the guard's tc filters are attached"
    return ""


def _closing(config: AgentConfig) -> Closing:
    """Takes the exceptions from the file, not from the current addresses: there are none yet."""
    return Closing(config.closed, tuple(network for network in config.ranges if network not in config.closed))


async def _wait_for_links(names: list[str], wait_s: float) -> Surroundings:
    deadline_s = time.monotonic() + wait_s
    while True:
        surroundings = await read_surroundings()
        present = {name for link in surroundings.links for name in link.names}
        if present.issuperset(names) or time.monotonic() >= deadline_s:
            return surroundings
        await asyncio.sleep(_LOOK_S)


class EarlyFile:
    """Keeps the file with the configuration of `arpguard early`; without a path it does nothing.

    Threads write it, one at a time: no pass waits for the disk.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._wanted = ""
        self._kept: str | None = None  # None: what the file has is not known
        self._writing: asyncio.Task[None] | None = None
        self._left_out = self._refused = ""

    @property
    def problems(self) -> list[str]:
        """What is not closed after a boot, and why."""
        return [problem for problem in (self._left_out, self._refused) if problem]

    def keep(self, config: AgentConfig, closing: Closing, links: tuple[Link, ...], around: Surroundings) -> None:
        """Writes what is closed on this node now, if that has changed; removes the file where nothing is closed."""
        if self._path is None:
            return
        names = early_links(links, around)
        self._wanted = early_config(config, closing, names)
        self._left_out = ""
        if self._wanted and len(names) > MAX_INTERFACES:
            self._left_out = (
                f"{self._path} has room for only {MAX_INTERFACES} of {len(names)} NICs: after a boot, the others stay "
                "open until the agent runs; guard fewer links"
            )
        self._write(self._path)

    async def remove(self) -> None:
        """Removes the file, when the guard goes: nothing is to be closed at the next boot."""
        if self._path is None:
            return
        self._wanted = self._left_out = ""
        self._write(self._path)
        await self.written()
        if self._refused:
            log.error("%s; remove the file by hand", self._refused)

    async def written(self) -> None:
        """Waits until nothing is being written."""
        if self._writing is not None:
            await self._writing

    def _write(self, path: Path) -> None:
        if self._wanted != self._kept and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write_wanted(path))

    async def _write_wanted(self, path: Path) -> None:
        while self._kept != self._wanted:
            text = self._wanted
            try:
                await asyncio.to_thread(_write, path, text)
                self._kept, self._refused = text, ""
            except OSError as error:
                self._kept = None
                self._refused = f"cannot update {path} ({error.strerror}): the next boot closes the old ranges, or none"
                return


def _write(path: Path, text: str) -> None:
    """Writes the whole file or nothing, even if the machine stops."""
    if not text:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".new")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
