"""A FIFO that is read without taking anything out: tee(2) copies what is in it, and leaves it there (pipe(7)).

inotify(7) says whether it was opened or closed since the last look, however briefly. Only then must the agent find out
which process writes, by looking at all descriptors under /proc. Those of a process of other capabilities, as
keepalived is one, need CAP_SYS_PTRACE, and a Pod sees them only with `hostPID`.
"""

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
_IN_CLOSE_WRITE, _IN_OPEN, _IN_Q_OVERFLOW = 0x8, 0x20, 0x4000  # linux/inotify.h
_EVENT = struct.Struct("iIII")  # inotify(7), without a name
_ATTEMPTS = 3
_NONBLOCK = 2  # SPLICE_F_NONBLOCK (linux/splice.h)
_QUIET = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class UnfitFifoError(Exception):
    """Something else than a FIFO is at the path, or others may write to it."""


def provide(path: Path) -> None:
    """Makes the FIFO if there is none: its writer does not remove one that it finds. OSError.

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
        self._events = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._writers: tuple[str, ...] | None = None  # None: they have to be looked for
        try:
            # Of a FIFO without a writer poll(2) says so only if there was one since this process opened it.
            os.close(os.open(f"/proc/self/fd/{self._fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
            self._watch()
            for each in (self._fd, self._events):
                self.ready.register(each, select.EPOLLIN | select.EPOLLET)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes it."""
        self.ready.close()
        os.close(self._fd)
        if self._events >= 0:
            os.close(self._events)

    @property
    def is_current(self) -> bool:
        """Whether it is still the one at the path."""
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self._fd))

    def look(self) -> FifoLook:
        """Everything in the FIFO."""
        self.ready.poll(0)  # from here on, what happens is news
        was_closed = False
        for _ in range(_ATTEMPTS):
            if self._writers is None:
                self._writers = _writers_of(self._fd)
            look, found = self._look_once(self._writers), self._happened()
            if not found:
                return look._replace(was_closed=was_closed)  # the writers are those of this content
            self._writers = None
            was_closed |= bool(found & ~_IN_OPEN)
        return look._replace(was_closed=was_closed, writers=())

    def _watch(self) -> None:
        watched = f"/proc/self/fd/{self._fd}".encode()
        if self._events < 0 or _libc.inotify_add_watch(self._events, watched, _IN_OPEN | _IN_CLOSE_WRITE) < 0:
            raise OSError(ctypes.get_errno(), "inotify")

    def _look_once(self, writers: tuple[str, ...]) -> FifoLook:
        content = self._copy()
        mtime_ns = os.fstat(self._fd).st_mtime_ns  # what is written between the two shows in the next content
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        has_writer = not any(event & select.POLLHUP for _, event in poll.poll(0))
        return FifoLook(content, has_writer, fcntl.fcntl(self._fd, fcntl.F_GETPIPE_SZ), mtime_ns, writers)

    def _happened(self) -> int:
        """What happened since the last call, as a mask of inotify."""
        try:
            events = os.read(self._events, 65536)
        except BlockingIOError:
            return 0
        found = 0
        for _, mask, _, _ in _EVENT.iter_unpack(events):
            found |= mask
        return found

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


def _writers_of(fd: int) -> tuple[str, ...]:
    """The processes that have a FIFO open for writing, without their children: each as its number and its beginning."""
    fifo, found = os.fstat(fd), {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            with os.scandir(folder / "fd") as descriptors:
                is_writer = any(_writes(opened, fifo) for opened in descriptors)
            if is_writer:
                after_name = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                found[folder.name] = (after_name[1], after_name[19])  # proc(5): ppid, starttime
        except OSError:
            continue  # it is gone, or is not this process' to look at
    return tuple(sorted(f"{pid}:{began}" for pid, (parent, began) in found.items() if parent not in found))


def _writes(opened: os.DirEntry[str], fifo: os.stat_result) -> bool:
    """Whether a descriptor of a process, as /proc has it, is of this FIFO, and for writing."""
    try:
        return bool(opened.stat(follow_symlinks=False).st_mode & stat.S_IWUSR) and os.path.samestat(opened.stat(), fifo)
    except OSError:
        return False  # closed meanwhile


def _refuse_open_to_others(path: Path) -> None:
    status = os.stat(path, follow_symlinks=False)
    if not stat.S_ISFIFO(status.st_mode):
        raise UnfitFifoError(f"{path} is not a FIFO: remove it, or set keepalived.fifo to another path")
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & _OTHERS_WRITE:
        raise UnfitFifoError(
            f"users other than root may write to {path}: change its owner to root, and its mode to 0600"
        )
    why = exposed(path)
    if why:
        raise UnfitFifoError(f"users other than root may replace {path}: {why}")
