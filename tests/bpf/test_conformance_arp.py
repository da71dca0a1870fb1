"""Each ARP case of docs/conformance.md that needs no kernel stack, in the roles it is about.

OWN: this node owns the VIP and its fence lies ahead. EXP: the fence has passed.
NON: somebody else owns it, or nobody does. UNK: the address is guarded by nobody.
Unless a case says otherwise NON and EXP drop the frame, and UNK passes it unchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.arp import HTYPE_IEEE802, ArpOp
from arpguard.wire.ethernet import ETHERTYPE_8021AD, VlanTag
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    NOBODY,
    OTHER_VIP,
    OWNER,
    TESTER,
    THIRD,
    VIP,
    a_control,
    a_packet,
    an_announcement,
    an_arp_reply,
    an_arp_request,
    an_entry,
    patched,
    the_answer,
)
from support.programs.prog_run import (
    DROPPED,
    INGRESS,
    Outcome,
    assert_counted,
    assert_outcome,
    one_count,
    passed,
    sent_back,
)

pytestmark = pytest.mark.bpf
at_both_hooks = pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)

REQ = an_arp_request()
R4 = sent_back(the_answer(a_packet()))
PROBE_R4 = sent_back(the_answer(a_packet(spa=NOBODY)))
SHORT_R4 = sent_back(the_answer(a_packet(), length=42))
MULTICAST_MAC = MacAddress.parse("01:00:5e:00:00:01")
PRIORITY_TAG = VlanTag(vid=0, pcp=5)
HTYPE, PTYPE, HLEN, PLEN, OP = 14, 16, 18, 19, 20  # offsets in an untagged frame


def unchanged(frame: bytes) -> Outcome:
    return passed(frame)


def dropped(_frame: bytes) -> Outcome:
    return DROPPED


def answered(expected: Outcome = R4) -> Callable[[bytes], Outcome]:
    return lambda _frame: expected


@dataclass(frozen=True)
class Case:
    """A stimulus, what the owner does with it, and what the others (NON, EXP) do."""

    frame: bytes
    own: Callable[[bytes], Outcome]
    others: Callable[[bytes], Outcome] = dropped


def answer_case(frame: bytes, expected: Outcome = R4) -> Case:
    return Case(frame, answered(expected))


def silent_case(frame: bytes) -> Case:
    """Nobody answers, and no kernel gets to see it."""
    return Case(frame, dropped)


def no_arp_case(frame: bytes) -> Case:
    """Nothing that any kernel would answer: left alone."""
    return Case(frame, unchanged, unchanged)


def with_op(number: int) -> bytes:
    return patched(REQ, OP, number.to_bytes(2, "big"))


def odd_sender(spa: str) -> bytes:
    return an_arp_request(spa=IPv4Address(spa))


def with_odd_sender(spa: str) -> Outcome:
    return sent_back(the_answer(a_packet(spa=IPv4Address(spa))))


CASES = {
    # 1 ARP, well-formed
    "A1_request": answer_case(REQ),
    "A2_unicast_request": answer_case(an_arp_request(dst=GUARD)),
    "A3_probe": answer_case(an_arp_request(spa=NOBODY), PROBE_R4),
    "A4_unicast_probe": answer_case(an_arp_request(dst=GUARD, spa=NOBODY), PROBE_R4),
    "A5_tha_of_a_third_host": answer_case(an_arp_request(tha=THIRD)),
    "A5_tha_broadcast": answer_case(an_arp_request(tha=BROADCAST_MAC)),
    "A6_without_padding": answer_case(an_arp_request(min_len=42), SHORT_R4),
    "A7_padding_of_aa": answer_case(REQ[:42] + b"\xaa" * 18),
    "A8_padded_to_128": answer_case(REQ + b"\xaa" * 68),
    "A8_padded_to_1514": answer_case(REQ + b"\xaa" * (1514 - 60)),
    "A9_multicast_destination": silent_case(an_arp_request(dst=MULTICAST_MAC)),
    # 2 ARP, malformed or foreign
    "B1_htype_ieee802": silent_case(an_arp_request(htype=HTYPE_IEEE802)),
    "B2_htype_2": no_arp_case(an_arp_request(htype=2)),
    "B2_htype_swapped": no_arp_case(an_arp_request(htype=0x0100)),
    "B3_ptype_ipv6": no_arp_case(patched(REQ, PTYPE, b"\x86\xdd")),
    "B3_ptype_swapped": no_arp_case(patched(REQ, PTYPE, b"\x00\x08")),
    "B4_hlen_0": no_arp_case(patched(REQ, HLEN, b"\x00")),
    "B4_hlen_8": no_arp_case(patched(REQ, HLEN, b"\x08")),
    "B4_hlen_255": no_arp_case(patched(REQ, HLEN, b"\xff")),
    "B5_plen_0": no_arp_case(patched(REQ, PLEN, b"\x00")),
    "B5_plen_16": no_arp_case(patched(REQ, PLEN, b"\x10")),
    "B6_op_0": no_arp_case(with_op(0)),
    "B6_op_3": no_arp_case(with_op(3)),
    "B6_op_4": no_arp_case(with_op(4)),
    "B6_op_8": no_arp_case(with_op(8)),
    "B6_op_9": no_arp_case(with_op(9)),
    "B6_op_swapped": no_arp_case(with_op(0x0100)),
    "B7_reply_to_the_vip": no_arp_case(an_arp_request(op=ArpOp.REPLY, dst=GUARD, tha=GUARD)),
    "B8_first_41_bytes": no_arp_case(REQ[:41]),
    "B8_first_34_bytes": no_arp_case(REQ[:34]),
    "B8_first_28_bytes": no_arp_case(REQ[:28]),
    "B8_first_14_bytes": no_arp_case(REQ[:14]),
    "B9_ethertype_rarp": no_arp_case(patched(REQ, 12, b"\x80\x35")),
    "B10_llc_snap": no_arp_case(REQ[:12] + bytes.fromhex("0024 aaaa03 000000 0806") + REQ[14:42]),
    # 3 sender fields (conflicts are below)
    "C1_sha_of_a_third_host": answer_case(an_arp_request(sha=THIRD), sent_back(the_answer(a_packet(sha=THIRD)))),
    "C2_sha_broadcast": silent_case(an_arp_request(sha=BROADCAST_MAC)),
    "C3_sha_multicast": silent_case(an_arp_request(sha=MacAddress.parse("01:00:5e:00:00:05"))),
    "C4_sha_zero": silent_case(an_arp_request(sha=ZERO_MAC)),
    "C5_ethernet_source_broadcast": silent_case(an_arp_request(src=BROADCAST_MAC)),
    "C6_own_echo": silent_case(an_arp_request(src=GUARD, sha=GUARD)),
    "C13_spa_multicast": silent_case(odd_sender("224.0.0.1")),
    "C13_spa_loopback": silent_case(odd_sender("127.0.0.1")),
    "C13_spa_broadcast": silent_case(odd_sender("255.255.255.255")),
    "C14_spa_reserved": answer_case(odd_sender("240.0.0.1"), with_odd_sender("240.0.0.1")),
    "C14_spa_subnet_broadcast": answer_case(odd_sender("192.0.2.255"), with_odd_sender("192.0.2.255")),
    "C14_spa_off_subnet": answer_case(odd_sender("198.51.100.9"), with_odd_sender("198.51.100.9")),
    "C14_spa_of_network_zero": answer_case(odd_sender("0.0.0.5"), with_odd_sender("0.0.0.5")),
    # 4 addressing, VLAN
    "D1_to_another_host": silent_case(an_arp_request(dst=THIRD)),
    "D4_other_vlan": no_arp_case(an_arp_request(tags=(VlanTag(vid=11),))),
    "D4_other_vlan_8021ad": no_arp_case(an_arp_request(tags=(VlanTag(vid=11, tpid=ETHERTYPE_8021AD),))),
    "D4_other_vlan_within_priority_tag": no_arp_case(an_arp_request(tags=(PRIORITY_TAG, VlanTag(vid=11)))),
    "D6_priority_tag": answer_case(an_arp_request(tags=(PRIORITY_TAG,), min_len=64)),
    "D6_priority_tag_8021ad": answer_case(an_arp_request(tags=(VlanTag(0, 5, tpid=ETHERTYPE_8021AD),), min_len=64)),
    "D6_priority_tag_without_padding": answer_case(an_arp_request(tags=(PRIORITY_TAG,), min_len=46), SHORT_R4),
    "D7_two_priority_tags": silent_case(an_arp_request(tags=(VlanTag(0, tpid=ETHERTYPE_8021AD), VlanTag(0)))),
    "D9_three_tags": silent_case(an_arp_request(tags=(VlanTag(0), VlanTag(0), VlanTag(0)))),
    "D9_eight_tags": silent_case(an_arp_request(tags=(VlanTag(0),) * 8)),
    # Linux drops a tag that is cut off (skb_vlan_untag()): no need to.
    "D9_tags_cut_off_at_byte_16": no_arp_case(an_arp_request(tags=(VlanTag(0),))[:16]),
}

NOT_OWNERS = {
    "foreign": an_entry(Kind.FOREIGN),
    "foreign_known": an_entry(Kind.FOREIGN, owner_mac=OWNER),
    "external": an_entry(Kind.EXTERNAL),
    "unclaimed": an_entry(Kind.UNCLAIMED),
}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@at_both_hooks
@every_case
def test_owner(plane, hook, case):
    plane.set({VIP: an_entry()}, a_control())
    assert_outcome(plane.run(hook, case.frame), case.own(case.frame), case.frame)


@at_both_hooks
@every_case
def test_expired_owner_leaves_nothing_to_the_kernel(plane, hook, case):
    plane.set({VIP: an_entry()}, a_control(fence_ns=0))
    assert_outcome(plane.run(hook, case.frame), case.others(case.frame), case.frame)


@at_both_hooks
@every_case
def test_not_owner_leaves_nothing_to_the_kernel(plane, hook, case):
    for name, entry in NOT_OWNERS.items():
        plane.set({VIP: entry}, a_control())
        assert_outcome(plane.run(hook, case.frame), case.others(case.frame), case.frame, name)


@at_both_hooks
@every_case
def test_unguarded_address_is_untouched(plane, hook, case):
    plane.set({OTHER_VIP: an_entry()}, a_control())
    assert_outcome(plane.run(hook, case.frame), passed(case.frame), case.frame)


# ---- cases with a story of their own -----------------------------------------------------------------------------


@at_both_hooks
def test_a10_every_one_of_many_requests_is_answered_once(plane, hook):
    """No rate limit is stated: ten thousand hosts get ten thousand answers, and the other VIP is as it was."""
    plane.set({VIP: an_entry(), OTHER_VIP: an_entry()}, a_control())
    before = plane.counts()
    for number in range(10_000):
        sender = {"sha": MacAddress(b"\x02\x10" + number.to_bytes(4, "big")), "spa": IPv4Address(0x0A000001 + number)}
        request = an_arp_request(src=sender["sha"], **sender)
        assert_outcome(plane.run(hook, request), sent_back(the_answer(a_packet(**sender))), request)
    counted = plane.counts() - before
    assert set(counted.values()) == {10_000}
    assert set(counted) == set(one_count(Reason.ANSWERED, vip=VIP))


@at_both_hooks
def test_a11_request_from_another_of_our_vips_is_a_conflict_about_that_one(plane, hook):
    plane.set({VIP: an_entry(), OTHER_VIP: an_entry()}, a_control())
    frame = an_arp_request(spa=OTHER_VIP)
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, DROPPED, frame)
    assert_counted(counted, one_count(Reason.CONFLICT, vip=OTHER_VIP))


@at_both_hooks
@pytest.mark.parametrize("length", [14, 28, 34, 41])
def test_b8_short_frame_is_counted(plane, hook, length):
    plane.set({VIP: an_entry()}, a_control())
    _, counted = plane.counted(hook, REQ[:length])
    assert_counted(counted, one_count(Reason.NOT_ARP))


SPECIAL_TARGETS = ("0.0.0.0", "127.0.0.1", "224.0.0.1", "239.255.255.255", "255.255.255.255")


@at_both_hooks
@pytest.mark.parametrize("target", SPECIAL_TARGETS)
def test_b12_target_that_is_no_host_is_not_answered_though_it_is_in_the_map(plane, hook, target):
    target = IPv4Address(target)
    plane.set({target: an_entry()}, a_control())
    frame = an_arp_request(tpa=target)
    assert_outcome(plane.run(hook, frame), passed(frame), frame)


@at_both_hooks
def test_c1_answer_to_a_third_host_is_counted_apart(plane, hook):
    plane.set({VIP: an_entry()}, a_control())
    _, counted = plane.counted(hook, an_arp_request(sha=THIRD))
    assert_counted(counted, one_count(Reason.ANSWERED_THIRD_PARTY, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize(
    "frame",
    [an_arp_request(src=GUARD, sha=GUARD), an_announcement(sha=GUARD), an_arp_reply(sha=GUARD)],
    ids=["request", "announcement", "reply"],
)
def test_c6_own_echo_is_no_conflict(plane, hook, frame):
    plane.set({VIP: an_entry()}, a_control())
    _, counted = plane.counted(hook, frame)
    assert_counted(counted, one_count(Reason.OWN_ECHO, vip=VIP))


CONFLICTS = {
    "C7_announcement": an_announcement(),
    "C9_broadcast_reply": an_arp_reply(tpa=VIP, tha=TESTER, dst=BROADCAST_MAC),
    "C10_request_for_another_host": an_arp_request(spa=VIP, tpa=NEIGHBOUR_IP),
}
IN_CONFLICT = {
    "OWN": (an_entry(), a_control),
    "EXP": (an_entry(), lambda: a_control(fence_ns=0)),
    "C12_NON": (an_entry(Kind.FOREIGN, owner_mac=OWNER), a_control),
}


@at_both_hooks
@pytest.mark.parametrize("frame", CONFLICTS.values(), ids=CONFLICTS)
@pytest.mark.parametrize(("entry", "control"), IN_CONFLICT.values(), ids=IN_CONFLICT)
def test_claim_by_another_host_is_a_conflict(plane, hook, frame, entry, control):
    plane.set({VIP: entry}, control())
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, DROPPED, frame)
    assert_counted(counted, one_count(Reason.CONFLICT, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize("frame", CONFLICTS.values(), ids=CONFLICTS)
def test_claim_for_an_unguarded_address_is_untouched(plane, hook, frame):
    plane.set({OTHER_VIP: an_entry()}, a_control())
    assert_outcome(plane.run(hook, frame), passed(frame), frame)


@at_both_hooks
def test_c8_repeated_conflict_is_dropped_and_counted_each_time(plane, hook):
    plane.set({VIP: an_entry()}, a_control())
    before = plane.counts()
    assert {plane.run(hook, an_announcement()).action for _ in range(100)} == {DROPPED.action}
    assert set((plane.counts() - before).values()) == {100}


@at_both_hooks
@pytest.mark.parametrize("entry", NOT_OWNERS.values(), ids=NOT_OWNERS)
@pytest.mark.parametrize("depth", [9, 10, 20])
def test_d9_tags_too_deep_to_read_are_dropped(plane, hook, entry, depth):
    plane.set({VIP: entry}, a_control())
    frame = an_arp_request(tags=(VlanTag(0),) * depth)
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, DROPPED, frame)
    assert_counted(counted, one_count(Reason.UNWALKABLE))


@at_both_hooks
@pytest.mark.parametrize(("strictest", "expected"), [(Mode.ENFORCE, "dropped"), (Mode.OBSERVE, "passed")])
def test_d9_tags_too_deep_are_dropped_as_soon_as_any_entry_enforces(plane, hook, strictest, expected):
    """Nobody can tell which entry the frame is about."""
    plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control(Mode.OBSERVE, strictest=strictest))
    frame = an_arp_request(tags=(VlanTag(0),) * 9)
    assert_outcome(plane.run(hook, frame), DROPPED if expected == "dropped" else passed(frame), frame)


@at_both_hooks
@pytest.mark.parametrize("frame", [an_announcement(sha=GUARD), an_arp_reply(sha=GUARD)], ids=["announcement", "reply"])
def test_c6_echo_of_a_delegated_program_is_let_through(plane, hook, frame):
    plane.set({VIP: an_entry(Kind.DELEGATED)}, a_control())
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, passed(frame), frame)
    assert_counted(counted, one_count(Reason.DELEGATED, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize("entry", [an_entry(), *NOT_OWNERS.values()], ids=["owned", *NOT_OWNERS])
def test_c6_claim_with_this_nodes_own_mac_teaches_the_kernel_nothing(plane, hook, entry):
    plane.set({VIP: entry}, a_control())
    outcome, counted = plane.counted(hook, an_arp_reply(sha=GUARD))
    assert_outcome(outcome, DROPPED, an_arp_reply(sha=GUARD))
    assert_counted(counted, one_count(Reason.OWN_ECHO, vip=VIP))


@at_both_hooks
def test_d1_frame_to_another_host_is_counted_as_such(plane, hook):
    plane.set({VIP: an_entry()}, a_control())
    _, counted = plane.counted(hook, an_arp_request(dst=THIRD))
    assert_counted(counted, one_count(Reason.OTHER_HOST, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize("dst", [GUARD, OWNER], ids=["of_the_link", "answered_with"])
def test_request_to_either_own_mac_is_answered_with_the_virtual_one(plane, hook, dst):
    plane.set({VIP: an_entry(answer_mac=OWNER)}, a_control())
    frame = an_arp_request(dst=dst)
    assert_outcome(plane.run(hook, frame), sent_back(the_answer(a_packet(), mac=OWNER)), frame)


@at_both_hooks
@pytest.mark.parametrize("unknown", ["link_mac", "answer_mac"])
def test_nothing_is_answered_while_the_mac_to_answer_with_is_unknown(plane, hook, unknown):
    plane.set({VIP: an_entry(**{unknown: ZERO_MAC})}, a_control())
    outcome, counted = plane.counted(hook, REQ)
    assert_outcome(outcome, DROPPED, REQ)
    assert_counted(counted, one_count(Reason.NO_LINK, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize("length", range(60, 66))
def test_answer_to_a_tagged_request_is_as_long_as_to_the_untagged_one(plane, hook, length):
    """The tag does not count: 60 bytes once the rest has 60."""
    plane.set({VIP: an_entry()}, a_control())
    frame = an_arp_request(tags=(PRIORITY_TAG,), min_len=length)
    expected = the_answer(a_packet(), length=60 if length - 4 >= 60 else 42)
    assert_outcome(plane.run(hook, frame), sent_back(expected), frame)


@pytest.mark.parametrize("entry", NOT_OWNERS.values(), ids=NOT_OWNERS)
def test_e4_request_of_a_guest_in_the_vips_name_is_dropped(plane, entry):
    """Sent on in the link's name with the guest's MAC it would teach neighbours a wrong MAC for this node."""
    plane.set({VIP: entry}, a_control())
    frame = an_arp_request(src=THIRD, sha=THIRD, spa=VIP, tpa=NEIGHBOUR_IP)
    outcome, counted = plane.counted(Hook.TC_EGRESS, frame)
    assert_outcome(outcome, DROPPED, frame)
    assert_counted(counted, one_count(Reason.EGRESS_NOT_OWNER, vip=VIP))
