"""Which shared libraries an ELF file needs, as its dynamic section says (System V ABI, chapter 5)."""

import struct
from collections.abc import Iterator
from pathlib import Path

_SEGMENTS = struct.Struct("<32xQ14xHH")  # of the file's header: where the table is, size of an entry, entries
_SEGMENT = struct.Struct("<IxxxxQQ8xQ")  # type, offset, address, size in the file
_DYNAMIC = struct.Struct("<qQ")
_LOAD, _DYNAMIC_SEGMENT = 1, 2
_NULL, _NEEDED, _STRINGS = 0, 1, 5


def is_elf(path: Path) -> bool:
    """Whether a file is one: little-endian, 64 bit."""
    with path.open("rb") as file:
        return file.read(6) == b"\x7fELF\x02\x01"


def needed(path: Path) -> list[str]:
    """Names such as "libc.so.6"; empty if the file is not ELF, or is statically linked."""
    if not is_elf(path):
        return []
    data = path.read_bytes()
    table, size, count = _SEGMENTS.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, table + number * size) for number in range(count)]
    entries = [
        entry
        for kind, offset, _, length in segments
        if kind == _DYNAMIC_SEGMENT
        for entry in _entries(data[offset : offset + length])
    ]
    if not entries:
        return []
    address = dict(entries)[_STRINGS]
    (strings,) = (
        offset + address - at for kind, offset, at, length in segments if kind == _LOAD and at <= address < at + length
    )
    names = (strings + value for tag, value in entries if tag == _NEEDED)
    return [data[at : data.index(b"\0", at)].decode() for at in names]


def _entries(dynamic: bytes) -> Iterator[tuple[int, int]]:
    for tag, value in _DYNAMIC.iter_unpack(dynamic):
        if tag == _NULL:
            return
        yield tag, value
