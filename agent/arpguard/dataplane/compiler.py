"""Compiles and loads the programs with bcc, pins them, and exits: `python -m arpguard.dataplane.compiler`.

The only module that imports bcc, and it runs in a process of its own: LLVM, once mapped, never leaves a process
(about 60 MB). The task comes as one JSON argument; whatever is wrong goes to standard error, exit code 1.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from arpguard.dataplane import syscall
from arpguard.dataplane.source import PROGRAMS

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def compile_and_pin(task: dict[str, Any]) -> None:
    """Pins each program of task["source"], compiled with task["cflags"], as task["pins"]/<name>."""
    if task["kernel_source"]:
        os.environ["BCC_KERNEL_SOURCE"] = task["kernel_source"]
    try:
        from bcc import BPF  # noqa: PLC0415 - LLVM is mapped by this line
    except ImportError as error:
        raise SystemExit(
            f"python3-bpfcc is missing ({error}): apt-get install python3-bpfcc, and use a Python that sees it "
            "(/usr/bin/python3, or a virtual environment of it with --system-site-packages)"
        ) from None
    module = BPF(src_file=task["source"].encode(), cflags=[*task["cflags"], "-Wno-everything"])
    for name in PROGRAMS:
        function = module.load_func(name.encode(), BPF.XDP if name.endswith("xdp") else BPF.SCHED_CLS)
        syscall.obj_pin(syscall.Fd(os.dup(function.fd)), str(Path(task["pins"]) / name))


def _end_with(parent: int) -> None:
    """From now on this process is killed when the agent ends: nobody is left to use what it would pin.

    An agent that ended before leaves another parent behind, and no signal.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the agent that wanted the programs is gone")


def main() -> None:
    """Entry point of the child process."""
    task = json.loads(sys.argv[1])
    _end_with(task["parent"])
    try:
        compile_and_pin(task)
    except Exception as error:  # noqa: BLE001 - bcc raises bare Exception; the parent reads the text
        sys.stderr.write(f"{error}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
