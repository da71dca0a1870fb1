"""Debian's arm64 kernel, with enough of Debian beside it for a guest to run Python.

Packages of Debian's and Python's are chosen, fetched and kept as those of the image are (deploy/image). They are only
unpacked: here nothing of another architecture can run.
"""

import compileall
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from kernels.packages import Kernel

TOP = Path(__file__).parents[2]
sys.path.append(str(TOP / "deploy" / "image"))  # scripts, which import each other from there

from packages import Archive  # noqa: E402 - found by the above
from root import CACHE, locked  # noqa: E402

NAME = "arm64"
_SUITE, _MIRROR, _PYTHON = "bookworm", "http://deb.debian.org/debian", "3.11"
_PACKAGES = (
    *("linux-image-arm64", "python3", "libbpf1", "bpftool"),
    *("busybox-static", "coreutils", "dash", "iproute2", "kmod", "mount"),  # the guest's first commands
    *("libstdc++6", "procps", "util-linux"),  # the lab's
)
_MADE = ("dev", "proc", "root", "run", "sys", "tmp")
_LIBRARY, _SITE = f"usr/lib/python{_PYTHON}", f"usr/local/lib/python{_PYTHON}/dist-packages"


def fetch(into: Path) -> Kernel:
    """The kernel that is there, else the newest one, with a root around it; anew for other packages."""
    site = locked(NAME, _PYTHON, "dev")
    key = hashlib.sha256(f"{site.name} {_PACKAGES}".encode()).hexdigest()
    root = into / f"{NAME}-{key[:16]}"
    if not root.exists():
        for old in into.glob(f"{NAME}-*"):
            shutil.rmtree(old)
        _make(root, site)
    (release,) = (path.parent.name for path in root.glob("lib/modules/*/modules.dep"))
    return Kernel(NAME, release, root, NAME, f"/usr/bin/python{_PYTHON}", (TOP / "agent",))


def _make(root: Path, site: Path) -> None:
    draft = root.with_name("root.new")
    shutil.rmtree(draft, ignore_errors=True)
    for name in _MADE:
        (draft / name).mkdir(parents=True)
    for package in Archive(CACHE, NAME, _SUITE, _MIRROR).packages(*_PACKAGES):
        _link(package.folder, draft)
    _link(site, draft / _SITE)

    (release,) = (path.name for path in (draft / "lib" / "modules").iterdir())
    subprocess.run(["depmod", "--basedir", draft, release], check=True)
    # Bytecode is the same for all architectures, and an emulated processor takes long for it.
    for folder in (_LIBRARY, _SITE):
        compileall.compile_dir(draft / folder, quiet=2, stripdir=draft, prependdir="/", workers=1)
    draft.rename(root)


def _link(source: Path, target: Path) -> None:
    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, copy_function=os.link)
