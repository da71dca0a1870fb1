"""The BPF source: where it is, what it is compiled with, and a digest that tells whether a pin is of it."""

import hashlib
import platform
from dataclasses import dataclass
from pathlib import Path

from arpguard.errors import DataPlaneError

TWINS = ("try_ingress_tc", "try_egress_tc", "try_ingress_xdp")
PROGRAMS = ("ingress_tc", "egress_tc", "ingress_xdp", *TWINS)
MAPS = ("entries", "ranges", "counters", "totals", "control", "events")
RING_BYTES = 1 << 20
DEFAULT_MAX_ENTRIES = 1024


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """The folder with arpguard.c, and the sizes of its maps (entries, bytes)."""

    folder: Path
    max_entries: int = DEFAULT_MAX_ENTRIES
    ring_bytes: int = RING_BYTES

    def geometry(self) -> str:
        """A digest of everything that the layout of the pinned maps depends on."""
        return _digest((self.folder / "arpguard.h").read_bytes(), str((self.max_entries, self.ring_bytes)).encode())

    def digest(self) -> str:
        """A digest of the programs: sources, sizes and the kernel they were verified by."""
        texts = [path.read_bytes() for path in sorted(self.folder.glob("*.[ch]"))]
        return _digest(*texts, self.geometry().encode(), platform.release().encode())

    def defines(self, maps: Path) -> list[str]:
        """Compiler flags; `maps` is the folder in bpffs that the maps are pinned in."""
        return [
            f"-I{self.folder}",
            f'-DMAPS="{maps}"',
            f"-DMAX_ENTRIES={self.max_entries}",
            f"-DRING_BYTES={self.ring_bytes}",
        ]


def find_source(max_entries: int = DEFAULT_MAX_ENTRIES) -> ProgramSource:
    """The source that belongs to this package: installed inside it, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "bpf", package.parents[1] / "bpf"):
        if (folder / "arpguard.c").is_file():
            return ProgramSource(folder, max_entries)
    raise DataPlaneError(f"bpf/arpguard.c is neither in {package} nor beside it: install arpguard again")


def _digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]
