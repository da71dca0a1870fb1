"""Whether this process and the kernel's BPF programs read the same boot clock.

This process writes fences, and the programs compare them. In a time namespace (time_namespaces(7), `unshare --time`)
CLOCK_BOOTTIME has an offset that bpf_ktime_get_boot_ns() does not have; so it has with a library that fakes time.
"""

import struct

from arpguard.clock import boot_ns
from arpguard.dataplane import privileges, syscall
from arpguard.errors import DataPlaneError
from arpguard.units import NS_PER_S

_KTIME_GET_BOOT_NS = 125  # linux/bpf.h, enum bpf_func_id
_SHIFT = 20  # what a program returns is 32 bits: units of 2^20 ns, about a millisecond, around again after 52 days
_WRAP = 1 << 32
_TOLERANCE = 10  # units
_ATTEMPTS = 5
_FRAME = bytes(64)
_PROGRAM = (
    struct.pack("=BBhi", 0x85, 0, 0, _KTIME_GET_BOOT_NS)  # call
    + struct.pack("=BBhi", 0x77, 0, 0, _SHIFT)  # r0 >>= 20
    + struct.pack("=BBhi", 0x95, 0, 0, 0)  # exit
)


def require_the_kernels_clock() -> None:
    """Raises DataPlaneError when this process has another boot clock than the kernel's programs."""
    try:
        with syscall.program_load(syscall.SCHED_CLS, _PROGRAM) as program:
            offset = min((_offset(program) for _ in range(_ATTEMPTS)), key=abs)
    except PermissionError:
        raise DataPlaneError(privileges.refusal()) from None
    except OSError as error:
        raise DataPlaneError(f"cannot read the kernel's clock ({error.strerror})") from error
    if abs(offset) > _TOLERANCE:
        differs = f"{(abs(offset) << _SHIFT) / NS_PER_S:.2f} s {'ahead of' if offset > 0 else 'behind'}"
        raise DataPlaneError(
            f"CLOCK_BOOTTIME in this process is {differs} the kernel's own, by which fences expire: "
            "run the agent in the host's time namespace, and without libfaketime"
        )


def _offset(program: syscall.Fd) -> int:
    """How far this process is ahead, in units. The time between the two readings is ignored."""
    before = boot_ns() >> _SHIFT
    kernel = syscall.program_test_run(program, _FRAME).retval
    after = boot_ns() >> _SHIFT
    ahead = (before - kernel + _WRAP // 2) % _WRAP - _WRAP // 2
    behind = (after - kernel + _WRAP // 2) % _WRAP - _WRAP // 2
    return 0 if ahead <= 0 <= behind else min(ahead, behind, key=abs)
