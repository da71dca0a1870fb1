"""`kubectl arpguard` for krew: an archive for each architecture, and the manifest by which krew installs one of them.

The archives have what the Debian packages have: the modules of Python packages for all of deb.PYTHONS. They need
python3 on the PATH, and nothing else.
"""

import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import sbom
import yaml
from artefacts import Artefact, Work, sha256
from deb import HOME, PYTHONS, Package, own_files
from root import MACHINES

BIN = "kubectl-arpguard"
DOWNLOADS = os.environ.get("DOWNLOADS", "https://example.org/arpguard")
# Isolated, so that nothing of the user's Python is imported; and without PYTHONPATH, which plugins for credentials that
# are written in Python would inherit. krew calls this by a symbolic link.
LAUNCHER = """\
#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec python3 -I -c '
import sys
sys.path.insert(0, sys.argv.pop(1))
from arpguard.cli.kubectl.main import main
main()
' "$here/site-packages" "$@"
"""
DESCRIPTION = """\
Shows who has which virtual IP and why, what the nodes decide, who else answers,
and what is wrong, for the agents of arpguard on all nodes at once. Switches the
cluster between observe and enforce, and writes a support bundle.
"""
CAVEATS = f"Needs python3 {PYTHONS[0]} to {PYTHONS[-1]} on the PATH, and the rights in docs/kubectl.md.\n"


def make(work: Work) -> Iterator[Artefact | Path]:
    """The archives, and the manifest that has their sums."""
    own = own_files(work)
    archives = {}
    for architecture in MACHINES:
        tree = Package(work.stage / f".krew-{architecture}")
        tree.add_program(own, architecture)
        site = tree.folder / HOME / "site-packages"
        shutil.rmtree(site / "arpguard_lab", ignore_errors=True)  # for nodes

        path = work.out / f"{BIN}_{work.release.version}_linux_{architecture}.tar.gz"
        pack(path, site, (work.stage / "LICENSE").read_bytes(), work.epoch)
        archives[architecture] = path
        parts = tuple(each for each in sbom.python_packages(site) if each["name"] != "arpguard")
        yield Artefact(path, f"pkg:generic/{BIN}@{work.release.version}?arch={architecture}", parts)

    yield write_manifest(work.out / "krew.yaml", work.release.version, archives)


def pack(path: Path, site: Path, licence: bytes, epoch: int) -> None:
    """An archive: the same files give the same bytes."""
    files = {f"site-packages/{each.relative_to(site)}": each.read_bytes() for each in site.rglob("*") if each.is_file()}
    files |= {BIN: LAUNCHER.encode(), "LICENSE": licence}
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), epoch, 0o755 if name == BIN else 0o644
            archive.addfile(info, io.BytesIO(content))


def write_manifest(path: Path, version: str, archives: dict[str, Path]) -> Path:
    """A Plugin for krew, with where the archives are downloaded from (DOWNLOADS in the environment)."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": f"{DOWNLOADS}/{archive.name}",
            "sha256": sha256(archive),
            "bin": BIN,
        }
        for architecture, archive in archives.items()
    ]
    spec = {
        "version": f"v{version}",
        "homepage": DOWNLOADS,
        "shortDescription": "Shows who answers for which virtual IP",
        "description": DESCRIPTION,
        "caveats": CAVEATS,
        "platforms": platforms,
    }
    head = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    manifest = {**head, "metadata": {"name": "arpguard"}, "spec": spec}
    path.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
    return path
