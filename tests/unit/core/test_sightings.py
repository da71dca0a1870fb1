"""Who spoke for which address."""

from collections import Counter
from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.replay import About, Passed, Protocol
from arpguard.core.sightings import Act, Ledger, Message, Sighting, Sightings, at_once, read_message
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.verdict import Reason, Verdict
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.ndp import (
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
)
from support.frames.builders import (
    NEIGHBOUR_IP,
    NOBODY,
    TESTER,
    TESTER_IP,
    THIRD,
    VIP,
    an_announcement,
    an_arp_reply,
    an_arp_request,
    patched,
)

SIX, ASKER = ip_address("2001:db8::50"), ip_address("2001:db8::7")
VIRTUAL = MacAddress.parse("00:00:5e:00:01:07")
HOP_LIMIT_AT = 14 + 7


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (an_arp_request(), Message(VIP, TESTER_IP, Act.REQUEST, TESTER)),
        (an_arp_request(spa=NOBODY), Message(VIP, None, Act.REQUEST, TESTER)),
        (an_arp_reply(), Message(None, VIP, Act.ANSWER, TESTER)),
        (an_arp_reply(sha=VIRTUAL), Message(None, VIP, Act.ANSWER, VIRTUAL)),
        (an_announcement(), Message(None, VIP, Act.ANNOUNCEMENT, TESTER)),
        (an_announcement(op=2), Message(None, VIP, Act.ANNOUNCEMENT, TESTER)),
        (an_arp_request(tags=(VlanTag(0),)), Message(VIP, TESTER_IP, Act.REQUEST, TESTER)),
        (an_arp_request(tags=(VlanTag(9),)), None),
        (build_solicitation(TESTER, ASKER, SIX), Message(SIX, ASKER, Act.REQUEST, TESTER)),
        (build_dad_solicitation(TESTER, SIX), Message(SIX, None, Act.REQUEST, TESTER)),
        (build_advertisement(THIRD, SIX, ASKER, TESTER), Message(None, SIX, Act.ANSWER, THIRD)),
        (build_unsolicited_advertisement(THIRD, SIX), Message(None, SIX, Act.ANNOUNCEMENT, THIRD)),
        (
            patched(build_solicitation(TESTER, ASKER, SIX), HOP_LIMIT_AT, b"\x40"),
            Message(SIX, ASKER, Act.REQUEST, TESTER, believed=False),
        ),
        (
            patched(build_unsolicited_advertisement(THIRD, SIX), HOP_LIMIT_AT, b"\x40"),
            Message(None, SIX, Act.ANNOUNCEMENT, THIRD, believed=False),
        ),
        (bytes(60), None),
        (b"", None),
    ],
)
def test_what_a_frame_says(frame, said):
    assert read_message(frame) == said


def seen(first_ns, last_ns) -> Sighting:
    return Sighting(first_ns, last_ns)


@pytest.mark.parametrize(
    ("sightings", "together"),
    [
        ([], False),
        ([seen(1, 9)], False),
        ([seen(1, 3), seen(4, 9)], False),
        ([seen(4, 9), seen(1, 3)], False),
        ([seen(1, 4), seen(4, 9)], True),
        ([seen(1, 9), seen(2, 3), seen(20, 30)], True),
        ([seen(1, 9), seen(10, 11), seen(5, 6)], True),
        ([seen(None, None), seen(None, None)], True),
    ],
)
def test_who_speaks_while_another_does_speaks_at_once_with_it(sightings, together):
    assert at_once(sightings) is together


def test_times_of_a_mac_are_its_first_and_last_whatever_their_order_in_the_file():
    sightings = Sightings()
    for time_ns in (5, 3, None, 9, 7):
        sightings.add(VIP, TESTER, Act.ANSWER, time_ns)
    found = sightings.found[VIP][TESTER]

    assert (found.first_ns, found.last_ns, found.acts[Act.ANSWER]) == (3, 9, 5)


def test_sightings_are_of_bounded_number_and_those_that_there_is_no_room_for_are_counted():
    sightings = Sightings(limit=3)
    for number in range(10):
        sightings.add(VIP, MacAddress(b"\2\0\0\0\0" + bytes([number])), Act.ANSWER, 0)
        sightings.add(ip_address(number), TESTER, Act.ANSWER, 0)

    assert sum(len(macs) for macs in sightings.found.values()) == 3
    assert sightings.missed == 17
    assert len(sightings.found) == len(list(filter(None, sightings.found.values()))), "none is empty"


def a_ledger() -> Ledger:
    return Ledger([Vip(VIP, Owner(OwnerKind.NODE, node="me"))])


def test_mac_that_only_asks_in_the_address_s_name_does_not_answer_for_it():
    ledger = a_ledger()
    ledger.note(Message(None, VIP, Act.ANSWER, TESTER), 1)
    ledger.note(Message(NEIGHBOUR_IP, VIP, Act.REQUEST, THIRD), 2)

    assert list(ledger.guarded.answering(VIP)) == [TESTER]
    assert ledger.doubled() == {}


@pytest.mark.parametrize("address", [VIP, NEIGHBOUR_IP, SIX])
def test_address_that_two_macs_answer_for_is_told_guarded_or_not(address):
    ledger = a_ledger()
    for mac in (TESTER, THIRD):
        ledger.note(Message(None, address, Act.ANSWER, mac), 1)

    assert {found: list(macs) for found, macs in ledger.doubled().items()} == {address: [TESTER, THIRD]}
    assert (ledger.guarded.found == {}) is (address != VIP)


def test_claim_that_receivers_discard_is_none():
    ledger = a_ledger()
    for mac in (TESTER, THIRD):
        ledger.note(Message(None, SIX, Act.ANSWER, mac, believed=False), 1)

    assert ledger.others.found == {}


def test_requests_are_counted_of_vips():
    ledger = a_ledger()
    for asked in (VIP, VIP, NEIGHBOUR_IP):
        ledger.note(Message(asked, TESTER_IP, Act.REQUEST, TESTER), 1)

    assert ledger.accounts[VIP].requests == 2


@pytest.mark.parametrize(("kept", "silenced", "unjudged"), [(0, 0, 5), (1, 0, 4), (0, 2, 3), (3, 2, 0)])
def test_what_the_guard_would_have_kept_or_silenced_is_judged(kept, silenced, unjudged):
    acts = Counter({Act.ANSWER: 3, Act.REQUEST: 2})

    assert Sighting(1, 1, acts, kept, silenced).unjudged == unjudged


def test_frames_are_counted_with_the_span_of_their_times_and_the_links_they_were_on():
    ledger = a_ledger()
    for time_ns, link in ((None, "eth0"), (5, "eth1"), (3, "eth0"), (9, "eth0")):
        ledger.take(time_ns, link)
    ledger.judge(Protocol.ARP, "eth1")
    ledger.judge(Protocol.ARP, "eth1")

    assert (ledger.read, ledger.first_ns, ledger.last_ns, ledger.links) == (4, 3, 9, {"eth0", "eth1"})
    assert (ledger.judged, ledger.judged_links) == ({Protocol.ARP: 2}, {"eth1"})


def test_names_of_links_are_of_bounded_number():
    ledger = a_ledger()
    for number in range(1234):
        ledger.take(1, f"eth{number}")
        ledger.judge(Protocol.ARP, f"eth{number}")

    assert (len(ledger.links), len(ledger.judged_links)) == (1000, 1000)
    assert (ledger.read, ledger.judged[Protocol.ARP]) == (1234, 1234)


def test_link_types_are_told_only_of_what_was_passed_by_for_its_type():
    ledger = a_ledger()
    for why in (Passed.OTHER_TYPE, Passed.OTHER_TYPE, Passed.OTHER_VLAN):
        ledger.passed_by(why, linktype=127)

    assert ledger.passed == {Passed.OTHER_TYPE: 2, Passed.OTHER_VLAN: 1}
    assert ledger.linktypes == {127: 2}


@pytest.mark.parametrize(
    ("decisions", "concerned", "tagged", "of_the_vip"),
    [
        ([], False, 0, {}),
        ([About(VIP, Verdict.SUPPRESS, Reason.FOREIGN)], True, 0, {(Verdict.SUPPRESS, Reason.FOREIGN): 1}),
        ([About(None, Verdict.CONFLICT, Reason.CONFLICT)], True, 0, {}),
        ([About(NEIGHBOUR_IP, Verdict.SUPPRESS, Reason.FOREIGN)], True, 0, {}),
        ([About(None, Verdict.PASS, Reason.NOT_GUARDED)], False, 0, {}),
        ([About(None, Verdict.PASS, Reason.OTHER_VLAN)], False, 1, {}),
        (
            [About(VIP, Verdict.PASS, Reason.OWNER_CLAIM), About(VIP, Verdict.SUPPRESS, Reason.FOREIGN)],
            True,
            0,
            {(Verdict.PASS, Reason.OWNER_CLAIM): 1, (Verdict.SUPPRESS, Reason.FOREIGN): 1},
        ),
    ],
    ids=["none", "vip", "untold", "other address", "nothing guarded", "tag", "claim and question"],
)
def test_decisions_are_counted_of_vips_and_concern_one_or_none(decisions, concerned, tagged, of_the_vip):
    ledger = a_ledger()

    assert ledger.decide(decisions) is concerned
    assert (ledger.about, ledger.tagged, ledger.accounts[VIP].decisions) == (concerned, tagged, of_the_vip)
