"""Which other users can replace the file at a path."""

import os
import stat
from pathlib import Path

_OTHERS_WRITE = stat.S_IWOTH


def exposed(path: Path) -> str:
    """Why users other than root and this one can replace the file at `path`; empty when none can.

    Every folder above it has to be root's or this user's, and so has every symbolic link in it; others may write to
    a folder only if it is sticky, as /tmp is. OSError when a folder is not there.
    """
    for folder in dict.fromkeys((*path.absolute().parents, *path.resolve().parents)):
        status = folder.lstat()
        if status.st_uid not in (0, os.geteuid()):
            return f"{folder} belongs to another user (uid {status.st_uid})"
        if not stat.S_ISLNK(status.st_mode) and _is_open(status):
            return f"any user may write to {folder}"
    return ""


def close_to_others(folder: Path) -> None:
    """Takes away other users' right to write to a folder of this user, which an emptyDir of Kubernetes gives them."""
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and _is_open(status):
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)


def _is_open(status: os.stat_result) -> bool:
    return bool(status.st_mode & _OTHERS_WRITE) and not status.st_mode & stat.S_ISVTX
