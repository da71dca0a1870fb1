"""Who spoke for which address."""

from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.sightings import Act, Ledger, Message, Sighting, Sightings, at_once, read_message
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.ndp import (
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
)
from builders import (
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
