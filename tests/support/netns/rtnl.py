"""The kernel's lock on all network devices (the RTNL), held as by a driver that resets its device.

An ethtool request is held up in the middle: the page with the rest of it is missing until userfaultfd(2) provides it.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import select
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

import pytest

from arpguard_lab.netns import Netns

_SYS_USERFAULTFD = {"x86_64": 323, "aarch64": 282}  # asm/unistd.h
# linux/userfaultfd.h
_API, _UFFDIO_API, _UFFDIO_REGISTER, _UFFDIO_ZEROPAGE = 0xAA, 0xC018AA3F, 0xC020AA00, 0xC020AA04
_MISSING = 1
# linux/sockios.h, linux/ethtool.h
_SIOCETHTOOL, _ETHTOOL_GSTRINGS = 0x8946, 0x1B
_PAGE = mmap.PAGESIZE
_HELD_S = 10.0  # at most


@contextmanager
def rtnl_held(netns: Netns) -> Iterator[None]:
    """Nobody on this machine can change or list its network devices meanwhile, so keep it short."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.syscall(_SYS_USERFAULTFD[platform.machine()], os.O_CLOEXEC | os.O_NONBLOCK)
    if number < 0:
        pytest.skip(f"userfaultfd(2): {os.strerror(ctypes.get_errno())}")

    pages = mmap.mmap(-1, 2 * _PAGE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    with FileIO(number) as faults, ThreadPoolExecutor(1) as pool:
        fcntl.ioctl(faults, _UFFDIO_API, struct.pack("=QQQ", _API, 0, 0))
        fcntl.ioctl(faults, _UFFDIO_REGISTER, struct.pack("=QQQQ", first + _PAGE, _PAGE, _MISSING, 0))
        # The kernel reads the command first, and the rest once it has the lock.
        pages[_PAGE - 4 : _PAGE] = struct.pack("=I", _ETHTOOL_GSTRINGS)
        asking = pool.submit(netns.call, lambda: _ask(first + _PAGE - 4))
        release = threading.Timer(_HELD_S, lambda: _provide(faults, first + _PAGE))
        release.start()
        try:
            assert select.select([faults], [], [], _HELD_S)[0], "the kernel did not read the request"
            yield
            assert not asking.done(), f"what was to happen meanwhile took longer than {_HELD_S} s"
        finally:
            release.cancel()
            _provide(faults, first + _PAGE)
            asking.result()


def _provide(faults: FileIO, page: int) -> None:
    """Provides a page of zeroes, unless it is there."""
    with suppress(FileExistsError):
        fcntl.ioctl(faults, _UFFDIO_ZEROPAGE, struct.pack("=QQQQ", page, _PAGE, 0, 0))


def _ask(request: int) -> None:
    """A device without strings refuses once it has read the request, which is soon enough."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control, suppress(OSError):
        fcntl.ioctl(control, _SIOCETHTOOL, struct.pack("16sP", b"lo", request).ljust(40, b"\0"))


def waits_in_the_kernel(pid: int) -> bool:
    """Whether a thread of a process waits for something that no signal ends, such as this lock (proc(5), state D)."""
    return any(_state(path) == "D" for path in Path(f"/proc/{pid}/task").glob("*/stat"))


def _state(stat: Path) -> str:
    """Empty for a thread that has ended meanwhile."""
    try:
        return stat.read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
