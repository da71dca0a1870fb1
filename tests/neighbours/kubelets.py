"""Real nodes: kubelet, containerd and runc in the network namespaces of the lab's hosts.

Each node has a mount namespace of its own, with its own BPF file system at /sys/fs/bpf, as machines have; the kernel,
cgroups and processes are shared. Images come from archives: nothing is pulled.
"""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from arpguard_lab.bench import until
from arpguard_lab.cluster.topology import MANAGEMENT
from arpguard_lab.topology import Host, HostProcess
from neighbours.controlplane import BINARIES, ControlPlane

ROOT = Path(__file__).parents[2]
PAUSE = "localhost/pause:1"
_CNI = Path("/usr/lib/cni")  # Debian's containernetworking-plugins; no Pod here is in a network of its own
_START_S = 300.0
_END_S = 30.0
_PAUSE_SOURCE = (
    "#include <unistd.h>\n#include <signal.h>\nint main(void) { signal(SIGTERM, _exit); for (;;) pause(); }\n"
)
# runc mounts what is shared; the kubelet asks for it where a volume says HostToContainer.
_HOLD = "mount --make-rshared / && mount -t bpf bpf /sys/fs/bpf && echo held && exec sleep infinity"


def missing() -> str | None:
    """Why there can be no nodes; None where there can."""
    lacking = [name for name in ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc") if not _has(name)]
    if lacking:
        return f"{', '.join(lacking)} not built: make neighbours (needs Go)"
    if not _CNI.is_dir():
        return "containernetworking-plugins is missing"
    return None if shutil.which("buildah") else "buildah is missing: make image"


def _has(program: str) -> bool:
    return (BINARIES / program).exists()


class Images:
    """Archives of images, as `ctr images import` takes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def agent(self) -> tuple[str, Path]:
        """The image that `make image-build` has made: its name, and its archive."""
        named = (ROOT / "deploy/release.env").read_text(encoding="utf-8")
        name = ":".join(re.findall(r"^(?:IMAGE|VERSION)=(.+)$", named, re.MULTILINE))
        return name, self._archive(name, "agent.tar", f'buildah "${{STORAGE[@]}}" push --quiet {name} "$ARCHIVE"')

    def pause(self) -> Path:
        """An image that does nothing: what holds a Pod's namespaces together."""
        source = self._folder / "pause.c"
        source.write_text(_PAUSE_SOURCE, encoding="utf-8")
        subprocess.run(["gcc", "-static", "-Os", "-o", self._folder / "pause", source], check=True)
        script = (
            'container=$(buildah "${STORAGE[@]}" from scratch)\n'
            f'buildah "${{STORAGE[@]}}" add --quiet "$container" {self._folder / "pause"} /pause >/dev/null\n'
            'buildah "${STORAGE[@]}" config --entrypoint \'["/pause"]\' "$container"\n'
            f'buildah "${{STORAGE[@]}}" commit --quiet --rm "$container" {PAUSE} >/dev/null\n'
            f'buildah "${{STORAGE[@]}}" push --quiet {PAUSE} "$ARCHIVE"'
        )
        return self._archive(PAUSE, "pause.tar", script)

    def _archive(self, name: str, file: str, script: str) -> Path:
        path = self._folder / file
        words = ["bash", "-c", f"set -euo pipefail\n. deploy/image/containers.sh\n{script}"]
        environment = {**os.environ, "ARCHIVE": f"docker-archive:{path}:{name}"}
        subprocess.run(words, cwd=ROOT, env=environment, check=True)
        return path


class _Program(HostProcess):
    """A program of a node."""

    own_group = True

    def __init__(self, node: "Node", name: str, words: Sequence[object]) -> None:
        super().__init__(node.host, node.folder, name)
        self._node = node
        self._words = [str(word) for word in words]

    def words(self) -> list[str]:
        """In the mounts of the node, once it has some."""
        return [*self._node.mounts(), *self._words]

    def environment(self) -> dict[str, str]:
        """With the shim and runc on the path."""
        return {**os.environ, "PATH": f"{BINARIES.resolve()}:{os.environ.get('PATH', os.defpath)}"}


class Node:
    """A machine from `start` to `stop`; `die` is a crash of all that runs on it."""

    def __init__(self, host: Host, folder: Path, plane: ControlPlane) -> None:
        self.host = host
        self.name = host.name
        self.folder = folder / f"{host.name}-machine"
        self.address = f"{MANAGEMENT}.{host.address.packed[-1]}"
        self._plane = plane
        self._socket = self.folder / "containerd.sock"
        self._holder = _Program(self, "mounts", ["unshare", "--mount", "--propagation", "private", "sh", "-c", _HOLD])
        self._containerd = _Program(self, "containerd", [BINARIES / "containerd", "--config", self._file("containerd")])
        self._kubelet = _Program(self, "kubelet", [BINARIES / "kubelet", *self._flags()])

    def mounts(self) -> list[str]:
        """The start of a command line that sees the node's mounts."""
        pid = self._holder.pid
        return ["nsenter", f"--mount=/proc/{pid}/ns/mnt"] if pid else []

    def start(self, *archives: Path) -> None:
        """Mounts, container runtime, images, kubelet; it registers itself."""
        self.folder.mkdir(exist_ok=True)
        self._configure()
        self._begin()
        for archive in archives:
            assert self._ctr("images", "import", archive), (self.folder / "ctr.log").read_text(encoding="utf-8")
        self._kubelet.start()

    def boot(self) -> None:
        """After `die`: what was in the kernel and in /run is gone, what was on the disk is there."""
        self._holder.kill(signal.SIGKILL)
        shutil.rmtree(self.folder / "containerd-state", ignore_errors=True)
        self._begin()
        self._kubelet.start()

    def _begin(self) -> None:
        self._holder.start()
        self._holder.wait_for("held", _START_S)
        self._containerd.start()
        until(lambda: self._ctr("version"), _START_S, f"containerd of {self.name} answers")

    def stop(self) -> None:
        """Ends all, and takes the mounts with it."""
        self.die()
        self._holder.kill(signal.SIGKILL)

    def die(self) -> None:
        """Ends all that runs here at once, agents included; what is in the kernel and on the disk stays."""
        for program in (self._kubelet, self._containerd):
            program.kill(signal.SIGKILL)

        def others() -> list[int]:
            return [pid for pid in self.pids() if pid != self._holder.pid]

        for pid in others():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not others(), _END_S, f"all that ran on {self.name} has ended")

    def agents(self) -> list[int]:
        """The agents that run here."""
        found = []
        for pid in self.pids():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"agent" in words and any(word.endswith(b"/arpguard") for word in words):
                    found.append(pid)
        return found

    def pids(self) -> list[int]:
        """What runs in the node's network namespace: its programs, shims and containers."""
        own = os.stat(self.host.netns.path).st_ino
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with suppress(OSError):
                if path.stat().st_ino == own:
                    found.append(int(path.parts[2]))
        return found

    def pins(self) -> list[str]:
        """What is pinned in its BPF file system."""
        words = [*self.mounts(), "find", "/sys/fs/bpf", "-mindepth", "1"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def run(self, *words: object) -> str:
        """What a command says that runs on the node."""
        command = [*self.host.netns.prefix(), *self.mounts(), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def _ctr(self, *words: object) -> bool:
        command = [BINARIES / "ctr", "--address", self._socket, "--namespace", "k8s.io", *words]
        with (self.folder / "ctr.log").open("ab") as log:
            done = subprocess.run(
                [*self.mounts(), *map(str, command)],
                stdout=log,
                stderr=log,
                check=False,
                env=self._kubelet.environment(),
            )
        return done.returncode == 0

    # ---- its files ----

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def _flags(self) -> list[str]:
        return [
            f"--config={self._file('kubelet')}",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--cert-dir={self.folder / 'certificates'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]

    def _configure(self) -> None:
        user = f"node-{self.name}"
        self._plane.certify(user, f"/O=system:nodes/CN=system:node:{self.name}")
        self._plane.write_kubeconfig(self.folder / "kubeconfig", user)
        networks = self.folder / "networks"
        networks.mkdir(exist_ok=True)
        (networks / "10-none.conf").write_text('{"cniVersion": "1.0.0", "name": "none", "type": "loopback"}\n')
        self._file("containerd").write_text(self._of_containerd(networks), encoding="utf-8")
        self._file("kubelet").write_text(yaml.safe_dump(self._of_kubelet()), encoding="utf-8")

    def _of_containerd(self, networks: Path) -> str:
        return f"""
version = 3
root = "{self.folder}/containerd"
state = "{self.folder}/containerd-state"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE nothing may be less likely to be ended than this
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{_CNI}"]
conf_dir = "{networks}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{BINARIES.resolve()}/runc"
SystemdCgroup = false
"""

    def _of_kubelet(self) -> dict[str, object]:
        nothing = dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
        )
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,  # of several kubelets on one machine each would tend the same cgroups
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "evictionHard": nothing,
            "imageGCHighThresholdPercent": 100,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self.folder / "logs"),
            "volumePluginDir": str(self.folder / "plugins"),
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self._plane.folder / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
        }
