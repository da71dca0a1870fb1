"""ARP packets: values and labelled bytes, and what Linux would not read either."""

from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.wire.arp import (
    ArpOp,
    ArpPacket,
    build_announcements,
    build_frame,
    build_request,
    parse_arp,
    parse_arp_frame,
)
from arpguard.wire.ethernet import EthernetFrame, VlanTag
from support.frames.builders import GUARD, NOBODY, TESTER, TESTER_IP, THIRD, VIP, a_packet, patched

# name -> (value, bytes)
PACKETS = {
    "request": (
        ArpPacket(ArpOp.REQUEST, TESTER, TESTER_IP, ZERO_MAC, VIP),
        (
            "0001"  # hrd
            "0800"  # pro
            "06 04"  # hln, pln
            "0001"  # op
            "020000000007 c0000207"  # sha, spa
            "000000000000 c0000264"  # tha, tpa
        ),
    ),
    "reply": (
        ArpPacket(ArpOp.REPLY, GUARD, VIP, TESTER, TESTER_IP),
        "0001 0800 06 04 0002 020000000001 c0000264 020000000007 c0000207",
    ),
    "probe_of_ieee802": (
        ArpPacket(ArpOp.REQUEST, TESTER, NOBODY, ZERO_MAC, VIP, htype=6),
        "0006 0800 06 04 0001 020000000007 00000000 000000000000 c0000264",
    ),
}


@pytest.mark.parametrize(("packet", "octets"), PACKETS.values(), ids=PACKETS)
def test_packet_is_built_as_rfc_826_says(packet, octets):
    assert packet.build() == bytes.fromhex(octets)


@pytest.mark.parametrize(("packet", "octets"), PACKETS.values(), ids=PACKETS)
def test_packet_is_parsed_as_rfc_826_says(packet, octets):
    assert parse_arp(bytes.fromhex(octets)) == packet


REQUEST = a_packet().build()
MALFORMED = {
    "empty": b"",
    "a_byte_short": REQUEST[:-1],
    "htype_0": patched(REQUEST, 0, b"\x00\x00"),
    "htype_2": patched(REQUEST, 0, b"\x00\x02"),
    "htype_swapped": patched(REQUEST, 0, b"\x01\x00"),
    "ptype_ipv6": patched(REQUEST, 2, b"\x86\xdd"),
    "hlen_0": patched(REQUEST, 4, b"\x00"),
    "hlen_8": patched(REQUEST, 4, b"\x08"),
    "plen_0": patched(REQUEST, 5, b"\x00"),
    "plen_16": patched(REQUEST, 5, b"\x10"),
    "op_0": patched(REQUEST, 6, b"\x00\x00"),
    "op_3": patched(REQUEST, 6, b"\x00\x03"),
    "op_swapped": patched(REQUEST, 6, b"\x01\x00"),
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED)
def test_malformed_packet_is_none(octets):
    assert parse_arp(octets) is None


def test_bytes_behind_a_packet_are_ignored():
    assert parse_arp(REQUEST + b"\xaa" * 18) == a_packet()


macs = st.binary(min_size=6, max_size=6).map(MacAddress)
addresses = st.ip_addresses(v=4)
packets = st.builds(
    ArpPacket,
    op=st.sampled_from(ArpOp),
    sha=macs,
    spa=addresses,
    tha=macs,
    tpa=addresses,
    htype=st.sampled_from([1, 6]),
)


@given(packets)
def test_every_packet_survives_its_bytes(packet):
    assert parse_arp(packet.build()) == packet


@given(st.binary(max_size=40))
def test_what_is_parsed_builds_the_same_bytes(octets):
    packet = parse_arp(octets)
    assert packet is None or packet.build() == octets[:28]


@given(packets, macs, macs)
def test_every_packet_survives_its_frame(packet, dst, src):
    assert parse_arp_frame(build_frame(packet, dst, src)) == packet


@pytest.mark.parametrize(
    ("packet", "is_announcement"),
    [
        (a_packet(), False),
        (a_packet(spa=NOBODY), False),
        (a_packet(spa=VIP), True),
        (a_packet(op=ArpOp.REPLY, spa=VIP), True),
        (a_packet(op=ArpOp.REPLY, spa=NOBODY), False),
    ],
    ids=["request", "probe", "announcement", "announcement_as_reply", "reply_of_nobody"],
)
def test_packet_knows_its_form(packet, is_announcement):
    assert packet.is_announcement == is_announcement


TAGGED = EthernetFrame(BROADCAST_MAC, TESTER, 0x0806, REQUEST, (VlanTag(0),)).build()
NOT_UNTAGGED_ARP = {
    "empty": b"",
    "header_only": build_frame(a_packet(), BROADCAST_MAC, TESTER)[:14],
    "cut_off": build_frame(a_packet(), BROADCAST_MAC, TESTER)[:41],
    "tagged": TAGGED,
    "ipv4": EthernetFrame(BROADCAST_MAC, TESTER, 0x0800, REQUEST).build(),
}


@pytest.mark.parametrize("octets", NOT_UNTAGGED_ARP.values(), ids=NOT_UNTAGGED_ARP)
def test_frame_that_is_no_untagged_arp_is_none(octets):
    assert parse_arp_frame(octets) is None


def test_frame_is_padded_with_zeros():
    frame = build_frame(a_packet(), BROADCAST_MAC, TESTER)
    assert frame[42:] == bytes(18)


def test_request_goes_to_everybody_and_knows_no_target():
    frame = build_request(TESTER, TESTER_IP, VIP)
    assert frame == build_frame(a_packet(), BROADCAST_MAC, TESTER)


def test_request_can_be_unicast():
    assert build_request(TESTER, TESTER_IP, VIP, dst=THIRD)[:6] == THIRD.octets


def test_announcements_are_the_forms_that_neighbours_learn_from():
    request, reply = (parse_arp_frame(frame) for frame in build_announcements(GUARD, VIP))
    assert request == ArpPacket(ArpOp.REQUEST, GUARD, VIP, ZERO_MAC, VIP)
    assert reply == ArpPacket(ArpOp.REPLY, GUARD, VIP, GUARD, VIP)
    assert all(frame[:12] == BROADCAST_MAC.octets + GUARD.octets for frame in build_announcements(GUARD, VIP))


def test_address_is_in_network_order():
    assert a_packet(tpa=IPv4Address("1.2.3.4")).build()[-4:] == b"\x01\x02\x03\x04"
