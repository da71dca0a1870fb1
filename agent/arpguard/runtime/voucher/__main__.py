"""The voucher's process: only `process.VoucherProcess` starts it. Arguments: see there."""

import gc
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from arpguard.dataplane import privileges
from arpguard.dataplane.ownfences import OwnFences
from arpguard.dataplane.privileges import Capability
from arpguard.dataplane.syscall import Fd
from arpguard.runtime.tracefile import BufferedTrace, TraceFile
from arpguard.runtime.voucher.loop import Loop
from arpguard.runtime.voucher.messages import Priority

KEPT = (Capability.BPF, Capability.NET_RAW)
LOWEST_REAL_TIME, HIGHEST_NICE = 1, -20
SPIN_US = 200_000


def main() -> int:
    """Runs until the agent says so, or is gone.

    If that was before `die_with_parent`, the channel is closed. The agent's lock is open as well, until this ends.
    """
    privileges.die_with_parent()
    instance, *numbers = sys.argv[1:6]
    ethertype, channel, control, grants = map(int, numbers)
    trace = traced_by(*sys.argv[6:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the agent, which says when it is over

    priority = raise_priority()
    privileges.keep_only(KEPT)
    read_right = OwnFences(Fd(control), Fd(grants)).read
    loop = Loop(instance, ethertype, socket.socket(fileno=channel), read_right, trace)
    gc.freeze()  # what there is now stays: collections look at little

    try:
        loop.run(priority)
    finally:
        loop.close()
    return 0


def traced_by(*words: str) -> BufferedTrace | None:
    """The trace of the agent, opened while this may still open files as it may; None: there is none."""
    if not words:
        return None
    path, node, instance = words
    try:
        return BufferedTrace(TraceFile(Path(path), node, instance))
    except OSError:  # the agent's own is open, and it has said what is wrong with it
        return None


def raise_priority() -> Priority:
    """Before ordinary tasks, or as far before them as the kernel allows; both take CAP_SYS_NICE.

    A task of real time goes before all others, whatever their cgroups have; it is refused in a cgroup without a share
    of it (CONFIG_RT_GROUP_SCHED). Nice counts within a cgroup only. A bug that spins without ever waiting ends this
    process, and not the node.
    """
    try:
        resource.setrlimit(resource.RLIMIT_RTTIME, (SPIN_US, SPIN_US))
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(LOWEST_REAL_TIME))
    except PermissionError:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_NICE)
        except PermissionError:
            return Priority.ORDINARY
        return Priority.NICE
    return Priority.REAL_TIME


if __name__ == "__main__":
    sys.exit(main())
