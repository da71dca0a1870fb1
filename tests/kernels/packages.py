"""Kernels of the distribution: downloaded and unpacked, not installed."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from neighbours.build import extract

KERNELS = ("6.1", "6.12")
# Open vSwitch and the libraries that only it needs: installing it would start a switch on this machine.
OPENVSWITCH = (
    *("openvswitch-switch", "openvswitch-common"),
    *("libcap-ng0", "libevent-2.1-7", "libnuma1", "libunbound8", "libxdp1"),
)
# Not the cloud's, which have no 9p from 6.12 on, and not those for real time.
_NAME = re.compile(r"linux-image-(\d+\.\d+)\.([\d.]+(?:-\d+)?(?:\+\w+)?)-amd64")


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: `series` as in KERNELS, `release` as uname(1) says it.

    A guest with a kernel of this machine's architecture has this machine's files and runs its Python; one of another
    has the files beside the kernel, and `path` leads its own `python` to modules.
    """

    series: str
    release: str
    root: Path
    architecture: str = "amd64"
    python: str = sys.executable
    path: tuple[Path, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether it is for another architecture than this machine's."""
        return self.architecture != "amd64"

    @property
    def image(self) -> Path:
        """What is booted."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    @property
    def modules(self) -> Path:
        """Its folder of modules."""
        return self.root / "lib" / "modules" / self.release

    def files_of(self, *names: str) -> list[Path]:
        """The files of some modules and all that they need, in the order in which they are to be loaded."""
        found: dict[Path, None] = {}
        for name in names:
            words = ["modprobe", "--dirname", self.root, "--set-version", self.release, "--show-depends", name]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            found |= dict.fromkeys(Path(line.split()[1]) for line in done.stdout.splitlines() if "insmod" in line)
        return list(found)


def newest(series: str, names: list[str]) -> str | None:
    """The newest package of a series among some names."""
    found = [(match[2], name) for name in names if (match := _NAME.fullmatch(name)) and match[1] == series]
    return max(found, key=lambda each: _numbers(each[0]))[1] if found else None


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def fetch(series: str, into: Path) -> Kernel | None:
    """The kernel of a series that is there, else the newest one, unpacked; None where there is no package of it."""
    package = newest(series, [path.parents[3].name for path in into.glob("*/lib/modules/*/modules.dep")])
    if package is None:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        listed = subprocess.run(["apt-cache", "pkgnames", "linux-image-"], capture_output=True, text=True, check=True)
        package = newest(series, listed.stdout.split())
    if package is None:
        return None
    kernel = Kernel(series, package.removeprefix("linux-image-"), into / package)
    if not (kernel.modules / "modules.dep").exists():
        _unpack(package, kernel)
    return kernel


def fetch_openvswitch(into: Path) -> Path:
    """The folder in which Open vSwitch is, unpacked."""
    root = into / "openvswitch"
    if not root.exists():
        draft = root.with_suffix(".new")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for package in OPENVSWITCH:
            extract(package, draft)
        draft.rename(root)
    return root


def _unpack(package: str, kernel: Kernel) -> None:
    """The package has no modules.dep: installing it would make one."""
    shutil.rmtree(kernel.root, ignore_errors=True)
    kernel.root.mkdir(parents=True)
    extract(package, kernel.root)
    subprocess.run(["depmod", "--basedir", kernel.root, kernel.release], check=True)
