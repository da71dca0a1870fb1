"""The container image that ARPGUARD_TEST_IMAGE names, as `make image` does: run by podman; and its root folders, of all
architectures, out of the index that lies in dist/.
"""

import functools
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.locks import ROOT

IMAGE = os.environ.get("ARPGUARD_TEST_IMAGE", "")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
PYTHON = "/opt/arpguard/bin/python"
_RUN = str(ROOT / "deploy/image/run.sh")
# Programs of another architecture run under QEMU, which a folder of its own holds, in a root that it is not part of.
_INSIDE = """
mount -t tmpfs none "$1/run/arpguard" && mount -t proc proc "$1/proc" && mount --bind "$2" "$1/etc/arpguard"
test -z "$3" || cp "$3" "$1/run/arpguard/emulator"
root=$1 emulator=${3:+/run/arpguard/emulator}; shift 3
exec chroot "$root" $emulator "$@"
"""


def command(*words: str) -> list[str]:
    """The command line that runs it: flags of `podman run`, then the image, then the program's arguments."""
    return [_RUN, *words]


@dataclass(frozen=True)
class Built:
    """The image for one architecture, as it lies in the index."""

    architecture: str
    compressed: int  # bytes of its layers
    layers: int
    config: dict[str, Any]
    root: Path

    def files(self) -> list[Path]:
        """All that is in it, links and folders too."""
        return sorted(self.root.rglob("*"))

    def execute(self, *words: str, config: Path | None = None) -> "subprocess.CompletedProcess[str]":
        """Runs a program of it in its root, read from the folder `config` at /etc/arpguard."""
        emulator = ""
        if MACHINES[self.architecture] != platform.machine():
            emulator = shutil.which(f"qemu-{MACHINES[self.architecture]}-static") or ""
            assert emulator, "apt-get install qemu-user-static"
        with tempfile.TemporaryDirectory() as empty:
            arguments = [str(self.root), str(config or empty), emulator, *words]
            private = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", _INSIDE, "sh"]
            environment = dict(each.split("=", 1) for each in self.config["config"]["Env"])
            return subprocess.run(
                [*private, *arguments],
                capture_output=True,
                text=True,
                check=False,
                env={**environment, "PATH": f"{environment['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"},
            )

    def says(self, *words: str, config: Path | None = None) -> str:
        """What a program of it says that succeeds."""
        done = self.execute(*words, config=config)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def archive() -> Path:
    """The index of all architectures."""
    name, _, version = IMAGE.rpartition("/")[2].partition(":")
    return ROOT / f"dist/{name}-{version}-image.oci.tar"


@contextmanager
def unpacked() -> Iterator[dict[str, Built]]:
    """By architecture."""
    with tempfile.TemporaryDirectory(prefix="arpguard-image-") as name:
        folder = Path(name)
        subprocess.run(["tar", "-C", folder, "-xf", archive()], check=True)

        def read(blob: dict[str, str]) -> Any:
            return json.loads(path(blob).read_text(encoding="utf-8"))

        def path(blob: dict[str, str]) -> Path:
            return folder / "blobs" / blob["digest"].replace(":", "/")

        (index,) = json.loads((folder / "index.json").read_text(encoding="utf-8"))["manifests"]
        found = {}
        for each in read(index)["manifests"]:
            architecture, manifest = each["platform"]["architecture"], read(each)
            root = folder / architecture
            root.mkdir()
            for layer in manifest["layers"]:
                subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpzf", path(layer)], check=True)
            sizes = [layer["size"] for layer in manifest["layers"]]
            found[architecture] = Built(architecture, sum(sizes), len(sizes), read(manifest["config"]), root)
        yield found


@functools.cache
def modules_of(text: str) -> frozenset[str]:
    """The modules that a program imported, which ran with PYTHONPROFILEIMPORTTIME=1 and said `text`."""
    rows = (line.rsplit("|", 1) for line in text.splitlines() if line.startswith("import time:"))
    return frozenset(row[1].strip() for row in rows) - {"imported package"}
