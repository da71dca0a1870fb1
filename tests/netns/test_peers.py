"""Other announcers, as the lab has them: that they say what the real ones say, and what a guard makes of it."""

import signal
from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address

import pytest

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.units import NS_PER_S
from arpguard.verdict import Reason
from arpguard.wire.arp import ArpOp
from arpguard.wire.ethernet import ETHERTYPE_IPV6
from arpguard.wire.ndp import (
    ALL_NODES,
    NdFlag,
    NdMessage,
    NdType,
    build_dad_solicitation,
    build_solicitation,
    parse_nd_frame,
)
from arpguard_lab.peers.programs import Keepalived, KubeVipLike, MetalLbLike, find, holds
from support.frames.builders import a_frame, a_packet
from support.frames.nd_builders import tlla
from support.netns.announcers import announcers
from support.netns.cable import Pair, a_pair, address, address6, speak_ipv6
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import Wire, a_wire

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP, NODE_ADDRESS = address(50), address(1)
M, C = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:64")
O = MacAddress.parse("02:00:00:00:00:0f")  # noqa: E741 - some other host, as in docs/conformance.md
GROUP = MacAddress.parse("01:00:5e:00:00:12")
DELEGATED = "mode: enforce\ninterfaces: [eth0]\nvips: [{{address: {vip}, owner: {{node: {node}, delegated: true}}}}]\n"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("peers") as made:
        yield made


@pytest.fixture
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as made:
        yield made


@pytest.fixture
def begin() -> Iterator:
    """Starts an announcer."""
    with announcers(VIP) as start:
        yield start


def next_frames(wire: Wire, count: int) -> list[bytes]:
    heard = [wire.hear(ANSWER_S) for _ in range(count)]
    assert None not in heard
    return heard


def announcement(op: ArpOp, tha: MacAddress, length: int) -> bytes:
    return a_frame(a_packet(op=op, sha=M, spa=VIP, tha=tha, tpa=VIP), src=M, min_len=length)


# ---- what they say -----------------------------------------------------------------------------------------------


def test_metallb_announces_with_broadcast_tha_and_again_after_1100_ms(pair, wire, begin):
    begin(MetalLbLike(pair.node, pair.folder, VIP))
    both = [announcement(op, BROADCAST_MAC, 60) for op in (ArpOp.REQUEST, ArpOp.REPLY)]
    assert next_frames(wire, 2) == both
    first_ns = wire.heard_ns
    until(lambda: wire.hear(0.01) == both[0], ANSWER_S, "the next round")
    assert wire.heard_ns - first_ns > 0.5 * NS_PER_S


@pytest.mark.parametrize(
    ("dst", "op", "sha", "answered"),
    [
        pytest.param(BROADCAST_MAC, ArpOp.REQUEST, C, True, id="broadcast"),
        pytest.param(M, ArpOp.REQUEST, C, True, id="to its MAC"),
        pytest.param(BROADCAST_MAC, ArpOp.REQUEST, O, True, id="of another sha: answered there"),
        pytest.param(GROUP, ArpOp.REQUEST, C, False, id="to a group"),
        pytest.param(BROADCAST_MAC, ArpOp.REPLY, C, False, id="a reply"),
    ],
)
def test_metallb_answers_what_the_real_one_answers(pair, wire, begin, dst, op, sha, answered):
    begin(MetalLbLike(pair.node, pair.folder, VIP)).wait_for()
    asked = a_packet(op=op, sha=sha, spa=address(100), tpa=VIP)
    answer = a_frame(a_packet(op=ArpOp.REPLY, sha=M, spa=VIP, tha=sha, tpa=address(100)), dst=sha, src=M)
    heard = wire.exchange([a_frame(asked, dst=dst, src=C)], VIP)
    assert [frame for frame in heard if frame[:6] != BROADCAST_MAC.octets] == ([answer] if answered else [])


def test_kube_vip_announces_as_reply_and_request_in_turns(pair, wire, begin):
    begin(KubeVipLike(pair.node, pair.folder, VIP))
    reply, request = announcement(ArpOp.REPLY, M, 42), announcement(ArpOp.REQUEST, BROADCAST_MAC, 42)
    assert next_frames(wire, 3) == [reply, request, reply]


@pytest.mark.parametrize(("number", "left"), [(signal.SIGTERM, False), (signal.SIGKILL, True)], ids=["TERM", "KILL"])
def test_kube_vip_takes_the_address_off_unless_it_is_killed(pair, wire, begin, number, left):
    program = begin(KubeVipLike(pair.node, pair.folder, VIP))
    program.wait_for()
    assert holds(pair.node, VIP)
    program.kill(number)
    assert holds(pair.node, VIP) is left
    assert wire.answers(VIP) is left


@pytest.mark.skipif(find("keepalived") is None, reason="needs keepalived")
def test_keepalived_announces_with_broadcast_tha_and_leaves_the_address_when_it_is_killed(pair, wire, begin):
    daemon = begin(Keepalived(pair.node, pair.folder, VIP, 100, vmac=False))
    assert next_frames(wire, 5) == [announcement(ArpOp.REQUEST, BROADCAST_MAC, 42)] * 5
    daemon.kill(signal.SIGKILL)
    assert holds(pair.node, VIP)
    assert wire.answers(VIP)


# ---- the same in IPv6 ----------------------------------------------------------------------------------------------

VIP6, CLIENT6 = address6(0x50), address6(100)
LINK_LOCAL6 = IPv6Address("fe80::ff:fe00:1")


@pytest.fixture(scope="module")
def in_ipv6(pair) -> None:
    """From here on."""
    speak_ipv6(pair.node, pair.client)


@pytest.fixture
def wire6(pair, in_ipv6) -> Iterator[Wire]:
    with a_wire(pair.client, also=ETHERTYPE_IPV6) as made:
        yield made


@pytest.fixture
def begin6() -> Iterator:
    """Starts an announcer."""
    with announcers(VIP6) as start:
        yield start


def advertisements(frames: Sequence[bytes]) -> list[NdMessage]:
    """Valid ones for the VIP; the kernel has put a flow label before them."""
    read = [packet.message for frame in frames if (packet := parse_nd_frame(frame)) and packet.flaw is None]
    return [message for message in read if message.target == VIP6]


def advertised(dst: IPv6Address, flags: NdFlag) -> NdMessage:
    return NdMessage(NdType.ADVERTISEMENT, LINK_LOCAL6, dst, VIP6, flags, (tlla(M),))


def test_metallb_and_kube_vip_advertise_to_all_nodes_with_override(pair, wire6, begin6):
    for program in (MetalLbLike, KubeVipLike):
        begin6(program(pair.node, pair.folder, VIP6)).wait_for()
        heard: list[NdMessage] = []
        until(lambda heard=heard: heard.extend(advertisements(wire6.listen(0.05))) or heard, 5.0)
        assert heard[0] == advertised(ALL_NODES, NdFlag.OVERRIDE)


@pytest.mark.parametrize(
    ("frame", "answered"),
    [
        pytest.param(build_solicitation(C, CLIENT6, VIP6), True, id="to the group"),
        pytest.param(build_solicitation(C, CLIENT6, VIP6, dst_mac=M), False, id="unicast, as NUD"),
        pytest.param(build_dad_solicitation(C, VIP6), False, id="DAD"),
    ],
)
def test_metallb_answers_solicitations_that_the_real_one_answers(pair, wire6, begin6, frame, answered):
    begin6(MetalLbLike(pair.node, pair.folder, VIP6)).wait_for()
    wire6.send(frame)
    mark = build_solicitation(C, CLIENT6, VIP6)
    wire6.send(mark)
    expected = [advertised(CLIENT6, NdFlag.SOLICITED)] * (1 + answered)
    heard: list[NdMessage] = []
    until(lambda: heard.extend(advertisements(wire6.listen(0.05))) or len(told(heard)) >= len(expected), 5.0)
    assert told(heard) == expected


def told(heard: list[NdMessage]) -> list[NdMessage]:
    """Those that were not announced."""
    return [message for message in heard if not message.dst.is_multicast]


# ---- what a guard makes of it ------------------------------------------------------------------------------------


@pytest.fixture
def delegated_elsewhere(pair) -> Iterator:
    agent = pair.agent(DELEGATED.format(vip=VIP, node="node-2"))
    yield agent
    agent.kill(signal.SIGTERM)
    pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))


PROGRAMS = [MetalLbLike, KubeVipLike]


@pytest.mark.parametrize("program", PROGRAMS)
def test_delegated_elsewhere_nothing_of_an_announcer_is_heard(pair, wire, begin, delegated_elsewhere, program):
    announcer = begin(program(pair.node, pair.folder, VIP))
    until(lambda: announcer.said().count("failed to send: [Errno 105]") >= 2, what="ENOBUFS for what egress drops")
    assert wire.exchange([wire.request(VIP), wire.request(VIP, address(0))], NODE_ADDRESS) == []
    assert wire.listen(0.2) == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_delegated_here_its_frames_are_its_own(pair, wire, begin, delegated_elsewhere, program):
    delegated_elsewhere.configure(DELEGATED.format(vip=VIP, node="node-1"))
    asked = ("explain", str(VIP), "--operation", "out-reply", "--pin-dir", str(delegated_elsewhere.pin_dir))
    until(lambda: Reason.EGRESS_DELEGATED.meaning in pair.arpguard(*asked, "-o", "wide").stdout)
    announcer = begin(program(pair.node, pair.folder, VIP))
    announcer.wait_for()
    until(lambda: wire.hear(0.01), 3.0, "its announcement")
    assert wire.who(VIP, VIP) == [M]
    assert "failed" not in announcer.said()
