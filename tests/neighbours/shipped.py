"""The install as it is shipped, on real kubelets: what operators do with it, and who answered meanwhile.

    PYTHONPATH=tests python -m neighbours.shipped [--write docs/neighbours.md]

Two nodes, each with kubelet, containerd and runc, and the image that `make image-build` made; `deploy/base` by
`kubectl apply -k`, in a kustomization as deploy/README.md shows it. VIPs are bound on every node.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from arpguard.errors import ArpguardError
from arpguard_lab.asking import FEW_ADDRESSES
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.cluster.topology import API_ADDRESS, API_PORT, KubeLab
from neighbours import kubelets
from neighbours.controlplane import ControlPlane
from neighbours.controlplane import missing as control_plane_missing
from neighbours.kubelets import Images, Node
from neighbours.pages import replace_table, surroundings
from neighbours.scene import Server

NODES = 2
HOME, NAME, SHOP = "arpguard", "arpguard", "shop"
VIPS = [vip(50), vip(51), vip(52), vip(53)]
DELEGATED = vip(60)  # the first node's kernel answers for it, with the guard and without
NO_SUCH_IMAGE = "localhost/arpguard:not-there"
SILENCE_MS = 1500  # of a rolling update whose image is not there, at most
_PINS = f"/sys/fs/bpf/{NAME}"
_READY_S, _ROLLOUT_S, _GONE_S = 600.0, 600.0, 300.0
REMOVED_S = 30.0  # by then no guard is left, counted from the end of the operator's command
_AFTER_S = 3.0
_BAD_IMAGE_S = 45.0
_INTERVAL_S = 0.005
_SERVER_OPTIONS = ("--kubelet-preferred-address-types=InternalIP",)  # no name service knows the nodes
_DEPLOY = Path(__file__).parents[2] / "deploy"
_BASE, _CLEANUP = _DEPLOY / "base", _DEPLOY / "cleanup"


@dataclass(frozen=True)
class Row:
    """A step, what is expected, what was found, and whether that is right."""

    done: str
    has_to: str
    was: str
    is_right: bool

    def __str__(self) -> str:
        return f"| {self.done} | {self.has_to} | {self.was if self.is_right else f'**{self.was}**'} |"


class Cluster(KubeBench):
    """The lab's questions, and kubectl."""

    def __init__(self, lab: KubeLab, plane: ControlPlane, machines: Sequence[Node], folder: Path, image: str) -> None:
        super().__init__(lab, Server(lab, plane), "shipped")
        self.plane = plane
        self.machines = {machine.host: machine for machine in machines}
        self.folder = folder
        self.image = image

    # ---- what operators do ----

    def install(self, mode: str = "observe") -> None:
        """`kubectl apply -k` of an own kustomization: image, networks, and the API server's address."""
        folder = self.folder / "install"
        folder.mkdir(exist_ok=True)
        name, _, tag = self.image.rpartition(":")
        server = {"KUBERNETES_SERVICE_HOST": API_ADDRESS, "KUBERNETES_SERVICE_PORT": str(API_PORT)}
        container = {"name": "agent", "env": [{"name": key, "value": text} for key, text in server.items()]}
        daemonset = {"spec": {"template": {"spec": {"containers": [container]}}}}
        head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": NAME}}
        self._write("daemonset.yaml", {**head, **daemonset})
        self._write_config(mode)
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(_BASE, folder)],
            "images": [{"name": "localhost/arpguard", "newName": name, "newTag": tag}],
            "patches": [{"path": "daemonset.yaml"}, {"path": "configmap.yaml"}],
        }
        self._write("kustomization.yaml", kustomization)
        self.plane.kubectl("apply", "-k", folder)

    def set_mode(self, mode: str) -> None:
        """An edit of the ConfigMap."""
        self.configure(self.config(mode))

    def config(self, mode: str = "enforce", *_: object, **__: object) -> str:
        """Ranges, the link, and a VIP that another program answers for."""
        vips = f"[{{address: {DELEGATED}, owner: {{node: {self.nodes[0].name}, delegated: true}}}}]"
        return f"mode: {mode}\ninterfaces: [eth0]\nranges: [198.51.100.0/24]\nvips: {vips}\n"

    def rollout(self, limit_s: float = _ROLLOUT_S) -> None:
        """Waits until it is through."""
        self.plane.kubectl("-n", HOME, "rollout", "status", f"daemonset/{NAME}", f"--timeout={limit_s:g}s")

    def delete(self, *words: object) -> None:
        """`kubectl delete`, of what may be gone."""
        self.plane.kubectl("delete", "--ignore-not-found", f"--timeout={_GONE_S:g}s", *words)

    def let_claims_go(self) -> None:
        """The second line of Uninstall in docs/kubernetes.md."""
        for lease in self.plane.kubectl("-n", HOME, "get", "leases", "-o", "name").split():
            self.plane.kubectl("-n", HOME, "patch", lease, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')

    def _write_config(self, mode: str) -> None:
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}}
        self._write("configmap.yaml", {**document, "data": {"config.yaml": self.config(mode)}})

    def _write(self, name: str, document: object) -> None:
        (self.folder / "install" / name).write_text(yaml.safe_dump(document), encoding="utf-8")

    # ---- what there is ----

    def pinned(self) -> list[str]:
        """The nodes on which the guard is in the kernel."""
        return [host.name for host, machine in self.machines.items() if _PINS in machine.pins()]

    def agents(self) -> list[int]:
        """The agents that run."""
        return [pid for machine in self.machines.values() for pid in machine.agents()]

    def is_gone(self, *words: object) -> bool:
        """Whether an object is not there."""
        return not self.plane.kubectl("get", "--ignore-not-found", *words).strip()

    def watched(self) -> Watch:
        """Requests for all VIPs in turns."""
        return self.watch(VIPS, _INTERVAL_S)


# ---- the rows ----------------------------------------------------------------------------------------------------


def install(cluster: Cluster) -> Iterator[Row]:
    """In `observe`, as it is shipped, and then in `enforce`."""
    cluster.install()
    cluster.rollout(_READY_S)
    cluster.bind_everywhere(*VIPS)
    cluster.plane.apply(objects.namespace(SHOP), objects.service(SHOP, "web", VIPS))
    everybody = sorted(host.mac for host in cluster.nodes)
    cluster.until(
        lambda: all(sorted(macs) == everybody for macs in cluster.who(*VIPS).values()), _READY_S, "all answer"
    )
    status = cluster.plane.kubectl("-n", HOME, "exec", f"daemonset/{NAME}", "--", "arpguard", "vips")
    listed = all(str(each) in status for each in VIPS)
    has_to = "all nodes answer; `arpguard vips` lists the VIPs"
    yield Row("install: `kubectl apply -k`, mode `observe`", has_to, "as expected" if listed else status, listed)
    with cluster.watched() as watch:
        began_ns = now_ns()
        cluster.set_mode("enforce")
        cluster.settle_evenly(VIPS, 60.0)
    last = max((said.time_ns for said in _second_answers(cluster, watch, began_ns)), default=began_ns)
    took_ms = ms(last - began_ns)
    yield Row(
        "ConfigMap: mode `enforce`", "one node answers for each VIP, within 1 s", f"after {took_ms} ms", took_ms < 1000
    )


def _second_answers(cluster: Cluster, watch: Watch, since_ns: int) -> list:
    """What nodes said for VIPs that others have at the end."""
    owners = cluster.who(*VIPS)
    return [
        said for said in watch.said if said.time_ns >= since_ns and said.mac not in owners.get(said.vip, [said.mac])
    ]


def rollout(cluster: Cluster) -> Iterator[Row]:
    """`kubectl rollout restart`."""
    with cluster.watched() as watch:
        cluster.plane.kubectl("-n", HOME, "rollout", "restart", f"daemonset/{NAME}")
        cluster.rollout()
        time.sleep(_AFTER_S)
    yield _silent("`kubectl rollout restart`", "no request lost", watch, 0)


def bad_image(cluster: Cluster) -> Iterator[Row]:
    """A rolling update whose image is not there, and the way back."""
    with cluster.watched() as watch:
        cluster.plane.kubectl("-n", HOME, "set", "image", f"daemonset/{NAME}", f"agent={NO_SUCH_IMAGE}")
        time.sleep(_BAD_IMAGE_S)
    has_to = f"no VIP silent for longer than {SILENCE_MS / 1000:g} s"
    yield _silent("rolling update to an image that is not there", has_to, watch, SILENCE_MS)
    with cluster.watched() as watch:
        cluster.plane.kubectl("-n", HOME, "rollout", "undo", f"daemonset/{NAME}")
        cluster.rollout()
        time.sleep(_AFTER_S)
    yield _silent("`kubectl rollout undo`", "no request lost", watch, 0)


def drain(cluster: Cluster) -> Iterator[Row]:
    """`kubectl drain` of a node with VIPs, and uncordon."""
    cluster.settle_evenly(VIPS)
    owner = cluster.owner(VIPS[0])
    with cluster.watched() as watch:
        cluster.plane.kubectl("drain", owner.name, "--ignore-daemonsets")
        cluster.settle(VIPS, among=cluster.others(owner), limit_s=60.0)
        cluster.plane.kubectl("uncordon", owner.name)
        cluster.settle_evenly(VIPS)
    yield _silent("`kubectl drain`, then `uncordon`", "handed over, silent for less than 0.4 s", watch, 400)


def node_stop(cluster: Cluster) -> Iterator[Row]:
    """All that runs on a node with VIPs ends, and its links go down; then it boots again."""
    cluster.settle_evenly(VIPS)
    owner = cluster.owner(VIPS[0])
    machine = cluster.machines[owner]
    with cluster.watched() as watch:
        machine.die()
        cluster.lab.pull(owner)
        cluster.settle(VIPS, among=cluster.others(owner), limit_s=60.0)
        time.sleep(_AFTER_S)
    yield _silent("a node stops", "the other node answers; silent for less than 8 s on a busy machine", watch, 8000)
    cluster.lab.plug_in(owner)
    machine.boot()
    cluster.until(machine.agents, _READY_S, "its agent runs again")
    cluster.rollout()
    cluster.settle_evenly(VIPS, 60.0)
    yield Row("the node boots again", "its agent comes back, and one node answers for each VIP", "as expected", True)


def uninstall(cluster: Cluster) -> Iterator[Row]:
    """In every order; meanwhile clients ask for a VIP that is not arpguard's to answer for."""
    folder = cluster.folder / "install"
    orders: dict[str, Callable[[], None]] = {
        "the DaemonSet first, as documented": lambda: _as_documented(cluster),
        "`kubectl delete -k` of all at once": lambda: cluster.delete("-k", folder, "--wait=false"),
        "the namespace": lambda: cluster.delete("namespace", HOME, "--wait=false"),
    }
    cluster.nodes[0].bind(DELEGATED, "lo")
    for text, action in orders.items():
        if cluster.is_gone("-n", HOME, f"daemonset/{NAME}"):
            cluster.install("enforce")
            cluster.rollout(_READY_S)
            cluster.settle(VIPS, limit_s=60.0)
        with cluster.watch([DELEGATED], _INTERVAL_S, FEW_ADDRESSES) as watch:
            action()
            pinned = _left(cluster)
        yield removal(text, pinned, watch)
        _clear(cluster, pinned)


def _left(cluster: Cluster) -> list[str]:
    """The nodes on which a guard is left when its time is over; none as soon as all is gone."""
    deadline = time.monotonic() + REMOVED_S
    while (cluster.agents() or cluster.pinned()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return cluster.pinned()


def removal(done: str, pinned: Sequence[str], watch: Watch) -> Row:
    """Right if nothing is left, and no VIP of another owner lost a request."""
    lost = watch.stream.lost(DELEGATED)
    was = f"guard left on {len(pinned)} of {NODES} nodes; {lost} of {watch.sent} requests lost"
    has_to = f"nothing is left after {REMOVED_S:g} s; a VIP that another program answers for loses no request"
    return Row(f"uninstall: {done}", has_to, was, not pinned and not lost and watch.sent > 0)


def _clear(cluster: Cluster, pinned: Sequence[str]) -> None:
    """What is left goes, too, so that the next order has a clean start."""
    cluster.until(lambda: not cluster.agents(), _GONE_S, "no agent runs")
    if not cluster.is_gone("namespace", HOME):
        cluster.let_claims_go()
        cluster.delete("-k", cluster.folder / "install")
    cluster.until(lambda: cluster.is_gone("namespace", HOME), _GONE_S, "the namespace is gone")
    if pinned:
        cleanup(cluster)
        cluster.until(lambda: not cluster.pinned(), _GONE_S, "deploy/cleanup takes what is left")


def _as_documented(cluster: Cluster) -> None:
    words = [sys.executable, "-m", "arpguard", "uninstall", "--kubeconfig", str(cluster.plane.admin)]
    subprocess.run([*cluster.plane.place.prefix(), *words], check=True, stdout=sys.stderr)
    cluster.delete("-k", cluster.folder / "install")


def cleanup(cluster: Cluster) -> None:
    """`arpguard cleanup` on every node, as documented."""
    cluster.plane.kubectl("apply", "-k", _CLEANUP)
    words = ("rollout", "status", f"daemonset/{NAME}-cleanup", f"--timeout={_ROLLOUT_S:g}s")
    cluster.plane.kubectl("-n", f"{NAME}-cleanup", *words)
    cluster.delete("-k", _CLEANUP)


def _silent(done: str, has_to: str, watch: Watch, at_most_ms: int) -> Row:
    """From the longest silence of any VIP."""
    silences = {address: watch.stream.silence(address).length_ms for address in VIPS}
    lost = sum(watch.stream.lost(address) for address in VIPS)
    worst = max(silences.values())
    doubled = len(watch.findings)
    was = f"{lost} of {watch.sent} lost, longest silence {worst / 1000:.2f} s, {doubled} doubled"
    return Row(done, has_to, was, worst <= at_most_ms and not doubled)


ROWS: dict[str, Callable[[Cluster], Iterator[Row]]] = {
    "install": install,
    "rollout": rollout,
    "bad-image": bad_image,
    "drain": drain,
    "node-stop": node_stop,
    "uninstall": uninstall,
}


def rows_of(cluster: Cluster, name: str) -> Iterator[Row]:
    """Some rows; one that is wrong for what keeps them from going on."""
    try:
        yield from ROWS[name](cluster)
    except (ArpguardError, OSError, RuntimeError) as error:
        yield Row(name, "it can go on", str(error).replace("\n", " "), is_right=False)


@contextmanager
def a_cluster(folder: Path) -> Iterator[Cluster]:
    """A control plane with a scheduler, and nodes that are ready."""
    images = Images(folder)
    image, archive = images.agent()
    pause = images.pause()
    with KubeLab(NODES, folder, folder) as lab:
        at = folder / "plane"
        at.mkdir()
        with ControlPlane(at, API_ADDRESS, lab.api, scheduler=True, options=_SERVER_OPTIONS) as plane:
            machines = [Node(host, folder, plane) for host in lab.nodes]
            try:
                for machine in machines:
                    machine.start(pause, archive)
                cluster = Cluster(lab, plane, machines, folder, image)
                plane.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_READY_S:g}s")
                yield cluster
            finally:
                for machine in machines:
                    machine.stop()


def main() -> int:
    """Runs the rows, all or some; the install comes first."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--row", action="append", default=[], choices=list(ROWS), help="some rows only, after the install"
    )
    parser.add_argument("--write", type=Path, help="the page whose table a whole run replaces")
    parser.add_argument("--keep", type=Path, help="a folder for all logs")
    asked = parser.parse_args()
    if (why := control_plane_missing() or kubelets.missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="arpguard-shipped-") as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with a_cluster(folder.absolute()) as cluster:
            for name in ["install", *(each for each in asked.row or ROWS if each != "install")]:
                for row in rows_of(cluster, name):
                    print(row, flush=True)
                    found.append(row)
    wrong = [row for row in found if not row.is_right]
    if asked.write and not asked.row:
        head = [surroundings(), "", "| step | expected | found |", "|---|---|---|"]
        replace_table(asked.write, "shipped", "\n".join([*head, *map(str, found), ""]))
    print(f"neighbours: {len(found)} rows, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
