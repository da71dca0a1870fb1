"""The cases of docs/conformance.md that need a real kernel behind the guard.

One node, one client, one cable. Every VIP is bound on the node as well, so whatever the guard lets through the kernel
answers. One bound address is not guarded: it shows what the kernel does with a frame, and that the guard leaves it be.
VLAN devices (D2, D3, D8) and bonds are in test_devices.py: not every kernel has them.
"""

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.announcing import DEFEND_INTERVAL_NS
from arpguard.dataplane import loader, syscall
from arpguard.dataplane.maps import ControlValue, EntryTable, read_totals
from arpguard.model import EntryKey, NodeControl
from arpguard.verdict import Mode
from arpguard.wire.arp import ArpOp
from arpguard.wire.ethernet import ETHERTYPE_8021AD, ETHERTYPE_8021Q, VlanTag
from arpguard_lab.netns import command
from arpguard_lab.topology import AgentProcess
from support.frames.builders import a_frame, a_packet, the_answer
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import a_program_that_drops_linear_frames, a_program_that_tags, attached
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import FragmentSender, Wire, a_wire, arp_of, claims, shown

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

NODE_ADDRESS, CLIENT_ADDRESS = address(1), address(100)
M = MacAddress.parse("02:00:00:00:00:01")  # the node
T = MacAddress.parse("02:00:00:00:00:64")  # the client
O = MacAddress.parse("02:00:00:00:00:33")  # noqa: E741 - as docs/conformance.md has it
OWNER = MacAddress.parse("02:00:00:00:00:aa")  # of the VIP whose owner's MAC is known
MULTICAST = MacAddress.parse("01:00:5e:00:00:05")

OWNED, FOREIGN, EXTERNAL, PINNED, UNCLAIMED, FREE = (address(number) for number in range(50, 56))
NOT_OURS = {"foreign": FOREIGN, "external": EXTERNAL, "pinned": PINNED, "unclaimed": UNCLAIMED}
ANNOUNCED, ANNOUNCED_AS_REPLY, CLAIMED, ECHOED = (address(number) for number in range(70, 74))
MARK = address(90)  # owned, bound nowhere: always answered, by the guard

CONFIG = f"""
mode: enforce
audit: {{every: off}}  # what the agent asks for its own account is heard, too
interfaces: [eth0, eth1]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
  - {{address: {EXTERNAL}, owner: external}}
  - {{address: {PINNED}, owner: {{external: "{OWNER}"}}}}
  - {{address: {UNCLAIMED}, owner: elect}}
""" + "".join(
    f"  - {{address: {vip}, owner: {{node: node-1}}}}\n"
    for vip in (MARK, ANNOUNCED, ANNOUNCED_AS_REPLY, CLAIMED, ECHOED)
)
PLACES = ("lo", "kube-ipvs0 down", "kube-ipvs0 up")
BOUND = (OWNED, *NOT_OURS.values(), FREE)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("conformance") as made:
        made.node.netns.batch(
            [
                f"link add eth1 type veth peer name eth1 netns {made.client.netns.name}",
                "link set eth1 up",
                "addr add 203.0.113.1/24 dev eth1",
            ]
        )
        made.client.netns.batch(["link set eth1 up"])
        yield made


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    """The node's agent, done with announcing what it owns."""
    started = pair.agent(CONFIG)
    until(lambda: said(started, "announced:") >= 3 * 6, 5, "the last announcement")
    return started


@pytest.fixture(scope="module")
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as opened:
        yield opened


@pytest.fixture(scope="module", params=PLACES)
def place(request, pair) -> Iterator[str]:
    """Where the VIPs are bound, as kube-proxy and LVS do."""
    device = request.param.partition(" ")[0]
    pair.node.bind(FREE, request.param)
    pair.node.netns.batch([f"addr add {vip}/32 dev {device}" for vip in BOUND if vip != FREE])
    yield request.param
    if device == "lo":
        for vip in BOUND:
            pair.node.unbind(vip, "lo")
    else:
        pair.node.unbind(FREE, request.param)


@pytest.fixture(scope="module")
def on_lo(pair) -> Iterator[None]:
    """The VIPs are on lo, and nowhere else."""
    pair.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in BOUND])
    yield
    pair.node.netns.batch([f"addr del {vip}/32 dev lo" for vip in BOUND])


# ---- stimuli -----------------------------------------------------------------------------------------------------


def req(vip: IPv4Address, dst=BROADCAST_MAC, src=T, tags=(), length=60, **changes) -> bytes:
    """REQ of docs/conformance.md."""
    changes.setdefault("sha", T)
    changes.setdefault("spa", CLIENT_ADDRESS)
    return a_frame(a_packet(tpa=vip, **changes), dst, src, tags, length)


def padded(vip: IPv4Address, length: int, padding: bytes) -> bytes:
    return req(vip, length=42).ljust(length, padding)


@dataclass(frozen=True)
class Case:
    """A stimulus, and whether the owner's guard and the unguarded kernel answer it."""

    name: str
    build: Callable[[IPv4Address], bytes]
    owner: bool
    kernel: bool

    def __str__(self) -> str:
        return self.name


ZERO_TAG = VlanTag(0)
CASES = (
    Case("A1 request", req, owner=True, kernel=True),
    Case("A2 unicast", lambda vip: req(vip, dst=M), owner=True, kernel=True),
    Case("A3 probe", lambda vip: req(vip, spa=IPv4Address(0)), owner=True, kernel=True),
    Case("A4 unicast probe", lambda vip: req(vip, dst=M, spa=IPv4Address(0)), owner=True, kernel=True),
    Case("A5 tha of a third host", lambda vip: req(vip, tha=O), owner=True, kernel=True),
    Case("A5 tha broadcast", lambda vip: req(vip, tha=BROADCAST_MAC), owner=True, kernel=True),
    Case("A6 42 bytes", lambda vip: req(vip, length=42), owner=True, kernel=True),
    Case("A7 padding of AA", lambda vip: padded(vip, 60, b"\xaa"), owner=True, kernel=True),
    Case("A8 128 bytes", lambda vip: padded(vip, 128, b"\xaa"), owner=True, kernel=True),
    Case("A8 1514 bytes", lambda vip: padded(vip, 1514, b"\xaa"), owner=True, kernel=True),
    Case(
        "A9 to a multicast MAC",
        lambda vip: req(vip, dst=MacAddress.parse("01:00:5e:00:00:01")),
        owner=False,
        kernel=True,
    ),
    Case("B1 htype 6", lambda vip: req(vip, htype=6), owner=False, kernel=True),
    Case("C1 sha of a third host", lambda vip: req(vip, sha=O), owner=True, kernel=True),
    Case("C2 sha broadcast", lambda vip: req(vip, sha=BROADCAST_MAC), owner=False, kernel=True),
    Case("C3 sha multicast", lambda vip: req(vip, sha=MULTICAST), owner=False, kernel=True),
    Case("C4 sha zero", lambda vip: req(vip, sha=ZERO_MAC), owner=False, kernel=True),
    Case("C5 from the broadcast MAC", lambda vip: req(vip, src=BROADCAST_MAC), owner=False, kernel=True),
    Case("C6 own frame echoed", lambda vip: req(vip, src=M, sha=M), owner=False, kernel=True),
    Case("D1 to another host's MAC", lambda vip: req(vip, dst=O), owner=False, kernel=False),
    Case("D4 VID 11", lambda vip: req(vip, tags=(VlanTag(11),)), owner=False, kernel=False),
    Case("D4 802.1ad VID 11", lambda vip: req(vip, tags=(VlanTag(11, tpid=ETHERTYPE_8021AD),)), False, False),
    Case("D4 VID 11 in VID 0", lambda vip: req(vip, tags=(ZERO_TAG, VlanTag(11))), owner=False, kernel=False),
    Case("D6 VID 0", lambda vip: req(vip, tags=(VlanTag(0, pcp=5),)), owner=True, kernel=True),
    Case("D6 VID 0, 46 bytes", lambda vip: req(vip, tags=(VlanTag(0, pcp=5),), length=46), owner=True, kernel=True),
    Case(
        "D7 802.1ad and 802.1Q VID 0",
        lambda vip: req(vip, tags=(VlanTag(0, tpid=ETHERTYPE_8021AD), ZERO_TAG)),
        owner=False,
        kernel=True,
    ),
    Case("D9 three tags VID 0", lambda vip: req(vip, tags=(ZERO_TAG,) * 3), owner=False, kernel=True),
    # Cannot be read as far as the address: dropped, whoever is asked for.
    Case("D9 ten tags VID 0", lambda vip: req(vip, tags=(ZERO_TAG,) * 10), owner=False, kernel=False),
    Case("D9 cut off in the tag", lambda vip: req(vip, tags=(ZERO_TAG,))[:16], owner=False, kernel=False),
)


def the_owners_answer(stimulus: bytes) -> bytes:
    """R4: untagged; 60 bytes, or 42 where the request without its tag was shorter."""
    asked = arp_of(stimulus)
    assert asked is not None
    untagged = len(stimulus) - (4 if stimulus[12:14] in (b"\x81\x00", b"\x88\xa8") else 0)
    return the_answer(asked, M, 60 if untagged >= 60 else 42)


def assert_heard(heard: list[bytes], expected: list[bytes], *stimuli: bytes) -> None:
    if heard != expected:
        raise AssertionError(f"sent\n{shown(stimuli)}\nexpected\n{shown(expected)}\nheard\n{shown(heard)}")


# A1 to A9, B1, C1 to C6, D1, D4, D6, D7, D9, and E1: with the VIPs on lo and on kube-ipvs0, down and up.


@pytest.mark.parametrize("case", CASES, ids=str)
def test_owner_answers_once_or_not_at_all(agent, wire, place, case):
    stimulus = case.build(OWNED)
    expected = [the_owners_answer(stimulus)] if case.owner else []
    assert_heard(wire.exchange([stimulus], MARK), expected, stimulus)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_heard_from_a_node_that_does_not_own_it(agent, wire, place, case):
    stimuli = [case.build(vip) for vip in NOT_OURS.values()]
    assert_heard(wire.exchange(stimuli, MARK), [], *stimuli)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_treats_an_unguarded_address_as_ever(agent, wire, place, case):
    heard = wire.exchange([case.build(FREE)], MARK)
    assert len(claims(heard, FREE)) == case.kernel, shown(heard)


def test_a12_silent_on_an_interface_that_is_not_the_vips_home(pair, agent, on_lo):
    """Linux answers for any address on any interface: the free address shows it."""
    with a_wire(pair.client, "eth1") as other:
        eth1_address = IPv4Address("203.0.113.1")
        for vip in (OWNED, *NOT_OURS.values()):
            assert other.exchange([req(vip), req(vip, spa=IPv4Address(0))], eth1_address) == []
        assert len(claims(other.exchange([req(FREE)], eth1_address), FREE)) == 1


# ---- B11: non-linear frames --------------------------------------------------------------------------------------


@pytest.fixture
def fragments(pair) -> Iterator[FragmentSender]:
    sender = FragmentSender(pair.client)
    yield sender
    sender.close()


@pytest.mark.tcx
def test_b11_frames_from_the_ring_have_a_linear_part_shorter_than_arp(pair, agent, wire, on_lo, fragments):
    """A program before the guard drops what is linear: requests of a plain socket go, those from the ring stay."""
    program = a_program_that_drops_linear_frames(15)
    with attached(pair.node, program, syscall.ATTACH_TCX_INGRESS, syscall.F_BEFORE):
        wire.send(req(FREE, spa=address(101)))
        fragments.send(req(FREE, spa=address(102)))
        heard = wire.hear(2)
    packet = arp_of(heard or b"")
    assert packet is not None
    assert (packet.spa, packet.tpa) == (FREE, address(102))


@pytest.mark.parametrize("length", [42, 60, 1514])
def test_b11_owner_answers_a_non_linear_request(pair, agent, wire, on_lo, fragments, length):
    stimulus = req(OWNED, length=length)
    heard = wire.exchange([stimulus], MARK, send=fragments.send)
    assert_heard(heard, [the_owners_answer(stimulus)], stimulus)


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_b11_non_linear_requests_for_others_vips_are_dropped(pair, agent, wire, on_lo, fragments, vip):
    for tags in ((), (ZERO_TAG,), (ZERO_TAG,) * 3):
        assert wire.exchange([req(vip, tags=tags)], MARK, send=fragments.send) == []


# ---- D: tags beside the frame ------------------------------------------------------------------------------------

TAGGED_LEN = 100  # of the frames that the client's program puts a tag beside


@pytest.fixture(params=["on", "off"])
def tx_offload(request, pair) -> Iterator[str]:
    """Whether the tag travels beside the frame, or is put into it on the way."""
    pair.client.netns.run("ethtool", "-K", "eth0", "txvlan", request.param)
    yield request.param
    pair.client.netns.run("ethtool", "-K", "eth0", "txvlan", "on")


@pytest.mark.tcx
@pytest.mark.parametrize(
    ("tpid", "tci", "inner", "owner", "kernel"),
    [
        pytest.param(ETHERTYPE_8021Q, 5 << 13, (), True, True, id="D6 VID 0, PCP 5"),
        pytest.param(ETHERTYPE_8021AD, 0, (), True, True, id="D6 802.1ad VID 0"),
        pytest.param(ETHERTYPE_8021AD, 0, (ZERO_TAG,), False, True, id="D7 VID 0 twice"),
        pytest.param(ETHERTYPE_8021Q, 11, (), False, False, id="D5 VID 11"),
        pytest.param(ETHERTYPE_8021Q, 11, (ZERO_TAG,), False, False, id="D5 VID 0 in VID 11"),
        pytest.param(ETHERTYPE_8021Q, 0, (VlanTag(11),), False, False, id="D4 VID 11 in VID 0"),
        pytest.param(ETHERTYPE_8021Q, 0, (ZERO_TAG,) * 2, False, True, id="D9 three tags"),
        pytest.param(ETHERTYPE_8021Q, 0, (ZERO_TAG,) * 9, False, False, id="D9 ten tags"),
    ],
)
def test_a_tag_beside_the_frame_counts_as_one_in_it(
    pair, agent, wire, on_lo, tx_offload, *, tpid, tci, inner, owner, kernel
):
    program = a_program_that_tags(TAGGED_LEN, tpid, tci)

    def stimulus(vip: IPv4Address) -> bytes:
        return req(vip, tags=inner, length=TAGGED_LEN)

    with attached(pair.client, program, syscall.ATTACH_TCX_EGRESS, syscall.F_BEFORE):
        expected = [the_owners_answer(stimulus(OWNED))] if owner else []
        assert_heard(wire.exchange([stimulus(OWNED)], MARK), expected, stimulus(OWNED))
        for vip in NOT_OURS.values():
            assert_heard(wire.exchange([stimulus(vip)], MARK), [], stimulus(vip))
        assert len(claims(wire.exchange([stimulus(FREE)], MARK), FREE)) == kernel


# ---- E2, E3: whatever the sysctls say ----------------------------------------------------------------------------


@pytest.fixture
def sysctls(pair) -> Iterator[Callable[..., None]]:
    yield pair.sysctl
    pair.sysctl(arp_ignore=0, arp_filter=0, rp_filter=0, accept_local=0, proxy_arp=0, proxy_arp_pvlan=0, arp_announce=0)


def announcements(vip: IPv4Address, sha: MacAddress) -> list[bytes]:
    """Both forms, broadcast and to the node."""
    return [
        a_frame(a_packet(op=op, sha=sha, spa=vip, tha=tha, tpa=vip), dst, sha)
        for op, tha in ((ArpOp.REQUEST, ZERO_MAC), (ArpOp.REPLY, sha))
        for dst in (BROADCAST_MAC, M)
    ]


SENDERS = {"unknown host": O, "known owner": OWNER}


@pytest.mark.parametrize(
    ("arp_ignore", "arp_filter", "rp_filter", "accept_local"),
    list(itertools.product((0, 1, 2, 3, 8), (0, 1), (0, 1, 2), (0, 1))),
)
def test_e2_verdicts_do_not_depend_on_sysctls(
    pair, agent, wire, on_lo, sysctls, *, arp_ignore, arp_filter, rp_filter, accept_local
):
    sysctls(arp_ignore=arp_ignore, arp_filter=arp_filter, rp_filter=rp_filter, accept_local=accept_local)
    for case in CASES:
        stimulus = case.build(OWNED)
        expected = [the_owners_answer(stimulus)] if case.owner else []
        assert_heard(wire.exchange([stimulus], MARK), expected, stimulus)
    others = [case.build(vip) for case in CASES for vip in NOT_OURS.values()]
    others += [frame for vip in NOT_OURS.values() for sha in SENDERS.values() for frame in announcements(vip, sha)]
    heard = wire.exchange(others, MARK)
    assert heard == [], shown(heard)


@pytest.mark.parametrize("sender", SENDERS.values(), ids=SENDERS.keys())
@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_announcements_that_are_let_through_are_not_answered_with_accept_local(
    pair, agent, wire, on_lo, sysctls, vip, sender
):
    """The kernel learns from them. It would answer the request form, as it does for the free address."""
    sysctls(accept_local=1)
    assert wire.exchange(announcements(vip, sender), MARK) == []
    assert claims(wire.exchange(announcements(FREE, sender), MARK), FREE)


@pytest.fixture
def other_device(pair) -> Iterator[str]:
    pair.node.netns.batch(["link add other type bridge", "link set other up"])
    pair.node.netns.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.neigh.eth0.proxy_delay=0")
    yield "other"
    pair.node.netns.run("sysctl", "-qw", "net.ipv4.ip_forward=0")
    pair.node.netns.batch(["link del other"])


PROXIED = (*NOT_OURS.values(), FREE)


def routes(device: str) -> list[str]:
    return [f"route add {vip}/32 dev {device}" for vip in PROXIED]


PROXIES = {
    "proxy_arp": ({"proxy_arp": 1}, routes("other")),
    "proxy_arp_pvlan": ({"proxy_arp_pvlan": 1}, routes("eth0")),
    "proxy neighbour": ({}, [*routes("other"), *(f"neigh add proxy {vip} dev eth0" for vip in PROXIED)]),
}


@pytest.mark.parametrize(("values", "lines"), PROXIES.values(), ids=PROXIES.keys())
def test_e3_proxy_arp_does_not_answer_for_others_vips(pair, agent, wire, sysctls, other_device, values, lines):
    sysctls(**values)
    pair.node.netns.batch(lines)
    try:
        frames = [case.build(vip) for case in CASES for vip in NOT_OURS.values()]
        frames += [frame for vip in NOT_OURS.values() for frame in announcements(vip, O)]
        heard = wire.exchange(frames, MARK)
        assert heard == [], shown(heard)
        assert len(claims(wire.exchange([req(FREE)], MARK), FREE)) == 1, "the kernel does proxy"
    finally:
        pair.node.netns.batch([line.replace(" add ", " del ") for line in lines])


# ---- C: claims of others -----------------------------------------------------------------------------------------


def the_announcement(vip: IPv4Address) -> list[bytes]:
    """One announcement of the agent: REQ(sha M, spa = tpa = VIP, tha 0), and the same as a reply."""
    return [
        a_frame(a_packet(sha=M, spa=vip, tha=ZERO_MAC, tpa=vip), src=M),
        a_frame(a_packet(op=ArpOp.REPLY, sha=M, spa=vip, tha=M, tpa=vip), src=M),
    ]


def conflicts(agent: AgentProcess, vip: IPv4Address) -> int:
    return said(agent, rf"claim: vip={vip} .*sha={T} verdict=conflict")


CLAIMS = {
    "C7 announcement": (ANNOUNCED, lambda vip: req(vip, spa=vip)),
    "C9 broadcast reply": (
        ANNOUNCED_AS_REPLY,
        lambda vip: a_frame(a_packet(op=ArpOp.REPLY, sha=T, spa=vip, tha=T, tpa=vip), src=T),
    ),
    "C10 request for another host": (CLAIMED, lambda vip: req(address(200), spa=vip)),
}


@pytest.mark.parametrize(("vip", "build"), CLAIMS.values(), ids=CLAIMS.keys())
def test_a_claim_of_an_owned_vip_is_reported_and_defended_once(agent, wire, vip, build):
    """RFC 5227 2.4 (c): one announcement, then none for 10 s, however often the claim comes again (C8)."""
    claim, claimed_ns = build(vip), time.time_ns()
    heard, defence = wire.exchange([claim], MARK), the_announcement(vip)
    while len(claims(heard, vip)) < len(defence) and (late := wire.hear(ANSWER_S)) is not None:
        heard.append(late)
    assert claims(heard + wire.listen(0.3), vip) == defence, "the defence, and no reply"
    until(lambda: conflicts(agent, vip) == 1, what="the line about it, which follows the defence")
    totals = loader.open_maps(agent.pin_dir)["totals"]
    events = read_totals(totals)[1].delivered

    def told_again() -> bool:
        wire.send(claim)
        return read_totals(totals)[1].delivered > events

    until(told_again, what="the second event, after the window of the kernel's rate limit")
    heard = wire.listen(0.3, until_ns=claimed_ns + DEFEND_INTERVAL_NS)
    assert claims(heard, vip) == [], "no second defence"


def test_c6_own_frames_that_come_back_are_no_conflict(agent, wire):
    echoes = [*the_announcement(ECHOED), req(address(200), src=M, sha=M, spa=ECHOED)]
    heard = wire.exchange(echoes, MARK)
    assert claims(heard + wire.listen(0.2), ECHOED) == []
    assert said(agent, f"claim: vip={ECHOED} ") == 0


def test_a11_a_request_that_claims_another_owned_vip_gets_no_reply(agent, wire):
    assert wire.exchange([req(OWNED, spa=CLAIMED)], MARK) == []


def test_c12_an_unknown_claimant_of_anothers_vip_is_reported_in_silence(agent, wire):
    heard = wire.exchange(announcements(PINNED, T), MARK)
    until(lambda: conflicts(agent, PINNED), what="the event")
    assert claims(heard + wire.listen(0.2), PINNED) == []


# ---- the agent dies, and the fence stays -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dead(agent) -> AgentProcess:
    """For the last tests of this cable."""
    agent.kill(signal.SIGKILL)
    return agent


@pytest.mark.parametrize("case", CASES, ids=str)
def test_e7_suppression_and_static_answers_outlive_the_agent(dead, wire, on_lo, case):
    stimulus = case.build(OWNED)
    expected = [the_owners_answer(stimulus)] if case.owner else []
    assert_heard(wire.exchange([stimulus], MARK), expected, stimulus)
    assert wire.exchange([case.build(vip) for vip in NOT_OURS.values()], MARK) == []


def test_e7_no_process_is_needed(pair, dead, wire, on_lo):
    assert command("ip", "netns", "pids", pair.node.netns.name).split() == []
    assert len(wire.who(OWNED, MARK)) == 1


def test_e6_a_fenced_owner_falls_silent_at_its_deadline(pair, dead, wire, on_lo):
    """No packet needs the agent: entry and deadline are all there is."""
    maps = loader.open_maps(dead.pin_dir)
    table, control = EntryTable(maps["entries"], maps["counters"]), ControlValue(maps["control"])
    key = EntryKey(pair.ifindex(), OWNED)
    table.write({key: replace(table.read().entries[key], unfenced=False)})
    answered = 0
    while answered <= 5:  # again if the machine stood still until the deadline
        deadline = boot_ns() + 1_000_000_000
        control.write(NodeControl(Mode.ENFORCE, generation=1, fence_ns=deadline, lease_ns=3_000_000_000))
        answered = silent = 0
        while silent <= 5:
            before = boot_ns()
            heard = wire.exchange([req(OWNED)], MARK)
            if boot_ns() < deadline:
                answered += 1
                assert len(heard) == 1
            elif before >= deadline:
                silent += 1
                assert heard == [], shown(heard)
