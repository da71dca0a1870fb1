"""This node's programs and maps, loaded and pinned: the next agent finds them by their pins."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from arpguard.dataplane import loader
from arpguard.dataplane.build import Build
from arpguard.dataplane.maps import ControlValue

log = logging.getLogger(__name__)


class Pinned:
    """One build of the programs, and its maps.

    `was_told`: the last agent used these maps, too. `has_others`: it used maps of another layout, and these are new.
    """

    def __init__(self, pin_dir: Path, build: Build, loaded: loader.Loaded) -> None:
        self.pin_dir = pin_dir
        self._build = build
        self._pins = loader.pins_of(pin_dir, build, loaded)  # once: their names are digests of all instructions
        self.maps, self.programs, self.warm = loaded.maps, loaded.programs, loaded.warm
        self.was_told = ControlValue(loaded.maps["control"]).read() is not None
        self.has_others = not self.was_told and loader.has_other_maps(pin_dir, build)

    @classmethod
    async def load(cls, pin_dir: Path, build: Build) -> "Pinned":
        """Loads in a thread, as the verifier takes a second, and in one that ends: threads keep their capabilities."""
        with ThreadPoolExecutor(1) as pool:
            loaded = await asyncio.get_running_loop().run_in_executor(pool, loader.load, pin_dir, build)
        return cls(pin_dir, build, loaded)

    def keep(self) -> None:
        """Pins again what other programs have unpinned."""
        repinned = loader.keep_pinned(self.pin_dir, self._pins)
        if repinned:
            log.warning("drift: another program removed pins; restored %d", repinned)

    def discard_others(self) -> None:
        """Unpins other builds, and maps of other layouts: these maps have everything by now."""
        loader.discard_others(self.pin_dir, self._build)
        self.has_others = False
