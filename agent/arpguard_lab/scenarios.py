"""The scenarios: what is set up, who should answer, and what the wire said.

Every expectation is written here; every answer comes from ARP requests that the client really sent.
"""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address

from arpguard.addresses import Address, MacAddress
from arpguard_lab import ipv6, traps
from arpguard_lab.asking import Stream
from arpguard_lab.bench import ASK_WAIT_S, COLUMNS, VIP, Bench, Step, owned_by
from arpguard_lab.capture import Capture
from arpguard_lab.peers.programs import KEEPALIVED, KubeVipLike, MetalLbLike
from arpguard_lab.peers.scenarios import run_followed, run_keepalived, run_split
from arpguard_lab.topology import NETWORK, Ethernet

VIP2 = IPv4Address(f"{NETWORK}.51")
_AROUND_S = 0.5  # how long it asks before the disturbance and after it


def _flux(bench: Bench) -> Iterator[Step]:
    first, second = bench.nodes[:2]
    places = ("lo", "kube-ipvs0 down", "kube-ipvs0 up")

    for place in places:
        with bench.bound(VIP, place):
            yield bench.ask(f"VIP on {place}, no guard", VIP, bench.nodes)

    agents = bench.guard(
        owned_by(f"{{node: {first.name}}}", VIP) + f"  - {{address: {VIP2}, owner: {{node: {second.name}}}}}\n"
    )
    for place in places:
        with bench.bound(VIP, place):
            yield bench.ask(f"VIP on {place}, guarded", VIP, [first])

    yield bench.ask(f"{VIP2}, owned by node-2, bound nowhere", VIP2, [second])
    bench.bind_everywhere("lo", VIP)
    bench.unguard(agents)
    yield bench.ask("guard removed again", VIP, bench.nodes)


def _lvs_dr(bench: Bench) -> Iterator[Step]:
    director, *real_servers = bench.nodes
    director.bind(VIP, "eth0")
    for host in real_servers:
        host.bind(VIP, "lo")
    yield bench.ask("director and real servers, no guard", VIP, bench.nodes)
    leaked = bench.senders(VIP, real_servers)
    yield bench.judge("ARP requests sent from the VIP, no guard", VIP, real_servers, leaked)
    bench.guard(owned_by(f"{{node: {director.name}, delegated: true}}", VIP))
    yield bench.ask("guarded: the director's own kernel answers", VIP, [director])
    yield bench.judge("ARP requests sent from the VIP, guarded", VIP, [], bench.senders(VIP, real_servers))


def _external(bench: Bench) -> Iterator[Step]:
    database = bench.lab.hosts["db"]
    database.bind(VIP, "eth0")
    yield bench.ask("the database's VIP, before it is an externalIP", VIP, [database])
    bench.bind_everywhere("kube-ipvs0 down", VIP)
    yield bench.ask("a Service has it as externalIP, no guard", VIP, [*bench.nodes, database])
    bench.guard(owned_by(f'{{external: "{database.mac}"}}', VIP))
    yield bench.ask("guarded: owner external", VIP, [database])


def _can_reach(bench: Bench) -> Iterator[Step]:
    owner = bench.nodes[0]
    bench.bind_everywhere("lo", VIP)
    says_lo = " dev lo " in owner.netns.run("ip", "route", "get", str(VIP))
    yield bench.ask("can_reach:VIP, `ip route get` says lo, no guard", VIP, bench.nodes, route_get_says_lo=says_lo)
    bench.guard(owned_by(f"{{node: {owner.name}}}", VIP, interfaces=f"can_reach:{VIP}"))
    yield bench.ask("guarded: resolved outside the local table", VIP, [owner])


def _observe(bench: Bench) -> Iterator[Step]:
    owner, *others = bench.nodes
    bench.bind_everywhere("lo", VIP)
    agents = bench.guard(owned_by(f"{{node: {owner.name}}}", VIP, mode="observe"))
    step = bench.ask("mode observe: every frame passes", VIP, bench.nodes)
    counts = {name: bench.decided(agent, VIP, "observed") for name, agent in agents.items()}
    yield step
    silenced = [host.mac for host in others if counts[host.name].get("foreign")]
    yield bench.judge("counted: in mode enforce, suppressed", VIP, others, silenced, counters=counts)
    for agent in agents.values():
        agent.configure(owned_by(f"{{node: {owner.name}}}", VIP))
    for agent in agents.values():
        agent.wait_for("configuration applied: mode=enforce")
    bench.wait_for_owner(VIP, owner)
    yield bench.ask("mode enforce, switched live", VIP, [owner])


def _restart(bench: Bench) -> Iterator[Step]:
    owner = bench.nodes[0]
    bench.bind_everywhere("lo", VIP)
    agents = bench.guard(owned_by(f"{{node: {owner.name}}}", VIP))
    agent = agents[owner.name]
    yield bench.ask("guarded", VIP, [owner])

    def disturb() -> None:
        agent.kill(signal.SIGKILL)
        agent.start()
        agent.wait_for()

    macs, counts = _stream(bench, VIP, disturb)
    yield bench.judge("the owner's agent killed and restarted", VIP, [owner], macs, **counts)


def _stream(bench: Bench, vip: Address, disturb: Callable[[], None]) -> tuple[set[MacAddress], dict[str, object]]:
    """Requests from before `disturb` until after it: who answered, and how many were lost or answered twice."""
    stream, capture = Stream(bench.lab.client.listen(), [vip]), Capture(bench.lab.switch)
    capture.start()
    stream.start()
    time.sleep(_AROUND_S)
    disturb()
    time.sleep(_AROUND_S)
    stream.stop()
    time.sleep(ASK_WAIT_S)
    capture.stop()

    replies = [said for said in capture.take() if said.vip == vip and not said.is_announcement]
    answered = {said.asked_by for said in replies}
    lost, doubled = stream.sent - len(answered), len(replies) - len(answered)
    perfect = not lost and not doubled
    facts: dict[str, object] = {
        "requests": stream.sent,
        "lost": lost,
        "doubled": doubled,
        "none_lost_or_doubled": perfect,
    }
    return {said.mac for said in replies}, facts


@dataclass(frozen=True, slots=True)
class Scenario:
    """`others`: (name, last byte of the address) of hosts outside the cluster. `long`: it runs when it is named.

    `widths`: of its longest step, and of the longest hosts of a step; so its table is straight from the first line on.
    """

    summary: str
    run: Callable[[Bench], Iterator[Step]]
    others: tuple[tuple[str, int], ...] = ()
    ethernet: Ethernet = Ethernet()  # noqa: RUF009 - a constant
    needs: str = ""  # a program that has to be installed
    columns: tuple[str, ...] = COLUMNS
    widths: tuple[int, int] = (45, 14)
    long: bool = False


_OF_KEEPALIVED = (57, 14)

SCENARIOS: dict[str, Scenario] = {
    "flux": Scenario("a VIP on every node: without the guard all answer, with it only the owner", _flux),
    "lvs-dr": Scenario("LVS: only the director answers, and no real server claims the VIP", _lvs_dr),
    "external": Scenario(
        "a database outside keeps its address, though a Service has it as externalIP",
        _external,
        others=(("db", 80),),
        widths=(46, 18),
    ),
    "can-reach": Scenario(
        "can_reach with an address that is bound as a VIP finds the NIC, not lo", _can_reach, widths=(47, 14)
    ),
    "observe": Scenario("all answer, and counters say which would be silenced; then enforce, live", _observe),
    "restart": Scenario("the owner's agent is killed under load: no request lost or answered twice", _restart),
    "ipv6": Scenario(
        "a VIP on every node: without the guard all or none answer, with it the owner",
        ipv6.run_flux,
        ethernet=Ethernet(ipv6=True),
        widths=(67, 14),
    ),
    "ipv6-snooping": Scenario(
        "a switch that forwards to listeners only: the owner listens, and gets requests",
        ipv6.run_snooping,
        ethernet=Ethernet(ipv6=True, snooping=True),
        widths=(45, 14),
    ),
    "ipv6-clients": Scenario(
        "a client sees that the VIP is taken, gets answers to its probes, follows a move",
        ipv6.run_clients,
        ethernet=Ethernet(ipv6=True),
        widths=(45, 14),
    ),
    "keepalived": Scenario(
        "two masters in a partition, or an address left by kill -9: one gets through",
        partial(run_keepalived, vip=VIP),
        needs=KEEPALIVED,
        widths=_OF_KEEPALIVED,
    ),
    "keepalived-vmac": Scenario(
        "the same, with the virtual router's MAC on both nodes",
        partial(run_keepalived, vip=VIP, vmac=True),
        needs=KEEPALIVED,
        widths=_OF_KEEPALIVED,
    ),
    "keepalived-ipv6": Scenario(
        "the same in IPv6",
        partial(run_keepalived, vip=ipv6.VIP),
        ethernet=Ethernet(ipv6=True),
        needs=KEEPALIVED,
        widths=_OF_KEEPALIVED,
    ),
    "keepalived-followed": Scenario(
        "agents follow keepalived: it hands over, is killed, restarts, is partitioned",
        partial(run_followed, vip=VIP),
        needs=KEEPALIVED,
        widths=(69, 14),
    ),
    "metallb-like": Scenario(
        "two speakers answer by packet sockets: one gets through",
        partial(run_split, program=MetalLbLike, vip=VIP, stays=False),
    ),
    "kube-vip-like": Scenario(
        "two nodes have the address on their links and announce it: one gets through",
        partial(run_split, program=KubeVipLike, vip=VIP, stays=True),
    ),
    "metallb-like-ipv6": Scenario(
        "the same in IPv6, by ICMPv6 sockets",
        partial(run_split, program=MetalLbLike, vip=ipv6.VIP, stays=False),
        ethernet=Ethernet(ipv6=True),
    ),
    "kube-vip-like-ipv6": Scenario(
        "the same in IPv6",
        partial(run_split, program=KubeVipLike, vip=ipv6.VIP, stays=True),
        ethernet=Ethernet(ipv6=True),
    ),
    "doctor": Scenario(
        "every trap that the doctor knows: found, fixed (minutes; runs only if named)",
        traps.doctor,
        columns=traps.COLUMNS,
        long=True,
    ),
}
