"""VIPs of other announcers (docs/follow.md): two of them announce at once, and their own objects say which is right."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from arpguard.addresses import Address
from arpguard.verdict import Mode
from arpguard_lab.asking import FEW_ADDRESSES, answered_by
from arpguard_lab.bench import Step
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.peers.programs import REFUSED, KubeVipLike, MetalLbLike, holds
from arpguard_lab.peers.scenarios import begin
from arpguard_lab.topology import Host, HostProcess

_VIP = vip(50)
_SERVICE = "web"
_HOST_NOTE = "kube-vip.io/vipHost"
_PATIENCE_S = 10.0
_TALK_S = 1.5
_INTERVAL_S = 0.004


def run_metallb(bench: KubeBench) -> Iterator[Step]:
    """MetalLB: the newest ServiceL2Status of the Service names the node."""
    api, collection = bench.server.api, f"/apis/{objects.METALLB_GROUP}/v1beta1/namespaces/{objects.METALLB}"
    api.create("/api/v1/namespaces", objects.namespace(objects.METALLB))
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", objects.l2_status_definition())
    bench.allow(objects.follow_access(bench.home))
    _publish(bench)
    path = f"{collection}/{objects.L2_STATUSES}"

    def name(host: Host) -> None:
        """As MetalLB does: the old node's speaker deletes its object, the new node's makes one, and fills it in."""
        for old in api.get(path)["items"]:
            api.delete(f"{path}/{old['metadata']['name']}")
        about = (bench.home, _SERVICE, bench.server.node_name(host))
        made = api.create(path, objects.l2_status(*about))
        api.patch(f"{path}/{made['metadata']['name']}/status", objects.l2_status_of(*about))

    yield from _followed(bench, MetalLbLike, name, stays=False)


def run_kube_vip(bench: KubeBench) -> Iterator[Step]:
    """kube-vip: an annotation of the Service names the node."""
    _publish(bench)

    def name(host: Host) -> None:
        bench.annotate(_SERVICE, {_HOST_NOTE: bench.server.node_name(host)})

    yield from _followed(bench, KubeVipLike, name, stays=True)


def _publish(bench: KubeBench) -> None:
    """A Service that is followed by the configuration: by an annotation it would count for other labs' agents, too."""
    bench.configure(bench.config("observe", owner="follow"))
    agents = [bench.agent(host) for host in bench.nodes]
    bench.until(lambda: all(agent.mode() is Mode.OBSERVE for agent in agents), _PATIENCE_S, "all agents observe")
    bench.publish_load_balancer(_SERVICE, _VIP)


def _followed(
    bench: KubeBench,
    program: Callable[[Host, Path, Address], HostProcess],
    name: Callable[[Host], None],
    *,
    stays: bool,
) -> Iterator[Step]:
    first, second = bench.nodes[:2]
    a, b = (bench.lab.program(program(host, bench.lab.folder, _VIP)) for host in (first, second))

    try:
        with bench.watch([_VIP], _INTERVAL_S, FEW_ADDRESSES) as watch:
            name(first)
            since_ns = begin(a, b)
            watch.wait(lambda: _speakers(bench, watch, since_ns) == [first, second], _PATIENCE_S, "both answer")
            yield bench.ask(f"the announcer names {first.name}, mode observe: both answer", _VIP, [first, second])
            bench.configure(bench.config("enforce", owner="follow"))
            _settle(bench, first)
            yield _talk(bench, watch, "mode enforce: all frames", a, b)

            bench.lab.cut_off(second)
            yield _talk(bench, watch, f"{second.name} cut off from the API server: all frames", a, b)
            bench.lab.reconnect(second)

            began_ns = now_ns()
            name(second)
            _settle(bench, second)
            watch.poll()
            last = watch.last(_VIP, first, began_ns)
            arrived = watch.first(_VIP, began_ns, first)

            yield bench.ask(
                f"the announcer names {second.name}, and both keep answering",
                _VIP,
                [second],
                moved_after_ms=ms(arrived.time_ns - began_ns) if arrived else None,
                silenced_after_ms=ms(last.time_ns - began_ns) if last else 0,
            )
            yield _talk(bench, watch, "after that: all frames", b, a)

            a.kill(signal.SIGKILL)
            left = {"left_on_its_link": holds(first, _VIP)} if stays else {}
            yield bench.ask(f"the announcer of {first.name} killed (-9)", _VIP, [second], **left)
    finally:
        bench.lab.reconnect(second)
        for announcer in (a, b):
            announcer.kill(signal.SIGTERM)
        for host in (first, second):
            if holds(host, _VIP):
                host.unbind(_VIP, "eth0")


def _settle(bench: KubeBench, owner: Host) -> None:
    bench.until(lambda: bench.who(_VIP)[_VIP] == [owner.mac], _PATIENCE_S, f"{owner.name} answers, alone")


def _talk(bench: KubeBench, watch: Watch, text: str, heard: HostProcess, silenced: HostProcess) -> Step:
    """Both begin again, so that they announce; everything that is said for a while."""
    since_ns = begin(heard, silenced)
    time.sleep(_TALK_S)
    _settle(bench, heard.host)
    watch.poll()

    announced = {said.mac for said in watch.said if said.time_ns >= since_ns and said.is_announcement}
    return bench.step(
        text,
        _VIP,
        [heard.host],
        answered_by(watch.said, _VIP, since_ns),
        announces=announced == {heard.host.mac},
        refused_to_the_other=silenced.said().count(REFUSED),
        other_tried=REFUSED in silenced.said(),
        nothing_missed=watch.drops == 0,
    )


def _speakers(bench: KubeBench, watch: Watch, since_ns: int) -> list[Host]:
    macs = answered_by(watch.said, _VIP, since_ns)
    return [host for host in bench.nodes if host.mac in macs]
