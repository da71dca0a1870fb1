"""The Debian packages, one for each architecture: they bring the Python packages that distributions have too old.

Compiled modules of Python packages depend on the architecture and on Python's version. So there is a package for each
architecture, and in it are the modules for all of PYTHONS: it installs wherever python3 is one of those. All lie in one
folder, for their names say which Python they are for; a virtual environment in /usr/lib/arpguard leads there.
"""

import gzip
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import sbom
from artefacts import Artefact, Work
from elf import needed
from imports import Tree, reachable
from root import BY_NAME, MACHINES, NEVER, Site
from wheels import build

from arpguard.importing import NOT_RUN

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
HERE = Path(__file__).parent / "debian"
HOME = "usr/lib/arpguard"
# Shared libraries that something in the package needs, and the package that has each.
LIBRARIES = {
    "ld-linux-aarch64.so.1": "libc6",
    "ld-linux-x86-64.so.2": "libc6",
    "libc.so.6": "libc6",
    "libdl.so.2": "libc6",
    "libm.so.6": "libc6",
    "libpthread.so.0": "libc6",
    "librt.so.1": "libc6",
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
}
VERSIONS = {"libc6": "libc6 (>= 2.36)"}  # what manylinux wheels of up to 2.36 may need: root.GLIBC
BY_DLOPEN = ("libbpf1",)  # arpguard.dataplane.events
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/{program}",
    "zsh": "usr/share/zsh/vendor-completions/_{program}",
    "fish": "usr/share/fish/vendor_completions.d/{program}.fish",
}
CONTROL = """\
Package: arpguard
Version: {version}
Architecture: {architecture}
Maintainer: arpguard developers <arpguard@localhost>
Installed-Size: {size}
Depends: {depends}
Recommends: ethtool, iproute2, procps
Suggests: keepalived, openssl
Section: net
Priority: optional
Description: at most one node answers for a virtual IP
 arpguard loads BPF programs on this node's network interfaces. From a map of
 owners they answer ARP and IPv6 neighbour discovery for the virtual IPs of this
 node, suppress it for those of others, and leave every other frame alone.
 .
 The service is not started by installation: adapt /etc/arpguard/config.yaml,
 then `systemctl enable --now arpguard`. The shipped configuration observes only.
"""
COMMAND = f"""\
#!/{HOME}/bin/python
import sys

from {{module}} import main

if __name__ == "__main__":  # the lab's scenarios import this file in processes of their own
    sys.exit(main())
"""
COMMANDS = {"arpguard": "arpguard.cli.main", "kubectl-arpguard": "arpguard.cli.kubectl.main"}
RUN = "from {} import main; main()"


def make(work: Work) -> Iterator[Artefact]:
    """One for each architecture."""
    own = own_files(work)
    manuals = work.stage / ".man"
    agent = {"PYTHONPATH": str(work.stage / "agent")}
    work.run(sys.executable, str(Path(__file__).with_name("man.py")), str(manuals), *_dated(work), **agent)
    scripts = {
        path.format(program=program): work.run(sys.executable, "-c", RUN.format(module), "completion", shell, **agent)
        for program, module in COMMANDS.items()
        for shell, path in COMPLETIONS.items()
    }

    for architecture in MACHINES:
        tree = Package(work.stage / f".deb-{architecture}")
        tree.add_program(own, architecture)
        for manual in manuals.iterdir():
            tree.write(f"usr/share/man/man1/{manual.name}.gz", _zipped(manual.read_bytes()))
        for path, script in scripts.items():
            tree.write(path, script.encode())
        tree.add_files(work.stage)

        file = work.out / f"arpguard_{work.release.version}_{architecture}.deb"
        tree.close(work, architecture, file)
        bundled = sbom.python_packages(tree.folder / HOME / "site-packages")
        parts = tuple(each for each in bundled if each["name"] != "arpguard")
        yield Artefact(file, f"pkg:deb/arpguard@{work.release.version}?arch={architecture}", parts)


def own_files(work: Work) -> Path:
    """What the wheel has, in a folder."""
    own = work.stage / ".own"
    with zipfile.ZipFile(build(work, work.stage / ".wheel", "wheel")) as archive:
        archive.extractall(own)
    return own


class Package:
    """A folder that becomes a Debian package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add_program(self, own: Path, architecture: str) -> None:
        """The agent, the lab, and the modules of other packages that they can import, for all of PYTHONS."""
        for python in PYTHONS:
            site = Site(own, architecture, python)
            for path, source in site.files(_modules(site)).items():
                self._take(source, f"{HOME}/site-packages/{path}")
            self._link(f"{HOME}/lib/python{python}/site-packages", "../../site-packages")
        # As `python -m venv` makes it.
        self._link(f"{HOME}/bin/python", "/usr/bin/python3")
        self.write(f"{HOME}/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = false\n")
        for name, module in COMMANDS.items():
            self.write(f"{HOME}/bin/{name}", COMMAND.format(module=module).encode(), mode=0o755)
            self._link(f"usr/bin/{name}", f"../lib/arpguard/bin/{name}")

    def add_files(self, stage: Path) -> None:
        """What a package has besides: the unit, the configuration, documentation."""
        for name in ("arpguard.service", "arpguard-early.service"):
            unit = (stage / "deploy/standalone" / name).read_text(encoding="utf-8")
            unit = unit.replace("/opt/arpguard/bin/", "/usr/bin/").replace(" /opt/arpguard\n", " /usr/lib/arpguard\n")
            self.write(f"usr/lib/systemd/system/{name}", unit.encode())
        fifo = (stage / "deploy/standalone/arpguard.tmpfiles").read_bytes()
        self.write("usr/lib/tmpfiles.d/arpguard.conf", fifo)
        self.write("etc/arpguard/config.yaml", (stage / "deploy/standalone/config.yaml").read_bytes())
        self.write("usr/share/doc/arpguard/copyright", (HERE / "copyright").read_bytes())
        self.write("usr/share/doc/arpguard/changelog.gz", _zipped((stage / "CHANGELOG.md").read_bytes()))

    def close(self, work: Work, architecture: str, file: Path) -> None:
        """Writes what dpkg reads, and packs all."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
        sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(self.folder)}\n" for path in files]  # noqa: S324 - dpkg's format
        size = sum(-(-path.stat().st_size // 1024) for path in files)
        depends = ", ".join([python_needed(), *BY_DLOPEN, *_libraries(files)])

        self.write("DEBIAN/md5sums", "".join(sums).encode())
        self.write("DEBIAN/conffiles", b"/etc/arpguard/config.yaml\n")
        fields = {"version": work.release.version, "architecture": architecture, "size": size, "depends": depends}
        self.write("DEBIAN/control", CONTROL.format_map(fields).encode())
        for script in ("postinst", "prerm", "postrm"):
            self.write(f"DEBIAN/{script}", (HERE / script).read_bytes(), mode=0o755)
        work.run("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", str(self.folder), str(file))

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """One file."""
        place = self._place(path)
        place.write_bytes(content)
        place.chmod(mode)

    def _take(self, source: Path, path: str) -> None:
        """A file that other Pythons' packages have too is the same there; of metadata, the first Python's are taken."""
        place = self._place(path)
        if place.exists():
            if ".dist-info/" not in path and place.read_bytes() != source.read_bytes():
                raise SystemExit(f"{path} is not the same for every Python of {', '.join(PYTHONS)}")
            return
        shutil.copyfile(source, place)
        place.chmod(0o644)

    def _link(self, path: str, target: str) -> None:
        self._place(path).symlink_to(target)

    def _place(self, path: str) -> Path:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return place


def _modules(site: Site) -> list[Path]:
    """The files of all modules that a command can import; Python's own are Debian's."""
    tree = Tree(site.folders)
    roots = [*tree.below("arpguard"), *tree.below("arpguard_lab"), *BY_NAME]
    found = (tree.find(name) for name in reachable(tree, roots, program="arpguard", not_run=NOT_RUN, never=NEVER))
    return [each.file for each in found if each and each.file]


def python_needed() -> str:
    """Any of PYTHONS."""
    major, minor = PYTHONS[-1].split(".")
    return f"python3 (>= {PYTHONS[0]}~), python3 (<< {major}.{int(minor) + 1}~)"


def _libraries(files: Iterable[Path]) -> list[str]:
    """The packages of the shared libraries that they need."""
    names = {name for path in files for name in needed(path)}
    unknown = names - LIBRARIES.keys()
    if unknown:
        raise SystemExit(f"no package is named for {', '.join(sorted(unknown))}: add it to LIBRARIES")
    return sorted({VERSIONS.get(LIBRARIES[name], LIBRARIES[name]) for name in names})


def _dated(work: Work) -> tuple[str, str]:
    return work.release.version, str(work.epoch)


def _zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)
