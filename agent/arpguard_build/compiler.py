"""Compiles the programs with bcc, and writes down what comes out for arpguard.dataplane.build to read.

The only module that imports bcc. The text depends on the sources and the compiler only: descriptors of maps, which bcc
has put into the instructions, are taken out again, and sizes that a node configures are left open.
"""

import json
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from arpguard.dataplane.build import (
    CONFIGURED,
    DEFAULT_MAX_ENTRIES,
    INSTRUCTION_BYTES,
    MAPS,
    PROGRAMS,
    RING_BYTES,
    digest_of,
)
from arpguard.dataplane.syscall import MAP_TYPES
from arpguard_build.errors import BuildError
from arpguard_build.headers import find_headers

SOURCE = Path(__file__).resolve().parents[2] / "bpf"
_LINE_BYTES = 7 * INSTRUCTION_BYTES
_LOAD_64_BITS, _OF_A_MAP = 0x18, 1  # BPF_LD | BPF_IMM | BPF_DW, BPF_PSEUDO_MAP_FD


def compile_programs(folder: Path) -> str:
    """The programs in `folder`, compiled, as JSON. Raises BuildError; clang itself writes to standard error.

    As root: bcc makes the maps while it compiles.
    """
    headers = find_headers()
    if headers.kernel_source:
        os.environ["BCC_KERNEL_SOURCE"] = str(headers.kernel_source)
    bcc = _import_bcc()
    flags = [f"-I{folder}", f"-DMAX_ENTRIES={DEFAULT_MAX_ENTRIES}", f"-DRING_BYTES={RING_BYTES}", "-Wno-everything"]
    flags += [f"-I{path}" for path in headers.include_dirs]
    try:
        module = bcc.BPF(src_file=os.fsencode(folder / "arpguard.c"), cflags=flags)
    except Exception as error:  # bcc raises it bare
        raise BuildError(f"{folder / 'arpguard.c'} does not compile ({error})") from error

    maps = {bcc.lib.bpf_table_fd(module.module, name.encode()): name for name in MAPS}
    content = {
        "compiler": _version(bcc),
        "source": source_digest(folder),
        "layout": digest_of((folder / "arpguard.h").read_bytes()),
        "maps": {name: _shape(bcc.lib, module.module, name) for name in MAPS},
        "programs": {name: _program(name, bytearray(module.dump_func(name.encode())), maps) for name in PROGRAMS},
    }
    return json.dumps(content, indent=1) + "\n"


def source_digest(folder: Path) -> str:
    """A digest of the sources: it tells whether a file of compiled programs was made of them."""
    return digest_of(*(path.read_bytes() for path in sorted(folder.glob("*.[ch]"))))


def _import_bcc() -> ModuleType:
    try:
        import bcc  # noqa: PLC0415 - LLVM is mapped by this line, 60 MB that never leave the process
    except ImportError as error:
        raise BuildError(
            f"python3-bpfcc is missing ({error}): apt-get install python3-bpfcc, and use a Python that sees it "
            "(/usr/bin/python3, or a virtual environment of it with --system-site-packages)"
        ) from None
    return bcc  # type: ignore[no-any-return]


def _version(bcc: ModuleType) -> str:
    """Another one may make other instructions of the same sources."""
    mapped = re.search(r"libLLVM[-.](?:so\.)?([0-9.]*[0-9])", Path("/proc/self/maps").read_text(encoding="utf-8"))
    return f"bcc {bcc.__version__}, LLVM {mapped[1] if mapped else 'unknown'}"


def _shape(lib: Any, module: Any, name: str) -> dict[str, object]:
    """MapShape; `max_entries` is 0 where it is configured."""
    number = lib.bpf_table_id(module, name.encode())
    types = {value: key for key, value in MAP_TYPES.items()}
    return {
        "type": types[lib.bpf_table_type_id(module, number)],
        "key_size": lib.bpf_table_key_size_id(module, number),
        "value_size": lib.bpf_table_leaf_size_id(module, number),
        "max_entries": 0 if name in CONFIGURED else lib.bpf_table_max_entries_id(module, number),
        "flags": lib.bpf_table_flags_id(module, number),
    }


def _program(name: str, code: bytearray, maps: dict[int, str]) -> dict[str, object]:
    """Program, with 0 in the place of each map's descriptor."""
    map_loads: dict[str, list[int]] = {}
    for at in range(0, len(code), INSTRUCTION_BYTES):
        if code[at] == _LOAD_64_BITS and code[at + 1] >> 4 == _OF_A_MAP:
            immediate = slice(at + 4, at + 8)
            map_loads.setdefault(maps[int.from_bytes(code[immediate], "little")], []).append(at // INSTRUCTION_BYTES)
            code[immediate] = bytes(4)
    lines = [code[at : at + _LINE_BYTES].hex() for at in range(0, len(code), _LINE_BYTES)]
    return {"type": "xdp" if name.endswith("xdp") else "sched_cls", "map_loads": map_loads, "code": lines}
