"""Makes the image's file systems, a folder for each architecture: `root.py FOLDER [ARCHITECTURE...]`, as root.

Nothing is installed, and of another architecture nothing runs. Of Debian there is Python, the shared libraries that
something here needs, and what scanners read; of Python's standard library and of packages, the modules that the agent
can import. So there is no shell and no package manager.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Collection, Iterable
from importlib.metadata import distributions
from pathlib import Path

import sbom
from elf import is_elf, needed
from imports import Tree, reachable
from packages import Archive, Package, by_file, followed

from arpguard.importing import NOT_RUN

TOP = Path(__file__).resolve().parents[2]
CACHE = TOP / ".cache/image"
HOME = "opt/arpguard"
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

# Of Debian; libstdc++6 because wheels may take it for granted. What nothing needs of these, and of what they depend
# on, stays behind.
ASKED_FOR = ("python3", "libbpf1", "libstdc++6", "base-files", "base-passwd")
# What no import statement names, and what is there for it.
BY_NAME = {
    "_strptime": "datetime, which is in C, imports it",
    "_sysconfigdata__aarch64-linux-gnu": "sysconfig, which zoneinfo asks: the one of its architecture is there",
    "_sysconfigdata__x86_64-linux-gnu": "the same",
    "compileall": "compiles the modules that are here, at the end",
    "encodings.ascii": "codecs are found by their names: the interpreter's,",
    "encodings.idna": "those of host names,",
    "encodings.latin_1": "of HTTP,",
    "encodings.utf_8": "and the rest",
}
# What import statements name, and no agent and no command imports: tools of developers, and what needs ncurses,
# readline or Kerberos.
NEVER = (
    *("_crypt", "_curses", "_curses_panel", "_dbm", "_gdbm", "_testbuffer", "_testcapi", "_testclinic", "_tkinter"),
    *("_testimportmultiple", "_testinternalcapi", "_testmultiphase", "curses", "distutils", "doctest", "ensurepip"),
    *("idlelib", "lib2to3", "nis", "pdb", "pydoc", "pydoc_data", "readline", "rlcompleter", "sitecustomize", "test"),
    *("tkinter", "turtle", "venv", "webbrowser"),
    "pydantic_core",  # yarl imports it for programs that use pydantic
)
OPENED_BY_NAME = ("libbpf.so.1", "libgcc_s.so.1")  # by arpguard.dataplane.events; by libc when a thread is ended
READ_BY_NAME = {  # by scanners and libc: where, and what it is in a package
    "etc/debian_version": "etc/debian_version",
    "etc/group": "usr/share/base-passwd/group.master",
    "etc/passwd": "usr/share/base-passwd/passwd.master",
    "usr/lib/os-release": "usr/lib/os-release",
}
MOUNTED_ON = ("dev", "etc/arpguard", "proc", "run/arpguard", "sys/fs/bpf")
NO_DATA = {".c", ".h", ".pxd", ".pxi", ".py", ".pyc", ".pyi", ".pyx", ".so"}
GLIBC = range(17, 37)  # wheels say the oldest that they run with, 2.N; Debian 12 has 2.36
INSTALLERS_OWN = {"INSTALLER", "RECORD", "REQUESTED"}  # in a dist-info; true of all files or none
COMMAND = f"""\
#!/{HOME}/bin/python
import sys

from arpguard.cli.main import main

sys.exit(main())
"""


class Root:
    """A folder that becomes the root of an image; knows whose its files are."""

    def __init__(self, folder: Path, packages: Iterable[Package]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self._whose = by_file(packages)
        self._used: set[Package] = set()
        for path in MOUNTED_ON:
            (folder / path).mkdir(parents=True)

    def take(self, file: str, place: str = "") -> Path:
        """A file of Debian's, here or at another place, and what it is a link to; the file that it comes to."""
        package = self._whose[file]
        self._used.add(package)
        source = package.path(file)
        if source.is_symlink():
            self.link(place or file, os.readlink(source))
            return self.take(followed(file, os.readlink(source)))
        return self.copy(source, place or file)

    def copy(self, source: Path, path: str) -> Path:
        """One file: its content, and of its mode whether it is a program; a script of Python's library is none."""
        target = self._place(path)
        shutil.copyfile(source, target)
        target.chmod(0o755 if source.stat().st_mode & 0o100 and is_elf(target) else 0o644)
        return target

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        place = self._place(path)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """A file of our own."""
        place = self._place(path)
        place.write_text(text, encoding="utf-8")
        place.chmod(mode)

    def _place(self, path: str) -> Path:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def take_libraries(self) -> None:
        """The shared libraries of Debian's that something here needs, or opens by name, and those that they need."""
        files = [path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        libraries = {
            Path(file).name: file for file in sorted(self._whose) if re.match(r"usr/lib\w*/([^/]+/)?[^/]+$", file)
        }
        done = {path.name for path in files}
        waiting = deque([*OPENED_BY_NAME, *(name for path in files for name in needed(path))])
        while waiting:
            name = waiting.popleft()
            if name in done:
                continue
            if name not in libraries:
                raise SystemExit(f"{name} is needed, and no package that was asked for has it")
            done.add(name)
            waiting += needed(self.take(libraries[name]))

    def tell(self) -> None:
        """Whose its files are, as in distroless images: the control file of each package, and its copyright."""
        for package in set(self._used):
            folder = f"usr/share/doc/{package.name}"
            if folder in self._whose:  # a link to that of another package
                target = os.readlink(package.path(folder))
                self.link(folder, target)
                folder = followed(folder, target)
            self.take(f"{folder}/copyright")
        for package in self._used:
            self.write(f"var/lib/dpkg/status.d/{package.name}", package.paragraph)


class Site:
    """Python packages for an architecture, as pip would install them, and the agent's, in the folder `own`."""

    def __init__(self, own: Path, architecture: str, python: str) -> None:
        self.folders = (own, locked(architecture, python))

    def files(self, modules: Collection[Path]) -> dict[str, Path]:
        """Paths below site-packages, and where they are now: `modules`, data beside them, and what tells of them."""
        found = {self._path(file): file for file in modules}
        packages = {file.parent for file in modules if file.name == "__init__.py"}
        found |= {self._path(file): file for each in packages for file in _data(each, packages)}
        for distribution in distributions(path=[str(each) for each in self.folders]):
            files = distribution.files or []
            if any(str(file) in found for file in files):
                told = (file for file in files if ".dist-info/" in str(file) and file.name not in INSTALLERS_OWN)
                found |= {str(file): Path(str(file.locate())) for file in told}
        return found

    def _path(self, file: Path) -> str:
        (path,) = (file.relative_to(each) for each in self.folders if file.is_relative_to(each))
        return str(path)


def _data(package: Path, packages: Collection[Path]) -> Iterable[Path]:
    """What a package has beside modules, in its folder, and in those below it that are no packages."""
    for path in package.iterdir():
        if path.is_file() and path.suffix not in NO_DATA:
            yield path
        elif path.is_dir() and path not in packages and not any(path.glob("*.py")):
            yield from _data(path, packages)


def _agent() -> Path:
    """This checkout's package, as in its wheel."""
    folder = CACHE / "agent"
    shutil.rmtree(folder, ignore_errors=True)
    _pip("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}", str(TOP))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def locked(architecture: str, python: str, name: str = "run") -> Path:
    """What a file of deploy/lock fixes; kept until that changes."""
    machine, lock = MACHINES[architecture], TOP / f"deploy/lock/{name}.txt"
    names = [f"manylinux2014_{machine}", *(f"manylinux_2_{number}_{machine}" for number in GLIBC)]
    kind = ["--only-binary=:all:", f"--python-version={python}", *(f"--platform={name}" for name in names)]
    key = hashlib.sha256(f"{kind}".encode() + lock.read_bytes()).hexdigest()
    folder = CACHE / architecture / f"site-{key[:16]}"
    if not folder.exists():
        half = folder.with_name("site.half")
        shutil.rmtree(half, ignore_errors=True)
        target = [f"--target={half}", "--no-compile", f"--cache-dir={CACHE / 'pip'}"]
        _pip("install", *target, *kind, "--require-hashes", f"--requirement={lock}")
        half.rename(folder)
    return folder


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True)  # noqa: S603 - our own words


def make(architecture: str, folder: Path, version: str) -> Root:
    """The root for one architecture, but for what Python compiles."""
    archive = Archive(CACHE, architecture, os.environ["SUITE"], os.environ["MIRROR"])
    packages = archive.packages(*ASKED_FOR)
    root = Root(folder, packages)
    (interpreter,) = (file for file in by_file(packages) if re.fullmatch(r"usr/bin/python3\.\d+", file))
    python = interpreter.removeprefix("usr/bin/python")
    site = Site(_agent(), architecture, python)

    library = f"usr/lib/python{python}"
    standard = [each.folder / library / part for part in ("", "lib-dynload") for each in packages]
    modules = Tree([*site.folders, *(each for each in standard if each.is_dir())])
    roots = [*modules.below("arpguard"), *BY_NAME, "site"]
    files = [
        found.file
        for name in reachable(modules, roots, program="arpguard", not_run=NOT_RUN, never=(*NEVER, "arpguard_lab"))
        if (found := modules.find(name)) and found.file
    ]
    ours = [file for file in files if any(file.is_relative_to(each) for each in site.folders)]

    root.take(interpreter)
    for file in set(files) - set(ours):
        root.take(library + str(file).partition(library)[2])
    place = f"{HOME}/lib/python{python}/site-packages"
    for path, source in site.files(ours).items():
        root.copy(source, f"{place}/{path}")
    # As `python -m venv` makes it.
    root.link(f"{HOME}/bin/python", f"/{interpreter}")
    root.write(f"{HOME}/pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    root.write(f"{HOME}/bin/arpguard", COMMAND, mode=0o755)

    for path, file in READ_BY_NAME.items():
        root.take(file, path)
    root.link("etc/os-release", "../usr/lib/os-release")
    root.take_libraries()
    for loader in (file for file in by_file(packages) if Path(file).name.startswith("ld-linux")):
        root.take(loader)
    for folder_of_all in ("lib", "lib64"):
        if (root.folder / "usr" / folder_of_all).is_dir():
            root.link(folder_of_all, f"usr/{folder_of_all}")
    root.tell()
    root.write(f"{HOME}/sbom.cdx.json", sbom.text(version, root.folder, root.folder / place))
    return root


def compile_modules(root: Path) -> None:
    """By the Python that is there, and never to be checked against their sources: times of files mean nothing."""
    words = ["-m", "compileall", "-f", "-q", "--invalidation-mode=unchecked-hash", "/usr/lib", f"/{HOME}/lib"]
    # Sets are written in the order of their hashes; and it writes for itself what it imports, in another way.
    environment = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["/usr/sbin/chroot", str(root), f"/{HOME}/bin/python", *words]
    subprocess.run(command, env=environment, check=True)  # noqa: S603 - our own words


def take_compiled(source: Path, target: Path) -> None:
    """Compiled modules are the same for all architectures."""
    for compiled in source.rglob("*.pyc"):
        path = compiled.relative_to(source)
        module = path.parent.parent / f"{path.name.partition('.')[0]}.py"
        if (target / module).exists():
            (target / path).parent.mkdir(exist_ok=True)
            shutil.copyfile(compiled, target / path)


def main() -> None:
    """Entry point."""
    folder, *architectures = sys.argv[1:]
    os.umask(0o022)
    roots = {each: make(each, Path(folder) / each, os.environ["VERSION"]).folder for each in architectures}
    here = next(each for each in roots if MACHINES[each] == platform.machine())
    compile_modules(roots[here])
    for each in set(roots) - {here}:
        take_compiled(roots[here], roots[each])


if __name__ == "__main__":
    main()
