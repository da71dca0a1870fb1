"""Scenarios in IPv6: who answers solicitations, whom a switch lets hear them, and what a client's kernel makes of it.

Linux answers a solicitation only for an address of the very link that it came in on (ndisc_recv_ns()). So a VIP on
`lo` is answered for by nobody, where with ARP everybody answers; one on `eth0` is answered for by all.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from ipaddress import IPv6Address

from arpguard.wire.ndp import solicited_node
from arpguard_lab.bench import Bench, Step, owned_by, until
from arpguard_lab.neighbours import States, is_free, mac_of, quicken
from arpguard_lab.peers.witness import Witness
from arpguard_lab.topology import NETWORK6, Host

VIP = IPv6Address(f"{NETWORK6}::50")
VIP2 = IPv6Address(f"{NETWORK6}::51")
_PATIENCE_S = 10.0
_PLACES = ("eth0", "lo", "kube-ipvs0 up")
_PORT = 9


def run_flux(bench: Bench) -> Iterator[Step]:
    """The VIP on every node, in each place it may be."""
    first, second = bench.nodes[:2]
    for place in _PLACES:
        with bench.bound(VIP, place):
            expected = bench.nodes if place == "eth0" else []
            yield bench.ask(f"VIP on {place}, no guard", VIP, expected)

    with bench.bound(VIP, "eth0"):
        yield bench.judge(
            "solicitations sent from the VIP, no guard", VIP, bench.nodes, bench.senders(VIP, bench.nodes)
        )
        yield _link_bounced(bench, "no guard", bench.nodes)

    bench.guard(owned_by(f"{{node: {first.name}}}", VIP) + f"  - {{address: {VIP2}, owner: {{node: {second.name}}}}}\n")
    for place in _PLACES:
        with bench.bound(VIP, place):
            yield bench.ask(f"VIP on {place}, guarded", VIP, [first])
    yield bench.ask(f"{VIP2}, owned by {second.name}, bound nowhere", VIP2, [second])

    with bench.bound(VIP, "eth0"):
        yield bench.judge("solicitations sent from the VIP, guarded", VIP, [first], bench.senders(VIP, bench.nodes))
        yield _link_bounced(bench, "guarded", [first])


def _link_bounced(bench: Bench, text: str, expected: list[Host]) -> Step:
    """Who advertises the VIP unasked when every node's link goes down and comes up (`ndisc_notify`)."""
    since_ns = time.time_ns()
    with Witness(bench, VIP) as witness:
        for host in bench.nodes:
            names = ("ndisc_notify", "keep_addr_on_down")
            host.netns.run("sysctl", "-qw", *(f"net.ipv6.conf.eth0.{name}=1" for name in names))
            host.netns.batch(["link set eth0 down", "link set eth0 up"])
        until(lambda: set(witness.announcers(since_ns)) >= set(expected), _PATIENCE_S, "the VIP is advertised")
        return witness.ask(f"links taken down and up: which nodes advertise and answer, {text}", expected)


def run_snooping(bench: Bench) -> Iterator[Step]:
    """The VIP is on no node's link, so no kernel listens to its group, and the switch forwards accordingly."""
    first, second = bench.nodes[:2]
    bench.bind_everywhere("lo", VIP)
    until(lambda: _listeners(bench, bench.nodes[0].address6), _PATIENCE_S, "the switch knows which nodes listen")
    yield bench.ask("VIP on lo, no guard", VIP, [], nobody_listens=_listeners(bench, VIP) == [])

    agents = bench.guard(owned_by(f"{{node: {first.name}}}", VIP))
    until(lambda: _listeners(bench, VIP), _PATIENCE_S, "a node listens to the VIP's group")
    yield bench.ask(
        f"owned by {first.name}: it listens, and is asked",
        VIP,
        [first],
        only_it_listens=_listeners(bench, VIP) == [first],
    )

    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {second.name}}}", VIP))
    bench.wait_for_owner(VIP, second)
    yield bench.ask(f"now owned by {second.name}", VIP, [second], it_listens=second in _listeners(bench, VIP))


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
    quicken(client)
    bench.bind_everywhere("lo", VIP)
    yield bench.ask("the client takes the VIP for itself, no guard", VIP, [], it_is_free=is_free(client, VIP))

    agents = bench.guard(owned_by(f"{{node: {first.name}}}", VIP))
    yield bench.ask("the same, guarded: the VIP is taken", VIP, [first], it_is_taken=not is_free(client, VIP))

    states = _states(client)
    yield bench.judge(
        "the client uses it, rests, uses it: a probe",
        VIP,
        [first],
        [mac] if (mac := mac_of(client, VIP)) else [],
        states=" ".join(states),
        as_expected=states == ["REACHABLE", "STALE", "PROBE", "REACHABLE"],
    )

    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {second.name}}}", VIP))
    took_s = until(lambda: mac_of(client, VIP) == second.mac, _PATIENCE_S, "the client's entry moves")
    bench.wait_for_owner(VIP, second)
    yield bench.ask(
        f"now owned by {second.name}: the client follows",
        VIP,
        [second],
        moved_after_ms=round(took_s * 1000),
    )


def _states(host: Host) -> list[str]:
    """The states through which a host's entry for the VIP goes when it is used, rests, and is used again."""
    with States(host, VIP) as states:
        host.netns.call(_send)
        first = states.until("STALE")
        host.netns.call(_send)
        return [*first, *states.until("REACHABLE")]


def _send() -> None:
    with closing(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)) as opened:
        opened.sendto(b".", (str(VIP), _PORT))
