"""Network namespaces: made, entered and removed (ip-netns(8), setns(2))."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from arpguard.errors import DataPlaneError
from arpguard_lab import warm

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_RUN = Path("/run/netns")
# Debian's packages of programs that are called otherwise.
_PACKAGES = {"bridge": "iproute2", "ip": "iproute2", "nsenter": "util-linux", "sysctl": "procps"}
_libc = ctypes.CDLL(None, use_errno=True)


class Netns:
    """A named network namespace; `ip netns list` shows it while it lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        command("ip", "netns", "add", name)
        self.run("ip", "link", "set", "lo", "up")

    @property
    def path(self) -> Path:
        """What to give to nsenter --net=."""
        return _RUN / self.name

    def prefix(self) -> list[str]:
        """The start of a command line that is to run inside. Not `ip netns exec`: that hides /sys/fs/bpf."""
        return ["nsenter", f"--net={self.path}"]

    def run(self, *words: str) -> str:
        """Runs a command inside and gives its output; DataPlaneError when it fails."""
        return command(*self.prefix(), *words)

    def arpguard(self, *words: str) -> str:
        """Runs arpguard's command line inside and gives its output; DataPlaneError when it fails."""
        return _output(warm.run([*self.prefix(), sys.executable, "-m", "arpguard", *words]))

    def batch(self, lines: Sequence[str]) -> None:
        """Runs `ip` commands inside, all in one process."""
        command(*self.prefix(), "ip", "-batch", "-", text="\n".join(lines) + "\n")

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function in a thread of its own that has entered the namespace; sockets made there stay there."""

        def inside() -> T:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc.setns(descriptor, _CLONE_NEWNET) < 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code))
            finally:
                os.close(descriptor)
            return function()

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(inside).result()

    def remove(self) -> None:
        """Removes it; what is in it goes once nothing runs inside."""
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True, check=False)  # noqa: S603, S607


def command(*words: str, text: str | None = None) -> str:
    """Runs a command and gives its standard output; DataPlaneError with what it said when it fails."""
    try:
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)  # noqa: S603
    except FileNotFoundError:
        raise DataPlaneError(f"{words[0]} is missing: apt-get install {_PACKAGES.get(words[0], words[0])}") from None
    return _output(done)


def _output(done: "subprocess.CompletedProcess[str]") -> str:
    if done.returncode != 0:
        raise DataPlaneError(f"`{' '.join(done.args)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
