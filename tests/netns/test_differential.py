"""Principle P of docs/conformance.md: what an unguarded kernel answers, a guard that may not answer drops.

Two nodes with the VIP bound on lo, one of them guarded, see the same mutants of ARP frames. Whatever the one without a
guard answers, the other one does not; and it says nothing at all about the VIP.
"""

import random
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Hook, Kind
from arpguard.wire.ethernet import VLAN_ETHERTYPES, VlanTag
from support.frames.builders import a_control, a_frame, a_packet, an_entry, patched
from support.netns.cable import Pair, a_pair, address
from support.netns.guard import Guard, a_guard
from support.netns.wire import Wire, a_wire, claims, shown

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SEED = 826
COUNT = 10_000
BATCH = 50
ENOUGH_ANSWERS = 1000

VIP, NODE_ADDRESS, CLIENT_ADDRESS = address(50), address(1), address(100)
M = MacAddress.parse("02:00:00:00:00:01")
T = MacAddress.parse("02:00:00:00:00:64")
O = MacAddress.parse("02:00:00:00:00:33")  # noqa: E741 - as docs/conformance.md has it
MULTICAST = MacAddress.parse("01:00:5e:00:00:05")
MACS = (M, T, O, BROADCAST_MAC, MULTICAST, ZERO_MAC)
ODD_SENDERS = ("0.0.0.0", "10.0.0.9", "127.0.0.1", "224.0.0.1", "255.255.255.255")
SENDERS = (CLIENT_ADDRESS, address(7), VIP, NODE_ADDRESS, *map(IPv4Address, ODD_SENDERS))

# As what a node that may not answer knows the VIP.
ENTRIES: dict[str, VipEntry] = {
    "foreign": an_entry(Kind.FOREIGN),
    "unclaimed": an_entry(Kind.UNCLAIMED),
    "external": an_entry(Kind.EXTERNAL),
    "external, MAC known": an_entry(Kind.EXTERNAL, owner_mac=O),
    "owned, fence passed": an_entry(Kind.OWNED),
    "owned, stale epoch": an_entry(Kind.OWNED, unfenced=True, epoch=1),
}


def some_tags(rng: random.Random) -> tuple[VlanTag, ...]:
    depth = rng.choice((0, 0, 0, 0, 1, 1, 2, 3, 8, 9))
    return tuple(
        VlanTag(rng.choice((0, 0, 0, 0, 0, 0, 11)), rng.randrange(8), rng.random() < 0.1, rng.choice(VLAN_ETHERTYPES))
        for _ in range(depth)
    )


def cut(frame: bytes, rng: random.Random) -> bytes:
    return frame[: rng.randrange(14, max(15, min(len(frame), 60)))]


def flipped(frame: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(min(len(frame), 60))
    return patched(frame, at, bytes([frame[at] ^ 1 << rng.randrange(8)]))


def overwritten(frame: bytes, rng: random.Random) -> bytes:
    """A word of the ARP header, or of what stands there, replaced by one that means something elsewhere."""
    words = ("0000", "0001", "0002", "0006", "0100", "0800", "0806", "0604", "8100", "88a8", "86dd", "8035", "ffff")
    return patched(frame, rng.randrange(12, 24, 2), bytes.fromhex(rng.choice(words)))


def grown(frame: bytes, rng: random.Random) -> bytes:
    return frame + rng.randbytes(rng.randrange(1, 1514))


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (cut, flipped, overwritten, grown)


def a_mutant(rng: random.Random) -> bytes:
    """A request for the VIP, or a claim of it, with unusual addresses, tags, lengths and a few wrong bytes."""
    odd = rng.random() < 0.5
    packet = a_packet(
        op=rng.choice((1, 1, 1, 1, 1, 2)),
        htype=rng.choice((1, 1, 1, 6, 2)),
        sha=rng.choice(MACS) if odd else T,
        spa=rng.choice(SENDERS),
        tha=rng.choice(MACS),
        tpa=rng.choice((VIP,) * 8 + (NODE_ADDRESS, CLIENT_ADDRESS)),
    )
    dst = rng.choice((BROADCAST_MAC, BROADCAST_MAC, M, M, MULTICAST, O))
    src = rng.choice(MACS) if odd else T
    frame = a_frame(packet, dst, src, some_tags(rng), rng.choice((42, 46, 60, 60, 60)))
    while rng.random() < 0.3:
        frame = rng.choice(MUTATIONS)(frame, rng)[:1514]
    return frame


@pytest.fixture(scope="module")
def mutants() -> list[bytes]:
    rng = random.Random(SEED)
    return [a_mutant(rng) for _ in range(COUNT)]


@pytest.fixture(scope="module")
def free() -> Iterator[Pair]:
    """The node without a guard."""
    with a_pair("unguarded") as made:
        made.node.bind(VIP, "lo")
        yield made


@pytest.fixture(scope="module")
def guarded() -> Iterator[Pair]:
    with a_pair("guarded") as made:
        made.node.bind(VIP, "lo")
        made.node.netns.run("ethtool", "-K", "eth0", "rxvlan", "off")  # or XDP would not see the tags
        yield made


@pytest.fixture(scope="module")
def guard(guarded) -> Guard:
    return a_guard(guarded, Hook.TC_EGRESS)


@pytest.fixture(scope="module", params=[Hook.TC_INGRESS, Hook.XDP], ids=["tc", "xdp"])
def hook(request, guard) -> Iterator[Hook]:
    """The program that judges what comes in; what goes out is judged as well, but has nothing to catch."""
    guard.attach(request.param)
    yield request.param
    guard.detach(request.param)


@pytest.fixture(scope="module", params=[0, 1], ids=["accept_local=0", "accept_local=1"])
def accept_local(request, free, guarded) -> int:
    for pair in (free, guarded):
        pair.sysctl(accept_local=request.param, arp_ignore=0, arp_filter=0, rp_filter=0)
    return request.param


def about_the_vip(wire: Wire, frames: list[bytes]) -> list[bytes]:
    """What a node says about the VIP. Its own address, which it always answers for, marks the end."""
    heard = []
    for at in range(0, len(frames), BATCH):
        heard += claims(wire.exchange(frames[at : at + BATCH], NODE_ADDRESS), VIP)
    return heard


def assert_silent(wire: Wire, frames: list[bytes]) -> None:
    if about_the_vip(wire, frames):
        guilty = [frame for frame in frames if about_the_vip(wire, [frame])]
        raise AssertionError(f"{len(guilty)} frames are answered, such as\n{shown(guilty[:3])}")


def test_the_unguarded_kernel_answers_many_of_the_mutants(free, accept_local, mutants):
    """Or the other tests would show nothing."""
    with a_wire(free.client) as wire:
        answered = [frame for frame in mutants if about_the_vip(wire, [frame])]
    assert len(answered) > ENOUGH_ANSWERS
    assert any(frame[12:14] in (b"\x81\x00", b"\x88\xa8") for frame in answered), "tagged ones among them"
    assert any(frame[6:12] != frame[22:28] for frame in answered), "third parties among them"


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
def test_a_node_that_may_not_answer_says_nothing_about_the_vip(guarded, guard, hook, accept_local, mutants, entry):
    guard.set({VIP: entry}, a_control(fence_ns=0))
    with a_wire(guarded.client) as wire:
        assert_silent(wire, mutants)


def test_without_entries_the_guarded_kernel_answers_like_the_other(free, guarded, guard, hook, accept_local, mutants):
    """What is not guarded is left alone: the same frames get the same answers."""
    guard.set({}, a_control())
    readable = [frame for frame in mutants if frame.count(b"\x81\x00") + frame.count(b"\x88\xa8") < 8]
    with a_wire(guarded.client) as wire, a_wire(free.client) as other:
        assert about_the_vip(wire, readable) == about_the_vip(other, readable)
