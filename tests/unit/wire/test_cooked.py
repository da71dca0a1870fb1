"""Linux cooked captures: the Ethernet frame that was on the wire, as far as the kernel tells."""

from ipaddress import IPv6Address

import pytest

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.wire.arp import ArpOp
from arpguard.wire.cooked import LINKTYPE_SLL, LINKTYPE_SLL2, Uncooked, uncooked
from arpguard.wire.ethernet import ETHERTYPE_8021Q, ETHERTYPE_IPV6
from arpguard.wire.ndp import build_solicitation, build_unsolicited_advertisement
from support.frames.builders import GUARD, NOBODY, TESTER, THIRD, VIP, a_frame, a_packet
from support.frames.captures import cooked, cooked2

OWN = GUARD
TO_US, TO_ALL, TO_GROUP, TO_OTHERS, FROM_US = range(5)
REQUEST = a_packet().build()
REPLY = a_packet(op=ArpOp.REPLY, spa=VIP, tha=THIRD).build()
FORMS = pytest.mark.parametrize(
    ("linktype", "cook", "link"), [(LINKTYPE_SLL, cooked, ""), (LINKTYPE_SLL2, cooked2, "#3")], ids=["SLL", "SLL2"]
)


def uncook(linktype, data) -> Uncooked:
    found = uncooked(linktype, data, OWN)
    assert found is not None
    return found


@FORMS
def test_request_to_all_is_the_frame_that_it_was(linktype, cook, link):
    assert uncook(linktype, cook(REQUEST, kind=TO_ALL)) == Uncooked(
        a_frame(a_packet(), src=TESTER, min_len=0), outgoing=False, link=link
    )


@FORMS
@pytest.mark.parametrize(
    ("kind", "payload", "destination"),
    [
        (TO_US, REQUEST, OWN),
        (TO_US, REPLY, OWN),
        (TO_ALL, REPLY, BROADCAST_MAC),
        (TO_GROUP, REQUEST, MacAddress.parse("01:00:5e:00:00:00")),
        (FROM_US, REQUEST, BROADCAST_MAC),
        (FROM_US, a_packet(spa=NOBODY).build(), BROADCAST_MAC),
    ],
)
def test_destination_follows_from_what_the_kernel_says_of_it(linktype, cook, link, kind, payload, destination):
    found = uncook(linktype, cook(payload, kind=kind))

    assert (MacAddress(found.frame[:6]), found.outgoing) == (destination, kind == FROM_US)


@FORMS
@pytest.mark.parametrize(("kind", "payload"), [(TO_OTHERS, REQUEST), (FROM_US, REPLY)])
def test_frames_to_others_are_to_one_host_and_not_to_us(linktype, cook, link, kind, payload):
    destination = MacAddress(uncook(linktype, cook(payload, kind=kind)).frame[:6])

    assert destination != OWN
    assert not destination.is_group


@FORMS
@pytest.mark.parametrize("kind", [TO_GROUP, FROM_US])
def test_ipv6_to_a_group_has_the_group_in_its_destination(linktype, cook, link, kind):
    vip, asker = IPv6Address("2001:db8::50"), IPv6Address("2001:db8::7")
    for frame in (build_solicitation(TESTER, asker, vip), build_unsolicited_advertisement(TESTER, vip)):
        assert uncook(linktype, cook(frame[14:], ETHERTYPE_IPV6, kind)).frame == frame


@FORMS
def test_vlan_tag_stays_where_it_was(linktype, cook, link):
    tagged = b"\x00\x64\x08\x06" + REQUEST

    assert uncook(linktype, cook(tagged, ETHERTYPE_8021Q, TO_ALL)).frame[12:] == b"\x81\x00" + tagged


@FORMS
def test_what_was_not_on_ethernet_is_left_out(linktype, cook, link):
    loopback, tunnel = 772, 776
    for data in (
        cook(REQUEST, hardware=loopback),
        cook(REQUEST, hardware=tunnel, source=b""),
        cook(b"")[:-1],
        b"",
    ):
        assert uncooked(linktype, data, OWN) is None
