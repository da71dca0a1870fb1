"""The pin directory: a BPF file system, private to root, and locked by the one agent that runs over it."""

import ctypes
import errno
import fcntl
import os
import shutil
from pathlib import Path

from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError, LockedError
from arpguard.paths import exposed

_BPF_FS_MAGIC = 0xCAFE4A11  # linux/magic.h
_libc = ctypes.CDLL(None, use_errno=True)


class _StatFs(ctypes.Structure):
    _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_byte * 256))


def is_bpffs(path: Path) -> bool:
    """Whether `path` is on a BPF file system (statfs(2))."""
    buffer = _StatFs()
    if _libc.statfs(os.fsencode(path), ctypes.byref(buffer)) < 0:
        return False
    return int(buffer.f_type) & 0xFFFFFFFF == _BPF_FS_MAGIC


def prepare(pin_dir: Path) -> None:
    """Makes `pin_dir` a folder of mode 0700 in a bpffs; mounts one at /sys/fs/bpf, or there, if need be.

    Raises DataPlaneError when that is not possible, and for a folder that is not this user's alone: the kernel lets
    everybody make folders in a bpffs that was mounted without a mode.
    """
    try:
        if not is_bpffs(_existing(pin_dir)):
            mount_point = Path("/sys/fs/bpf") if Path("/sys/fs/bpf") in (pin_dir, *pin_dir.parents) else pin_dir
            mount_point.mkdir(parents=True, exist_ok=True)
            _mount_once(mount_point)
        pin_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(pin_dir)
    except OSError as error:
        raise DataPlaneError(
            f"cannot use {pin_dir} for BPF pins ({error.strerror}): run as root, and run `mount -t bpf bpf /sys/fs/bpf`"
        ) from error


def _make_private(pin_dir: Path) -> None:
    with _opened(pin_dir, os.O_NOFOLLOW) as fd:
        owner = os.fstat(fd.number).st_uid
        why = f"it belongs to another user (uid {owner})" if owner != os.geteuid() else exposed(pin_dir)
        if why:
            raise DataPlaneError(
                f"cannot use {pin_dir} for BPF pins: {why}; remove this folder, or choose another bpf.pin_dir"
            )
        os.fchmod(fd.number, 0o700)


def _existing(path: Path) -> Path:
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def _mount_once(mount_point: Path) -> None:
    """Two processes that find no bpffs at the same time must not mount theirs over the other's pins."""
    with _opened(mount_point) as fd:
        fcntl.flock(fd.number, fcntl.LOCK_EX)
        if not is_bpffs(mount_point):
            _mount_bpffs(mount_point)


def _mount_bpffs(mount_point: Path) -> None:
    if _libc.mount(b"bpf", os.fsencode(mount_point), b"bpf", 0, b"mode=0700") < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def lock(pin_dir: Path) -> Fd:
    """Takes the pin directory for this process, until the descriptor is closed.

    Raises LockedError when another agent has it: two agents on one node would undo each other's work.
    """
    fd = _opened(pin_dir)
    try:
        fcntl.flock(fd.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        fd.close()
        if error.errno != errno.EWOULDBLOCK:
            raise
        raise LockedError(
            f"another arpguard agent is using {pin_dir}: stop it, or give this agent its own bpf.pin_dir"
        ) from error
    return fd


def wait_for(folder: Path) -> Fd:
    """Takes a folder below the pin directory as `lock` takes that, and waits while another process has it."""
    fd = _opened(folder)
    fcntl.flock(fd.number, fcntl.LOCK_EX)
    return fd


def _opened(folder: Path, flags: int = 0) -> Fd:
    return Fd(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags))


def remove_all(pin_dir: Path) -> None:
    """Unpins everything of arpguard in `pin_dir`, and removes it; unmounts what `prepare` has mounted there."""
    for pattern in ("links", "maps-*", "programs-*"):
        for folder in pin_dir.glob(pattern):
            remove(folder)
    if any(path for path in pin_dir.iterdir() if path.suffix != ".debug"):  # the kernel's, in the root of each mount
        return
    if os.path.ismount(pin_dir):
        _libc.umount2(os.fsencode(pin_dir), 0)
    pin_dir.rmdir()


def remove(path: Path) -> None:
    """Unpins everything below `path`, and `path` itself; does nothing when it is not there."""
    if path.is_dir():
        shutil.rmtree(path)
