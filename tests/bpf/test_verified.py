"""How much of the verifier's patience the programs need, on the kernel at hand: each kernel's counts differently.

That of 6.1 goes through almost three times as many instructions as that of 6.18.
"""

import struct

import pytest

from arpguard.dataplane import loader, syscall
from arpguard.dataplane.build import PROGRAMS, read_build
from arpguard.dataplane.syscall import Fd

pytestmark = pytest.mark.bpf

LIMIT = 1_000_000  # BPF_COMPLEXITY_LIMIT_INSNS (linux/bpf.h)
_VERIFIED_INSNS = 216  # its offset in struct bpf_prog_info, from Linux 5.16 on


def verified(program: Fd) -> int:
    """How many instructions the verifier went through, branch by branch."""
    (found,) = struct.unpack_from("=I", syscall._info(program, _VERIFIED_INSNS + 4), _VERIFIED_INSNS)
    return found


def test_the_verifier_has_half_of_its_limit_left(record_property):
    loaded = loader.load_unpinned(read_build())
    sizes = {name: verified(loaded.programs[name]) for name in PROGRAMS}
    largest = max(sizes, key=sizes.__getitem__)
    record_property("figure", f"{largest}: {sizes[largest]:,} of {LIMIT:,} instructions")
    assert all(0 < size < LIMIT / 2 for size in sizes.values()), sizes
