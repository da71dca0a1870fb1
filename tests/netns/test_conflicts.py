"""Address conflicts on the wire: a real agent that follows an API server, its own neighbour table, and who claims.

The client is a Node without an agent; strangers and routers send from its end of the cable with MACs of their own.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ipaddress import IPv4Address, IPv6Address

import pytest

from arpguard.addresses import BROADCAST_MAC, Address, MacAddress
from arpguard.core.conflicts import GRACE_NS
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket, build_question
from arpguard.kube.claims import lease_name
from arpguard.runtime.cluster.judging import NEIGHBOURS_NS
from arpguard.units import NS_PER_S
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from arpguard.wire.ndp import build_dad_solicitation, build_solicitation, build_unsolicited_advertisement
from arpguard_lab import questions
from arpguard_lab.apiserver import resources
from arpguard_lab.apiserver.embedded import Embedded
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.topology import CONFIGMAP, KubeAgent
from arpguard_lab.patience import Patience
from support.kube.node_api import a_server, events
from support.netns.cable import Pair, a_pair, address, address6, speak_ipv6
from support.netns.waiting import ANSWER_S, until
from support.repeating import repeated

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

HOME = "arpguard"
M, CLIENT_MAC = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:64")
STRANGER, OWNER = MacAddress.parse("02:00:00:00:00:99"), MacAddress.parse("02:00:00:00:00:aa")
VRRP4, VRRP6 = MacAddress.parse("00:00:5e:00:01:33"), MacAddress.parse("00:00:5e:00:02:33")
FAMILIES = (4, 6)
VIPS: dict[int, list[Address]] = {
    4: [address(number) for number in range(50, 54)],
    6: [address6(number) for number in range(0x50, 0x54)],
}
ASKERS: dict[int, list[Address]] = {4: [address(100), IPv4Address(0)], 6: [address6(100), IPv6Address(0)]}
PINNED: dict[int, Address] = {4: address(60), 6: address6(0x60)}
FREE: dict[int, Address] = {4: address(61), 6: address6(0x61)}
ANNOUNCED = {4: 2, 6: 1}  # frames of one announcement: in ARP both forms
CONFIG = (
    "mode: enforce\ninterfaces: [eth0]\nservices: {owner: elect}\n"
    "ranges: [198.51.100.0/24, '2001:db8:51::/64']\nvips:\n"
    + "".join(f"  - {{address: '{vip}', owner: {{external: '{OWNER}'}}}}\n" for vip in PINNED.values())
)
GRACE_S = GRACE_NS / NS_PER_S
END_S = GRACE_S + 10.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("conflicts") as made:
        speak_ipv6(made.node, made.client)
        yield made


@pytest.fixture(scope="module")
def server(pair) -> Iterator[Embedded]:
    with a_server(pair.node.netns, _scene(pair)) as server:
        yield server


def _scene(pair: Pair) -> list[dict]:
    pairs = zip(VIPS[4], VIPS[6], strict=True)
    return [
        objects.namespace(HOME),
        objects.config_map(HOME, CONFIGMAP, CONFIG),
        objects.node("node-1", pair.node.address),
        objects.node("node-2", pair.client.address),
        *(objects.service(HOME, f"web-{number}", vips) for number, vips in enumerate(pairs)),
    ]


@pytest.fixture(scope="module")
def agent(pair, server) -> Iterator[KubeAgent]:
    """The node's agent, done with announcing what it owns, and for longer than VIPs that move are waited for."""
    agent = KubeAgent(pair.node, pair.folder, pair.pin_root / pair.node.name)
    agent.namespace, agent.pod = HOME, "arpguard-x7"
    server.do(lambda it: it.write_kubeconfig(agent.kubeconfig, "node-1"))
    agent.configure(CONFIG)
    agent.start()
    agent.wait_for()
    for vip in (*VIPS[4], *VIPS[6]):
        until(lambda vip=vip: agent.said().count(f"announced: vip={vip} ") >= 3, END_S, f"three announcements of {vip}")
    since = time.monotonic()
    until(lambda: time.monotonic() - since > GRACE_S, END_S, "the time in which a claim may be of the owner before")
    yield agent
    agent.kill(signal.SIGKILL)
    agent.remove_guard()


@pytest.fixture(scope="module")
def socket(pair) -> Iterator[NeighbourSocket]:
    opened = pair.client.netns.call(lambda: NeighbourSocket("eth0"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def api(pair, server) -> Callable[[str], list[dict]]:
    """Events by reason."""
    return partial(events, pair.node.netns, server)


def announcement(vip: Address, mac: MacAddress) -> bytes:
    """What says that a VIP is at a MAC now: an ARP announcement, or an unsolicited advertisement."""
    if isinstance(vip, IPv6Address):
        return build_unsolicited_advertisement(mac, vip)
    return build_frame(ArpPacket(ArpOp.REQUEST, mac, vip, MacAddress(bytes(6)), vip), BROADCAST_MAC, mac)


def question_in_its_name(vip: Address, mac: MacAddress) -> bytes:
    """A question about somebody else that has a VIP as its sender."""
    if isinstance(vip, IPv6Address):
        return build_solicitation(mac, vip, address6(0x77))
    return build_frame(ArpPacket(ArpOp.REQUEST, mac, vip, MacAddress(bytes(6)), address(200)), BROADCAST_MAC, mac)


def defences(socket: NeighbourSocket, vip: Address, wait_s: float) -> list[HeardFrame]:
    """The announcements of a VIP that are heard from the node for so long."""
    found, deadline = [], time.monotonic() + wait_s
    while (heard := socket.hear(max(0.0, deadline - time.monotonic()))) is not None:
        if heard.packet.spa == vip and heard.packet.sha == M:
            found.append(heard)
    return found


def first_defences(socket: NeighbourSocket, vip: Address, family: int) -> list[HeardFrame]:
    """The announcements that defend a VIP, and any that come soon after those."""
    found, patience = [], Patience(ANSWER_S)
    while len(found) < ANNOUNCED[family] and not patience.is_over:
        found += defences(socket, vip, 0.1)
    return found + defences(socket, vip, 0.5)


def page(pair: Pair, agent: KubeAgent, vip: Address) -> str:
    return pair.arpguard("conflicts", "--vip", str(vip), "--address", agent.api).stdout


# ---- who it is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_c7_c8_n31_host_outside_is_reported_and_defended_against_once(pair, agent, socket, api, family):
    vip = VIPS[family][0]
    while socket.hear(0) is not None:
        pass
    socket.send(announcement(vip, STRANGER))
    assert len(first_defences(socket, vip, family)) == ANNOUNCED[family]
    socket.send(announcement(vip, STRANGER))
    assert defences(socket, vip, 0.5) == [], "one in 10 s"

    until(lambda: len(questions.conflicts(agent, vip)) == 1, ANSWER_S)
    (found,) = questions.conflicts(agent, vip)
    assert (found["mac"], found["claimant"]["kind"], found["dropped"]) == (str(STRANGER), "KIND_OUTSIDE", True)
    assert found["firstTime"] <= found["lastTime"]
    until(lambda: [event for event in api("VIPConflict") if f"claims {vip} on eth0" in event["note"]], ANSWER_S)


@pytest.mark.parametrize("family", FAMILIES)
def test_virtual_router_is_named(pair, agent, socket, family):
    vip = VIPS[family][1]
    socket.send(announcement(vip, VRRP6 if family == 6 else VRRP4))

    until(lambda: "VRRP router 51" in page(pair, agent, vip), ANSWER_S)
    words = ("conflicts", "--vip", str(vip), "--claimant", "vrrp_router", "-o", "json", "--address", agent.api)
    (found,) = json.loads(pair.arpguard(*words).stdout)["conflicts"]
    assert (found["claimant"]["kind"], found["claimant"]["router"]) == ("KIND_VRRP_ROUTER", 51)


@pytest.mark.parametrize("family", FAMILIES)
def test_c11_node_without_an_agent_is_a_split_brain_and_not_defended_against(pair, agent, socket, api, family):
    """It has answered a ping of this node: so its address is in the neighbour table. Nothing else tells who it is."""
    vip = VIPS[family][2]
    pair.node.netns.run("ping", "-c", "1", "-W", "2", str(pair.client.address))
    time.sleep(NEIGHBOURS_NS / NS_PER_S)  # the agent may have looked there just before
    while socket.hear(0) is not None:
        pass
    began = time.monotonic()
    socket.send(announcement(vip, CLIENT_MAC))
    assert defences(socket, vip, GRACE_S / 2) == []
    told = questions.conflicts(agent, vip)
    assert told == [] or time.monotonic() - began > GRACE_S, "it might have been a VIP that moves"
    until(lambda: questions.conflicts(agent, vip), END_S)
    (found,) = questions.conflicts(agent, vip)

    claimant = found["claimant"]
    assert (claimant["kind"], claimant["node"]) == ("KIND_CLUSTER_NODE_WITHOUT_AGENT", "node-2")
    assert "node-2 (node, no agent)" in page(pair, agent, vip)
    detail = " ".join(pair.arpguard("vips", str(vip), "--address", agent.api).stdout.split())
    assert f"last claim {CLIENT_MAC} (node-2 (cluster node without an agent))" in detail
    until(lambda: [event for event in api("VIPSplitBrain") if f"claim {vip} on" in event["note"]], ANSWER_S)
    assert not [event for event in api("VIPConflict") if f" {vip} " in event["note"]]
    assert pair.arpguard("conflicts", "--vip", str(vip), "--address", agent.api).returncode == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_c10_n22_question_in_the_name_of_a_vip_is_a_conflict_and_not_answered(pair, agent, socket, family):
    vip = VIPS[family][3]
    while socket.hear(0) is not None:
        pass
    socket.send(question_in_its_name(vip, STRANGER))
    heard = first_defences(socket, vip, family)

    assert len(heard) == ANNOUNCED[family], "the defence, and no reply"
    until(lambda: questions.conflicts(agent, vip), ANSWER_S)
    assert questions.conflicts(agent, vip)[0]["mac"] == str(STRANGER)


# ---- before a VIP is taken -----------------------------------------------------------------------------------------


def probe(vip: Address, mac: MacAddress) -> bytes:
    """An ARP probe, or the solicitation of duplicate address detection."""
    if isinstance(vip, IPv6Address):
        return build_dad_solicitation(mac, vip)
    return build_frame(ArpPacket(ArpOp.REQUEST, mac, IPv4Address(0), MacAddress(bytes(6)), vip), BROADCAST_MAC, mac)


def publish(server: Embedded, name: str, vip: Address) -> None:
    server.do(lambda it: it.put(objects.service(HOME, name, [vip])))


def probed(socket: NeighbourSocket, vip: Address, wait_s: float) -> bool:
    """Whether the node is heard to probe for a VIP."""
    deadline = time.monotonic() + wait_s
    while (heard := socket.hear(max(0.0, deadline - time.monotonic()))) is not None:
        if heard.packet.is_probe and (heard.packet.tpa, heard.packet.sha) == (vip, M):
            return True
    return False


@pytest.mark.parametrize("answer", [announcement, probe], ids=["claims it", "probes for it"])
@pytest.mark.parametrize("family", FAMILIES)
def test_c16_n30_vip_that_somebody_is_heard_to_have_while_it_is_probed_for_is_not_taken(
    server, agent, socket, api, family, answer
):
    """RFC 5227 2.1.1, RFC 4862 5.4.3. It is one that the cluster never had, so nobody has waited for it."""
    vip = (address if family == 4 else address6)(0xA0 + (answer is probe))
    # A probe listens for a fifth of a second, in which this process may stand still.
    with repeated(lambda: socket.send(answer(vip, STRANGER)), 0.01):
        publish(server, f"taken-{family}-{answer.__name__}", vip)
        assert probed(socket, vip, ANSWER_S)
        note = f"{vip} is in use outside"
        until(lambda: [event for event in api("VIPTakenOutside") if note in event["note"]], ANSWER_S)
    assert f"owned: vip={vip} " not in agent.said()


@pytest.mark.parametrize("family", FAMILIES)
def test_n29_nothing_is_answered_before_the_claim_is_confirmed(server, agent, socket, family):
    """The claim is written, and the renewal that confirms it takes its time."""
    vip = (address if family == 4 else address6)(0xA8)
    lease = f"{HOME}/{lease_name(vip)}"
    server.do(lambda it: it.fault("node-1", hold="node."))
    try:
        publish(server, f"tentative-{family}", vip)
        until(lambda: server.do(lambda it: lease in written_leases(it)), ANSWER_S, "the claim")
        asked = [build_question(STRANGER, spa, vip) for spa in ASKERS[family]]
        for frame in asked:
            socket.send(frame)
        heard = defences(socket, vip, 0.2)
        assert f"owned: vip={vip} " not in agent.said(), "the renewal came too soon for this test"
        assert heard == []
    finally:
        server.do(lambda it: it.fault("node-1"))
    until(lambda: f"owned: vip={vip} " in agent.said(), ANSWER_S)
    for frame in asked:
        socket.send(frame)
        until(lambda: defences(socket, vip, 0.1), what="now it is answered")


def written_leases(it) -> set[str]:
    return {"/".join(change.key) for change in it.store.table(resources.LEASES).since(1)}


# ---- this node's own neighbour table -------------------------------------------------------------------------------


def neighbour(pair: Pair, vip: Address) -> str:
    """The MAC that the node's kernel would send to."""
    words = pair.node.netns.run("ip", "neigh", "show", str(vip), "dev", "eth0").split()
    return words[words.index("lladdr") + 1] if "lladdr" in words else ""


def _frames(vip: Address, mac: MacAddress) -> Sequence[bytes]:
    """Whatever moves an entry of Linux's neighbour table."""
    frames = [announcement(vip, mac), question_in_its_name(vip, mac)]
    if not isinstance(vip, IPv6Address):
        frames.append(build_frame(ArpPacket(ArpOp.REPLY, mac, vip, mac, vip), BROADCAST_MAC, mac))
        frames.append(build_frame(ArpPacket(ArpOp.REPLY, mac, vip, M, address(1)), M, mac))
    return frames


@pytest.mark.parametrize("family", FAMILIES)
def test_claims_that_are_dropped_leave_the_nodes_own_neighbour_table_right(pair, agent, socket, family):
    """A VIP of a host outside, by its known MAC. An address that is not guarded shows that the frames would move it."""
    name = "ipv4" if family == 4 else "ipv6"
    pair.node.netns.run("sysctl", "-qw", f"net.{name}.neigh.eth0.locktime=0")
    for vip in (PINNED[family], FREE[family]):
        pair.node.netns.batch([f"neigh replace {vip} lladdr {OWNER} dev eth0 nud stale"])
    for vip in (PINNED[family], FREE[family]):
        for frame in _frames(vip, STRANGER):
            socket.send(frame)
    until(lambda: neighbour(pair, FREE[family]) == str(STRANGER), ANSWER_S, "the frames move an entry")
    until(lambda: questions.conflicts(agent, PINNED[family]), ANSWER_S)

    assert neighbour(pair, PINNED[family]) == str(OWNER)


@pytest.mark.parametrize("family", FAMILIES)
def test_claims_of_an_owned_vip_make_no_neighbour_of_it(pair, agent, socket, family):
    """It is on no link of the node, so the kernel takes it for somebody's."""
    vip = VIPS[family][0]
    pair.node.netns.batch([f"neigh replace {vip} lladdr {M} dev eth0 nud stale"])
    for frame in [*_frames(vip, STRANGER), *_frames(FREE[family], OWNER)]:
        socket.send(frame)
    until(lambda: neighbour(pair, FREE[family]) == str(OWNER), ANSWER_S, "later frames are through")

    assert neighbour(pair, vip) == str(M)
