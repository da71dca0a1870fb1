"""Finds kernel headers that bcc can compile the programs with.

The programs use UAPI structs only, so headers of another kernel version serve as well as the running one's.
Distributions split them: Debian into linux-headers-*-common and linux-headers-*-<arch>, which are joined here
by include paths.
"""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from arpguard_build.errors import BuildError

_ARCH_FOLDER = {"x86_64": "x86", "aarch64": "arm64", "riscv64": "riscv", "ppc64le": "powerpc", "s390x": "s390"}
_NEEDED = ("linux/kconfig.h", "uapi/linux/bpf.h", "generated/autoconf.h")
_INSTALL = {
    "debian": "apt-get install linux-headers-amd64 (linux-headers-arm64 on ARM)",
    "ubuntu": "apt-get install linux-headers-generic",
    "fedora": "dnf install kernel-devel",
    "rhel": "dnf install kernel-devel",
    "centos": "dnf install kernel-devel",
    "opensuse": "zypper install kernel-default-devel",
    "alpine": "apk add linux-lts-dev",
}


@dataclass(frozen=True, slots=True)
class HeaderTree:
    """What to give to bcc: BCC_KERNEL_SOURCE (None: its own default), and more include folders."""

    kernel_source: Path | None
    include_dirs: tuple[Path, ...] = ()


def find_headers(root: Path = Path("/"), environ: "os._Environ[str] | dict[str, str]" = os.environ) -> HeaderTree:
    """The header tree to compile with: BCC_KERNEL_SOURCE, the running kernel's, else the newest installed one.

    Raises BuildError that says what to install when there is none.
    """
    named = environ.get("BCC_KERNEL_SOURCE")
    if named:
        tree = _tree(root / named.lstrip("/"))
        if tree is None:
            raise BuildError(
                f"BCC_KERNEL_SOURCE={named} is not a kernel header tree ({', '.join(_NEEDED)} are not all below it): "
                "correct it, or unset it to have the headers found"
            )
        return tree

    for candidate in _candidates(root):
        tree = _tree(candidate)
        if tree is not None:
            return tree

    raise BuildError(
        f"no kernel headers to compile BPF with (looked in {root}lib/modules/*/build and {root}usr/src): "
        f"{_install_hint(root)}, or set BCC_KERNEL_SOURCE to a header tree; any version serves"
    )


def _candidates(root: Path) -> list[Path]:
    modules, sources = root / "lib/modules", root / "usr/src"
    running = modules / platform.release()
    others = [path / "build" for path in modules.glob("*")]
    others += [
        path for pattern in ("linux-headers-*", "kernels/*", "linux-*-obj/*/*") for path in sources.glob(pattern)
    ]
    newest_first = sorted(set(others), key=_version, reverse=True)
    return [running / "build", running / "source", *newest_first]


def _version(path: Path) -> tuple[int, ...]:
    """Numbers in the path's last folder that has some: (6, 1, 0, 56) of linux-headers-6.1.0-56-amd64."""
    for part in reversed(path.parts):
        numbers = re.findall(r"\d+", part)
        if numbers and "." in part:
            return tuple(map(int, numbers))
    return ()


def _tree(path: Path) -> HeaderTree | None:
    """The tree at `path`, joined with its sibling when the distribution split it; None when it is not whole."""
    parts = [part for part in (path, _sibling(path)) if part is not None and part.is_dir()]
    arch = _ARCH_FOLDER.get(platform.machine(), platform.machine())
    subfolders = ("include", f"arch/{arch}/include", f"arch/{arch}/include/generated")
    uapi = (
        "include/uapi",
        "include/generated/uapi",
        f"arch/{arch}/include/uapi",
        f"arch/{arch}/include/generated/uapi",
    )
    found = [part / sub for sub in subfolders + uapi for part in parts if (part / sub).is_dir()]
    if not all(any((folder / name).is_file() for folder in found) for name in _NEEDED):
        return None
    main = next(part for part in parts if (part / "include/linux/kconfig.h").is_file())
    return HeaderTree(main, tuple(found) if len(parts) > 1 else ())


def _sibling(path: Path) -> Path | None:
    """Debian's common half of an architecture's tree (also behind /lib/modules/*/build)."""
    real = Path(os.path.realpath(path))
    stem, _, flavour = real.name.rpartition("-")
    if not real.name.startswith("linux-headers-") or flavour == "common":
        return None
    while stem.count("-") >= 2:
        common = real.with_name(stem + "-common")
        if common.is_dir():
            return common
        stem = stem.rpartition("-")[0]
    return None


def _install_hint(root: Path) -> str:
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = dict(re.findall(r'^(ID|ID_LIKE)="?([^"\n]*)"?$', text, flags=re.MULTILINE))
    names = [*fields.get("ID", "").split(), *fields.get("ID_LIKE", "").split()]
    return next((_INSTALL[name] for name in names if name in _INSTALL), "install your distribution's kernel headers")
