"""The compiled programs of this package, and the maps that they need: what is in programs.json.

`make programs` makes that file of the sources in bpf/. The programs use UAPI structures only, so the same instructions
serve every kernel and every little-endian machine. What a node configures, sizes of maps, is not in them.
"""

import hashlib
import json
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from arpguard.dataplane.layout import MAX_RANGES
from arpguard.verdict import Hook

PROGRAM_AT = {Hook.TC_INGRESS: "ingress_tc", Hook.TC_EGRESS: "egress_tc", Hook.XDP: "ingress_xdp"}
TWIN_AT = {hook: f"try_{name}" for hook, name in PROGRAM_AT.items()}
PROGRAMS = (*PROGRAM_AT.values(), *TWIN_AT.values())
MAPS = ("entries", "ranges", "counters", "totals", "control", "vouching", "grants", "events")
CONFIGURED = ("entries", "counters", "events")
INSTRUCTION_BYTES = 8
RING_BYTES = 1 << 20
DEFAULT_MAX_ENTRIES = 1024
SHIPPED = Path(__file__).with_name("programs.json")


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions, and which of them load each map: their numbers, by the map's name."""

    type: str
    code: bytes
    map_loads: Mapping[str, tuple[int, ...]]

    def with_maps(self, descriptors: Mapping[str, int]) -> bytes:
        """The instructions with the descriptors of maps in them."""
        code = bytearray(self.code)
        for name, numbers in self.map_loads.items():
            for number in numbers:
                struct.pack_into("=i", code, number * INSTRUCTION_BYTES + 4, descriptors[name])
        return bytes(code)


@dataclass(frozen=True, slots=True)
class MapShape:
    """The kernel's parameters for a map; sizes in bytes."""

    type: str
    key_size: int
    value_size: int
    max_entries: int
    flags: int


@dataclass(frozen=True, slots=True)
class Build:
    """Compiled programs, and the sizes of their maps (entries, bytes); `layout` is a digest of bpf/arpguard.h."""

    layout: str
    programs: Mapping[str, Program]
    shapes: Mapping[str, MapShape]
    max_entries: int = DEFAULT_MAX_ENTRIES
    ring_bytes: int = RING_BYTES

    def maps(self) -> dict[str, MapShape]:
        """The maps, those that are configured in their size."""
        sizes = dict(zip(CONFIGURED, (self.max_entries, self.max_entries + MAX_RANGES, self.ring_bytes), strict=True))
        return {
            name: replace(shape, max_entries=sizes.get(name, shape.max_entries)) for name, shape in self.shapes.items()
        }

    def geometry(self) -> str:
        """A digest of everything that the layout of the pinned maps depends on."""
        return digest_of(self.layout.encode(), repr(sorted(self.maps().items())).encode())

    def digest(self) -> str:
        """A digest of the programs: instructions, maps and the kernel they were verified by."""
        programs = repr(sorted(self.programs.items())).encode()
        return digest_of(programs, self.geometry().encode(), platform.release().encode())


def read_build(max_entries: int = DEFAULT_MAX_ENTRIES, path: Path = SHIPPED) -> Build:
    """What this package ships, or another file of compiled programs."""
    content = json.loads(path.read_text(encoding="ascii"))
    programs = {
        name: Program(
            type=found["type"],
            code=bytes.fromhex("".join(found["code"])),
            map_loads={each: tuple(numbers) for each, numbers in found["map_loads"].items()},
        )
        for name, found in content["programs"].items()
    }
    return Build(
        layout=content["layout"],
        programs=programs,
        shapes={name: MapShape(**found) for name, found in content["maps"].items()},
        max_entries=max_entries,
    )


def digest_of(*parts: bytes) -> str:
    """A digest that differs for any two lists of parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.hexdigest()[:16]
