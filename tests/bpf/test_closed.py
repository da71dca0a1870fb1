"""Closed ranges (`unknown: suppress`): what becomes of frames about addresses that no entry is about."""

from dataclasses import replace
from ipaddress import IPv4Address, ip_network

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane.events import EventReader
from arpguard.dataplane.maps import RangeTable
from arpguard.model import Decision, EntryKey, RangeKey
from arpguard.verdict import Hook, Kind, Mode, Reason
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    OTHER_VIP,
    PRIMARY_IP,
    TESTER_IP,
    VIP,
    a_control,
    a_frame,
    a_packet,
    an_announcement,
    an_arp_request,
    an_entry,
    the_answer,
)
from support.frames.nd_builders import PRIMARY_IP6, VIP6, an_entry6, an_ns
from support.programs.compiling import BPF
from support.programs.prog_run import (
    DROPPED,
    INGRESS,
    LO,
    assert_counted,
    assert_outcome,
    hidden,
    one_count,
    passed,
    sent_back,
)
from support.programs.user_space import UserPlane

pytestmark = pytest.mark.bpf

POOL, POOL6 = ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")
CLOSED = an_entry(Kind.CLOSED)
GUEST = MacAddress.parse("02:00:00:00:00:99")
CONTROL = a_control(closed=True, strictest6=Mode.ENFORCE)
at_ingress = pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)


@pytest.fixture(scope="module")
def user_plane(tmp_path_factory):
    return UserPlane(tmp_path_factory.mktemp("user-space"), BPF)


def suppressed(hook, frame):
    return DROPPED if hook is Hook.XDP else passed(frame)  # a test run does not tell what is hidden


@at_ingress
def test_address_without_an_entry_is_not_answered_for(plane, hook):
    plane.set({}, CONTROL, {POOL: CLOSED})
    frame = an_arp_request()
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, suppressed(hook, frame), frame)
    assert_counted(counted, one_count(Reason.UNKNOWN, vip=POOL))
    assert plane.trial(hook, frame).frame is None


def test_question_is_hidden_from_the_kernel_only(user_plane):
    user_plane.set({}, CONTROL, ranges={POOL: CLOSED})
    assert user_plane.run(Hook.TC_INGRESS, an_arp_request()) == hidden(an_arp_request())
    assert user_plane.run(Hook.XDP, an_arp_request()) == DROPPED


@at_ingress
def test_entry_wins_over_its_range(plane, hook):
    plane.set({VIP: an_entry()}, CONTROL, {POOL: CLOSED})
    assert_outcome(plane.run(hook, an_arp_request()), sent_back(the_answer(a_packet())), an_arp_request())


@at_ingress
def test_entry_that_observes_lets_pass_what_its_range_would_not(plane, hook):
    plane.set({VIP: an_entry(Kind.FOREIGN, mode=Mode.OBSERVE)}, CONTROL, {POOL: CLOSED})
    assert_outcome(plane.run(hook, an_arp_request()), passed(an_arp_request()), an_arp_request())


@at_ingress
def test_smallest_range_decides(plane, hook):
    own = ip_network(f"{VIP}/32")
    plane.set({}, CONTROL, {POOL: CLOSED, own: an_entry(Kind.OPEN)})
    assert_counted(plane.counted(hook, an_arp_request())[1], one_count(Reason.NOT_GUARDED))
    assert_counted(plane.counted(hook, an_arp_request(tpa=OTHER_VIP))[1], one_count(Reason.UNKNOWN, vip=POOL))


@at_ingress
def test_range_in_an_open_one_is_closed(plane, hook):
    plane.set({}, CONTROL, {POOL: an_entry(Kind.OPEN), ip_network("192.0.2.96/28"): CLOSED})
    assert plane.trial(hook, an_arp_request()).decisions[0][1] is Reason.UNKNOWN
    assert plane.trial(hook, an_arp_request(tpa=NEIGHBOUR_IP)).decisions[0][1] is Reason.NOT_GUARDED


@at_ingress
@pytest.mark.parametrize("address", ["192.0.1.255", "192.0.3.0", "64.0.2.100", "192.0.130.100"])
def test_address_beside_the_range_is_not_guarded(plane, hook, address):
    plane.set({}, CONTROL, {POOL: CLOSED})
    asked = an_arp_request(tpa=IPv4Address(address))
    assert_counted(plane.counted(hook, asked)[1], one_count(Reason.NOT_GUARDED))


@at_ingress
def test_nothing_is_closed_while_the_control_value_says_so(plane, hook):
    plane.set({}, replace(CONTROL, closed=False), {POOL: CLOSED})
    assert_counted(plane.counted(hook, an_arp_request())[1], one_count(Reason.NOT_GUARDED))


@at_ingress
def test_range_of_another_link_does_not_matter(plane, hook):
    plane.set({}, CONTROL)
    elsewhere = RangeKey(LO + 1, POOL)
    plane.ranges.write({elsewhere: CLOSED})
    try:
        assert_counted(plane.counted(hook, an_arp_request())[1], one_count(Reason.NOT_GUARDED))
    finally:
        plane.ranges.delete([elsewhere])


@at_ingress
def test_question_for_a_guest_on_the_link_passes(plane, hook):
    plane.set({}, CONTROL, {POOL: CLOSED})
    asked = an_arp_request(dst=GUEST)
    outcome, counted = plane.counted(hook, asked)
    assert_outcome(outcome, passed(asked), asked)
    assert_counted(counted, one_count(Reason.GUEST, vip=POOL))


@pytest.mark.parametrize("frame", [an_announcement(sha=GUEST), an_arp_request(src=GUEST, sha=GUEST, spa=VIP)])
def test_guest_on_the_link_may_speak(plane, frame):
    plane.set({}, CONTROL, {POOL: CLOSED})
    outcome, counted = plane.counted(Hook.TC_EGRESS, frame)
    assert_outcome(outcome, passed(frame), frame)
    assert_counted(counted, one_count(Reason.GUEST, vip=POOL))


def test_this_node_neither_announces_nor_asks_in_the_name_of_it(plane):
    plane.set({}, CONTROL, {POOL: CLOSED})
    announcement = an_announcement(sha=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, announcement), DROPPED, announcement)
    asking = a_packet(sha=GUARD, spa=VIP, tpa=NEIGHBOUR_IP)
    asked = a_frame(asking, src=GUARD)
    rewritten = a_frame(replace(asking, spa=PRIMARY_IP), src=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, asked), passed(rewritten), asked)


@at_ingress
def test_ipv6_address_without_an_entry_is_not_answered_for(plane, hook):
    plane.set({}, CONTROL, {POOL6: an_entry6(Kind.CLOSED, primary=PRIMARY_IP6)})
    assert_counted(plane.counted(hook, an_ns())[1], one_count(Reason.UNKNOWN, vip=POOL6))
    plane.set({VIP6: an_entry6(Kind.DELEGATED)}, CONTROL, {POOL6: an_entry6(Kind.CLOSED)})
    assert plane.trial(hook, an_ns()).decisions[0][1] is Reason.DELEGATED


def test_scan_of_the_range_makes_few_events(plane):
    plane.set({}, CONTROL, {POOL: CLOSED})
    read_events_now(plane)
    before = plane.event_account()
    asked = [POOL.network_address + last for last in range(1, 255) if POOL.network_address + last != TESTER_IP]
    for address in asked:
        plane.run(Hook.XDP, an_arp_request(tpa=address))
    sent, limited, lost = (after - earlier for after, earlier in zip(plane.event_account(), before, strict=True))
    assert sent + limited + lost == len(asked)
    assert 0 < sent < 100
    told = read_events_now(plane)
    assert {event.kind for event in told} == {Kind.CLOSED}
    assert {event.reason for event in told} == {Reason.UNKNOWN}
    assert all(event.key.vip in POOL for event in told)


def read_events_now(plane) -> list[Decision]:
    told: list[Decision] = []
    reader = EventReader(plane.maps["events"], told.append)
    while reader.consume():
        pass
    reader.close()
    return told


# ---- the table ---------------------------------------------------------------------------------------------------

RANGES = {
    RangeKey(LO, POOL): CLOSED,
    RangeKey(LO, ip_network("192.0.2.100/32")): an_entry(Kind.OPEN),
    RangeKey(LO, ip_network("0.0.0.0/0")): CLOSED,
    RangeKey(7, POOL6): an_entry6(Kind.CLOSED),
    RangeKey(7, ip_network("2001:db8::1/128")): an_entry6(Kind.OPEN),
}


def test_ranges_are_read_as_they_were_written(plane):
    plane.set({}, CONTROL)
    plane.ranges.write(RANGES)
    assert plane.ranges.read().entries == RANGES
    plane.ranges.delete(RANGES)
    assert plane.ranges.read().entries == {}


def test_table_that_is_opened_again_counts_on(plane):
    plane.set({}, CONTROL, {POOL: CLOSED})
    plane.run(Hook.XDP, an_arp_request())
    again = RangeTable(plane.maps["ranges"], plane.maps["counters"])
    assert again.read().entries == {RangeKey(LO, POOL): CLOSED}
    assert again.tally(RangeKey(LO, POOL)).enforced == {Reason.UNKNOWN: 1}


def test_counts_of_ranges_and_of_entries_are_not_mixed_up(plane):
    plane.set({}, CONTROL)  # counts begin anew
    plane.set({VIP: an_entry(Kind.FOREIGN)}, CONTROL, {POOL: CLOSED})
    plane.run(Hook.XDP, an_arp_request())
    plane.run(Hook.XDP, an_arp_request(tpa=OTHER_VIP))
    assert plane.table.tally(EntryKey(LO, VIP)).enforced == {Reason.FOREIGN: 1}
    assert plane.ranges.tally(RangeKey(LO, POOL)).enforced == {Reason.UNKNOWN: 1}
