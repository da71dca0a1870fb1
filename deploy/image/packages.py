"""Debian's packages of any architecture: chosen and fetched by apt, unpacked by dpkg-deb, never installed.

apt has folders of its own for it, in which nothing is installed; this machine's packages and lists stay as they are.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_LISTS_ARE_NEW_S = 12 * 3600


@dataclass(frozen=True)
class Package:
    """One that is unpacked in `folder`; `paragraph` is its control file."""

    paragraph: str
    folder: Path

    @property
    def name(self) -> str:
        """As in its control file."""
        return self.field("Package")

    def field(self, name: str) -> str:
        """One field of the control file; empty when there is none."""
        lines = (line for line in self.paragraph.splitlines() if line.startswith(f"{name}:"))
        return next(lines, ":").partition(":")[2].strip()

    def files(self) -> Iterator[str]:
        """Paths of files and links, as in a merged /usr: relative, and none begins with lib/, bin/ or sbin/."""
        for path in self.folder.rglob("*"):
            if path.is_symlink() or path.is_file():
                yield merged(str(path.relative_to(self.folder)))

    def path(self, file: str) -> Path:
        """Where a file of `files` is unpacked."""
        for each in (file, file.removeprefix("usr/")):
            path = self.folder / each
            if path.is_symlink() or path.exists():
                return path
        raise FileNotFoundError(f"{self.name} has no {file}")


def merged(path: str) -> str:
    """A relative path, where it is in a system whose /lib, /bin and /sbin are links into /usr."""
    top = path.partition("/")[0]
    return f"usr/{path}" if top in {"bin", "sbin"} or top.startswith("lib") else path


def followed(file: str, target: str) -> str:
    """The path that a link at `file` leads to, as in a merged /usr."""
    return merged(os.path.normpath(os.path.join("/", os.path.dirname(file), target)).lstrip("/"))


class Archive:
    """The packages of a suite for one architecture; what is fetched is kept in `folder`."""

    def __init__(self, folder: Path, architecture: str, suite: str, mirror: str) -> None:
        self._folder = folder / architecture
        for each in ("lists/partial", "archives/partial", "unpacked"):
            (self._folder / each).mkdir(parents=True, exist_ok=True)
        (self._folder / "status").touch()
        parts = ((mirror, suite), (mirror, f"{suite}-updates"), (f"{mirror}-security", f"{suite}-security"))
        lines = [f"deb [arch={architecture} signed-by={_KEYS}] {place} {each} main\n" for place, each in parts]
        (self._folder / "sources.list").write_text("".join(lines), encoding="utf-8")
        self._options = [f"--option={name}={value}" for name, value in self._settings(architecture).items()]

    def _settings(self, architecture: str) -> dict[str, object]:
        return {
            "Dir::State": self._folder,
            "Dir::State::lists": self._folder / "lists",
            "Dir::State::status": self._folder / "status",
            "Dir::Cache": self._folder,
            "Dir::Cache::archives": self._folder / "archives",
            "Dir::Etc::SourceList": self._folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "APT::Keep-Downloaded-Packages": "true",
            "Acquire::Languages": "none",
        }

    def packages(self, *names: str) -> list[Package]:
        """Those and what they depend on, unpacked, in their newest versions."""
        self._update()
        self._apt("install", "--download-only", "--yes", *names)
        # A line for each: 'URI' FILE SIZE HASH. Those that are fetched already are listed only with another cache.
        listed = self._apt("install", "--print-uris", "--yes", f"--option=Dir::Cache::archives={self._empty()}", *names)
        files = [line.split()[1] for line in listed.splitlines() if line.startswith("'")]
        return [self._unpacked(self._folder / "archives" / file) for file in sorted(files)]

    def _update(self) -> None:
        mark = self._folder / "updated"
        if mark.exists() and time.time() - mark.stat().st_mtime < _LISTS_ARE_NEW_S:
            return
        try:
            self._apt("update", "--error-on=any")
        except subprocess.CalledProcessError:
            if not mark.exists():
                raise
            sys.stderr.write("could not refresh the lists of packages: using those of the last time\n")
        else:
            mark.touch()

    def _empty(self) -> Path:
        folder = self._folder / "none"
        (folder / "partial").mkdir(parents=True, exist_ok=True)
        return folder

    def _apt(self, *words: str) -> str:
        command = ["/usr/bin/apt-get", "--quiet=2", *self._options, *words]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603 - our words

    def _unpacked(self, file: Path) -> Package:
        folder = self._folder / "unpacked" / file.stem
        if not folder.exists():
            half = folder.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            _dpkg_deb("--extract", str(file), str(half))
            half.rename(folder)
        return Package(_dpkg_deb("--field", str(file)), folder)


def _dpkg_deb(*words: str) -> str:
    command = ["/usr/bin/dpkg-deb", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own words


def by_file(packages: Iterable[Package]) -> dict[str, Package]:
    """Whose each file is."""
    return {file: package for package in packages for file in package.files()}
