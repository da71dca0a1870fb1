"""A FIFO that is read without taking anything out: tee(2) copies what is in it, and leaves it there (pipe(7))."""

import ctypes
import fcntl
import os
import select
import stat
import struct
import termios
from pathlib import Path

from arpguard.core.keepalived import FifoLook
from arpguard.paths import close_to_others, exposed

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NONBLOCK = 2  # SPLICE_F_NONBLOCK (linux/splice.h)
_QUIET = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class UnfitFifoError(Exception):
    """Something else than a FIFO is at the path, or others may write to it."""


def provide(path: Path) -> None:
    """Makes the FIFO if there is none: what its writer finds there, it does not remove when it ends. OSError.

    In a Pod the folder above its own is an emptyDir, which Kubernetes lets everybody write to.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    close_to_others(path.parent.parent)
    if not path.exists():
        os.mkfifo(path, 0o600)


def recall(path: Path) -> str:
    """What `remember` wrote down beside the FIFO at a path; empty if that is not there, or not this user's. OSError."""
    try:
        with _beside(path).open(encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            is_own = status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE
            return file.read() if is_own else ""
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def remember(path: Path, text: str) -> None:
    """Writes something down beside the FIFO at a path, whole or not at all. OSError."""
    draft = _beside(path).with_suffix(".new")
    draft.unlink(missing_ok=True)
    with open(
        os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)
    draft.replace(_beside(path))


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.known")


class Fifo:
    """The FIFO at a path, open for reading. Raises OSError if it is not there, and UnfitFifoError.

    `ready` becomes readable when something is written, and when a process opens or closes it: once each time, for the
    lines stay in it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        _refuse_open_to_others(path)
        self._fd = os.open(path, os.O_RDONLY | _QUIET)
        self.ready = select.epoll()
        try:
            # Of a FIFO without a writer poll(2) says so only if there was one since this process opened it.
            os.close(os.open(f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            self.ready.register(self._fd, select.EPOLLIN | select.EPOLLET)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes it."""
        self.ready.close()
        os.close(self._fd)

    @property
    def is_current(self) -> bool:
        """Whether it is still the one at the path."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def look(self) -> FifoLook:
        """All that is in it."""
        self.ready.poll(0)  # from here on, what happens is news
        content = self._copy()
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        has_writer = not any(event & select.POLLHUP for _, event in poll.poll(0))
        return FifoLook(content, has_writer, fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ))

    def take_out(self, count: int) -> None:
        """Removes the first bytes of what is in it."""
        if count:
            os.read(self._fd, count)

    def _copy(self) -> bytes:
        (waiting,) = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        if not waiting:
            return b""

        into, out_of = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)[::-1]
        try:
            size = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ))
            copied = _libc.tee(self._fd, into, ctypes.c_size_t(size), _NONBLOCK)
            return os.read(out_of, copied) if copied > 0 else b""
        finally:
            os.close(into)
            os.close(out_of)


def _refuse_open_to_others(path: Path) -> None:
    status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISFIFO(status.st_mode):
        raise UnfitFifoError(f"{path} is not a FIFO: remove it, or set keepalived.fifo to another path")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        raise UnfitFifoError(f"others than root may write to {path}: make it root's, with mode 0600")
    why = exposed(path)
    if why:
        raise UnfitFifoError(f"others may replace {path}: {why}")
