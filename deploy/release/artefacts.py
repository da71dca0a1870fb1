"""What the parts of a release have in common: where they build, what they made, and what is in that."""

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sbom
from stamp import Release

_LOCKED = re.compile(r"^([a-z][\w.-]*)==(\S+)(?: \\)?$", re.MULTILINE)


@dataclass(frozen=True)
class Work:
    """Where one release is built: `stage` is the commit's files, stamped; `out` is what users download from."""

    stage: Path
    out: Path
    release: Release
    commit: str
    epoch: int  # the commit's time, in seconds since 1970

    def run(self, *words: str, **environment: str) -> str:
        """Runs a command, in the stage; what it prints."""
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), **environment}
        done = subprocess.run(  # noqa: S603 - our own words
            words, cwd=self.stage, env=env, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    def locked(self) -> list[sbom.Component]:
        """The Python packages that the agent runs with, in the versions that tests ran with."""
        text = (self.stage / "deploy/lock/run.txt").read_text(encoding="utf-8")
        return [sbom.python_package(name, version) for name, version in _LOCKED.findall(text)]


@dataclass(frozen=True)
class Artefact:
    """A file that users download: what a bill of materials calls it, and what it brings or needs."""

    path: Path
    purl: str
    components: tuple[sbom.Component, ...]
    kind: str = "application"  # CycloneDX's word

    def write_bill(self, release: Release) -> Path:
        """Its bill of materials, in a file beside it."""
        bill = self.path.with_name(f"{self.path.name}.cdx.json")
        subject = {
            "type": self.kind,
            "bom-ref": self.purl,
            "name": self.path.name,
            "version": release.version,
            "purl": self.purl,
            "hashes": [{"alg": "SHA-256", "content": sha256(self.path)}],
        }
        bill.write_text(sbom.document(subject, self.components), encoding="utf-8")
        return bill


def sha256(path: Path) -> str:
    """Of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_sums(folder: Path, files: Iterable[Path]) -> None:
    """SHA256SUMS, as sha256sum(1) writes it and `sha256sum -c` reads it."""
    lines = [f"{sha256(path)}  {path.relative_to(folder)}\n" for path in sorted(files)]
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def sums(folder: Path) -> Mapping[str, str]:
    """What SHA256SUMS of a folder says, by the files' names; nothing where there is none."""
    path = folder / "SHA256SUMS"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
