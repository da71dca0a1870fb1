"""Forks programs of ours from a process that has imported all of arpguard, for arpguard_lab.warm.

    python -m arpguard_lab.forkserver DESCRIPTOR

The descriptor is that of a Unix socket that listens. A child looks like a process that was started, to its user and in
/proc, but all have the same seed of hashes (PYTHONHASHSEED) and share memory. It is killed when whoever asked for it is
gone. The server ends with its standard input, and then kills those that still run. It ends at once if the kernel has no
CONFIG_CHECKPOINT_RESTORE, which it needs; then everybody starts their own programs.
"""

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_FIRST = "arpguard.cli.main"  # as `python -m arpguard` does: what is imported before the rest has its reasons
_PACKAGES = ("arpguard", "arpguard_lab")
_LONGEST = 1 << 17  # bytes of a request: an environment and a command line
_FILES = 4  # standard input, output and error, and the network namespace

# What Python, glibc and gRPC read when they start or are imported: a child has it from the server.
_READ_EARLY = ("COVERAGE", "GLIBC_", "GRPC_", "LANG", "LC_", "LD_", "MALLOC_", "PROTOCOL_BUFFERS", "PYTHON", "TZ")
# What else it has from the server, and not from who asks (proc(5): status, ns).
_STATUS = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Cpus_allowed")
_NAMESPACES = ("cgroup", "ipc", "mnt", "pid", "time", "user", "uts")
_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})

_CLONE_NEWNET = 0x40000000
_PR_SET_MM, _PR_SET_MM_MAP, _PR_SET_MM_MAP_SIZE = 35, 14, 15
_libc = ctypes.CDLL(None, use_errno=True)
_libc.sbrk.restype = ctypes.c_void_p
_SHOWN: list[object] = []  # what /proc reads must stay where it is


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a child is to become.

    `defaults`: what imports set in the environment if it is not there. `files`: descriptors of its standard files, and
    of its network namespace.
    """

    module: str
    words: list[str]
    environment: dict[str, str]
    defaults: dict[str, str]
    folder: str
    niceness: int
    files: list[int]
    limits: dict[int, tuple[int, int]]


def main() -> None:
    """Forks for each request, and becomes in each child what was asked for."""
    size = ctypes.c_uint()
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP_SIZE, ctypes.byref(size), 0, 0) != 0:
        return  # a child could not show its command line
    wanted = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if wanted is not None:
        _become(wanted)
        _exit(_run(wanted.module))


@dataclass(slots=True)
class _Child:
    """A process, and who asked for it, while that is there."""

    pid: int
    pipe: socket.socket | None


class ForkServer:
    """The children that run, by pidfd (pidfd_open(2))."""

    def __init__(self, listener: socket.socket) -> None:
        self._defaults = _import_everything()
        self._listener = listener
        self._children: dict[int, _Child] = {}
        gc.collect()
        gc.freeze()  # pages that the collector does not touch stay shared

    def serve(self) -> Wanted | None:
        """Returns in each child, with what it is to be; and in the server once standard input ends, with None."""
        while True:
            pipes = {child.pipe.fileno(): child for child in self._children.values() if child.pipe}
            heard = select.poll()
            # In this order: a child is killed before it is buried, and a descriptor is new after others are closed.
            for number in (sys.stdin.fileno(), *pipes, *self._children, self._listener.fileno()):
                heard.register(number, select.POLLIN)

            for number, _ in heard.poll():
                if number == sys.stdin.fileno():
                    self._end()
                    return None
                if number in pipes:
                    self._kill(pipes[number])
                elif number in self._children:
                    self._bury(number)
                elif (wanted := self._take()) is not None:
                    return wanted

    def _take(self) -> Wanted | None:
        """Forks, if it can do what somebody asks; gives in the child what that is."""
        pipe, _ = self._listener.accept()
        text, files, *_ = socket.recv_fds(pipe, _LONGEST, _FILES)
        wanted = None
        with suppress(OSError):  # who asked may be gone
            wanted = self._wanted(pipe, text, files) if len(files) == _FILES else None
        if wanted is not None:
            pid = os.fork()
            if pid == 0:
                self._leave(pipe)
                return wanted
            descriptor = os.pidfd_open(pid)
            self._children[descriptor] = _Child(pid, pipe)
            with suppress(OSError):  # who is gone is noticed by `serve`
                socket.send_fds(pipe, [str(pid).encode()], [descriptor])
        else:
            pipe.close()
        for number in files:
            os.close(number)
        return None

    def _wanted(self, pipe: socket.socket, text: bytes, files: list[int]) -> Wanted | None:
        """None where a child would not be like one that was started by who asks."""
        asker = struct.unpack("3i", pipe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        module, words, environment, folder, niceness = json.loads(text)
        is_early_same = _early(self._defaults | environment) == _early(os.environ)
        if not is_early_same or _likeness(asker) != _likeness(os.getpid()):
            return None
        limits = {number: resource.prlimit(asker, number) for number in _LIMITS}
        return Wanted(module, words, environment, self._defaults, folder, niceness, files, limits)

    def _bury(self, descriptor: int) -> None:
        """Says how a child has ended."""
        child = self._children.pop(descriptor)
        os.close(descriptor)
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if child.pipe is not None:
            with child.pipe, suppress(OSError):
                child.pipe.send(str(code).encode())

    def _kill(self, child: _Child) -> None:
        """Ends the child of one who is gone."""
        os.kill(child.pid, signal.SIGKILL)
        if child.pipe is not None:
            child.pipe.close()
            child.pipe = None

    def _end(self) -> None:
        """Whoever started the server is gone, and perhaps nobody is left to end its children."""
        for child in self._children.values():
            self._kill(child)

    def _leave(self, pipe: socket.socket) -> None:
        """In a child: closes what is the server's."""
        for descriptor, child in self._children.items():
            os.close(descriptor)
            if child.pipe is not None:
                child.pipe.close()
        pipe.close()
        self._listener.close()


def _import_everything() -> dict[str, str]:
    """What that has added to the environment."""
    before = dict(os.environ)
    importlib.import_module(_FIRST)
    for package in _PACKAGES:
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if not found.name.endswith(".__main__"):
                importlib.import_module(found.name)
    return {name: text for name, text in os.environ.items() if before.get(name) != text}


def _likeness(pid: int) -> list[str]:
    """What a child has from its parent."""
    proc = Path(f"/proc/{pid}")
    status = [line for line in (proc / "status").read_text(encoding="utf-8").splitlines() if line.startswith(_STATUS)]
    return [*status, *(os.readlink(proc / "ns" / name) for name in _NAMESPACES), os.readlink(proc / "root")]


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_READ_EARLY)}


def _become(wanted: Wanted) -> None:
    """All but the program itself."""
    os.setsid()
    for number, descriptor in enumerate(wanted.files[:-1]):
        os.dup2(descriptor, number)
    if _libc.setns(wanted.files[-1], _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    for descriptor in wanted.files:
        os.close(descriptor)

    os.chdir(wanted.folder)
    os.setpriority(os.PRIO_PROCESS, 0, wanted.niceness)
    for number, limit in wanted.limits.items():
        resource.setrlimit(number, limit)
    os.environ.clear()
    os.environ.update(wanted.defaults | wanted.environment)
    sys.orig_argv, sys.argv = wanted.words, wanted.words[2:]
    _show(wanted.words, [f"{name}={text}" for name, text in wanted.environment.items()])


def _show(words: list[str], environment: list[str]) -> None:
    """Changes what /proc shows as this process's command line and environment (prctl(2), PR_SET_MM_MAP)."""
    parts = [b"".join(os.fsencode(text) + b"\0" for text in texts) for texts in (words, environment)]
    memory = ctypes.create_string_buffer(b"".join(parts))
    _SHOWN.append(memory)
    begin = ctypes.addressof(memory)
    middle, end = begin + len(parts[0]), begin + len(memory) - 1

    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    code, data, heap, stack = fields[23:25], fields[42:44], fields[44], fields[25]
    numbers = [*code, *data, heap, _libc.sbrk(0), stack, begin, middle, middle, end, 0]
    shown = struct.pack("=12QII", *map(int, numbers), 0, 0xFFFFFFFF)  # no auxiliary vector, and the same program
    if _libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, shown, ctypes.c_ulong(len(shown)), 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def _run(module: str) -> int:
    """Runs the program, and returns its exit code. Python reports any other exception."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        return ended.code or 0
    return 0


def _exit(code: int) -> NoReturn:
    """Exits as Python does, but destroys no objects.

    Python would write to all the memory that the child shares with the server, which takes two thirds of the CPU time
    of a short command.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as multiprocessing ends its children
    atexit._run_exitfuncs()  # noqa: SLF001 - as above
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
