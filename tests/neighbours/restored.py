"""A real etcd that goes back to a backup: what a real kube-apiserver then shows, and what the agents do.

The backup is older than the VIP's last move, and far behind, so that watches that continue show nothing for hours.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from arpguard_lab.cluster.bench import KubeBench, Watch, now_ns, vip
from arpguard_lab.cluster.real import Real
from arpguard_lab.cluster.scene import a_bench, shipped_manifests
from arpguard_lab.cluster.topology import KubeLab
from neighbours.controlplane import ControlPlane
from support.netns.cable import a_place

NODES = 3
VIP = vip(50)
WRITES = 500
AWAY_S = 5.0  # longer than a lease
AGAIN_S = 20.0
PATIENCE_S = 300.0
_WATCHED_S = 10

Found = tuple[str, str, bool]  # the step, what was found, whether it is right


def restored(plane: ControlPlane) -> Iterator[Found]:
    """The steps, in the namespace of the control plane."""
    with a_place("restored") as (folder, pins), a_cluster(plane, folder, pins) as bench:
        yield from _steps(plane, bench, folder / "backup")


@contextmanager
def a_cluster(plane: ControlPlane, folder: Path, pins: Path) -> Iterator[KubeBench]:
    """The VIP is bound on every node, and one of them answers."""
    with KubeLab(NODES, folder, pins) as lab:
        server = Real(lab, plane.admin, shipped_manifests())
        with a_bench(lab, "restored", server=server) as bench:
            bench.publish("web", [VIP])
            bench.settle([VIP], limit_s=PATIENCE_S)
            bench.bind_everywhere(VIP)
            yield bench


def _steps(plane: ControlPlane, bench: KubeBench, backup: Path) -> Iterator[Found]:
    first = bench.owner(VIP)
    plane.back_up(backup)
    bench.cordon(first)
    bench.settle([VIP], among=bench.others(first), limit_s=PATIENCE_S)
    bench.cordon(first, cordoned=False)
    for number in range(WRITES):
        bench.annotate("web", {"written": str(number)})
    before = _revision(plane)

    with bench.watch([VIP]) as watch:
        plane.go_down()
        _pass_time(watch, AWAY_S)
        plane.restore(backup)
        back_s = time.monotonic()
        started = _start_again_who_ends(bench, watch, back_s)
        watch.wait(lambda: watch.first(VIP, now_ns() - 10**9), PATIENCE_S, "one node answers again")
        silent_s = time.monotonic() - back_s
        _pass_time(watch, AGAIN_S)

    facts = watch.facts()
    yield "the server continues at a lower resourceVersion", f"{before}, then {_revision(plane)}", True
    shown = _watched_from(plane, before)
    yield "a watch that continues shows nothing", "as expected" if not shown else shown[:200], not shown
    have_all = len(started) == NODES
    latest = f"at most {max(started.values(), default=0):.1f} s after the server is ready"
    yield "every agent starts over", latest if have_all else f"only on {sorted(started)}", have_all
    is_right = bool(facts["never_two_at_once"] and facts["nothing_missed"] and len(bench.who(VIP)[VIP]) == 1)
    yield "one node answers again", f"after {silent_s:.1f} s, overlaps {facts['overlaps']}", is_right


def _start_again_who_ends(bench: KubeBench, watch: Watch, since_s: float) -> dict[str, float]:
    """As kubelet does; when each agent ended, in seconds."""
    ended: dict[str, float] = {}
    while len(ended) < NODES and time.monotonic() - since_s < PATIENCE_S:
        watch.poll()
        for host in bench.nodes:
            agent = bench.agent(host)
            if host.name not in ended and agent.has_failed:
                ended[host.name] = time.monotonic() - since_s
                agent.start()
        time.sleep(0.02)
    return ended


def _pass_time(watch: Watch, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watch.poll()
        time.sleep(0.1)


def _revision(plane: ControlPlane) -> int:
    return int(plane.api.get("/api/v1/namespaces?limit=1")["metadata"]["resourceVersion"])


def _watched_from(plane: ControlPlane, revision: int) -> str:
    """What a watch shows while something is written."""
    path = f"/api/v1/namespaces?watch=true&resourceVersion={revision}&timeoutSeconds={_WATCHED_S}"
    with plane.raw(path) as watching:
        time.sleep(1)
        plane.kubectl("annotate", "namespace", "default", "neighbours/written=yes", "--overwrite")
        return watching.communicate()[0]
