"""A hostile neighbour, and a hostile pod: neither takes a VIP over, fills memory or the log, or hides another claim.

A real agent that follows an API server. The attacker sends from the client's end of the cable, or from a pod behind a
veth of the node, with whatever MAC addresses it likes.
"""

import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address

import pytest

from arpguard.addresses import BROADCAST_MAC, Address, MacAddress
from arpguard.core.reporting import OBJECT_BURST
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.runtime.conflicts import FIRST_PER_S, LINES_PER_S
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard.wire.ndp import build_solicitation, build_unsolicited_advertisement
from arpguard_lab import questions
from arpguard_lab.apiserver import resources
from arpguard_lab.apiserver.embedded import Embedded
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.topology import CONFIGMAP, KubeAgent
from support.kube import node_api
from support.netns.agents import arpguard
from support.netns.cable import Pair, a_netns, a_pair, address, address6, speak_ipv6
from support.netns.rogue import a_rogue
from support.netns.waiting import until
from support.netns.wire import Wire, a_wire, arp_of

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

HOME = "arpguard"
VIPS = [address(number) for number in range(50, 66)]
VIPS6 = [address6(number) for number in range(0x50, 0x60)]
OUTSIDE_RANGES = IPv4Address("203.0.113.9")
CONFIG = (
    "mode: enforce\ninterfaces: [eth0, pod0]\nservices: {owner: elect}\nranges: [198.51.100.0/24, '2001:db8:51::/64']\n"
)
OWN = MacAddress.parse("02:00:00:00:00:01")
TRUE = MacAddress.parse("02:00:00:00:00:99")
START_S = 30.0
DEFEND_S = 10  # DEFEND_INTERVAL, RFC 5227
ANNOUNCED = 2  # frames of one announcement in ARP
STORM = 6000
GROWTH_KB = 16 << 10


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("attack") as made:
        speak_ipv6(made.node, made.client)
        yield made


@pytest.fixture(scope="module")
def pod(pair) -> Iterator[NeighbourSocket]:
    """In a pod, with a raw socket, on a veth of the node that is guarded, too."""
    with a_netns("attack-pod") as netns:
        pair.node.netns.batch([f"link add pod0 type veth peer name eth0 netns {netns.name}"])
        pair.node.netns.batch(["link set pod0 up", "addr add 10.244.0.1/24 dev pod0"])
        netns.batch(["link set eth0 up", "addr add 10.244.0.2/24 dev eth0"])
        opened = netns.call(lambda: NeighbourSocket("eth0"))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(pair) -> Iterator[Embedded]:
    services = (objects.service(HOME, f"web-{n}", vips) for n, vips in enumerate(zip(VIPS, VIPS6, strict=True)))
    nodes = objects.node("node-1", pair.node.address), objects.node("node-2", address(2))
    scene = [objects.namespace(HOME), objects.config_map(HOME, CONFIGMAP, CONFIG), *nodes, *services]
    with node_api.a_server(pair.node.netns, scene) as server:
        yield server


@pytest.fixture(scope="module")
def agent(pair, pod, server) -> Iterator[KubeAgent]:
    agent = KubeAgent(pair.node, pair.folder, pair.pin_root / pair.node.name)
    agent.namespace, agent.pod = HOME, "arpguard-x7"
    server.do(lambda it: it.write_kubeconfig(agent.kubeconfig, "node-1"))
    agent.configure(CONFIG)
    agent.start()
    try:
        agent.wait_for()
        for vip in (*VIPS, *VIPS6):
            until(lambda vip=vip: agent.said().count(f"announced: vip={vip} ") >= 3, START_S, f"announcements of {vip}")
        yield agent
    finally:
        agent.kill(signal.SIGKILL)
        agent.remove_guard()


@pytest.fixture(scope="module")
def events(pair, server) -> Callable[[str], list[dict]]:
    """Events by reason."""
    return partial(node_api.events, pair.node.netns, server)


def claims_of(vip: Address, mac: MacAddress) -> Sequence[bytes]:
    """Whatever says in ARP, or in neighbour discovery, that a VIP is at a MAC; and what is cut short."""
    if isinstance(vip, IPv6Address):
        frames = [build_unsolicited_advertisement(mac, vip), build_solicitation(mac, vip, address6(0x77))]
    else:
        nobody = MacAddress(bytes(6))
        frames = [
            build_frame(ArpPacket(ArpOp.REQUEST, mac, vip, nobody, vip), BROADCAST_MAC, mac),
            build_frame(ArpPacket(ArpOp.REPLY, mac, vip, mac, vip), BROADCAST_MAC, mac),
            build_frame(ArpPacket(ArpOp.REPLY, mac, vip, OWN, address(1)), OWN, mac),
            build_frame(ArpPacket(ArpOp.REQUEST, mac, vip, nobody, address(200)), BROADCAST_MAC, mac),
        ]
    return [*frames, frames[0][:38], frames[0][:20]]


@dataclass
class Storm:
    """What came of one: how long it took, and how often the node spoke for each VIP unasked."""

    seconds: float
    defences: dict[Address, int]


def storm(
    pair: Pair,
    vips: Sequence[Address],
    frames: int = STORM,
    seed: int = 1,
    midway: bytes = b"",
    *,
    defended: bool = False,
) -> Storm:
    """Claims of VIPs from the segment, each by another MAC; a client that asks in between is answered rightly.

    `midway`: a frame that is sent when half of the others are. `defended`: waits until each VIP has been.
    """
    rng = random.Random(seed)
    defences: dict[Address, int] = dict.fromkeys(vips, 0)
    began = time.monotonic()
    hearer = pair.client.netns.call(lambda: NeighbourSocket("eth0"))
    try:
        with a_wire(pair.client) as wire:
            for number in range(frames):
                vip = vips[number % len(vips)]
                mac = MacAddress(b"\x02" + rng.randbytes(5))
                wire.send(rng.choice(claims_of(vip, mac)))
                if number == frames // 2 and midway:
                    wire.send(midway)
                if number % 100 == 99:
                    count_defences(hearer, defences, wait_s=0)  # no buffer takes all of the client's own
                if number % 500 == 499:
                    assert_answered(wire, pair)
        until(lambda: count_defences(hearer, defences) and (not defended or min(defences.values()) >= 1), START_S)
    finally:
        hearer.close()
    return Storm(time.monotonic() - began, defences)


def assert_answered(wire: Wire, pair: Pair) -> None:
    assert wire.who(VIPS[0], mark=pair.node.address) == [pair.node.mac]


def count_defences(hearer: NeighbourSocket, defences: dict[Address, int], wait_s: float = 0.2) -> bool:
    """Announcements of this node; True once there is nothing more to hear."""
    while (heard := hearer.hear(wait_s)) is not None:
        packet = heard.packet
        unasked = packet.spa.version == 6 or packet.spa == packet.tpa  # only IPv4 addresses are asked for here
        if packet.spa in defences and packet.sha == OWN and unasked:
            defences[packet.spa] += 1
    return True


def logged(agent: KubeAgent) -> list[str]:
    return re.findall("WARNING claim: .+", agent.said())


def holders(server: Embedded) -> set[str]:
    leases = server.do(lambda it: [each.body for each in it.store.table(resources.LEASES).live.values()])
    return {lease["spec"]["holderIdentity"] for lease in leases if lease["metadata"]["name"].startswith("vip.")}


# ---- a neighbour on the segment --------------------------------------------------------------------------------------


def test_storm_of_claims_takes_no_vip_and_makes_little_noise(pair, agent, server, events):
    """Thousands of senders, each heard once."""
    before_kb, lines = agent.rss_kb(), len(logged(agent))
    found = storm(pair, VIPS[:4] + VIPS6[:4], defended=True)

    with a_wire(pair.client) as wire:
        for vip in VIPS[:4]:
            assert wire.who(vip, mark=pair.node.address) == [pair.node.mac]
    assert holders(server) == {"node-1"}
    assert "given up:" not in agent.said()
    assert agent.rss_kb() - before_kb < GROWTH_KB
    assert len(logged(agent)) - lines <= (LINES_PER_S + FIRST_PER_S) * (found.seconds + 1)
    assert len(events("VIPConflict")) <= OBJECT_BURST * 4
    times = found.seconds // DEFEND_S + 1
    assert all(count <= ANNOUNCED * times for count in found.defences.values()), found.defences
    assert min(found.defences.values()) >= 1


def test_storm_teaches_the_node_no_neighbour(pair, agent):
    storm(pair, VIPS[:4] + VIPS6[:4], frames=200, seed=2)
    known = pair.node.netns.run("ip", "neigh", "show")
    assert not [vip for vip in (*VIPS[:4], *VIPS6[:4]) if f"{vip} dev" in known and "lladdr 02" in known]


def test_one_true_claim_is_told_in_the_middle_of_a_storm(pair, agent, events):
    """In the list, in the log and as an Event, though others make more noise than any of them takes."""
    noise, vip = VIPS[:-1] + VIPS6[:-1], VIPS[-1]
    storm(pair, noise, seed=3, midway=claims_of(vip, TRUE)[0])

    until(lambda: [each["mac"] for each in questions.conflicts(agent, vip)] == [str(TRUE)], START_S, "the list")
    until(lambda: [line for line in logged(agent) if f"vip={vip} " in line and str(TRUE) in line], START_S, "the log")
    until(lambda: [each for each in events("VIPConflict") if f"{TRUE} claims {vip} " in each["note"]], START_S, "Event")


def test_probe_that_a_spoofer_answers_is_reported_and_denies_only_what_nobody_has(pair, agent, server, events):
    """RFC 5227 2.1.1: a VIP that somebody answers for is not taken. Whose it is already is not asked for again."""
    vip = address(0xF0)

    def is_told() -> bool:
        """After a storm an Event may wait for longer than it takes until the agent probes again."""
        return any(f"{vip} is in use outside" in each["note"] for each in events("VIPTakenOutside"))

    with a_wire(pair.client) as wire:
        with a_rogue(pair.client.netns, {vip}, TRUE):
            server.do(lambda it: it.put(objects.service(HOME, "wanted", [vip])))
            until(is_told, START_S)
        assert wire.who(vip, mark=pair.node.address) == []
        assert_answered(wire, pair)
    assert f"owned: vip={vip} " not in agent.said()


# ---- a pod ---------------------------------------------------------------------------------------------------------


def test_pod_reaches_nobody_with_a_claim_and_is_reported(pair, pod, agent):
    """Behind a veth of the node, as with CNIs that route. The veth is in `interfaces`, so it is seen there."""
    vip = VIPS[0]
    for frame in claims_of(vip, TRUE)[:4]:
        pod.send(frame)

    def listed() -> set[str]:
        return {each["mac"] for each in questions.conflicts(agent, vip, "pod0")}

    until(lambda: str(TRUE) in listed(), START_S, "reported on its veth")
    with a_wire(pair.client) as wire:
        heard = wire.exchange([wire.request(vip)], pair.node.address)
    assert {packet.sha for frame in heard if (packet := arp_of(frame)) and packet.spa == vip} == {OWN}


# ---- a tenant --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "wanted", "reason"),
    [
        ("a node's address", address(2), "VIPIsNodeAddress"),
        ("the gateway", address(254), "VIPIsGateway"),
        ("an address outside the ranges", OUTSIDE_RANGES, "VIPOutsideRanges"),
    ],
)
def test_service_gets_no_address_that_is_not_for_services(server, agent, events, what, wanted, reason):
    """Whatever its annotations say."""
    name = f"greedy-{what.split()[-1]}"
    server.do(lambda it: it.put(objects.service(HOME, name, [wanted], {"owner": "node/node-1"})))
    until(lambda: [each for each in events(reason) if each["regarding"]["name"] == name], START_S, reason)
    shown = arpguard("vips", str(wanted), "--address", agent.api)
    assert shown.returncode != 0, shown.stdout


@pytest.mark.parametrize("owner", ["node/node-2", "external"])
def test_service_of_another_tenant_takes_no_vip_that_one_has(pair, server, agent, events, owner):
    """Its annotation would move the VIP, or give it away, and its namespace comes first by name."""
    thief, name = "a-tenant", f"thief-{owner[:4]}"
    server.do(lambda it: it.put(objects.namespace(thief)))
    server.do(lambda it: it.put(objects.service(thief, name, [VIPS[0]], {"owner": owner})))
    until(lambda: [each for each in events("VIPConflictingSources") if each["regarding"]["name"] == name], START_S)
    with a_wire(pair.client) as wire:
        assert_answered(wire, pair)
