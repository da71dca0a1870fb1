"""Addresses that a Service names and the cluster must not take: a node's own, and one of a host outside."""

import socket
import time
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv4Address

from arpguard_lab.bench import Step
from arpguard_lab.cluster.bench import KubeBench, vip
from arpguard_lab.netns import Netns

_PATIENCE_S = 10.0
_WATCH_S = 4.0  # longer than it takes until the other nodes would step in
_VIP = vip(50)
_SSH = 22
OUTSIDER = ("db", 80)


def run_node_ip(bench: KubeBench) -> Iterator[Step]:
    """Publishes a Service whose externalIP is the address of a node."""
    target = bench.nodes[1]
    bench.publish("web", [_VIP])
    bench.settle([_VIP])
    yield bench.ask("before", target.address, [target], tcp_connects=_reaches(bench, target.netns, target.address))

    bench.publish("wrong", [target.address])
    told_s = bench.until(lambda: bench.events("Service", "wrong"), _PATIENCE_S, "an Event on the Service")
    bench.until(
        lambda: all(
            str(target.address) in str(bench.status(host).get("problems", bench.status(host))) for host in bench.nodes
        ),
        _PATIENCE_S,
        "status names the address",
    )

    yield bench.ask(
        "a Service has it as externalIP: only the node itself still answers",
        target.address,
        [target],
        tcp_connects=_reaches(bench, target.netns, target.address),
        event_after_ms=round(told_s * 1000),
    )

    yield bench.one_answers("other VIPs are guarded as before", _VIP)


def _reaches(bench: KubeBench, netns: Netns, address: IPv4Address) -> bool:
    """Whether a client's TCP connection to an address ends on a certain host."""

    def listen() -> socket.socket:
        return socket.create_server(("0.0.0.0", _SSH), reuse_port=True)  # noqa: S104 - in a namespace of the lab

    def connect() -> bool:
        with closing(socket.create_connection((str(address), _SSH), 2.0)) as opened:
            return str(opened.getpeername()[0]) == str(address)

    with closing(netns.call(listen)):
        try:
            return bench.lab.client.netns.call(connect)
        except OSError:
            return False


def run_taken_outside(bench: KubeBench) -> Iterator[Step]:
    """Publishes a Service whose externalIP a host outside the cluster answers for already."""
    database = bench.lab.hosts[OUTSIDER[0]]
    database.bind(_VIP, "eth0")

    try:
        yield bench.ask("a host outside the cluster has the address", _VIP, [database])
        with bench.watch([_VIP], interval_s=0.002) as watch:
            bench.publish("taken", [_VIP])
            told_s = bench.until(lambda: bench.events("Service", "taken"), _PATIENCE_S, "an Event on the Service")
            yield bench.ask(
                "a Service has it as externalIP: no node answers, and an Event says why",
                _VIP,
                [database],
                event_after_ms=round(told_s * 1000),
            )
            time.sleep(_WATCH_S)

        intruders = {said.mac for said in watch.said} - {database.mac}
        yield bench.step(
            "meanwhile no node answered",
            _VIP,
            [database],
            {said.mac for said in watch.said},
            requests=watch.stream.sent,
            others_answered=len(intruders),
            nothing_missed=watch.drops == 0,
        )
    finally:
        database.unbind(_VIP, "eth0")

    took_s = bench.until(lambda: len(bench.who(_VIP)[_VIP]) == 1, 90.0, "a node answers")
    yield bench.one_answers(
        "the host outside is silent: the nodes elect an owner",
        _VIP,
        elected_after_ms=round(took_s * 1000),
    )
