"""Capabilities of this process (capabilities(7)): checked at the start, and dropped once they are no longer needed.

CAP_PERFMON is for the verifier only, when programs are loaded; all others that root has besides were never needed.
What is left is for what the agent keeps doing: CAP_BPF for maps and links, CAP_NET_ADMIN to attach to links that
come, CAP_NET_RAW to announce and to probe; and where it has them, as root on a node has, CAP_DAC_READ_SEARCH to read
the configuration, a kubeconfig, keys and tokens again, whoever's files they are, and CAP_SYS_PTRACE to see which
process has keepalived's FIFO open. A container needs none of the last two, and the
systemd unit leaves the last one out.
"""

import ctypes
import errno
import os
import signal
import struct
from enum import IntEnum
from pathlib import Path

from arpguard.errors import DataPlaneError

_VERSION_3 = 0x20080522  # _LINUX_CAPABILITY_VERSION_3, linux/capability.h
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_SETPCAP = 8
_WORDS = 2  # of 32 capabilities each


class Capability(IntEnum):
    """The capabilities that matter here, with the kernel's numbers (linux/capability.h)."""

    DAC_READ_SEARCH = 2
    NET_ADMIN = 12
    NET_RAW = 13
    SYS_PTRACE = 19
    SYS_ADMIN = 21
    SYS_NICE = 23
    PERFMON = 38
    BPF = 39


NEEDED = {
    Capability.BPF: "to load programs and make maps",
    Capability.NET_ADMIN: "to attach programs to links",
    Capability.NET_RAW: "to announce and to probe",
    Capability.PERFMON: "for the verifier to accept arithmetic on pointers into frames",
}
_PARTS_OF_SYS_ADMIN = frozenset({Capability.BPF, Capability.PERFMON})  # the kernel takes the old one for them
KEPT = (
    Capability.BPF,
    Capability.NET_ADMIN,
    Capability.NET_RAW,
    Capability.DAC_READ_SEARCH,
    Capability.SYS_PTRACE,
)
KEPT_IN_CLUSTER = (*KEPT, Capability.SYS_NICE)  # each voucher's process raises its priority, and gives it up


def effective() -> int:
    """The effective set as a bit mask (proc(5), status)."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("CapEff:")), 16)


def missing(has: int) -> list[Capability]:
    """Those that the agent needs and a set does not have."""
    is_admin = has >> Capability.SYS_ADMIN & 1
    return [each for each in NEEDED if not (has >> each & 1 or (is_admin and each in _PARTS_OF_SYS_ADMIN))]


def require() -> None:
    """DataPlaneError that names every capability that the agent needs and this process lacks.

    Checked before anything is done: without one of them the kernel refuses much later, and does not say
    why.
    """
    lacks = missing(effective())
    if lacks:
        named = ", ".join(f"CAP_{each.name} ({NEEDED[each]})" for each in lacks)
        raise DataPlaneError(f"cannot run without {named}: run as root, or grant the container these capabilities")


def refusal() -> str:
    """Why the kernel may refuse bpf(2), which it does with EPERM in every case."""
    lacks = missing(effective())
    why = (
        f"run as root, or with {', '.join(f'CAP_{each.name}' for each in lacks)}"
        if lacks
        else "no capability is missing, so the cause is a seccomp profile, a security module, or the kernel's lockdown"
    )
    return f"the kernel refused to load BPF programs (EPERM): {why}"


def keep_only(kept: tuple[Capability, ...]) -> None:
    """Drops every capability that the process has, except these; this holds for later threads and children too.

    No execve(2) brings one back, whatever is executed. Call it while there is one thread: capabilities belong to
    threads. DataPlaneError when the kernel refuses.
    """
    has = effective()
    mask = sum(1 << capability for capability in kept) & has
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if has >> _SETPCAP & 1:
        _bound(libc, mask)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _VERSION_3, 0)
    low, high = mask & 0xFFFFFFFF, mask >> 32
    data = struct.pack("=" + "III" * _WORDS, low, low, 0, high, high, 0)
    if libc.capset(header, data):
        reason = os.strerror(ctypes.get_errno())
        raise DataPlaneError(f"cannot drop capabilities that are no longer needed ({reason})")


def die_with_parent() -> None:
    """Has the kernel kill this process when the thread that started it ends (prctl(2), PR_SET_PDEATHSIG).

    Giving up capabilities does not change that; executing a program that has some of its own would.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _bound(libc: ctypes.CDLL, mask: int) -> None:
    """What is not in the bounding set cannot come back by execve(2)."""
    for number in range(64):
        if mask >> number & 1:
            continue
        if libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0):
            if ctypes.get_errno() == errno.EINVAL:
                return  # the kernel knows no more
            raise DataPlaneError(f"cannot drop capability {number} ({os.strerror(ctypes.get_errno())})")
