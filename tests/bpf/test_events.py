"""Events: what one says, how many there are, and that none is lost without being counted."""

import os
import select
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC
from arpguard.clock import boot_ns
from arpguard.dataplane.build import read_build
from arpguard.dataplane.events import BATCH, EventReader
from arpguard.model import Decision, EntryKey
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    PRIMARY_IP,
    TESTER,
    TESTER_IP,
    THIRD,
    VIP,
    a_control,
    an_announcement,
    an_arp_reply,
    an_arp_request,
    an_entry,
)
from support.programs.prog_run import INGRESS, LO, Plane, a_plane

pytestmark = pytest.mark.bpf
at_both_hooks = pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)

WINDOW_NS = 256_000_000  # 256 jiffies on the fastest of clocks, HZ=1000
RING_BYTES = 4096
EVENTS_IN_WINDOW = 512  # bpf/arpguard.c
MANY_VIPS = [IPv4Address("198.51.100.0") + number for number in range(1, 101)]


@pytest.fixture
def one_cpu():
    """The rate limit is per CPU: this process stays on one."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


class Received:
    """Reads a plane's ring buffer into a list."""

    def __init__(self, plane: Plane) -> None:
        self.decisions: list[Decision] = []
        self.reader = EventReader(plane.maps["events"], self.decisions.append)

    def take(self) -> list[Decision]:
        """What has come since the last time."""
        self.decisions.clear()
        while self.reader.consume():
            pass
        return list(self.decisions)


@pytest.fixture
def received(plane):
    """Nothing unread in the ring, and no entry whose events are held back already."""
    plane.set({}, a_control())
    receiver = Received(plane)
    receiver.take()
    yield receiver
    receiver.reader.close()


@pytest.fixture(scope="module")
def small_plane():
    source = replace(read_build(), max_entries=len(MANY_VIPS), ring_bytes=RING_BYTES)
    with a_plane("small-ring", source) as plane:
        yield plane


def event_of(plane, received, hook, entry, frame, control=None) -> Decision:
    plane.set({VIP: entry}, control or a_control())
    start = boot_ns()
    plane.run(hook, frame)
    (event,) = received.take()
    assert start - 20_000_000 <= event.time_ns <= boot_ns()
    return replace(event, time_ns=0)


THE_EVENT = Decision(
    time_ns=0,
    key=EntryKey(LO, VIP),
    verdict=Verdict.ANSWER,
    reason=Reason.ANSWERED,
    hook=Hook.TC_INGRESS,
    mode=Mode.ENFORCE,
    kind=Kind.OWNED,
    op=1,
    spa=TESTER_IP,
    tpa=VIP,
    sha=TESTER,
    tha=ZERO_MAC,
    eth_src=TESTER,
    eth_dst=BROADCAST_MAC,
)


@at_both_hooks
def test_event_of_an_answer_tells_the_request(plane, received, hook):
    event = event_of(plane, received, hook, an_entry(), an_arp_request())
    assert event == replace(THE_EVENT, hook=hook)


@at_both_hooks
def test_event_tells_all_four_macs_apart(plane, received, hook):
    frame = an_arp_request(dst=GUARD, src=TESTER, sha=THIRD, tha=BROADCAST_MAC)
    event = event_of(plane, received, hook, an_entry(), frame)
    assert (event.eth_dst, event.eth_src, event.sha, event.tha) == (GUARD, TESTER, THIRD, BROADCAST_MAC)


@at_both_hooks
def test_event_of_a_conflict_names_the_claimant(plane, received, hook):
    event = event_of(plane, received, hook, an_entry(), an_announcement())
    expected = replace(THE_EVENT, verdict=Verdict.CONFLICT, reason=Reason.CONFLICT, hook=hook, spa=VIP)
    assert event == expected


def test_event_of_an_outgoing_request_tells_what_it_was(plane, received):
    frame = an_arp_request(src=GUARD, sha=GUARD, spa=VIP, tpa=NEIGHBOUR_IP)
    event = event_of(plane, received, Hook.TC_EGRESS, an_entry(Kind.FOREIGN), frame)
    assert event == replace(
        THE_EVENT,
        verdict=Verdict.REWRITE,
        reason=Reason.EGRESS_REWRITTEN,
        hook=Hook.TC_EGRESS,
        kind=Kind.FOREIGN,
        spa=VIP,
        tpa=NEIGHBOUR_IP,
        sha=GUARD,
        eth_src=GUARD,
    )


def test_event_of_a_reply_has_op_2(plane, received):
    frame = an_arp_reply(tpa=PRIMARY_IP, tha=GUARD, dst=GUARD)
    assert event_of(plane, received, Hook.TC_INGRESS, an_entry(Kind.UNCLAIMED), frame).op == 2


@at_both_hooks
def test_observed_event_tells_the_would_be_verdict(plane, received, hook):
    entry = an_entry(Kind.FOREIGN)
    event = event_of(plane, received, hook, entry, an_arp_request(), a_control(Mode.OBSERVE))
    assert (event.verdict, event.mode) == (Verdict.SUPPRESS, Mode.OBSERVE)


@at_both_hooks
def test_event_tells_the_mode_of_the_entry(plane, received, hook):
    entry = an_entry(Kind.FOREIGN, mode=Mode.ENFORCE)
    event = event_of(plane, received, hook, entry, an_arp_request(), a_control(Mode.OBSERVE))
    assert event.mode is Mode.ENFORCE


@at_both_hooks
def test_frame_about_no_vip_makes_no_event(plane, received, hook):
    plane.set({VIP: an_entry()}, a_control())
    plane.run(hook, an_arp_request(tpa=NEIGHBOUR_IP))
    assert received.take() == []


@at_both_hooks
def test_frame_about_two_vips_makes_an_event_for_each(plane, received, hook):
    plane.set({VIP: an_entry(), NEIGHBOUR_IP: an_entry(Kind.UNCLAIMED)}, a_control())
    plane.run(hook, an_arp_request(spa=NEIGHBOUR_IP))
    events = [(event.key.vip, event.reason) for event in received.take()]
    assert events == [(NEIGHBOUR_IP, Reason.UNCLAIMED_CLAIM), (VIP, Reason.ANSWERED)]


# ---- how many ----------------------------------------------------------------------------------------------------


def windows_since(start_ns: int) -> int:
    """How many event windows have been open since then, at most; where they begin is the kernel's affair."""
    return (boot_ns() - start_ns) // WINDOW_NS + 2


@at_both_hooks
@pytest.mark.parametrize("kind", [Kind.OWNED, Kind.FOREIGN], ids=["with_the_boot_clock", "without"])
def test_one_event_for_each_entry_and_reason_in_a_window(plane, received, one_cpu, hook, kind):
    plane.set({VIP: an_entry(kind)}, a_control())
    start = boot_ns()
    for _ in range(1000):
        plane.run(hook, an_arp_request())
    assert 1 <= len(received.take()) <= windows_since(start)


@at_both_hooks
def test_another_reason_has_an_event_of_its_own(plane, received, one_cpu, hook):
    plane.set({VIP: an_entry(Kind.DELEGATED)}, a_control())
    start = boot_ns()
    for _ in range(300):
        plane.run(hook, an_arp_request())
        plane.run(hook, an_announcement())
    reasons = [event.reason for event in received.take()]
    assert set(reasons) == {Reason.DELEGATED, Reason.DELEGATED_CLAIM}
    assert len(reasons) <= 2 * windows_since(start)


@at_both_hooks
def test_another_entry_has_an_event_of_its_own(plane, received, one_cpu, hook):
    plane.set({VIP: an_entry(Kind.FOREIGN), NEIGHBOUR_IP: an_entry(Kind.FOREIGN)}, a_control())
    for tpa in (VIP, NEIGHBOUR_IP):
        plane.run(hook, an_arp_request(tpa=tpa))
    assert [event.key.vip for event in received.take()] == [VIP, NEIGHBOUR_IP]


@at_both_hooks
def test_rate_limit_holds_for_requests_and_claims_in_turn(plane, received, one_cpu, hook):
    """Requests for an owned VIP read the boot clock, claims read none."""
    plane.set({VIP: an_entry()}, a_control())
    start = boot_ns()
    while boot_ns() < start + 2 * WINDOW_NS:
        plane.run(hook, an_arp_request())
        plane.run(hook, an_announcement())
    assert len(received.take()) <= 2 * windows_since(start)


@at_both_hooks
def test_every_decision_about_an_entry_is_an_event_sent_limited_or_lost(small_plane, hook):
    """Nobody reads, and the ring has room for a few dozen events only."""
    small_plane.set({}, a_control())
    small_plane.set({vip: an_entry(Kind.FOREIGN) for vip in MANY_VIPS}, a_control())
    counts, events = small_plane.counts(), small_plane.event_account()
    for vip in MANY_VIPS * 3:
        small_plane.run(hook, an_arp_request(tpa=vip))
    decided = sum(number for count, number in (small_plane.counts() - counts).items() if count.vip)
    sent, limited, lost = (now - then for now, then in zip(small_plane.event_account(), events, strict=True))
    assert decided == 3 * len(MANY_VIPS)
    assert sent + limited + lost == decided
    assert lost > 0


def test_reader_gets_what_was_sent_and_the_rest_was_counted_as_lost(small_plane):
    small_plane.set({}, a_control())
    receiver = Received(small_plane)
    receiver.take()
    small_plane.set({vip: an_entry(Kind.FOREIGN) for vip in MANY_VIPS}, a_control())
    before = small_plane.event_account()
    for vip in MANY_VIPS:
        small_plane.run(Hook.TC_INGRESS, an_arp_request(tpa=vip))
    sent, limited, lost = (now - then for now, then in zip(small_plane.event_account(), before, strict=True))
    events = receiver.take()
    receiver.reader.close()
    assert [event.key.vip for event in events] == MANY_VIPS[:sent]
    assert (sent + lost, limited) == (len(MANY_VIPS), 0)
    assert 0 < sent < len(MANY_VIPS)


def test_ring_that_was_read_has_room_again(small_plane):
    receiver = Received(small_plane)
    receiver.take()
    small_plane.set({}, a_control())
    small_plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control())
    small_plane.run(Hook.TC_INGRESS, an_arp_request())
    events = receiver.take()
    receiver.reader.close()
    assert [event.key.vip for event in events] == [VIP]


def test_a_round_of_reading_is_bounded_and_loses_nothing(one_cpu):
    vips = [IPv4Address("198.51.100.0") + number for number in range(BATCH + 44)]
    with a_plane("batch", read_build(max_entries=512)) as plane:
        plane.set({vip: an_entry(Kind.FOREIGN) for vip in vips}, a_control())
        received = Received(plane)
        for vip in vips:
            plane.run(Hook.TC_INGRESS, an_arp_request(tpa=vip))

        rounds = [received.reader.consume(), len(select.select([received.reader], [], [], 0)[0])]
        rounds += [received.reader.consume(), received.reader.consume()]

        assert rounds == [BATCH, 1, 44, 0]
        assert [decision.key.vip for decision in received.decisions] == vips


@at_both_hooks
def test_flood_over_many_vips_is_reported_in_part_and_hides_no_other_reason(one_cpu, hook):
    """So many in a window, for each reason on a CPU."""
    vips = [IPv4Address("10.20.0.0") + number for number in range(12 * EVENTS_IN_WINDOW)]
    with a_plane("budget", read_build(max_entries=1 << 13)) as plane:
        plane.set({vip: an_entry(Kind.FOREIGN) for vip in vips} | {VIP: an_entry()}, a_control())
        received, before, start = Received(plane), plane.event_account(), boot_ns()
        flood = [event for vip in vips for event in (plane.run(hook, an_arp_request(tpa=vip)), *received.take())[1:]]
        windows = windows_since(start)
        plane.run(hook, an_arp_request())
        (other,) = received.take()
        sent, limited, lost = (now - then for now, then in zip(plane.event_account(), before, strict=True))
        received.reader.close()

    assert min(len(vips), EVENTS_IN_WINDOW) <= len(flood) <= windows * EVENTS_IN_WINDOW
    assert other.reason is Reason.ANSWERED
    assert (sent, limited, lost) == (len(flood) + 1, len(vips) - len(flood), 0)
