"""Makes what users download, in dist/: `build.py [--out FOLDER] [PART...]`.

From the commit that is checked out, and nothing else: the same commit gives the same bytes, wherever the checkout is.
deploy/release.env names the version, the image's repository and the site's address; IMAGE and DOCS in the environment
are others.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import charts
import deb
import images
import krew
import notes
import wheels
from artefacts import Artefact, Work, sums, write_sums
from stamp import TOP, release_of, stamp

PARTS: dict[str, Callable[[Work], Iterator[Artefact | Path]]] = {
    "wheels": wheels.make,
    "deb": deb.make,
    "krew": krew.make,
    "image": images.make,
    "kubernetes": charts.make,
    "notes": notes.make,
}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=TOP / "dist", metavar="FOLDER", help="default: dist")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    options = parser.parse_args()
    unknown = set(options.parts) - PARTS.keys()
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    if _git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("a release is made from a commit: commit or stash what you changed first")

    os.umask(0o022)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="arpguard-release-") as folder:
        for path in release(Path(folder, "stage"), options.out.resolve(), options.parts or list(PARTS)):
            sys.stdout.write(f"{path.name}\n")


def release(stage: Path, out: Path, parts: list[str]) -> list[Path]:
    """Makes the parts, a bill of materials for each file, and SHA256SUMS; gives the files."""
    _git("archive", "--output", f"{stage}.tar", "HEAD")
    shutil.unpack_archive(f"{stage}.tar", stage)
    named = release_of(TOP)
    stamp(stage, named)
    work = Work(stage, out, named, _git("rev-parse", "HEAD"), int(_git("log", "-1", "--format=%ct")))

    before = sums(out)
    files: list[Path] = []
    for part in parts:
        for made in PARTS[part](work):
            files += [made.path, made.write_bill(named)] if isinstance(made, Artefact) else [made]
    for name in before.keys() - {path.name for path in files}:
        (out / name).unlink(missing_ok=True)
    write_sums(out, files)
    return [*files, out / "SHA256SUMS"]


def _git(*words: str) -> str:
    command = ["git", "-C", str(TOP), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603 - our words


if __name__ == "__main__":
    main()
