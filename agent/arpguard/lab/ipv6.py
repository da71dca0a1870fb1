"""Scenarios in IPv6: who answers solicitations, whom a switch lets hear them, and what a client's kernel makes of it.

Linux answers a solicitation only for an address of the very link that it came in on (ndisc_recv_ns()). So a VIP on
`lo` is answered for by nobody, where with ARP everybody answers; one on `eth0` is answered for by all.
"""

import json
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from ipaddress import IPv6Address

from arpguard.addresses import ZERO_MAC, MacAddress
from arpguard.errors import DataPlaneError
from arpguard.lab.bench import Bench, Step, owned_by, until
from arpguard.lab.peers.witness import Witness
from arpguard.lab.topology import NETWORK6, Host
from arpguard.wire.ndp import solicited_node

VIP = IPv6Address(f"{NETWORK6}::50")
VIP2 = IPv6Address(f"{NETWORK6}::51")
_PATIENCE_S = 10.0
_PLACES = ("eth0", "lo", "kube-ipvs0 up")
_PORT = 9
# A client's kernel that tells quickly: one probe for an address of its own, and entries that go through all their
# states in a second. Milliseconds (ip-ntable(8)).
_PROBING = ("net.ipv6.conf.eth0.accept_dad=1", "net.ipv6.conf.eth0.router_solicitation_delay=0")
_FAST = ("base_reachable", "200", "delay_probe", "100", "retrans", "200")


def run_flux(bench: Bench) -> Iterator[Step]:
    """The VIP on every node, in each place it may be."""
    first, second = bench.nodes[:2]
    for place in _PLACES:
        with _bound(bench, place):
            expected = bench.nodes if place == "eth0" else []
            yield bench.ask(f"VIP on {place}, no guard", VIP, expected)
    with _bound(bench, "eth0"):
        yield bench.judge("asks in the VIP's name, no guard", VIP, bench.nodes, bench.senders(VIP, bench.nodes))
        yield _link_bounced(bench, "no guard", bench.nodes)
    bench.guard(owned_by(f"{{node: {first.name}}}", VIP) + f"  - {{address: {VIP2}, owner: {{node: {second.name}}}}}\n")
    for place in _PLACES:
        with _bound(bench, place):
            yield bench.ask(f"VIP on {place}, guarded", VIP, [first])
    yield bench.ask(f"{VIP2}, bound nowhere, of {second.name}", VIP2, [second])
    with _bound(bench, "eth0"):
        yield bench.judge("asks in the VIP's name, guarded", VIP, [first], bench.senders(VIP, bench.nodes))
        yield _link_bounced(bench, "guarded", [first])


@contextmanager
def _bound(bench: Bench, place: str) -> Iterator[None]:
    bench.bind_everywhere(place, VIP)
    try:
        yield
    finally:
        for host in bench.nodes:
            host.unbind(VIP, place)


def _link_bounced(bench: Bench, text: str, expected: list[Host]) -> Step:
    """Who advertises the VIP unasked when every node's link goes down and comes up (`ndisc_notify`)."""
    since_ns = time.time_ns()
    with Witness(bench, VIP) as witness:
        for host in bench.nodes:
            names = ("ndisc_notify", "keep_addr_on_down")
            host.netns.run("sysctl", "-qw", *(f"net.ipv6.conf.eth0.{name}=1" for name in names))
            host.netns.batch(["link set eth0 down", "link set eth0 up"])
        until(lambda: set(witness.announcers(since_ns)) >= set(expected), _PATIENCE_S, "the VIP is advertised")
        return witness.ask(f"the links down and up: who advertises and answers, {text}", expected)


def run_snooping(bench: Bench) -> Iterator[Step]:
    """The VIP is on no node's link, so no kernel listens to its group, and the switch forwards accordingly."""
    first, second = bench.nodes[:2]
    bench.bind_everywhere("lo", VIP)
    until(lambda: _listeners(bench, bench.nodes[0].address6), _PATIENCE_S, "the switch knows who listens")
    yield bench.ask("VIP on lo, no guard", VIP, [], nobody_listens=_listeners(bench, VIP) == [])
    agents = bench.guard(owned_by(f"{{node: {first.name}}}", VIP))
    until(lambda: _listeners(bench, VIP), _PATIENCE_S, "somebody listens to the VIP's group")
    yield bench.ask(
        f"guarded, of {first.name}: it listens, and is asked",
        VIP,
        [first],
        only_it_listens=_listeners(bench, VIP) == [first],
    )
    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {second.name}}}", VIP))
    bench.wait_for_owner(VIP, second)
    yield bench.ask(f"of {second.name} now", VIP, [second], it_listens=second in _listeners(bench, VIP))


def _listeners(bench: Bench, address: IPv6Address) -> list[Host]:
    """At which ports the switch forwards solicitations for an address (bridge(8), mdb)."""
    rows = json.loads(bench.lab.switch.run("bridge", "-json", "mdb", "show", "dev", "br0"))
    group = str(solicited_node(address))
    ports = {entry["port"] for row in rows for entry in row["mdb"] if entry["grp"] == group and entry["port"] != "br0"}
    return [host for host in bench.lab.hosts.values() if host.port in ports]


def run_clients(bench: Bench) -> Iterator[Step]:
    """A client's kernel: it wants the VIP for itself, it uses it, and the VIP moves."""
    first, second = bench.nodes[:2]
    client = bench.lab.client
    client.netns.run("sysctl", "-qw", *_PROBING)
    client.netns.run("ip", "ntable", "change", "name", "ndisc_cache", "dev", "eth0", *_FAST)
    bench.bind_everywhere("lo", VIP)
    yield bench.ask("the client takes the VIP for itself, no guard", VIP, [], it_is_free=_is_free(client))
    agents = bench.guard(owned_by(f"{{node: {first.name}}}", VIP))
    yield bench.ask("the same, guarded: the VIP is taken", VIP, [first], it_is_taken=not _is_free(client))
    states = _states(client)
    yield bench.judge(
        "used, at rest, used again: it is probed",
        VIP,
        [first],
        [_entry(client)],
        states=" ".join(states),
        as_expected=states == ["REACHABLE", "STALE", "PROBE", "REACHABLE"],
    )
    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {second.name}}}", VIP))
    took_s = until(lambda: _entry(client) == second.mac, _PATIENCE_S, "the client's entry moves, and nobody asks")
    bench.wait_for_owner(VIP, second)
    yield bench.ask(
        f"of {second.name} now: the client's entry moved",
        VIP,
        [second],
        moved_after_ms=round(took_s * 1000),
    )


def _is_free(host: Host) -> bool:
    """Whether duplicate address detection lets a host have the VIP (RFC 4862 5.4); then it is taken off again."""
    host.netns.batch([f"addr add {VIP}/128 dev eth0"])
    until(lambda: "tentative" not in _address(host) or "dadfailed" in _address(host), _PATIENCE_S, "DAD is over")
    free = "dadfailed" not in _address(host)
    host.unbind(VIP, "eth0")
    return free


def _address(host: Host) -> dict[str, object]:
    """The VIP on a host's link, as ip-address(8) tells it."""
    rows = json.loads(host.netns.run("ip", "-json", "addr", "show", "dev", "eth0", "to", str(VIP)))
    return next(entry for row in rows for entry in row.get("addr_info", ()))


def _states(host: Host) -> list[str]:
    """The states through which a host's entry for the VIP goes when it is used, rests, and is used again."""
    words = [*host.netns.prefix(), "ip", "-6", "monitor", "neigh", "dev", "eth0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as monitor:  # noqa: S603
        try:
            return [*_until_state(host, monitor, "STALE"), *_until_state(host, monitor, "REACHABLE")]
        finally:
            monitor.kill()


def _until_state(host: Host, monitor: "subprocess.Popen[str]", last: str) -> list[str]:
    """Sends a datagram to the VIP, and reads states up to one."""
    host.netns.call(_send)
    states: list[str] = []
    stream = monitor.stdout
    while stream is not None and (not states or states[-1] != last):
        line = stream.readline() if select.select([stream], [], [], _PATIENCE_S)[0] else ""
        if not line:
            raise DataPlaneError(f"the client's entry for {VIP} did not become {last}, but {states}")
        words = line.split()
        if words[0] == str(VIP):
            states.append(words[-1])
    return states


def _send() -> None:
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as opened:
        opened.sendto(b".", (str(VIP), _PORT))


def _entry(host: Host) -> MacAddress:
    """The MAC that a host's kernel has for the VIP."""
    rows = json.loads(host.netns.run("ip", "-6", "-json", "neigh", "show", "to", str(VIP), "dev", "eth0"))
    return next((MacAddress.parse(row["lladdr"]) for row in rows if "lladdr" in row), ZERO_MAC)
