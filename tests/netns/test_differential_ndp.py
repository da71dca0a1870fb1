"""Principle P of docs/conformance.md for IPv6: what an unguarded kernel answers, a guard that may not answer drops.

A node with the VIP on its NIC, or one that answers for it by proxy, and a guarded one like it see the same mutants of
neighbour solicitations. Whatever the one without a guard answers, the other one does not, and it says nothing at all
about the VIP; no program at egress helps it. Fragments are put together again: suppress_frag_ndisc is off.
In the same way, what an unguarded kernel believes about a VIP whose owner is known, a guarded one does not get to see.
ARPGUARD_SEED and ARPGUARD_TIMES make it other frames, and more.
"""

import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Hook, Kind, Reason
from arpguard.wire.ethernet import ETHERTYPE_IPV6, parse_ethernet
from arpguard.wire.ndp import (
    ALL_NODES,
    UNSPECIFIED,
    NdFlag,
    NdPacket,
    NdType,
    OptionType,
    multicast_mac,
    parse_nd,
    solicited_node,
)
from reference import Situation, respond_ingress
from support.frames.nd_builders import a_control6, a_solicitation, an_advertisement, an_entry6
from support.frames.odd_nd import Mutant, a_mutant, some_options
from support.netns.cable import Pair, a_pair, address
from support.netns.guard import Guard, a_guard
from support.netns.waiting import until
from support.netns.wire import FragmentSender, Wire, a_wire
from support.programs.prog_run import INGRESS, hexdump

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SEED = int(os.environ.get("ARPGUARD_SEED", "4861"))
COUNT = 4_000 * int(os.environ.get("ARPGUARD_TIMES", "1"))
BATCH = 50

MARK = address(1)  # the node's own IPv4 address, which it always answers for
VIP, OTHER = IPv6Address("2001:db8::50"), IPv6Address("2001:db8::51")
NODE, CLIENT, LINK_LOCAL = (IPv6Address(text) for text in ("2001:db8::1", "2001:db8::64", "fe80::64"))
M = MacAddress.parse("02:00:00:00:00:01")
T = MacAddress.parse("02:00:00:00:00:64")
O = MacAddress.parse("02:00:00:00:00:33")  # noqa: E741 - as docs/conformance.md has it
MULTICAST = MacAddress.parse("33:33:00:00:00:05")
MACS = (M, T, O, BROADCAST_MAC, MULTICAST, ZERO_MAC)
ODD_SENDERS = tuple(map(IPv6Address, ("::1", "ff02::1", "::ffff:192.0.2.7", "2001:db8:9::9", "fec0::1")))
SENDERS = (UNSPECIFIED, CLIENT, LINK_LOCAL, VIP, NODE, *ODD_SENDERS)
ASKED = (solicited_node(VIP), VIP, ALL_NODES, solicited_node(NODE), IPv6Address("ff01::1"), NODE)

# As what a node that may not answer knows the VIP.
ENTRIES: dict[str, VipEntry] = {
    "foreign": an_entry6(Kind.FOREIGN),
    "unclaimed": an_entry6(Kind.UNCLAIMED),
    "external, MAC known": an_entry6(Kind.EXTERNAL, owner_mac=O),
    "owned, fence passed": an_entry6(Kind.OWNED),
}
ANSWERED_KINDS = (
    *("hop-by-hop", "router alert", "destination", "unknown option", "routing", "atomic fragment", "fragments"),
    *("tag", "padding", "payload length", "flipped", "flipped, and mended", "option length"),
)


def a_question(rng: random.Random) -> Mutant:
    """A solicitation of the VIP with unusual addresses, and mutated."""
    odd = rng.random() < 0.3
    src = rng.choice(SENDERS if odd else (CLIENT, CLIENT, LINK_LOCAL, UNSPECIFIED))
    dst = rng.choice(ASKED if odd or rng.random() < 0.2 else (solicited_node(VIP), solicited_node(VIP), VIP))
    options = some_options(rng, OptionType.SOURCE_LINK_LAYER, T, rng.choice(MACS))
    message = a_solicitation(
        src=src,
        dst=dst,
        target=rng.choice((VIP,) * 15 + (NODE,)),
        options=() if src == UNSPECIFIED and rng.random() < 0.8 else options,
        hop_limit=rng.choice((255,) * 30 + (254, 0)),
        code=rng.choice((0,) * 30 + (1,)),
        reserved=rng.choice((0, 0, 0xFFFFFFFF)),
    )
    usual = multicast_mac(dst) if dst.is_multicast else M
    eth_dst = usual if rng.random() < 0.8 else rng.choice((M, O, BROADCAST_MAC, MULTICAST, multicast_mac(dst)))
    return a_mutant(rng, message, eth_dst, rng.choice(MACS) if odd else T)


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    rng = random.Random(SEED)
    return [a_question(rng) for _ in range(COUNT)]


# ---- nodes -------------------------------------------------------------------------------------------------------

ANSWERS = {
    "bound": [f"addr add {VIP}/128 dev eth0 nodad"],
    "by proxy": [f"neigh add proxy {VIP} dev eth0"],
}
KNOWS = [f"neigh replace {VIP} lladdr {O} dev eth0 nud reachable"]
SYSCTLS = {
    "conf/eth0/accept_dad": 0,
    "conf/eth0/router_solicitations": 0,
    "conf/eth0/disable_ipv6": 0,
    "conf/eth0/suppress_frag_ndisc": 0,
    "conf/all/forwarding": 1,
    "conf/all/proxy_ndp": 1,
    "neigh/eth0/proxy_delay": 0,
    "neigh/eth0/proxy_qlen": 0,
}


@contextmanager
def a_node(name: str, lines: list[str]) -> Iterator[Pair]:
    """A node with an address, that knows where its neighbours are: an answer to each comes at once."""
    with a_pair(name) as made:
        node = made.node.netns

        def set_sysctls() -> None:
            for path, value in SYSCTLS.items():
                Path("/proc/sys/net/ipv6", path).write_text(f"{value}\n", encoding="ascii")

        node.call(set_sysctls)
        neighbours = {CLIENT, LINK_LOCAL, *ODD_SENDERS[3:]}
        node.batch(
            [f"addr add {NODE}/64 dev eth0 nodad", *lines]
            + [f"neigh replace {neighbour} lladdr {T} dev eth0 nud permanent" for neighbour in neighbours]
        )
        yield made


@pytest.fixture(scope="module", params=ANSWERS)
def how(request) -> str:
    """Why the kernel answers."""
    return request.param


@pytest.fixture(scope="module")
def free(how) -> Iterator[Pair]:
    """The node without a guard."""
    with a_node("unguarded6", ANSWERS[how]) as made:
        yield made


@pytest.fixture(scope="module")
def guarded(how) -> Iterator[Pair]:
    with a_node("guarded6", ANSWERS[how]) as made:
        made.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")  # or XDP would not see the tags
        yield made


@pytest.fixture(scope="module")
def guard(guarded) -> Guard:
    return a_guard(guarded)


@pytest.fixture(scope="module", params=INGRESS, ids=lambda hook: hook.name)
def hook(request, guard) -> Iterator[Hook]:
    """The only program."""
    guard.attach(request.param)
    yield request.param
    guard.detach(request.param)


# ---- what is heard -----------------------------------------------------------------------------------------------


def nd_of(frame: bytes) -> NdPacket | None:
    parsed = parse_ethernet(frame)
    packet = parse_nd(parsed) if parsed is not None and parsed.ethertype == ETHERTYPE_IPV6 else None
    return packet if isinstance(packet, NdPacket) else None


def advertises(frame: bytes) -> bool:
    """Whether a frame says whose the VIP is. What asks in its name is for the program at egress to stop."""
    packet = nd_of(frame)
    return packet is not None and packet.message.kind is NdType.ADVERTISEMENT and packet.message.target == VIP


def answers(wire: Wire, mutants: list[Mutant], send: Callable[[bytes], None] | None = None) -> list[bytes]:
    """What a node says about the VIP."""
    heard = []
    for at in range(0, len(mutants), BATCH):
        frames = [frame for mutant in mutants[at : at + BATCH] for frame in mutant.frames]
        heard += [frame for frame in wire.exchange(frames, MARK, send) if advertises(frame)]
    return heard


def answered(pair: Pair, mutants: list[Mutant]) -> list[Mutant]:
    """Those of the mutants that a node answers."""
    with a_wire(pair.client, also=ETHERTYPE_IPV6) as wire:
        return [mutant for mutant in mutants if answers(wire, [mutant])]


def assert_silent(pair: Pair, mutants: list[Mutant]) -> None:
    with a_wire(pair.client, also=ETHERTYPE_IPV6) as wire:
        if not answers(wire, mutants):
            return
    guilty = answered(pair, mutants)
    shown = [f"{mutant.oddities}\n" + "\n".join(map(hexdump, mutant.frames)) for mutant in guilty[:3]]
    raise AssertionError(f"ARPGUARD_SEED={SEED}: {len(guilty)} are answered, such as\n" + "\n".join(shown))


def is_readable(mutant: Mutant) -> bool:
    """Whether the guard can tell what it is about."""
    situation = Situation(a_control6(), {}, 1, 0)
    reasons = [
        judgement.reason for frame in mutant.frames for judgement in respond_ingress(frame, situation).judgements
    ]
    return Reason.UNWALKABLE not in reasons


def test_the_unguarded_kernel_answers_many_of_the_mutants(free, mutants):
    """Of every kind; or the other tests would show nothing."""
    found = answered(free, mutants)
    kinds = Counter(oddity for mutant in found for oddity in {*mutant.oddities})
    print(f"{len(found)} of {len(mutants)} mutants are answered without a guard: {dict(kinds)}")
    assert len(found) > len(mutants) // 5
    assert all(kinds[kind] > len(mutants) // 4000 for kind in ANSWERED_KINDS), kinds


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_node_that_may_not_answer_is_silent(guarded, guard, hook, mutants, entry):
    guard.set({VIP: entry}, a_control6(fence_ns=0))
    assert_silent(guarded, mutants)


def test_what_is_not_guarded_is_answered_as_ever(free, guarded, guard, hook, mutants):
    guard.set({OTHER: ENTRIES["foreign"]}, a_control6())
    readable = [mutant for mutant in mutants if is_readable(mutant)]
    differently = {*answered(guarded, readable)} ^ {*answered(free, readable)}
    # What a kernel knows of a neighbour, and for how long, decides in few cases: so these start anew.
    for pair in (guarded, free):
        pair.node.netns.run("ip", "-6", "neigh", "flush", "dev", "eth0")
    assert answered(guarded, list(differently)) == answered(free, list(differently))


def test_frames_of_which_hardly_anything_is_linear_are_treated_alike(mutants):
    """A driver may leave no more than the Ethernet header where the program can read it at once."""
    some = mutants[: COUNT // 10]
    with a_node("pieces6", ANSWERS["bound"]) as pair, a_wire(pair.client, also=ETHERTYPE_IPV6) as wire:
        guard, sender = a_guard(pair, Hook.TC_INGRESS), FragmentSender(pair.client)
        guard.set({VIP: an_entry6(unfenced=True)}, a_control6())
        said = answers(wire, some)
        assert len(said) > len(some) // 20
        assert answers(wire, some, sender.send) == said
        guard.set({VIP: ENTRIES["foreign"]}, a_control6())
        assert answers(wire, some, sender.send) == []
        sender.close()


# ---- what is believed --------------------------------------------------------------------------------------------


def a_claim(rng: random.Random) -> Mutant:
    """The VIP is somewhere else: an advertisement, or a solicitation of the node in its name; and mutated."""
    mac = MacAddress(b"\x02\xcc" + rng.randbytes(4))
    if rng.random() < 0.7:
        dst = rng.choice((ALL_NODES, ALL_NODES, NODE, NODE, solicited_node(NODE)))
        options = some_options(rng, OptionType.TARGET_LINK_LAYER, mac, mac)
        flags = NdFlag(rng.choice((0x20, 0x20, 0x60, 0)))
        message = an_advertisement(
            target=VIP, src=rng.choice((VIP, VIP, CLIENT)), dst=dst, flags=flags, options=options
        )
    else:
        options = some_options(rng, OptionType.SOURCE_LINK_LAYER, mac, mac)
        dst = rng.choice((solicited_node(NODE), NODE))
        message = a_solicitation(src=VIP, target=NODE, dst=dst, options=options)
    return a_mutant(rng, message, multicast_mac(message.dst) if message.dst.is_multicast else M, mac)


class NeighbourLog:
    """What a node's kernel learns of its neighbours (ip-monitor(8))."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        self._node = pair.node.netns
        self._path = folder / "neighbours"
        self._marks = 0
        with self._path.open("wb") as output:
            words = [*self._node.prefix(), "ip", "-6", "monitor", "neigh"]
            self._process = subprocess.Popen(words, stdout=output)
        self.flush()

    def flush(self) -> None:
        """Waits until what happened up to now is in the log."""
        marks = []

        def is_told() -> bool:
            self._marks += 1
            marks.append(str(MacAddress(b"\x02\0" + self._marks.to_bytes(4, "big"))))
            self._node.run("ip", "neigh", "replace", str(OTHER), "lladdr", marks[-1], "dev", "eth0")
            log = self._path.read_text()
            return any(mark in log for mark in marks)

        until(is_told, what="the kernel tells of its neighbours")

    def macs(self) -> set[MacAddress]:
        """Those that the VIP was believed to have."""
        lines = self._path.read_text().splitlines()
        found = (re.search(r"lladdr (\S+)", line) for line in lines if f"{VIP} " in line)
        return {MacAddress.parse(match[1]) for match in found if match}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def claims() -> list[Mutant]:
    rng = random.Random(SEED)
    return [a_claim(rng) for _ in range(COUNT)]


def believed(pair: Pair, mutants: list[Mutant], folder: Path) -> set[MacAddress]:
    """The MACs that the node's kernel took for the VIP's, besides the one that it knew."""
    log = NeighbourLog(pair, folder)
    try:
        with a_wire(pair.client, also=ETHERTYPE_IPV6) as wire:
            for at in range(0, len(mutants), BATCH):
                answers(wire, mutants[at : at + BATCH])
                log.flush()  # ip-monitor misses what its socket has no room for
        return log.macs() - {O}
    finally:
        log.close()


def test_the_unguarded_kernel_believes_many_of_the_claims(claims, tmp_path):
    with a_node("believes6", KNOWS) as pair:
        macs = believed(pair, claims, tmp_path)
    print(f"{len(macs)} of {len(claims)} claims are believed without a guard")
    assert len(macs) > len(claims) // 5


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_no_claim_reaches_the_kernel_behind_a_guard_that_knows_the_owner(claims, tmp_path, hook):
    with a_node("doubts6", KNOWS) as pair:
        pair.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")
        guard = a_guard(pair, hook)
        guard.set({VIP: an_entry6(Kind.FOREIGN, owner_mac=O)}, a_control6())
        assert believed(pair, claims, tmp_path) == set()
