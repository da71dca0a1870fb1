"""The cases of docs/conformance.md section 6 that need a wire: a real kernel behind the guard, and one before it.

One node, one client, one cable. Every VIP is on the node's eth0, where Linux answers for it; one bound address is not
guarded, and shows what the kernel does with a frame. The client asks by hand, with ndisc6 and ping, and by what its own
kernel does: duplicate address detection, and the states of a neighbour entry.

Elsewhere: N30 in test_prober.py, N36 in test_snooping.py.
"""

import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from itertools import pairwise
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import syscall
from arpguard.wire.ethernet import ETHERTYPE_IPV6
from arpguard.wire.ndp import (
    ALL_NODES,
    NdMessage,
    build_solicitation,
    build_unsolicited_advertisement,
    checksum,
    parse_nd_frame,
)
from arpguard_lab.neighbours import States, is_free, mac_of, quicken
from arpguard_lab.topology import AgentProcess
from support.frames.builders import patched
from support.frames.nd_builders import (
    DESTINATION,
    HOP_BY_HOP,
    TYPE,
    a_dad_solicitation,
    a_header,
    a_routing_header,
    a_solicitation,
    an_advertisement,
    na6,
    nd_frame,
    nonce,
    slla,
    tlla,
)
from support.netns.agents import said
from support.netns.cable import Pair, a_pair, address, address6, speak_ipv6
from support.netns.foreign import a_program_that_drops_linear_frames, attached
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import FragmentSender, Wire, a_wire
from support.programs.prog_run import hexdump

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

ICMPV6_ECHO, ICMPV6_ECHO_REPLY = 128, 129
MARK = address(1)  # the node's own IPv4 address: its answer comes after all that was caused before
NODE, CLIENT, LINK_LOCAL = address6(1), address6(100), IPv6Address("fe80::ff:fe00:64")
M, T, O = (MacAddress.parse(f"02:00:00:00:00:{last}") for last in ("01", "64", "33"))  # noqa: E741 - conformance.md

OWNED, FOREIGN, EXTERNAL, PINNED, UNCLAIMED, FREE = (address6(number) for number in range(0x50, 0x56))
NOT_OURS = {"foreign": FOREIGN, "external": EXTERNAL, "pinned": PINNED, "unclaimed": UNCLAIMED}
CLAIMED, ASKED_FOR_ITSELF, MOVING, NOWHERE = (address6(number) for number in range(0x70, 0x74))
OURS = (OWNED, CLAIMED, ASKED_FOR_ITSELF, NOWHERE)
OWNERS = {
    **dict.fromkeys(OURS, "{node: node-1}"),
    FOREIGN: "{node: node-2}",
    MOVING: "{node: node-2}",
    EXTERNAL: "external",
    PINNED: f'{{external: "{O}"}}',
    UNCLAIMED: "elect",
}


def a_config(**owners: str) -> str:
    items = {**OWNERS, **{IPv6Address(vip.replace("_", ":")): owner for vip, owner in owners.items()}}
    rows = [f"  - {{address: '{vip}', owner: {owner}}}" for vip, owner in items.items()]
    return "\n".join(["mode: enforce", "audit: {every: off}", "interfaces: [eth0]", "vips:", *rows])


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("ndp") as made:
        speak_ipv6(made.node, made.client)
        bound = (OWNED, *NOT_OURS.values(), FREE, MOVING)
        known = [f"neigh replace {each} lladdr {T} dev eth0 nud permanent" for each in (CLIENT, LINK_LOCAL)]
        made.node.netns.batch([*(f"addr add {vip}/128 dev eth0 nodad" for vip in bound), *known])
        quicken(made.client)
        yield made


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    """The node's agent, done with announcing what it owns."""
    started = pair.agent(a_config())
    until(lambda: said(started, "announced:") >= 3 * len(OURS), 8, "the last announcement")
    return started


@pytest.fixture(scope="module")
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client, also=ETHERTYPE_IPV6) as opened:
        yield opened


def about(frames: Sequence[bytes], vip: IPv6Address) -> list[bytes]:
    """Those that ask, answer or speak in the name of a VIP."""
    read = [(frame, packet.message) for frame in frames if (packet := parse_nd_frame(frame)) is not None]
    return [frame for frame, message in read if vip in (message.src, message.target)]


def shown(frames: Sequence[bytes]) -> str:
    return "\n".join(hexdump(frame) for frame in frames) or "  (nothing)"


def assert_heard(heard: list[bytes], expected: list[bytes], stimulus: bytes) -> None:
    if heard != expected:
        raise AssertionError(f"sent\n{shown([stimulus])}\nexpected\n{shown(expected)}\nheard\n{shown(heard)}")


# ---- stimuli -----------------------------------------------------------------------------------------------------


def ns(vip: IPv6Address, **changes) -> NdMessage:
    return a_solicitation(**{"target": vip, "src": CLIENT, "options": (slla(T),), **changes})


def dad(vip: IPv6Address, **changes) -> NdMessage:
    return a_dad_solicitation(**{"target": vip, **changes})


@dataclass(frozen=True)
class Case:
    """A solicitation, how it is sent, whether the owner's guard answers, and whether an unguarded kernel does."""

    name: str
    build: Callable[[IPv6Address], NdMessage]
    owner: bool
    kernel: bool
    dst: MacAddress | None = None
    headers: tuple = ()

    def frame(self, vip: IPv6Address) -> bytes:
        return nd_frame(self.build(vip), self.dst, src=T, headers=self.headers)

    def __str__(self) -> str:
        return self.name


CASES = (
    Case("N1 multicast", ns, owner=True, kernel=True),
    Case("N2 from a link-local address", lambda vip: ns(vip, src=LINK_LOCAL), owner=True, kernel=True),
    Case("N3 unicast", lambda vip: ns(vip, dst=vip), owner=True, kernel=True),
    Case("N4 unicast without SLLA", lambda vip: ns(vip, dst=vip, options=()), owner=True, kernel=True),
    Case("N5 multicast without SLLA", lambda vip: ns(vip, options=()), owner=False, kernel=True),
    Case("N6 DAD", dad, owner=True, kernel=True),
    Case("N7 DAD with a nonce", lambda vip: dad(vip, options=(nonce(),)), owner=True, kernel=True),
    Case("N8 DAD with SLLA", lambda vip: dad(vip, options=(slla(T),)), owner=False, kernel=False),
    Case("N10 hop limit 254", lambda vip: ns(vip, hop_limit=254), owner=False, kernel=False),
    Case("N11 code 1", lambda vip: ns(vip, code=1), owner=False, kernel=False),
    Case("N20 SLLA zero", lambda vip: ns(vip, options=(slla(MacAddress(bytes(6))),)), owner=False, kernel=True),
    Case("N23 to all nodes", lambda vip: ns(vip, dst=ALL_NODES), owner=True, kernel=True),
    Case("N25 to another host's MAC", ns, owner=False, kernel=False, dst=O),
    Case("N26 hop-by-hop", ns, owner=False, kernel=True, headers=(a_header(HOP_BY_HOP),)),
    Case("N26 destination options", ns, owner=False, kernel=True, headers=(a_header(DESTINATION),)),
    Case("N26 routing", lambda vip: ns(vip, dst=vip), owner=False, kernel=True, headers=(a_routing_header(),)),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_owner_answers_once_or_not_at_all(agent, wire, case):
    for vip in (OWNED, NOWHERE):
        stimulus = case.frame(vip)
        expected = [na6(case.build(vip), sha=T, mac=M)] if case.owner else []
        assert_heard(about(wire.exchange([stimulus], MARK), vip), expected, stimulus)


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_heard_from_a_node_that_does_not_own_it(agent, wire, case, vip):
    """N29 is the unclaimed one: a VIP that is being taken, or that nobody has."""
    assert_heard(about(wire.exchange([case.frame(vip)], MARK), vip), [], case.frame(vip))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel_treats_an_unguarded_address_as_ever(agent, wire, case):
    heard = about(wire.exchange([case.frame(FREE)], MARK), FREE)
    assert len(heard) == case.kernel, shown(heard)


def test_n24_another_target_of_the_same_group_is_untouched(pair, agent, wire):
    """2001:db8:51::1:0:50 shares its group with the VIP that is owned, and with nobody's guard."""
    neighbour = IPv6Address(int(OWNED) | 1 << 32)
    pair.node.netns.batch([f"addr add {neighbour}/128 dev eth0 nodad"])
    try:
        (answer,) = about(wire.exchange([nd_frame(ns(neighbour), src=T)], MARK), neighbour)
    finally:
        pair.node.netns.batch([f"addr del {neighbour}/128 dev eth0"])
    packet = parse_nd_frame(answer)
    assert (packet.message.target, packet.sha) == (neighbour, M)


def test_answers_are_good_by_another_decoder(agent, wire, tmp_path):
    """What tcpdump says of N1's and N6's answers: the checksum, the flags and the option."""
    frames = [nd_frame(ns(OWNED), src=T), nd_frame(dad(OWNED), src=T)]
    capture = tmp_path / "answers.pcap"
    record = b"".join(
        struct.pack("=IIII", 0, 0, len(each), len(each)) + each for each in about(wire.exchange(frames, MARK), OWNED)
    )
    capture.write_bytes(struct.pack("=IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + record)
    words = ["tcpdump", "-nvv", "-r", str(capture)]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert out.count("[icmp6 sum ok]") == 2
    assert f"tgt is {OWNED}, Flags [solicited, override]" in out
    assert f"tgt is {OWNED}, Flags [override]" in out
    assert out.count(f"destination link-address option (2), length 8 (1): {M}") == 2


# ---- other programs, and the client's kernel ---------------------------------------------------------------------


def ndisc6(pair: Pair, vip: IPv6Address) -> tuple[int, list[str]]:
    """Exit code, and every MAC that it was told."""
    words = [*pair.client.netns.prefix(), "ndisc6", "-q", "-m", "-r", "1", "-w", "200", str(vip), "eth0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.split()


def test_ndisc6_is_answered_by_the_owner_once(pair, agent):
    assert ndisc6(pair, OWNED) == (0, [str(M)])
    assert ndisc6(pair, NOWHERE) == (0, [str(M)])
    assert ndisc6(pair, FREE) == (0, [str(M)])


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_ndisc6_is_not_answered_for_others_vips(pair, agent, vip):
    assert ndisc6(pair, vip) == (2, [])


def ping(pair: Pair, vip: IPv6Address) -> bool:
    words = ["ping", "-6", "-n", "-c", "1", "-w", "1", str(vip)]
    return subprocess.run([*pair.client.netns.prefix(), *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def forgetful(pair) -> Iterator[None]:
    """The client has no entry for any VIP, before and afterwards."""

    def forget() -> None:
        pair.client.netns.run("ip", "-6", "neigh", "flush", "dev", "eth0")

    forget()
    yield
    forget()


def test_ping_reaches_the_owner(pair, agent, forgetful):
    assert ping(pair, OWNED)
    assert mac_of(pair.client, OWNED) == M


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_ping_finds_nobody_for_others_vips(pair, agent, forgetful, vip):
    assert not ping(pair, vip)
    assert mac_of(pair.client, vip) is None


@pytest.mark.parametrize("vip", [OWNED, NOWHERE, FREE], ids=["owned", "owned, nowhere", "free"])
def test_n6_a_client_that_wants_the_vip_for_itself_is_told_that_it_is_taken(pair, agent, vip):
    assert not is_free(pair.client, vip)


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_n6_it_is_not_told_so_by_a_node_that_does_not_own_it(pair, agent, vip):
    assert is_free(pair.client, vip)


def test_n37_the_probes_of_a_client_are_answered(pair, agent, forgetful):
    """NOWHERE is on no link: none but the guard can answer."""
    with States(pair.client, NOWHERE) as states:
        ping(pair, NOWHERE)
        assert states.until("STALE")[0] == "REACHABLE"
        ping(pair, NOWHERE)
        assert states.until("REACHABLE") == ["PROBE", "REACHABLE"]


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_n37_the_probes_of_a_client_with_an_old_entry_are_not(pair, agent, forgetful, vip):
    """E11: else clients stay with a node that lost the VIP, whose kernel has it."""
    pair.client.netns.batch([f"neigh replace {vip} lladdr {M} dev eth0 nud stale"])
    with States(pair.client, vip) as states:
        ping(pair, vip)
        assert states.until("FAILED") == ["PROBE", "FAILED"]


def test_namespace_that_another_lab_is_just_creating_is_nothing_to_complain_of(pair, capfd):
    """Its name is there before it is one: ip-netns(8) binds it to a file."""
    half_made = Path(f"/run/netns/arpguard-{os.getpid()}-half-made")
    half_made.touch()
    try:
        with States(pair.client, NOWHERE):
            pass
    finally:
        half_made.unlink()
    assert capfd.readouterr().err == ""


# ---- claims of others --------------------------------------------------------------------------------------------


def conflicts(agent: AgentProcess, vip: IPv6Address) -> int:
    return said(agent, rf"claim: vip={vip} .*sha={T} verdict=conflict")


CLAIMS = {
    "N22 asks in the VIP's name": (ASKED_FOR_ITSELF, lambda vip: nd_frame(ns(vip, src=vip), src=T)),
    "N31 tells all nodes": (
        CLAIMED,
        lambda vip: nd_frame(an_advertisement(target=vip, src=vip, options=(tlla(T),)), src=T),
    ),
}


@pytest.mark.parametrize(("vip", "build"), CLAIMS.values(), ids=CLAIMS.keys())
def test_a_claim_of_an_owned_vip_is_reported_and_defended_once(pair, agent, wire, vip, build):
    """One advertisement, then none for 10 s, as for ARP. The node's own cache stays as it was."""
    pair.node.netns.batch([f"neigh replace {vip} lladdr {O} dev eth0 nud stale"])
    claim = build(vip)
    heard = about(wire.exchange([claim], MARK), vip) or wait_for(wire, vip, ANSWER_S)
    assert_heard(heard + about(wire.listen(0.3), vip), [build_unsolicited_advertisement(M, vip)], claim)
    assert conflicts(agent, vip) == 1
    assert about(wire.exchange([claim] * 3, MARK) + wire.listen(0.3), vip) == []
    assert mac_of(pair.node, vip) == O


def test_a_claim_of_an_unguarded_address_moves_the_kernels_entry(pair, agent, wire):
    """What the cache of the test above was spared."""
    neighbour = address6(0x99)
    pair.node.netns.batch([f"neigh replace {neighbour} lladdr {O} dev eth0 nud stale"])
    wire.exchange([nd_frame(an_advertisement(target=neighbour, src=neighbour, options=(tlla(T),)), src=T)], MARK)
    assert mac_of(pair.node, neighbour) == T


# ---- what the node says by itself --------------------------------------------------------------------------------


def test_n32_takeover_is_announced_at_once_and_three_times_a_second_apart(pair, agent, wire):
    agent.configure(a_config(**{str(MOVING).replace(":", "_"): "{node: node-1}"}))
    times = []
    for _ in range(3):
        frame = next(iter(wait_for(wire, MOVING)))
        assert_heard([frame], [build_unsolicited_advertisement(M, MOVING)], frame)
        times.append(wire.heard_ns / 1e9)
    assert about(wire.listen(1.5), MOVING) == [], "MAX_NEIGHBOR_ADVERTISEMENT is 3"
    # Each is heard a little after it came; how far apart they are sent is tested in unit/core/test_announcing.py.
    assert all(later - sooner > 0.9 for sooner, later in pairwise(times))
    agent.configure(a_config())
    until(lambda: ndisc6(pair, MOVING) == (2, []), what="it is given up again")


def wait_for(wire: Wire, vip: IPv6Address, wait_s: float = ANSWER_S) -> list[bytes]:
    """The next frame about a VIP."""
    deadline = time.monotonic() + wait_s
    while (frame := wire.hear(deadline - time.monotonic())) is not None:
        if found := about([frame], vip):
            return found
    raise AssertionError(f"nothing about {vip} within {wait_s} s")


@pytest.fixture
def notifying(pair) -> Iterator[None]:
    """The kernel advertises its addresses when the link comes up, and does not lose them when it goes down."""
    names = ("ndisc_notify", "keep_addr_on_down")
    pair.node.netns.run("sysctl", "-qw", *(f"net.ipv6.conf.eth0.{name}=1" for name in names))
    yield
    pair.node.netns.run("sysctl", "-qw", *(f"net.ipv6.conf.eth0.{name}=0" for name in names))


def test_n38_kernel_advertises_no_vip_of_others_when_its_link_comes_up(pair, agent, wire, notifying):
    wire.exchange([], MARK)
    before = said(agent, "announced:")
    pair.node.netns.batch(["link set eth0 down", "link set eth0 up"])
    told = wait_for(wire, FREE, 5.0)
    until(lambda: wire.answers(MARK), 5.0, "the link is up")
    heard = [*told, *wire.listen(0.3)]
    assert about(heard, FREE), "the kernel does advertise"
    for vip in NOT_OURS.values():
        assert about(heard, vip) == [], shown(about(heard, vip))
    known = [f"neigh replace {each} lladdr {T} dev eth0 nud permanent" for each in (CLIENT, LINK_LOCAL)]
    pair.node.netns.batch(known)
    until(lambda: said(agent, "announced:") >= before + 3 * len(OURS), 8, "the last announcement after that")


@pytest.fixture
def proxy(pair) -> Iterator[IPv6Address]:
    """The node answers for VIPs by proxy; they are on none of its links."""
    vips = (*NOT_OURS.values(), FREE)
    values = {"conf/all/proxy_ndp": (1, 0), "conf/all/forwarding": (1, 0), "neigh/eth0/proxy_delay": (0, 80)}
    run = pair.node.netns.run
    pair.node.netns.batch(
        [f"addr del {vip}/128 dev eth0" for vip in vips] + [f"neigh add proxy {vip} dev eth0" for vip in vips]
    )
    run("sysctl", "-qw", *(f"net/ipv6/{name}={on}" for name, (on, _) in values.items()))
    yield FREE
    run("sysctl", "-qw", *(f"net/ipv6/{name}={off}" for name, (_, off) in values.items()))
    pair.node.netns.batch(
        [f"neigh del proxy {vip} dev eth0" for vip in vips] + [f"addr add {vip}/128 dev eth0 nodad" for vip in vips]
    )


def test_n38_kernel_does_not_answer_for_vips_of_others_by_proxy(pair, agent, wire, proxy):
    frames = [case.frame(vip) for case in CASES for vip in NOT_OURS.values()]
    heard = wire.exchange(frames, MARK)
    for vip in NOT_OURS.values():
        assert about(heard, vip) == [], shown(about(heard, vip))
    assert len(about(wire.exchange([nd_frame(ns(proxy), src=T)], MARK), proxy)) == 1, "the kernel does"


@pytest.mark.parametrize("vip", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_node_asks_in_its_own_name_though_it_speaks_from_anothers_vip(pair, agent, wire, vip):
    """E4: the solicitation that leaves is whole, with another source and a checksum that fits."""
    neighbour = address6(0xA0 + int(vip) % 16)
    wire.exchange([], MARK)
    words = ["ping", "-6", "-c", "1", "-w", "1", "-I", str(vip), str(neighbour)]
    with subprocess.Popen([*pair.node.netns.prefix(), *words], stdout=subprocess.DEVNULL) as running:
        (asked,) = wait_for(wire, neighbour)
        running.kill()
    pair.node.netns.batch([f"neigh del {neighbour} dev eth0"])  # it is asked for no more
    assert_heard([asked], [build_solicitation(M, NODE, neighbour)], asked)


# ---- frames that are not linear ----------------------------------------------------------------------------------


@pytest.fixture
def ring(pair) -> Iterator[FragmentSender]:
    sender = FragmentSender(pair.client)
    yield sender
    sender.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_b11_solicitations_that_are_not_linear_are_judged_like_others(agent, wire, ring, case):
    expected = [na6(case.build(OWNED), sha=T, mac=M)] if case.owner else []
    assert_heard(about(wire.exchange([case.frame(OWNED)], MARK, send=ring.send), OWNED), expected, case.frame(OWNED))
    for vip in NOT_OURS.values():
        assert_heard(about(wire.exchange([case.frame(vip)], MARK, send=ring.send), vip), [], case.frame(vip))


def an_echo(headers: tuple = ()) -> bytes:
    """A ping of the node, perhaps behind extension headers."""
    body = bytes((ICMPV6_ECHO, 0, 0, 0, 0, 1, 0, 1)) + bytes(56)
    body = patched(body, 2, checksum(CLIENT, NODE, body).to_bytes(2, "big"))
    return nd_frame(ns(NODE, dst=NODE), M, T, headers=headers, body=body)


@pytest.mark.tcx
@pytest.mark.parametrize("headers", [(), (a_header(DESTINATION),)], ids=["plain", "behind an extension header"])
def test_ordinary_frames_are_not_made_linear(pair, agent, wire, ring, headers):
    """A program behind the guard drops what is linear: solicitations are by then, pings are not."""
    program = a_program_that_drops_linear_frames(15)
    echo = an_echo(headers)
    with attached(pair.node, program, syscall.ATTACH_TCX_INGRESS, 0):
        ring.send(nd_frame(ns(FREE), src=T))
        ring.send(echo)
        replies = iter(lambda: wire.hear(2), None)  # among what the node says of itself, as defences
        heard = next((frame for frame in replies if frame[TYPE] == ICMPV6_ECHO_REPLY or about([frame], FREE)), None)
    assert heard is not None, "nothing passes a program that drops linear frames"
    assert heard[TYPE] == ICMPV6_ECHO_REPLY, hexdump(heard)
