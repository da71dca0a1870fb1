"""Builds the real neighbours from the Go module proxy: a control plane, kubelet and containerd, MetalLB, kube-vip.

    PYTHONPATH=tests python -m neighbours.build .cache/neighbours/bin [--only kubernetes]

What is there is not built again; Go's own cache keeps the rest, for all checkouts on a machine.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from neighbours.versions import CONTAINERD, FRR_K8S, KUBE_VIP, KUBERNETES, METALLB, STUBBED

HERE = Path(__file__).parent
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl", "etcd")
# The one that is fixed for this project, which the Makefile installs; then where Go's own packages install it.
OWN_GO, _GO_HOME = str(HERE.parents[1] / ".cache" / "go" / "bin"), "/usr/local/go/bin"
# Kubernetes names its staging modules by their paths in its own repository; outside they are v0.<minor>.<patch>.
_STAGING = re.compile(r"(\S+) => \./staging/src/\S+")
_STRIPPED = "-s -w"
_METALLB = "go.universe.tf/metallb"
_FRR_K8S = "github.com/metallb/frr-k8s"
_FRR_TYPES = "api/v1beta1/frrconfiguration_types.go"
# The types that newer versions of it have, by the fields that MetalLB uses; they are for BGP, which does not run here.
_ADVERTISE = "type Advertise struct {\n"
_NEW_FIELD = "\tPrefixesWithAsPathPrepend []AsPathPrependPrefixes\n"
_NEW_TYPE = "\ntype AsPathPrependPrefixes struct {\n\tAsPathPrepend uint8\n\tPrefixes []string\n}\n"


def main() -> None:
    """Builds what is missing; nothing where Go is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("into", type=Path)
    parser.add_argument("--only", choices=["kubernetes"])
    asked = parser.parse_args()
    into = asked.into.absolute()
    go = find_go()
    if go is None:
        print("neighbours: nothing is built, because Go is not installed (https://go.dev/dl)")
        return
    into.mkdir(parents=True, exist_ok=True)
    build_kubernetes(go, into)
    if not asked.only:
        build_others(go, into)


def build_others(go: str, into: Path) -> None:
    """Builds the announcers, and what runs containers."""
    for version in METALLB:
        module = f"{_METALLB}@v{version}"
        for program in ("speaker", "controller"):
            install(go, module, f"/{program}", into / f"metallb-{program}-{version}")
        copy(go, module, "config/manifests/metallb-native.yaml", into / f"metallb-{version}.yaml")
    install(go, f"github.com/kube-vip/kube-vip@v{KUBE_VIP}", "", into / f"kube-vip-{KUBE_VIP}")
    for program in ("containerd", "containerd-shim-runc-v2", "ctr"):
        install(go, f"github.com/containerd/containerd/v2@v{CONTAINERD}", f"/cmd/{program}", into / program)
    unpack("runc", "usr/sbin/runc", into / "runc")


def unpack(package: str, path: str, file: Path) -> None:
    """Takes a file out of a Debian package, which is not installed."""
    if file.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        extract(package, Path(folder))
        shutil.copy(Path(folder) / path, file)


def extract(package: str, into: Path) -> None:
    """Downloads a Debian package and extracts it into an empty folder."""
    download = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", package]
    subprocess.run(download, cwd=into, check=True)
    (archive,) = into.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", archive, into], check=True)
    archive.unlink()


def find_go() -> str | None:
    """The go command: the project's own before any other, which may be too old."""
    return shutil.which("go", path=os.pathsep.join((OWN_GO, os.environ.get("PATH", os.defpath), _GO_HOME)))


def install(go: str, module: str, package: str, binary: Path) -> None:
    """Builds a main package of a module, with the dependencies that the module names, as they are in its go.sum."""
    if not binary.exists():
        _build(go, module, module.partition("@")[0] + package, binary, _STRIPPED)


def copy(go: str, module: str, path: str, file: Path) -> None:
    """Copies a file of a module."""
    if not file.exists():
        shutil.copyfile(_source(go, module) / path, file)


def build_kubernetes(go: str, into: Path) -> None:
    """Builds the control plane and the kubelet as one binary with several names."""
    binary = into / f"kubernetes-{KUBERNETES}"
    if not binary.exists():
        _build(go, f"k8s.io/kubernetes@v{KUBERNETES}", ".", binary, f"{_STRIPPED} {_version_flags()}")
    for program in PROGRAMS:
        link = into / program
        link.unlink(missing_ok=True)
        link.symlink_to(binary.name)


def _build(go: str, module: str, package: str, binary: Path, flags: str) -> None:
    """In a module around the other one, whose own go.mod and go.sum decide: `go install` would not look at either."""
    print(f"neighbours: building {binary.name}", flush=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as temporary:
        folder = Path(temporary)
        _write_module(go, module, folder)
        if package == ".":
            shutil.copy(HERE / "kubernetes" / "main.go", folder)
        words = [go, "-C", temporary, "build", "-mod=mod", "-trimpath", f"-ldflags={flags}", "-o", "built", package]
        _run(words)
        (folder / "built").replace(binary)


def _write_module(go: str, module: str, folder: Path) -> None:
    source, (path, version) = _source(go, module), module.split("@")
    text = (source / "go.mod").read_text(encoding="utf-8")
    text = text.replace(f"module {path}", "module neighbours", 1)
    text = _STAGING.sub(rf"\1 => \1 v0.{KUBERNETES.partition('.')[2]}", text)
    text = f"{text}\nrequire {path} {version}\n"
    if path == _METALLB and version.removeprefix("v") in STUBBED:
        stub_frr_k8s(_source(go, f"{_FRR_K8S}@v{FRR_K8S}"), folder / "frr-k8s")
        text += f"replace {_FRR_K8S} => ./frr-k8s\n"
    (folder / "go.mod").write_text(text, encoding="utf-8")
    (folder / "go.sum").write_bytes((source / "go.sum").read_bytes())


def stub_frr_k8s(source: Path, into: Path) -> None:
    """Copies frr-k8s and adds the types that it lacks."""
    shutil.copytree(source, into)
    subprocess.run(["chmod", "-R", "u+w", into], check=True)  # Go's cache is read-only
    types = into / _FRR_TYPES
    before, head, after = types.read_text(encoding="utf-8").partition(_ADVERTISE)
    if not head:
        raise ValueError(f"{types} has no {_ADVERTISE!r}")
    types.write_text(f"{before}{head}{_NEW_FIELD}{after}{_NEW_TYPE}", encoding="utf-8")


def _source(go: str, module: str) -> Path:
    done = _run([go, "mod", "download", "-json", module], stdout=subprocess.PIPE)
    return Path(json.loads(done.stdout)["Dir"])


def _version_flags() -> str:
    """What kube-apiserver says of itself, as its own build sets it."""
    major, minor, _ = KUBERNETES.split(".")
    said = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={text}" for name, text in said.items())


def _run(words: list[str], stdout: int | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs Go without cgo: the binaries run on any Linux."""
    return subprocess.run(words, env={**os.environ, "CGO_ENABLED": "0"}, stdout=stdout, check=True, text=True)


if __name__ == "__main__":
    main()
