"""A real control plane: etcd, kube-apiserver with TLS and RBAC, kube-controller-manager, and kube-scheduler if wanted.

    PYTHONPATH=tests python -m neighbours.controlplane FOLDER [--scheduler]

starts one at 127.0.0.1:6443 until Ctrl-C; FOLDER/admin.kubeconfig is its administrator's.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import yaml

from arpguard_lab.cluster.kubeapi import KubeApi, connect_directly, inlined
from arpguard_lab.netns import Netns
from arpguard_lab.topology import HostProcess

BINARIES = Path(__file__).parents[2] / ".cache" / "neighbours" / "bin"
SERVICE_NETWORK = "10.96.0.0/16"
SERVER_S = 600.0  # on few cores that do other things, too
_TOKEN = "24h"
_DAYS = "30"


class Here:
    """The namespace of this program, where there is no other."""

    def prefix(self) -> list[str]:
        return []

    def call(self, function: Callable[[], Any]) -> Any:
        return function()


class Program(HostProcess):
    """One of the programs, by its command line."""

    own_group = True  # Ctrl-C in a terminal is for this program alone

    def __init__(self, place: Netns | Here, folder: Path, name: str, words: Sequence[object]) -> None:
        super().__init__(SimpleNamespace(name="control-plane", netns=place), folder, name)
        self._words = [str(word) for word in words]

    def words(self) -> list[str]:
        return self._words


class ControlPlane:
    """The programs from `start` to `stop`; `admin` is the administrator's kubeconfig, `api` what asks with it."""

    def __init__(
        self,
        folder: Path,
        address: str = "127.0.0.1",
        place: Netns | Here | None = None,
        port: int = 6443,
        *,
        scheduler: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """`place`: the namespace that they run in, of which `address` is an address. `options`: more of the server."""
        self.folder = folder
        self.address = address
        self.port = port
        self.admin = folder / "admin.kubeconfig"
        self._data = folder / "etcd"
        self.api: KubeApi
        self.place = place or Here()
        self._certificates = _Certificates(folder)
        self._etcd_port, peer_port = self.place.call(_two_ports)
        self._programs = [self._etcd(peer_port), self._apiserver(options), self._controllers()]
        if scheduler:
            self._programs.append(self._scheduler())

    @property
    def server(self) -> str:
        """Its URL."""
        return f"https://{self.address}:{self.port}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts all, and returns once the server is ready and accounts are made in new namespaces."""
        self._certificates.make(self.address)
        self.write_kubeconfig(self.admin, "admin")
        for user in ("kube-controller-manager", "kube-scheduler"):
            self.write_kubeconfig(self.folder / f"{user}.kubeconfig", user)
        etcd, server, *others = self._programs
        etcd.start()
        server.start()
        document = yaml.safe_load(self.admin.read_text(encoding="utf-8"))
        self.api = KubeApi(document, lambda address: self.place.call(lambda: connect_directly(address)))
        self.wait_until_ready()
        for program in others:
            program.start()
        self._wait(lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"), others)

    def stop(self) -> None:
        """Ends all; nothing of theirs is needed any more, so by force."""
        for program in reversed(self._programs):
            program.kill(signal.SIGKILL)

    def go_down(self) -> None:
        """Ends the server and etcd; what etcd has stays."""
        for program in reversed(self._programs[:2]):
            program.kill(signal.SIGKILL)

    def come_back(self) -> None:
        """The end of `go_down`: returns once the server is ready."""
        for program in self._programs[:2]:
            program.start()
        self.wait_until_ready()

    def back_up(self, into: Path) -> None:
        """Copies what etcd has into a new folder; the server is away meanwhile."""
        self.go_down()
        shutil.copytree(self._data, into)
        self.come_back()

    def restore(self, backup: Path) -> None:
        """Puts a backup in place of what etcd has, and starts both again."""
        self.go_down()
        shutil.rmtree(self._data)
        shutil.copytree(backup, self._data)
        self.come_back()

    def wait_until_ready(self) -> None:
        """Returns once the server says that it is ready."""
        self._wait(lambda: self.kubectl("get", "--raw", "/readyz"), self._programs[:2])

    def _wait(self, attempt: Callable[[], object], programs: Sequence[HostProcess]) -> None:
        deadline = time.monotonic() + SERVER_S
        while True:
            try:
                attempt()
            except (OSError, RuntimeError, Exception) as error:
                ended = next((program for program in programs if program.has_failed), None)
                if ended is not None or time.monotonic() > deadline:
                    log = (ended or programs[-1]).log
                    raise RuntimeError(f"the control plane did not start ({error}): {log}") from error
                time.sleep(0.2)
            else:
                return

    # ---- using it ----

    def kubectl(self, *words: object, text: str | None = None, kubeconfig: Path | None = None) -> str:
        """What kubectl says, as the administrator or somebody else; RuntimeError with its message when it fails."""
        command = [*self.place.prefix(), BINARIES / "kubectl", f"--kubeconfig={kubeconfig or self.admin}", *words]
        environment = {**os.environ, "HOME": str(self.folder)}
        done = subprocess.run(
            [str(word) for word in command], input=text, capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def raw(self, path: str) -> "subprocess.Popen[str]":
        """What the server answers to GET, as kubectl prints it meanwhile."""
        command = [*self.place.prefix(), BINARIES / "kubectl", f"--kubeconfig={self.admin}", "get", "--raw", path]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)

    def apply(self, *documents: Mapping[str, Any]) -> None:
        """Applies objects on the server's side, so that large CustomResourceDefinitions fit."""
        text = yaml.safe_dump_all(documents)
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    def write_account(self, path: Path, namespace: str, account: str) -> Path:
        """Writes a kubeconfig of a ServiceAccount, with a token of the server's."""
        token = self.kubectl("-n", namespace, "create", "token", account, f"--duration={_TOKEN}").strip()
        return self._write(path, {"token": token})

    def write_kubeconfig(self, path: Path, user: str) -> Path:
        """Writes a kubeconfig of a client certificate: of `admin`, a component, or one that `certify` made."""
        pair = {"client-certificate": f"{user}.crt", "client-key": f"{user}.key"}
        return self._write(path, inlined(pair, self.folder))

    def certify(self, name: str, subject: str) -> None:
        """Makes a client certificate, with a subject as `/O=system:nodes/CN=system:node:a`."""
        self._certificates.client(name, subject)

    def _write(self, path: Path, user: dict[str, str]) -> Path:
        cluster = inlined({"certificate-authority": "ca.crt"}, self.folder)
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server, **cluster}}],
            "users": [{"name": "c", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    # ---- what it is made of ----

    def _program(self, name: str, *words: object) -> Program:
        return Program(self.place, self.folder, name, [BINARIES / name, *words])

    def _etcd(self, peer_port: int) -> Program:
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peer_port}"
        return self._program(
            "etcd",
            f"--data-dir={self._data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # what it holds does not outlive the test
        )

    def _apiserver(self, options: Sequence[str]) -> Program:
        at = self.folder
        return self._program(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--bind-address={self.address}",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            "--endpoint-reconciler-type=none",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-cluster-ip-range={SERVICE_NETWORK}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={at / 'accounts.key'}",
            f"--service-account-key-file={at / 'accounts.key'}",
            f"--client-ca-file={at / 'ca.crt'}",
            f"--tls-cert-file={at / 'server.crt'}",
            f"--tls-private-key-file={at / 'server.key'}",
            f"--kubelet-client-certificate={at / 'admin.crt'}",
            f"--kubelet-client-key={at / 'admin.key'}",
            f"--requestheader-client-ca-file={at / 'ca.crt'}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={at / 'front-proxy.crt'}",
            f"--proxy-client-key-file={at / 'front-proxy.key'}",
            *options,
        )

    def _controllers(self) -> Program:
        at = self.folder
        return self._program(
            "kube-controller-manager",
            f"--kubeconfig={at / 'kube-controller-manager.kubeconfig'}",
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={at / 'accounts.key'}",
            f"--root-ca-file={at / 'ca.crt'}",
            f"--cluster-signing-cert-file={at / 'ca.crt'}",
            f"--cluster-signing-key-file={at / 'ca.key'}",
        )

    def _scheduler(self) -> Program:
        kubeconfig = self.folder / "kube-scheduler.kubeconfig"
        return self._program("kube-scheduler", f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")


class _Certificates:
    """An authority and what it signs, by openssl(1), in one folder: NAME.crt, NAME.key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, address: str) -> None:
        self._openssl("req", "-x509", *self._key("ca"), "-out", "ca.crt", "-subj", "/CN=neighbours", "-days", _DAYS)
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
        alternatives = [*(f"DNS:{name}" for name in names), f"IP:{address}", "IP:127.0.0.1", "IP:10.96.0.1"]
        self._sign("server", "/CN=kube-apiserver", f"subjectAltName={','.join(dict.fromkeys(alternatives))}")
        self.client("admin", "/O=system:masters/CN=admin")
        self.client("front-proxy", "/CN=front-proxy")
        for component in ("kube-controller-manager", "kube-scheduler"):
            self.client(component, f"/CN=system:{component}")
        self._openssl("genrsa", "-out", "accounts.key", "2048")

    def client(self, name: str, subject: str) -> None:
        self._sign(name, subject, "extendedKeyUsage=clientAuth")

    def _sign(self, name: str, subject: str, extension: str) -> None:
        self._openssl("req", *self._key(name), "-out", f"{name}.csr", "-subj", subject, "-addext", extension)
        signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS, "-copy_extensions", "copy"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")

    def _key(self, name: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True, timeout=60)


def _two_ports() -> tuple[int, int]:
    """Ports of loopback that nobody has now."""
    with closing(socket.socket()) as one, closing(socket.socket()) as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def missing() -> str | None:
    """Why there can be no control plane; None where there can."""
    lacking = [name for name in ("etcd", "kube-apiserver", "kubectl") if not (BINARIES / name).exists()]
    if lacking:
        return f"{', '.join(lacking)} not built: make neighbours (needs Go)"
    return None if shutil.which("openssl") else "openssl is missing"


def versions(api: KubeApi) -> str:
    """What the server says of itself."""
    return str(api.get("/version")["gitVersion"])


def main() -> int:
    """Runs one until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scheduler", action="store_true")
    parser.add_argument("--port", type=int, default=6443)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with ControlPlane(asked.folder.absolute(), port=asked.port, scheduler=asked.scheduler) as plane:
        print(f"Kubernetes {versions(plane.api)} at {plane.server}; KUBECONFIG={plane.admin}", flush=True)
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
