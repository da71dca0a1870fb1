"""What of a capture is judged, for which link, and whose decisions those are."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.addresses import ZERO_MAC
from arpguard.config.files import parse_config
from arpguard.core.replay import (
    OWN_LINK,
    PLACEHOLDER_ADDRESSES,
    PLACEHOLDER_MAC,
    About,
    Passed,
    Protocol,
    ReplayScene,
    Seen,
    attributed,
    look_at,
)
from arpguard.model import EntryKey
from arpguard.verdict import Kind, Mode, Reason, Verdict
from arpguard.wire.capture import Captured
from arpguard.wire.cooked import LINKTYPE_ETHERNET, LINKTYPE_SLL2
from arpguard.wire.ndp import build_solicitation
from support.frames.builders import GUARD, NEIGHBOUR_IP, OTHER_VIP, OWNER, TESTER, TESTER_IP, THIRD, VIP, an_arp_request
from support.frames.captures import cooked2

SIX, ASKER = ip_address("2001:db8::50"), ip_address("2001:db8::7")
CONFIG = parse_config(
    f"""
mode: enforce
vips:
  - {{address: {VIP}, owner: {{node: me}}, mode: observe}}
  - {{address: {OTHER_VIP}, owner: elect}}
"""
)
SCENE = ReplayScene("me", CONFIG)
REQUEST, SOLICITATION = an_arp_request(), build_solicitation(TESTER, ASKER, SIX)


def captured(data: bytes, linktype=LINKTYPE_ETHERNET, link="eth0", length=None, outgoing=None) -> Captured:
    return Captured(1, 0, link, linktype, outgoing, data, len(data) if length is None else length)


# ---- entries -----------------------------------------------------------------------------------------------------


def test_entries_are_those_of_the_node_as_if_its_link_had_an_address_of_each_family():
    entries = replace(SCENE, owners={SIX: "me"}).entries()

    assert {key: (entry.kind, entry.mode) for key, entry in entries.items()} == {
        EntryKey(OWN_LINK, VIP): (Kind.OWNED, Mode.OBSERVE),
        EntryKey(OWN_LINK, OTHER_VIP): (Kind.UNCLAIMED, Mode.INHERIT),
        EntryKey(OWN_LINK, SIX): (Kind.OWNED, Mode.INHERIT),
    }
    assert all(entry.unfenced for entry in entries.values() if entry.kind is Kind.OWNED), "no fence passes"
    assert {entry.link_mac for entry in entries.values()} == {PLACEHOLDER_MAC}
    assert {entry.primary for entry in entries.values()} == set(PLACEHOLDER_ADDRESSES)


def test_what_is_told_of_the_node_takes_the_place_of_dummies():
    entries = replace(SCENE, macs={GUARD: "me"}, addresses=(NEIGHBOUR_IP,), owners={SIX: "me"}).entries()

    assert {entry.answer_mac for entry in entries.values()} == {GUARD}
    assert {key.vip: entry.primary for key, entry in entries.items()} == {
        VIP: NEIGHBOUR_IP,
        OTHER_VIP: NEIGHBOUR_IP,
        SIX: PLACEHOLDER_ADDRESSES[1],
    }


@pytest.mark.parametrize(
    ("macs", "owner", "kind", "mac"),
    [
        ({}, "me", Kind.OWNED, ZERO_MAC),
        ({}, "other", Kind.FOREIGN, ZERO_MAC),
        ({OWNER: "other"}, "other", Kind.FOREIGN, OWNER),
    ],
)
def test_owner_that_is_assumed_was_elected_and_so_its_mac_is_known(macs, owner, kind, mac):
    entry = replace(SCENE, owners={OTHER_VIP: owner}, macs=macs).entries()[EntryKey(OWN_LINK, OTHER_VIP)]

    assert (entry.kind, entry.owner_mac) == (kind, mac)


def test_each_node_whose_mac_is_told_has_a_link_with_its_own_entries():
    scene = replace(SCENE, macs={GUARD: "me", THIRD: "other", OWNER: "other"})

    assert scene.links() == {GUARD: OWN_LINK, THIRD: OWN_LINK + 1, OWNER: OWN_LINK + 1}
    assert scene.entries()[EntryKey(OWN_LINK + 1, VIP)].kind is Kind.FOREIGN
    assert scene.entries()[EntryKey(OWN_LINK + 1, VIP)].link_mac == THIRD, "the first of them is the link's"


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ENFORCE])
def test_mode_that_is_given_is_that_of_all_vips(mode):
    scene = replace(SCENE, mode=mode)
    entries = scene.entries()

    assert {entry.mode for entry in entries.values()} == {Mode.INHERIT}
    assert (scene.control(entries).mode, scene.control(entries).strictest) == (mode, mode)


def test_control_is_as_the_agent_has_it():
    control = SCENE.control(SCENE.entries())

    assert (control.mode, control.strictest, control.strictest6) == (Mode.ENFORCE, Mode.ENFORCE, Mode.INHERIT)
    assert control.vips4 == (VIP, OTHER_VIP)
    six = replace(SCENE, owners={SIX: "me"})
    assert six.control(six.entries()).strictest6 is Mode.ENFORCE


# ---- frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frame", "protocol"), [(REQUEST, Protocol.ARP), (SOLICITATION, Protocol.NDP)])
def test_arp_and_ndp_are_judged(frame, protocol):
    assert look_at(captured(frame), SCENE) == Seen(frame, False, "eth0", protocol)


def tagged(frame: bytes, *vids: int) -> bytes:
    return frame[:12] + b"".join(b"\x81\x00" + vid.to_bytes(2, "big") for vid in vids) + frame[12:]


@pytest.mark.parametrize("frame", [REQUEST, SOLICITATION])
@pytest.mark.parametrize("vids", [(0,), (100,), (0, 100, 7)])
def test_arp_and_ndp_are_found_behind_tags(frame, vids):
    seen = look_at(captured(tagged(frame, *vids)), SCENE)

    assert isinstance(seen, Seen)
    assert seen.frame == tagged(frame, *vids)


def test_vlan_that_is_asked_for_is_seen_as_on_its_device():
    scene = replace(SCENE, vlan=100)

    assert look_at(captured(tagged(REQUEST, 100)), scene) == Seen(REQUEST, False, "eth0", Protocol.ARP)
    for frame in (REQUEST, tagged(REQUEST, 101), tagged(REQUEST, 0, 100), REQUEST[:13], tagged(REQUEST, 100)[:15]):
        assert look_at(captured(frame), scene) is Passed.OTHER_VLAN


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (captured(REQUEST, linktype=105), Passed.OTHER_TYPE),
        (captured(cooked2(REQUEST[14:], hardware=772), LINKTYPE_SLL2), Passed.OTHER_TYPE),
        (captured(b""), Passed.TOO_SHORT),
        (captured(REQUEST[:13]), Passed.TOO_SHORT),
        (captured(REQUEST[:12] + b"\x08\x00" + bytes(46)), Passed.OTHER),
        (captured(tagged(REQUEST[:12] + b"\x08\x00" + bytes(46), 5)), Passed.OTHER),
        (captured(SOLICITATION[:54] + b"\x80" + SOLICITATION[55:]), Passed.OTHER),
        (captured(REQUEST[:41], length=60), Passed.CUT_OFF),
        (captured(SOLICITATION[:80], length=86), Passed.CUT_OFF),
        (captured(SOLICITATION + bytes(2000)), Passed.TOO_LONG),
    ],
)
def test_why_a_frame_is_not_judged(record, why):
    assert look_at(record, SCENE) is why


def test_arp_that_lost_only_padding_is_judged():
    assert look_at(captured(REQUEST[:42], length=60), SCENE) == Seen(REQUEST[:42], False, "eth0", Protocol.ARP)


def test_padding_of_arp_is_not_judged_where_a_test_run_has_no_room_for_it():
    seen = look_at(captured(REQUEST + bytes(9000)), SCENE)

    assert isinstance(seen, Seen)
    assert REQUEST + bytes(1514 - len(REQUEST)) == seen.frame


def test_only_the_interface_that_is_asked_for_is_judged():
    scene = replace(SCENE, link="eth1")

    assert look_at(captured(REQUEST), scene) is Passed.OTHER_LINK
    assert isinstance(look_at(captured(REQUEST, link="eth1"), scene), Seen)
    on_third = captured(cooked2(REQUEST[14:], ifindex=3), LINKTYPE_SLL2, link="any")
    for link, judged in (("#3", True), ("any", True), ("#4", False)):
        assert isinstance(look_at(on_third, replace(SCENE, link=link)), Seen) is judged


@pytest.mark.parametrize(
    ("record", "macs", "outgoing"),
    [
        (captured(REQUEST), {}, False),
        (captured(REQUEST), {TESTER: "me"}, True),
        (captured(REQUEST), {TESTER: "other"}, False),
        (captured(REQUEST, outgoing=True), {}, True),
        (captured(cooked2(REQUEST[14:], kind=4), LINKTYPE_SLL2), {}, True),
        (captured(cooked2(REQUEST[14:], kind=1), LINKTYPE_SLL2), {}, False),
    ],
)
def test_frame_goes_out_if_the_capture_says_so_or_its_source_is_this_node(record, macs, outgoing):
    seen = look_at(record, replace(SCENE, macs=macs))

    assert isinstance(seen, Seen)
    assert seen.outgoing is outgoing


# ---- decisions ---------------------------------------------------------------------------------------------------

CONFLICT, ANSWER = (Verdict.CONFLICT, Reason.CONFLICT), (Verdict.ANSWER, Reason.ANSWERED)
DELEGATED = (Verdict.PASS, Reason.DELEGATED)
ECHO, NOTHING = (Verdict.SUPPRESS, Reason.OWN_ECHO), (Verdict.PASS, Reason.NOT_GUARDED)


@pytest.mark.parametrize(
    ("decisions", "claimed", "asked", "about"),
    [
        ([CONFLICT], VIP, NEIGHBOUR_IP, [VIP]),
        ([CONFLICT], VIP, OTHER_VIP, [VIP]),
        ([ANSWER], TESTER_IP, VIP, [VIP]),
        ([ANSWER], None, VIP, [VIP]),
        ([CONFLICT, ANSWER], OTHER_VIP, VIP, [OTHER_VIP, VIP]),
        ([DELEGATED, DELEGATED], OTHER_VIP, VIP, [OTHER_VIP, VIP]),
        ([DELEGATED], VIP, NEIGHBOUR_IP, [VIP]),
        ([ECHO], TESTER_IP, VIP, [VIP]),
        ([ECHO], VIP, NEIGHBOUR_IP, [VIP]),
        ([(Verdict.PASS, Reason.EGRESS_OWNER)], VIP, None, [VIP]),
        ([NOTHING], TESTER_IP, NEIGHBOUR_IP, [None]),
        ([(Verdict.SUPPRESS, Reason.ND_INVALID)], VIP, OTHER_VIP, [OTHER_VIP]),
        ([(Verdict.PASS, Reason.ND_INVALID_CLAIM)], VIP, None, [VIP]),
    ],
)
def test_decision_is_about_the_sender_or_the_target(decisions, claimed, asked, about):
    found = attributed(decisions, claimed, asked, {VIP: None, OTHER_VIP: None})

    assert found == tuple(About(vip, *decision) for vip, decision in zip(about, decisions, strict=True))


# Each reason once: whoever adds one has to say which address of a frame it is about.
NO_VIP = "NOT_GUARDED OTHER_VLAN NOT_ARP UNWALKABLE UNCONFIGURED NOT_ND"
THE_TARGET = (
    "ANSWERED ANSWERED_THIRD_PARTY FENCED STALE_EPOCH FOREIGN EXTERNAL UNCLAIMED DELEGATED BAD_SENDER NOT_STRICT "
    "OTHER_HOST NO_LINK ND_INVALID ND_CHECKSUM UNVOUCHED"
)
THE_SENDER = (
    "OWN_ECHO OWNER_CLAIM UNVERIFIED_CLAIM UNCLAIMED_CLAIM DELEGATED_CLAIM CONFLICT ND_INVALID_CLAIM EGRESS_OWNER "
    "EGRESS_DELEGATED EGRESS_NOT_OWNER EGRESS_REWRITTEN EGRESS_NO_SOURCE"
)
OF_CLOSED_RANGES = "UNKNOWN EGRESS_UNKNOWN GUEST"  # no VIP has the address; a replay knows no closed ranges
WHOSE = {
    Reason[name]: vip
    for names, vip in ((NO_VIP, None), (THE_TARGET, OTHER_VIP), (THE_SENDER, VIP))
    for name in names.split()
}


def test_of_every_reason_it_is_known_whom_it_is_about():
    assert set(Reason) - WHOSE.keys() == {Reason[name] for name in OF_CLOSED_RANGES.split()}


@pytest.mark.parametrize("reason", WHOSE, ids=lambda reason: reason.name.lower())
def test_decision_with_a_reason_is_about_the_target_or_the_sender(reason):
    (found,) = attributed([(reason.verdict, reason)], VIP, OTHER_VIP, {VIP: None, OTHER_VIP: None})

    assert found.vip == WHOSE[reason]


def test_source_of_a_frame_is_who_sent_it_and_not_who_it_speaks_for():
    assert look_at(captured(an_arp_request(src=THIRD, sha=TESTER)), SCENE).source == THIRD
