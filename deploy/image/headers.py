"""Copies the kernel headers that bcc needs to compile arpguard.c, and no others, into one tree.

    headers.py FOLDER TARGET

FOLDER has arpguard.c; BCC_KERNEL_SOURCE is to name TARGET. Run while the image is built, where the kernel may refuse
bpf(2): clang's -MD writes down every file that it read, though bcc goes no further, as the maps have no place.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from arpguard.dataplane.headers import HeaderTree, find_headers
from arpguard.dataplane.source import ProgramSource

ALSO = ("include/linux/kconfig.h", "include/uapi/linux/bpf.h", "include/generated/autoconf.h")  # opened, or looked for
_COMPILE = "import sys; from bcc import BPF; BPF(src_file=sys.argv[1].encode(), cflags=sys.argv[2:])"


def opened(source: ProgramSource, tree: HeaderTree) -> set[Path]:
    """The files that clang reads to compile the programs; SystemExit with its words when it cannot."""
    flags = [*source.defines(Path("/nonexistent")), *(f"-I{folder}" for folder in tree.include_dirs)]
    root = tree.kernel_source or Path("/")  # which bcc makes the working directory
    with tempfile.TemporaryDirectory() as scratch:
        rule = Path(scratch) / "rule"
        done = subprocess.run(  # noqa: S603 - our own words, no shell
            [sys.executable, "-c", _COMPILE, str(source.folder / "arpguard.c"), *flags, "-MD", "-MF", str(rule), "-w"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "BCC_KERNEL_SOURCE": str(root)},
        )
        if "fatal error:" in done.stderr or not rule.is_file():
            raise SystemExit(done.stderr)
        _, _, names = rule.read_text(encoding="utf-8").replace("\\\n", " ").partition(":")
    return {(root / name).resolve() for name in names.split()}


def copy(tree: HeaderTree, wanted: set[Path], target: Path) -> int:
    """Copies those of `wanted` that are in the kernel's tree, whose halves (Debian has two) become one."""
    roots = {_root(folder) for folder in tree.include_dirs} | {(tree.kernel_source or Path("/")).resolve()}
    wanted = wanted | {root / name for root in roots for name in ALSO}
    inside = [(path, root) for path in wanted for root in roots if path.is_relative_to(root) and path.is_file()]
    for path, root in inside:
        place = target / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    return len(inside)


def _root(folder: Path) -> Path:
    """The tree that an include folder is in."""
    real = folder.resolve()
    return next(path for path in real.parents if path.parent.name in ("src", "build") or path.name.startswith("linux-"))


def main() -> None:
    """Entry point."""
    folder, target = (Path(word).resolve() for word in sys.argv[1:])
    tree = find_headers()
    count = copy(tree, opened(ProgramSource(folder), tree), target)
    sys.stdout.write(f"{count} headers of {tree.kernel_source}\n")


if __name__ == "__main__":
    main()
