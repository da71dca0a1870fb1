"""The DaemonSet's container by an OCI runtime (crun), with all that its manifest says of privileges: capabilities, a
read-only root, mounts, seccomp. Instead of an image its root is this machine's, where the code under test is.
"""

import functools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from arpguard_lab.topology import AgentProcess, Host
from support.kube.manifests import objects_in, one
from support.required import do_without

_PROFILE = Path("/usr/share/containers/seccomp.json")  # the default of podman and CRI-O, of containers-common
# The runtime specification's, as containerd and CRI-O set them.
_MASKED = ["/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi", "/sys/firmware"]
_READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
# crun refuses machines that have both kinds of cgroups, also where it is to use none; and a root that is its own.
_PREPARE = """
if mountpoint -q /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi
mount --rbind / "$1" && shift && exec "$@"
"""


def pod(folder: str = "base", name: str = "arpguard") -> dict[str, Any]:
    """The Pod of a DaemonSet."""
    return one(objects_in(f"{folder}/daemonset.yaml"), "DaemonSet", name)["spec"]["template"]["spec"]


def shipped() -> list[str]:
    """The capabilities of its container."""
    (container,) = pod()["containers"]
    assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
    return container["securityContext"]["capabilities"]["add"]


@functools.cache
def runtime_default(*, knows_cap_bpf: bool) -> dict[str, Any]:
    """A container runtime's default profile, and who may call bpf(2) by it.

    Whoever has CAP_BPF since 2022 (containerd) or 2024 (CRI-O); before, and with Debian 12's, CAP_SYS_ADMIN.
    """
    if not _PROFILE.exists():
        do_without("crun", f"{_PROFILE} is missing: apt-get install golang-github-containers-common")
    profile = json.loads(_PROFILE.read_text(encoding="utf-8"))
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != "bpf"]
    who = {"caps": ["CAP_BPF" if knows_cap_bpf else "CAP_SYS_ADMIN"]}
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": who})
    profile["syscalls"].append({"names": ["bpf"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "excludes": who})
    return profile


def _filter_of(profile: dict[str, Any], capabilities: list[str]) -> dict[str, Any]:
    """`linux.seccomp` of the runtime specification: those rules of a profile that are for a container like this."""
    rules = [rule for rule in profile["syscalls"] if _is_for(rule, set(capabilities))]
    machine = f"SCMP_ARCH_{platform.machine().upper()}"
    (own,) = [each for each in profile["archMap"] if each["architecture"] == machine]
    keep = ("names", "action", "args", "errnoRet")
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": [own["architecture"], *own["subArchitectures"]],
        "syscalls": [{name: rule[name] for name in keep if rule.get(name) is not None} for rule in rules],
    }


def _is_for(rule: dict[str, Any], capabilities: set[str]) -> bool:
    wants, shuns = rule.get("includes", {}), rule.get("excludes", {})
    arches = wants.get("arches")
    return (
        set(wants.get("caps", ())) <= capabilities
        and not set(shuns.get("caps", ())) & capabilities
        and (arches is None or {"x86_64": "amd64"}.get(platform.machine(), platform.machine()) in arches)
    )


class Container(AgentProcess):
    """An agent in a container; it is not privileged, and sees its own folders and the BPF file system beside root's."""

    def __init__(self, host: Host, folder: Path, pin_dir: Path, **changes: Any) -> None:
        """`changes`: another `container` of a manifest; `capabilities` instead of its own; `seccomp`, a profile."""
        super().__init__(host, folder, pin_dir)
        if shutil.which("crun") is None:
            do_without("crun", "it is not installed")
        self._container: dict[str, Any] = changes.get("container", pod()["containers"][0])
        context = self._container["securityContext"]
        self._capabilities: list[str] = changes.get("capabilities", context["capabilities"]["add"])
        self._seccomp: dict[str, Any] | None = changes.get("seccomp")
        self._bundle = folder / "bundle"
        self.early = folder / "early"
        for name in ("etc", "run", "early"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self.config = folder / "etc/config.yaml"
        self.api = f"unix://{folder / 'run/agent.sock'}"

    def words(self) -> list[str]:
        return self._run(self._bundle, super().words())

    def execute(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command of the command line in a container like it, as `kubectl exec` does."""
        prefix = self.host.netns.prefix()
        words = self._run(self._bundle.with_name("bundle-2"), [sys.executable, "-m", "arpguard", *words])
        return subprocess.run([*prefix, *words], capture_output=True, text=True, check=False, env=self.environment())

    def _run(self, bundle: Path, args: list[str]) -> list[str]:
        root = bundle / "root"
        root.mkdir(parents=True, exist_ok=True)
        (bundle / "config.json").write_text(json.dumps(self._specification(args)), encoding="utf-8")
        crun = ["crun", "--cgroup-manager=disabled", f"--root={bundle / 'state'}", "run", f"--bundle={bundle}"]
        crun += [f"--pid-file={bundle / 'pid'}", f"{bundle.parent.name}-{bundle.name}-{os.getpid()}"]
        return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PREPARE, "sh", str(root), *crun]

    @property
    def inside(self) -> int:
        """The agent's process, as seen from here."""
        return int((self._bundle / "pid").read_text(encoding="ascii"))

    def send(self, number: signal.Signals) -> None:
        """To the agent; the runtime, which waits for it, passes none on."""
        if self.pid is not None and (self._bundle / "pid").exists():
            os.kill(self.inside, number)

    def _specification(self, args: list[str]) -> dict[str, Any]:
        context = self._container["securityContext"]
        capabilities = [f"CAP_{name}" for name in self._capabilities]
        kinds = ("bounding", "permitted", "effective")
        linux: dict[str, Any] = {
            "namespaces": [{"type": kind} for kind in ("mount", "pid", "ipc", "uts")],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        }
        if self._seccomp is not None:
            linux["seccomp"] = _filter_of(self._seccomp, capabilities)
        return {
            "ociVersion": "1.0.2",
            "root": {"path": "root", "readonly": context["readOnlyRootFilesystem"]},
            "process": {
                "user": {"uid": context["runAsUser"], "gid": context["runAsGroup"]},
                "args": args,
                "env": [f"{name}={value}" for name, value in self.environment().items()],
                "cwd": "/",
                "noNewPrivileges": not context["allowPrivilegeEscalation"],
                "capabilities": dict.fromkeys(kinds, capabilities),
            },
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                _bound("/sys", "ro"),
                *(_bound(*self._mount(each)) for each in self._container["volumeMounts"]),
            ],
            "linux": linux,
        }

    def _mount(self, wanted: dict[str, Any]) -> tuple[str, str]:
        """Where the manifest's mounts are here: two agents on one machine cannot share a folder."""
        folders = {
            "bpf": "/sys/fs/bpf",
            "config": str(self.config.parent),
            "run": str(self._bundle.parent / "run"),
            "early": str(self.early),
        }
        return folders[wanted["name"]], "ro" if wanted.get("readOnly") else "rw"


def _bound(path: str, access: str) -> dict[str, Any]:
    return {"destination": path, "type": "bind", "source": path, "options": ["rbind", access]}
