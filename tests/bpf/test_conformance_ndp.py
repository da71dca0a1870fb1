"""Each neighbour discovery case of docs/conformance.md that needs no kernel stack, in the roles it is about.

OWN: this node owns the VIP and its fence lies ahead. EXP: the fence has passed.
NON: somebody else owns it, or nobody does. UNK: the address is guarded by nobody.
Unless a case says otherwise NON and EXP drop the frame, and UNK passes it unchanged.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.ethernet import ETHERTYPE_8021AD, VlanTag, parse_ethernet
from arpguard.wire.ndp import (
    ALL_NODES,
    NdFlag,
    NdOption,
    checksum,
    multicast_mac,
    parse_nd_frame,
    solicited_node,
)
from support.frames.builders import GUARD, OWNER, TESTER, THIRD, VIP, an_entry, patched
from support.frames.nd_builders import (
    CHECKSUM,
    DESTINATION,
    HOP_BY_HOP,
    NEIGHBOUR_IP6,
    OPTIONS,
    OTHER_VIP6,
    PAYLOAD_LEN,
    PRIMARY_IP6,
    TESTER_LINK_LOCAL,
    TYPE,
    VIP6,
    a_control6,
    a_dad_ns,
    a_dad_solicitation,
    a_fragment_header,
    a_header,
    a_routing_header,
    a_solicitation,
    an_advertisement,
    an_entry6,
    an_na,
    an_ns,
    na6,
    nd_frame,
    nonce,
    slla,
    tlla,
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

NS = an_ns()
PRIORITY_TAG = VlanTag(vid=0, pcp=5)
DEEP = [a_header(DESTINATION)] * 8


def dropped(_frame: bytes) -> Outcome:
    return DROPPED


@dataclass(frozen=True)
class Case:
    """A stimulus; what the owner does with it and why; and what the others (NON, EXP) do."""

    frame: bytes
    own: Callable[[bytes], Outcome]
    reason: Reason
    others: Callable[[bytes], Outcome] = dropped
    unknown: Callable[[bytes], Outcome] = passed


def answer_case(message=None, reason=Reason.ANSWERED, to=TESTER, frame: bytes | None = None, **changes) -> Case:
    """Answered by NA6: of the message, or of the NS with these fields, in its usual frame or in that one."""
    message = message or a_solicitation(**changes)
    expected = sent_back(na6(message, to))
    return Case(nd_frame(message) if frame is None else frame, lambda _: expected, reason)


def silent_case(frame: bytes, reason: Reason, **changes) -> Case:
    """Nobody answers, and no kernel gets to see it."""
    return Case(frame, dropped, reason, **changes)


def no_nd_case(frame: bytes, reason: Reason = Reason.NOT_GUARDED) -> Case:
    """Nothing that any kernel would answer for the VIP: left alone."""
    return Case(frame, passed, reason, passed)


def mended(frame: bytes) -> bytes:
    """The frame with a checksum that is right for what is in it."""
    body = patched(frame[TYPE:], CHECKSUM - TYPE, b"\0\0")
    right = checksum(IPv6Address(frame[22:38]), IPv6Address(frame[38:54]), body)
    return patched(frame, CHECKSUM, right.to_bytes(2, "big"))


def with_payload_len(frame: bytes, length: int) -> bytes:
    return patched(frame, PAYLOAD_LEN, length.to_bytes(2, "big"))


def without_pseudo_header(frame: bytes) -> bytes:
    """With the checksum that ICMP for IPv4 would have."""
    total = sum(int.from_bytes(frame[at : at + 2], "big") for at in range(TYPE, len(frame), 2) if at != CHECKSUM)
    return patched(frame, CHECKSUM, (0xFFFF - total % 0xFFFF).to_bytes(2, "big"))


def odd_option(length: int) -> bytes:
    """Its only option says that it has this many units of 8 bytes."""
    return mended(patched(NS, OPTIONS + 1, bytes((length,))))


DAD = a_dad_solicitation()
DAD_WITH_NONCE = a_dad_solicitation(options=(nonce(),))
SLLA_OF_O = a_solicitation(options=(slla(THIRD),))
WITHOUT_OPTION = a_solicitation(dst=VIP6, options=())
INVALID, NOT_STRICT, BAD_SENDER = Reason.ND_INVALID, Reason.NOT_STRICT, Reason.BAD_SENDER

CASES = {
    "N1_solicitation": answer_case(),
    "N1_solicitation_to_the_guards_mac": answer_case(frame=an_ns(dst=GUARD)),
    "N2_from_a_link_local_address": answer_case(src=TESTER_LINK_LOCAL),
    "N3_unicast": answer_case(dst=VIP6),
    "N4_unicast_without_slla": answer_case(WITHOUT_OPTION),
    "N5_multicast_without_slla": silent_case(an_ns(options=()), NOT_STRICT),
    "N6_dad": answer_case(DAD),
    "N7_dad_with_nonce": answer_case(DAD_WITH_NONCE),
    "N8_dad_with_slla": silent_case(a_dad_ns(options=(slla(TESTER),)), INVALID),
    "N9_dad_to_the_address_itself": silent_case(nd_frame(a_dad_solicitation(dst=VIP6)), INVALID),
    "N9_dad_to_all_nodes": silent_case(nd_frame(a_dad_solicitation(dst=ALL_NODES)), INVALID),
    "N10_hop_limit_254": silent_case(an_ns(hop_limit=254), INVALID),
    "N10_hop_limit_64": silent_case(an_ns(hop_limit=64), INVALID),
    "N10_hop_limit_0": silent_case(an_ns(hop_limit=0), INVALID),
    "N11_code_1": silent_case(an_ns(code=1), INVALID),
    "N12_wrong_checksum": silent_case(patched(NS, CHECKSUM, b"\x12\x34"), Reason.ND_CHECKSUM),
    "N12_checksum_0": silent_case(patched(NS, CHECKSUM, b"\0\0"), Reason.ND_CHECKSUM),
    "N12_checksum_without_pseudo_header": silent_case(without_pseudo_header(NS), Reason.ND_CHECKSUM),
    "N13_reserved_word": answer_case(reserved=0xFFFFFFFF),
    "N14_multicast_target": no_nd_case(an_ns(target=ALL_NODES)),
    "N15_message_of_23_bytes": no_nd_case(with_payload_len(NS[: TYPE + 23], 23), Reason.NOT_ND),
    "N15_payload_of_23_bytes_in_a_longer_frame": silent_case(with_payload_len(NS, 23), INVALID),
    "N15_payload_longer_than_the_frame": silent_case(with_payload_len(NS, 40), INVALID),
    "N16_option_of_length_0": silent_case(odd_option(0), INVALID),
    "N17_option_past_the_end": silent_case(odd_option(2), INVALID),
    "N17_option_cut_off": silent_case(NS[:-4], INVALID),
    "N17_half_an_option": silent_case(mended(with_payload_len(NS + bytes(4), 36)), INVALID),
    "N17_byte_of_an_option": silent_case(mended(with_payload_len(NS + bytes(1), 33)), INVALID),
    "N18_unknown_option": answer_case(options=(NdOption(253, bytes(14)), slla(TESTER))),
    "N18_nonce_in_no_dad": answer_case(options=(nonce(), slla(TESTER))),
    "N18_two_slla_options": answer_case(options=(slla(TESTER), slla(THIRD))),
    "N19_slla_of_a_third_host": answer_case(SLLA_OF_O, Reason.ANSWERED_THIRD_PARTY, THIRD),
    "N20_slla_multicast": silent_case(an_ns(options=(slla(MacAddress.parse("33:33:00:00:00:01")),)), BAD_SENDER),
    "N20_slla_broadcast": silent_case(an_ns(options=(slla(BROADCAST_MAC),)), BAD_SENDER),
    "N20_slla_zero": silent_case(an_ns(options=(slla(ZERO_MAC),)), BAD_SENDER),
    "N20_ethernet_source_broadcast": silent_case(an_ns(src=BROADCAST_MAC), BAD_SENDER),
    "N21_from_a_group": silent_case(nd_frame(a_solicitation(src=ALL_NODES)), BAD_SENDER),
    "N21_from_loopback": silent_case(nd_frame(a_solicitation(src=IPv6Address("::1"))), BAD_SENDER),
    "N21_from_a_v4_mapped_address": silent_case(
        nd_frame(a_solicitation(src=IPv6Address("::ffff:1.2.3.4"))), BAD_SENDER
    ),
    "N23_to_all_nodes": answer_case(dst=ALL_NODES),
    "N23_to_another_solicited_node_group": silent_case(
        nd_frame(a_solicitation(dst=solicited_node(OTHER_VIP6))), NOT_STRICT
    ),
    "N24_other_target_of_the_group": no_nd_case(an_ns(target=IPv6Address("2001:db8:0:1::100"))),
    "N25_to_another_host": silent_case(an_ns(dst=THIRD), Reason.OTHER_HOST),
    "N25_to_broadcast": silent_case(an_ns(dst=BROADCAST_MAC), NOT_STRICT),
    "N25_to_the_mac_of_another_group": silent_case(an_ns(dst=multicast_mac(ALL_NODES)), NOT_STRICT),
    "N25_unicast_to_a_group_mac": silent_case(
        nd_frame(a_solicitation(dst=VIP6), multicast_mac(solicited_node(VIP6))), NOT_STRICT
    ),
    "N26_behind_hop_by_hop": silent_case(an_ns(headers=[a_header(HOP_BY_HOP)]), NOT_STRICT),
    "N26_behind_destination_options": silent_case(an_ns(headers=[a_header(DESTINATION)]), NOT_STRICT),
    "N26_behind_routing": silent_case(an_ns(headers=[a_routing_header()]), NOT_STRICT),
    "N26_behind_eight_headers": silent_case(an_ns(headers=DEEP), NOT_STRICT),
    "N26_behind_a_long_header": silent_case(an_ns(headers=[a_header(DESTINATION, bytes(1006))]), NOT_STRICT),
    "N26_hop_by_hop_and_no_payload_length": silent_case(
        with_payload_len(an_ns(headers=[a_header(HOP_BY_HOP)]), 0), NOT_STRICT
    ),
    "N26_behind_nine_headers": silent_case(
        an_ns(headers=[*DEEP, a_header(DESTINATION)]), Reason.UNWALKABLE, unknown=dropped
    ),
    "N27_in_an_atomic_fragment": silent_case(an_ns(headers=[a_fragment_header()]), NOT_STRICT),
    "N27_in_the_first_fragment": silent_case(
        an_ns(headers=[a_fragment_header(more=True)]), Reason.UNWALKABLE, unknown=dropped
    ),
    "N28_priority_tag": answer_case(frame=an_ns(tags=(PRIORITY_TAG,))),
    "N28_priority_tag_8021ad": answer_case(frame=an_ns(tags=(VlanTag(0, 5, tpid=ETHERTYPE_8021AD),))),
    "N28_dad_in_a_priority_tag": answer_case(DAD, frame=a_dad_ns(tags=(PRIORITY_TAG,))),
    "N28_other_vlan": no_nd_case(an_ns(tags=(VlanTag(11),)), Reason.OTHER_VLAN),
    "N28_other_vlan_within_priority_tag": no_nd_case(an_ns(tags=(PRIORITY_TAG, VlanTag(11))), Reason.OTHER_VLAN),
    "N28_two_priority_tags": silent_case(an_ns(tags=(VlanTag(0, tpid=ETHERTYPE_8021AD), VlanTag(0))), NOT_STRICT),
    "N28_eight_tags": silent_case(an_ns(tags=(VlanTag(0),) * 8), NOT_STRICT),
    "N28_nine_tags": silent_case(an_ns(tags=(VlanTag(0),) * 9), Reason.UNWALKABLE, unknown=dropped),
    # Beyond the list: what is padded, long, or no solicitation at all.
    "padded": answer_case(frame=NS + b"\xaa" * 40),
    "padded_to_1514": answer_case(frame=NS.ljust(1514, b"\xaa")),
    "traffic_class_and_flow_label": answer_case(frame=patched(NS, 14, b"\x6f\xff\xff\xff")),
    "as_long_as_is_read": answer_case(options=(slla(TESTER), *(nonce(),) * 60)),
    "longer_than_is_read": silent_case(an_ns(options=(slla(TESTER), *(nonce(),) * 61)), NOT_STRICT),
    "own_echo": silent_case(an_ns(src=GUARD, options=(slla(GUARD),)), Reason.OWN_ECHO),
}
NO_ND = {
    "echo_request": nd_frame(a_solicitation(), body=b"\x80" + a_solicitation().build()[1:]),
    "router_advertisement": nd_frame(a_solicitation(), body=b"\x86" + a_solicitation().build()[1:]),
    "redirect": nd_frame(a_solicitation(), body=b"\x89" + a_solicitation().build()[1:]),
    "udp": nd_frame(a_solicitation(), last=17),
    "no_next_header": nd_frame(a_solicitation(), last=59),
    "later_fragment": an_ns(headers=[a_fragment_header(offset=1)]),
    "version_4": patched(NS, 14, b"\x40"),
    "ip_header_only": NS[:TYPE],
    "header_cut_off": an_ns(headers=[a_header(DESTINATION)])[:TYPE],
}

NOT_OWNERS = {
    "foreign": an_entry6(Kind.FOREIGN),
    "foreign_known": an_entry6(Kind.FOREIGN, owner_mac=OWNER),
    "external": an_entry6(Kind.EXTERNAL),
    "unclaimed": an_entry6(Kind.UNCLAIMED),
}
each_not_owner = pytest.mark.parametrize("entry", NOT_OWNERS.values(), ids=NOT_OWNERS)
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def assert_treated(plane, hook, frame: bytes, expected: Outcome, *reasons: Reason, vip=VIP6) -> None:
    """What becomes of the frame, and what is counted for it."""
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, expected, frame)
    beside = (Reason.NOT_GUARDED, Reason.NOT_ND, Reason.OTHER_VLAN, Reason.UNWALKABLE)
    counts = [one_count(reason, vip=None if reason in beside else vip) for reason in reasons]
    assert_counted(counted, sum(counts, Counter()))


@at_both_hooks
@every_case
def test_owner(plane, hook, case):
    plane.set({VIP6: an_entry6()}, a_control6())
    assert_treated(plane, hook, case.frame, case.own(case.frame), case.reason)


@at_both_hooks
@every_case
def test_expired_owner_leaves_nothing_to_the_kernel(plane, hook, case):
    plane.set({VIP6: an_entry6()}, a_control6(fence_ns=0))
    assert_outcome(plane.run(hook, case.frame), case.others(case.frame), case.frame)


@at_both_hooks
@every_case
def test_not_owner_leaves_nothing_to_the_kernel(plane, hook, case):
    for name, entry in NOT_OWNERS.items():
        plane.set({VIP6: entry}, a_control6())
        assert_outcome(plane.run(hook, case.frame), case.others(case.frame), case.frame, name)


@at_both_hooks
@every_case
def test_unguarded_address_is_untouched(plane, hook, case):
    plane.set({OTHER_VIP6: an_entry6()}, a_control6())
    assert_outcome(plane.run(hook, case.frame), case.unknown(case.frame), case.frame)


@at_both_hooks
@pytest.mark.parametrize("entry", [an_entry6(), *NOT_OWNERS.values()], ids=["owned", *NOT_OWNERS])
@pytest.mark.parametrize("frame", NO_ND.values(), ids=NO_ND)
def test_other_ipv6_passes_and_is_not_even_counted(plane, hook, entry, frame):
    plane.set({VIP6: entry}, a_control6())
    assert_treated(plane, hook, frame, passed(frame))


def test_every_case_of_the_list_is_here_or_on_the_wire():
    """N29 to N31, N34 and N38 are tests of their own, below; N33 and N35 are in docs/limits.md; others need a wire."""
    by_name = {name.partition("_")[0] for name in CASES}
    assert by_name >= {f"N{number}" for number in range(1, 29)} - {"N22"}


# ---- cases with a story of their own -----------------------------------------------------------------------------


@at_both_hooks
def test_n06_answer_to_dad_goes_to_everybody_and_is_not_solicited(plane, hook):
    plane.set({VIP6: an_entry6()}, a_control6())
    answer = plane.run(hook, a_dad_ns()).frame
    packet = parse_nd_frame(answer)
    assert (parse_ethernet(answer).dst, packet.message.dst) == (MacAddress.parse("33:33:00:00:00:01"), ALL_NODES)
    assert packet.message.flags == NdFlag.OVERRIDE


@at_both_hooks
@pytest.mark.parametrize("message", [a_solicitation(), WITHOUT_OPTION, DAD], ids=["NS", "unicast", "DAD"])
def test_n34_answer_is_valid_and_never_says_that_it_is_a_routers(plane, hook, message):
    """The kernel would set R with `forwarding` on; a VIP whose flag went back to 0 with a move would cost routes."""
    plane.set({VIP6: an_entry6()}, a_control6())
    frame = plane.run(hook, nd_frame(message)).frame
    packet = parse_nd_frame(frame)
    assert (packet.flaw, len(frame)) == (None, 86)
    assert NdFlag.ROUTER not in packet.message.flags
    assert packet.message.options == (tlla(GUARD),)


SELF_CLAIM = nd_frame(a_solicitation(src=VIP6))
N22_ROLES = {
    "OWN": (an_entry6(), {}, (Reason.CONFLICT,)),
    "EXP": (an_entry6(), {"fence_ns": 0}, (Reason.CONFLICT,)),
    "NON_pinned": (an_entry6(Kind.FOREIGN, owner_mac=OWNER), {}, (Reason.CONFLICT,)),
    "NON_from_the_owner": (an_entry6(Kind.FOREIGN, owner_mac=TESTER), {}, (Reason.OWNER_CLAIM, Reason.FOREIGN)),
    "NON": (an_entry6(Kind.FOREIGN), {}, (Reason.UNVERIFIED_CLAIM, Reason.FOREIGN)),
    "NON_unclaimed": (an_entry6(Kind.UNCLAIMED), {}, (Reason.UNCLAIMED_CLAIM, Reason.UNCLAIMED)),
}


@at_both_hooks
@pytest.mark.parametrize(("entry", "control", "reasons"), N22_ROLES.values(), ids=N22_ROLES)
def test_n22_solicitation_from_the_vip_for_the_vip_is_a_conflict_or_none_of_ours(plane, hook, entry, control, reasons):
    """Linux answers it: unlike an announcement in ARP, it asks."""
    plane.set({VIP6: entry}, a_control6(**control))
    assert_treated(plane, hook, SELF_CLAIM, DROPPED, *reasons)


@at_both_hooks
def test_n22_unknown_address_may_ask_for_itself(plane, hook):
    plane.set({OTHER_VIP6: an_entry6()}, a_control6())
    assert_treated(plane, hook, SELF_CLAIM, passed(SELF_CLAIM), Reason.NOT_GUARDED)


@at_both_hooks
def test_n22_solicitation_from_another_of_our_vips_is_a_conflict_about_that_one(plane, hook):
    plane.set({VIP6: an_entry6(), OTHER_VIP6: an_entry6()}, a_control6())
    assert_treated(plane, hook, nd_frame(a_solicitation(src=OTHER_VIP6)), DROPPED, Reason.CONFLICT, vip=OTHER_VIP6)


TENTATIVE = {
    "not_taken_yet": (an_entry6(Kind.UNCLAIMED), {}, Reason.UNCLAIMED),
    "taken_but_not_confirmed": (an_entry6(), {"fence_ns": 0}, Reason.FENCED),
    "of_the_epoch_before": (an_entry6(epoch=1), {}, Reason.STALE_EPOCH),
}


@at_both_hooks
@pytest.mark.parametrize("frame", [NS, a_dad_ns()], ids=["N1", "N6"])
@pytest.mark.parametrize(("entry", "control", "reason"), TENTATIVE.values(), ids=TENTATIVE)
def test_n29_nothing_is_said_for_a_tentative_address(plane, hook, entry, control, reason, frame):
    plane.set({VIP6: entry}, a_control6(**control))
    assert_treated(plane, hook, frame, DROPPED, reason)


CLAIMS = {
    "N31_unsolicited": an_na(),
    "N31_to_routers": nd_frame(an_advertisement(dst=IPv6Address("ff02::2"), flags=NdFlag.NONE)),
    "N31_solicited": nd_frame(an_advertisement(dst=NEIGHBOUR_IP6, flags=NdFlag.SOLICITED)),
    "N31_without_option": an_na(options=()),
    "N31_behind_hop_by_hop": an_na(headers=[a_header(HOP_BY_HOP)]),
    "N31_in_a_priority_tag": an_na(tags=(PRIORITY_TAG,)),
    "N31_longer_than_is_read": an_na(options=(tlla(TESTER), *(nonce(),) * 61)),
    "solicitation_for_another_host": nd_frame(a_solicitation(src=VIP6, target=NEIGHBOUR_IP6)),
}
each_claim = pytest.mark.parametrize("frame", CLAIMS.values(), ids=CLAIMS)


@at_both_hooks
@each_claim
@pytest.mark.parametrize("fenced", [False, True], ids=["OWN", "EXP"])
def test_n31_claim_of_the_owners_vip_is_a_conflict(plane, hook, fenced, frame):
    plane.set({VIP6: an_entry6()}, a_control6(**({"fence_ns": 0} if fenced else {})))
    assert_treated(plane, hook, frame, DROPPED, Reason.CONFLICT)


@at_both_hooks
@each_claim
def test_n31_claim_of_anothers_vip_is_a_conflict_or_reported(plane, hook, frame):
    plane.set({VIP6: an_entry6(Kind.FOREIGN, owner_mac=OWNER)}, a_control6())
    assert_treated(plane, hook, frame, DROPPED, Reason.CONFLICT)
    plane.set({VIP6: an_entry6(Kind.FOREIGN)}, a_control6())
    assert_treated(plane, hook, frame, passed(frame), Reason.UNVERIFIED_CLAIM)


@at_both_hooks
@each_claim
def test_n31_claim_of_an_unguarded_address_is_untouched(plane, hook, frame):
    plane.set({OTHER_VIP6: an_entry6()}, a_control6())
    assert_treated(plane, hook, frame, passed(frame), Reason.NOT_GUARDED)


NA = an_na()
NO_CLAIMS = {
    "hop_limit_254": an_na(hop_limit=254),
    "code_1": an_na(code=1),
    "checksum": patched(NA, CHECKSUM, b"\x12\x34"),
    "option_of_length_0": mended(patched(NA, OPTIONS + 1, b"\0")),
    "long_tlla": an_na(options=(NdOption(2, bytes(14)),)),
    "solicited_to_a_group": an_na(flags=NdFlag.SOLICITED),
    "payload_longer_than_the_frame": with_payload_len(NA, 40),
    "long_and_from_afar": an_na(hop_limit=254, options=(tlla(TESTER), *(nonce(),) * 61)),
    "solicitation_from_afar": nd_frame(a_solicitation(src=VIP6, target=NEIGHBOUR_IP6, hop_limit=254)),
    "solicitation_of_a_group": nd_frame(a_solicitation(src=VIP6, target=ALL_NODES)),
}


@at_both_hooks
@pytest.mark.parametrize("entry", [an_entry6(), *NOT_OWNERS.values()], ids=["owned", *NOT_OWNERS])
@pytest.mark.parametrize("frame", NO_CLAIMS.values(), ids=NO_CLAIMS)
def test_n31_what_no_kernel_believes_is_no_conflict(plane, hook, entry, frame):
    """Or a host beyond a router could make conflicts: what it sends never has a hop limit of 255."""
    plane.set({VIP6: entry}, a_control6())
    assert_treated(plane, hook, frame, passed(frame), Reason.ND_INVALID_CLAIM)


@at_both_hooks
def test_first_link_layer_option_tells_who_claims(plane, hook):
    """As ndisc_parse_options() has it; what comes after it, however odd, changes nothing."""
    plane.set({VIP6: an_entry6(Kind.FOREIGN, owner_mac=OWNER)}, a_control6())
    frame = an_na(options=(tlla(OWNER), NdOption(2, TESTER.octets + bytes(8))))
    assert_treated(plane, hook, frame, passed(frame), Reason.OWNER_CLAIM)


@at_both_hooks
@pytest.mark.parametrize("frame", [NA, nd_frame(a_solicitation(src=VIP6, target=NEIGHBOUR_IP6))], ids=["NA", "NS"])
def test_own_claim_that_comes_back_teaches_the_kernel_nothing(plane, hook, frame):
    own = mended(frame[:6] + GUARD.octets + frame[12:-6] + GUARD.octets)
    plane.set({VIP6: an_entry6()}, a_control6())
    assert_treated(plane, hook, own, DROPPED, Reason.OWN_ECHO)
    plane.set({VIP6: an_entry6(Kind.DELEGATED)}, a_control6())
    assert_treated(plane, hook, own, passed(own), Reason.DELEGATED)


SPECIAL_TARGETS = ("::", "::1", "ff02::1", "::ffff:192.0.2.100")


@at_both_hooks
@pytest.mark.parametrize("target", SPECIAL_TARGETS)
def test_n14_target_that_is_no_host_is_not_answered_though_it_is_in_the_map(plane, hook, target):
    """The key of a v4-mapped address is that of the IPv4 VIP."""
    address = IPv6Address(target)
    plane.set({address.ipv4_mapped or address: an_entry()}, a_control6())
    for frame in (an_ns(target=address), an_na(target=address), nd_frame(a_solicitation(src=address, target=VIP6))):
        assert_treated(plane, hook, frame, passed(frame), Reason.NOT_GUARDED)


def test_v4_mapped_target_is_not_the_vip_of_that_name():
    assert IPv6Address(SPECIAL_TARGETS[-1]).ipv4_mapped == VIP


@at_both_hooks
@pytest.mark.parametrize("deep", [an_ns(headers=[*DEEP] * 2), an_ns(headers=[a_fragment_header(more=True)])])
@pytest.mark.parametrize("strictest6", [Mode.ENFORCE, Mode.OBSERVE])
def test_n26_what_cannot_be_read_is_dropped_as_soon_as_any_ipv6_entry_enforces(plane, hook, deep, strictest6):
    """Nobody can tell which entry the frame is about. What IPv4 entries do is no matter."""
    plane.set({VIP6: an_entry6(Kind.FOREIGN)}, a_control6(Mode.OBSERVE, strictest=Mode.ENFORCE, strictest6=strictest6))
    outcome, counted = plane.counted(hook, deep)
    enforced = strictest6 is Mode.ENFORCE
    assert_outcome(outcome, DROPPED if enforced else passed(deep), deep)
    assert_counted(counted, one_count(Reason.UNWALKABLE, observed=not enforced))


@at_both_hooks
def test_without_ipv6_entries_what_cannot_be_read_passes(plane, hook):
    plane.set({VIP: an_entry()}, a_control6(strictest=Mode.ENFORCE, strictest6=Mode.INHERIT))
    frame = an_ns(headers=[*DEEP] * 2)
    assert_outcome(plane.run(hook, frame), passed(frame), frame)


@at_both_hooks
def test_every_one_of_many_solicitations_is_answered_once(plane, hook):
    """No rate limit is stated: ten thousand hosts get ten thousand answers."""
    plane.set({VIP6: an_entry6()}, a_control6())
    before = plane.counts()
    for number in range(10_000):
        mac = MacAddress(b"\x02\x10" + number.to_bytes(4, "big"))
        asked = a_solicitation(src=IPv6Address(f"2001:db8::1:{number:x}"), options=(slla(mac),))
        frame = nd_frame(asked, src=mac)
        assert_outcome(plane.run(hook, frame), sent_back(na6(asked, mac)), frame)
    assert set((plane.counts() - before).values()) == {10_000}


@at_both_hooks
@pytest.mark.parametrize("dst", [GUARD, OWNER], ids=["of_the_link", "answered_with"])
def test_solicitation_to_either_own_mac_is_answered_with_the_virtual_one(plane, hook, dst):
    plane.set({VIP6: an_entry6(answer_mac=OWNER)}, a_control6())
    frame = an_ns(dst=dst)
    assert_outcome(plane.run(hook, frame), sent_back(na6(a_solicitation(), mac=OWNER)), frame)


@at_both_hooks
@pytest.mark.parametrize("unknown", ["link_mac", "answer_mac"])
def test_nothing_is_answered_while_the_mac_to_answer_with_is_unknown(plane, hook, unknown):
    plane.set({VIP6: an_entry6(**{unknown: ZERO_MAC})}, a_control6())
    assert_treated(plane, hook, NS, DROPPED, Reason.NO_LINK)


# ---- what leaves -------------------------------------------------------------------------------------------------

TOLD = {
    "N38_unsolicited": an_na(src=GUARD, options=(tlla(GUARD),)),
    "N38_solicited": nd_frame(an_advertisement(dst=NEIGHBOUR_IP6, flags=NdFlag.SOLICITED, options=())),
    "N38_by_proxy": nd_frame(an_advertisement(src=PRIMARY_IP6, dst=NEIGHBOUR_IP6, flags=NdFlag.SOLICITED)),
    "N38_behind_hop_by_hop": an_na(src=GUARD, headers=[a_header(HOP_BY_HOP)]),
    "N38_of_a_guest": an_na(src=THIRD, options=(tlla(THIRD),)),
    "N38_with_a_wrong_checksum": patched(NA, CHECKSUM, b"\x12\x34"),
    "N38_tagged": an_na(src=GUARD, tags=(PRIORITY_TAG,)),
}
ASKED = a_solicitation(src=VIP6, target=NEIGHBOUR_IP6, options=(slla(GUARD),))


@each_not_owner
@pytest.mark.parametrize("frame", TOLD.values(), ids=TOLD)
def test_n38_no_advertisement_of_anothers_vip_leaves(plane, entry, frame):
    plane.set({VIP6: entry}, a_control6())
    assert_treated(plane, Hook.TC_EGRESS, frame, DROPPED, Reason.EGRESS_NOT_OWNER)


@pytest.mark.parametrize("frame", TOLD.values(), ids=TOLD)
def test_n38_owner_and_unguarded_addresses_are_advertised(plane, frame):
    plane.set({VIP6: an_entry6()}, a_control6())
    assert_treated(plane, Hook.TC_EGRESS, frame, passed(frame), Reason.EGRESS_OWNER)
    plane.set({OTHER_VIP6: an_entry6(Kind.FOREIGN)}, a_control6())
    assert_treated(plane, Hook.TC_EGRESS, frame, passed(frame), Reason.NOT_GUARDED)


@each_not_owner
@pytest.mark.parametrize(
    "around",
    [{}, {"headers": [a_header(HOP_BY_HOP), a_header(DESTINATION)]}, {"tags": (PRIORITY_TAG,)}],
    ids=["plain", "behind_headers", "tagged"],
)
def test_solicitation_in_the_vips_name_leaves_in_the_links(plane, entry, around):
    plane.set({VIP6: entry}, a_control6())
    frame = nd_frame(ASKED, src=GUARD, **around)
    rewritten = nd_frame(replace(ASKED, src=PRIMARY_IP6), src=GUARD, **around)
    assert_treated(plane, Hook.TC_EGRESS, frame, passed(rewritten), Reason.EGRESS_REWRITTEN)


@pytest.mark.parametrize("last", range(0, 256, 17))
def test_rewritten_checksum_fits_whatever_the_difference(plane, last):
    """Of some of these differences the kernel's sum has the highest of its 32 bits set (before 6.13)."""
    primary = IPv6Address((int(PRIMARY_IP6) & ~0xFF) | last)
    plane.set({VIP6: replace(an_entry6(Kind.FOREIGN), primary=primary)}, a_control6())
    rewritten = nd_frame(replace(ASKED, src=primary), src=GUARD)
    assert_treated(plane, Hook.TC_EGRESS, nd_frame(ASKED, src=GUARD), passed(rewritten), Reason.EGRESS_REWRITTEN)


@each_not_owner
def test_wrong_checksum_stays_wrong(plane, entry):
    """What was damaged on its way is not mended."""
    plane.set({VIP6: entry}, a_control6())
    frame = patched(nd_frame(ASKED, src=GUARD), CHECKSUM, b"\x12\x34")
    outcome = plane.run(Hook.TC_EGRESS, frame)
    assert parse_nd_frame(outcome.frame).flaw == "checksum"


@each_not_owner
def test_solicitation_of_a_guest_in_the_vips_name_is_dropped(plane, entry):
    """Sent on in the link's name with the guest's MAC it would teach neighbours a wrong MAC for this node."""
    plane.set({VIP6: entry}, a_control6())
    frame = nd_frame(replace(ASKED, options=(slla(THIRD),)), src=THIRD)
    assert_treated(plane, Hook.TC_EGRESS, frame, DROPPED, Reason.EGRESS_NOT_OWNER)


@pytest.mark.parametrize("frame", [a_dad_ns(src=GUARD), an_ns(src=GUARD)], ids=["DAD", "NS"])
def test_question_for_anothers_vip_may_leave(plane, frame):
    plane.set({VIP6: an_entry6(Kind.FOREIGN)}, a_control6())
    assert_treated(plane, Hook.TC_EGRESS, frame, passed(frame), Reason.NOT_GUARDED)


def test_advertisement_of_a_v4_mapped_address_is_not_of_the_ipv4_vip(plane):
    plane.set({IPv4Address("192.0.2.100"): an_entry(Kind.FOREIGN)}, a_control6())
    frame = an_na(target=IPv6Address("::ffff:192.0.2.100"))
    assert_treated(plane, Hook.TC_EGRESS, frame, passed(frame), Reason.NOT_GUARDED)
