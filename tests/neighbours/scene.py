"""The lab's nodes on a real control plane, with agents as `deploy/base` sets them up, and one kind of announcer."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from arpguard.dataplane import bpffs
from arpguard.errors import ArpguardError
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import OFF, KubeBench, Watch, now_ns
from arpguard_lab.cluster.kubeapi import KubeApi
from arpguard_lab.cluster.servers import ApiUnderTest, Fault
from arpguard_lab.cluster.topology import API_ADDRESS, KubeLab
from arpguard_lab.topology import Host
from neighbours.announcers import RANGES, SHOP, Kind, node_of
from neighbours.controlplane import ControlPlane

NODES = 3
HOME = "arpguard"  # the namespace of deploy/base
_DEPLOY = Path(__file__).parents[2] / "deploy"
READY_S = 600.0  # three agents load at once, on a machine that may have much else to do
_HEARTBEAT_S = 5.0
_TEND_S = 0.005
_STEADY_S = 6.0


class Given(ApiUnderTest):
    """A control plane that somebody else looks after."""

    def __init__(self, lab: KubeLab, api: KubeApi) -> None:
        super().__init__(lab, HOME)
        self.api = api

    def node_name(self, host: Host) -> str:
        return node_of(host)

    def start(self) -> None:
        """Nothing: it runs."""

    def stop(self) -> None:
        """Nothing: it ends after the lab."""

    def go_down(self) -> None:
        raise NotImplementedError

    def come_back(self) -> None:
        raise NotImplementedError

    def trouble(self, host: Host, fault: Fault | None) -> None:
        raise NotImplementedError


def manifests(plane: ControlPlane, folder: Path, components: Sequence[str] = ()) -> list[dict]:
    """What `deploy/base` installs, by a kustomization in a folder, as an operator's own; without the DaemonSet."""
    install = folder / "install"
    install.mkdir(exist_ok=True)
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(_DEPLOY / "base", install)],
        "components": [os.path.relpath(_DEPLOY / "components" / name, install) for name in components],
    }
    (install / "kustomization.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    found = yaml.safe_load_all(plane.kubectl("kustomize", install))
    return [each for each in found if each and each["kind"] != "DaemonSet"]


class Server(Given):
    """A control plane in the lab, with what `deploy/base` installs but the DaemonSet: the lab starts the agents."""

    def __init__(self, lab: KubeLab, plane: ControlPlane) -> None:
        super().__init__(lab, plane.api)
        self.plane = plane
        self.components: Sequence[str] = ()

    def start(self) -> None:
        installed = manifests(self.plane, self.lab.folder, self.components)
        self.plane.apply(objects.namespace(SHOP), *installed)
        for host in self.lab.nodes:
            path = self.lab.folder / f"{host.name}-agent.kubeconfig"
            self.lab.guards[host.name].kubeconfig = self.plane.write_account(path, HOME, objects.ACCOUNT)


class Kubelets:
    """What kubelets say of their nodes: a heartbeat each, until a node is dead."""

    def __init__(self, bench: KubeBench) -> None:
        self._bench = bench
        self.alive = {node_of(host) for host in bench.nodes}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def start(self) -> None:
        for host in self._bench.nodes:
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node_of(host)}}
            self._bench.server.api.create(_NODE_LEASES, {**body, "spec": self._spec(node_of(host))})
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_HEARTBEAT_S):
            for name in sorted(self.alive):
                with suppress(OSError, ArpguardError):
                    self._bench.server.api.patch(f"{_NODE_LEASES}/{name}", {"spec": self._spec(name)})

    def _spec(self, name: str) -> dict:
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        return {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}


_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Street(KubeBench):
    """One kind of announcer and the guard on the same nodes."""

    def __init__(self, lab: KubeLab, server: Server, kind: Kind) -> None:
        super().__init__(lab, server, kind.name)
        self.kind = kind
        self.edits_ns: list[int] = []
        self.kubelets = Kubelets(self)
        self._owner: Host | None = None

    def config(self, mode: str = "enforce", extra: str = "", interfaces: str = "[eth0]", ranges: str = RANGES) -> str:
        lines = [f"mode: {mode}", f"interfaces: {interfaces}", f"ranges: {ranges}", "services: {owner: elect}", extra]
        lines += [f"lease: {{{OFF}}}"]
        return "\n".join(lines)

    def set_up(self) -> None:
        api = self.server.api
        for host in self.nodes:
            api.create("/api/v1/nodes", objects.node(node_of(host), host.address))
        self.kubelets.start()
        self.configure(self.config())
        for host in self.nodes:
            self.prepare(host)
            self.agent(host).forget_entries()
            self.agent(host).start()
        for host in self.nodes:
            self.agent(host).wait_for(timeout_s=READY_S)

    def tear_down(self) -> None:
        self.kubelets.stop()
        self.kind.stop()
        super().tear_down()

    def tend(self) -> None:
        """What a kubelet does for announcers that ended, and an operator for a configuration that names the owner."""
        self.kind.tend()
        owner = self.kind.owner()
        if owner is not self._owner:
            self._owner = owner
            self.edits_ns.append(now_ns())
            self.configure(self.config(extra=self.kind.configuration(owner)))

    def go_on(self, watch: Watch, seconds: float) -> None:
        """Lets time pass, and looks after what runs."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tend()
            watch.poll()
            time.sleep(_TEND_S)

    def tend_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Whether a condition comes true in time, with all looked after."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.tend()
            time.sleep(0.1)
        return True

    def announcing(self) -> Host | None:
        """The node that answers for both VIPs, if one alone does."""
        found = self.who(*self.kind.vips)
        guarded, *others = ({self.host_of(mac) for mac in found[vip]} for vip in self.kind.vips)
        return next(iter(guarded)) if len(guarded) == 1 and all(each == guarded for each in others) else None

    def settled(self, seconds: float) -> Host | None:
        """The node that comes to answer for both VIPs in time, alone, and stays the one for a while.

        An announcer that is back takes its VIPs back some seconds later.
        """
        owner, since = None, time.monotonic()

        def is_settled() -> bool:
            nonlocal owner, since
            if (found := self.announcing()) is not owner:
                owner, since = found, time.monotonic()
            return owner is not None and time.monotonic() - since > _STEADY_S

        return owner if self.tend_until(is_settled, seconds) else None


def end_by_signals() -> None:
    """Lets SIGTERM and SIGINT take away what was made, also where a shell started this in the background."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)


@contextmanager
def pins() -> Iterator[Path]:
    """A place for what agents pin: one after the other finds the programs loaded."""
    pin_root = Path(f"/sys/fs/bpf/arpguard-neighbours-{os.getpid()}")
    bpffs.prepare(pin_root)
    try:
        yield pin_root
    finally:
        bpffs.remove(pin_root)


@contextmanager
def a_control_plane(
    folder: Path, pin_root: Path, options: Sequence[str] = ()
) -> Iterator[tuple[KubeLab, ControlPlane]]:
    """The lab's network with a control plane in it, and no nodes in the API; `options`: of kube-apiserver."""
    plane_folder = folder / "plane"
    plane_folder.mkdir(parents=True)
    with (
        KubeLab(NODES, folder, pin_root) as lab,
        ControlPlane(plane_folder, API_ADDRESS, lab.api, options=options) as plane,
    ):
        yield lab, plane


@contextmanager
def a_street_alone(make: Callable[[ControlPlane, Sequence[Host]], Kind]) -> Iterator[Street]:
    """`a_street` for a program that has no other, with a folder and pins that go with it."""
    with (
        tempfile.TemporaryDirectory(prefix="arpguard-street-") as folder,
        pins() as pin_root,
        a_street(Path(folder), pin_root, make) as street,
    ):
        yield street


@contextmanager
def a_street(folder: Path, pin_root: Path, make: Callable[[ControlPlane, Sequence[Host]], Kind]) -> Iterator[Street]:
    """Nodes with agents and announcers, both VIPs announced."""
    with a_control_plane(folder, pin_root) as (lab, plane):
        kind = make(plane, lab.nodes)
        kind.install()
        server = Server(lab, plane)
        server.components = kind.components
        server.start()
        street = Street(lab, server, kind)
        try:
            street.set_up()
            kind.publish()
            for host in lab.nodes:
                kind.start(host)
            yield street
        finally:
            street.tear_down()
