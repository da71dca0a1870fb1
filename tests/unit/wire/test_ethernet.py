"""Ethernet frames with and without VLAN tags: values and labelled bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import MacAddress
from arpguard.wire.ethernet import ETHERTYPE_8021AD, VLAN_ETHERTYPES, EthernetFrame, VlanTag, parse_ethernet
from support.frames.builders import GUARD, TESTER

HEAD = "020000000001 020000000007"  # dst, src
FRAMES = {
    "untagged": (EthernetFrame(GUARD, TESTER, 0x0806, b"\x01\x02"), HEAD + "0806 0102"),
    "without_payload": (EthernetFrame(GUARD, TESTER, 0x0806, b""), HEAD + "0806"),
    "priority_tag": (
        EthernetFrame(GUARD, TESTER, 0x0806, b"\x01", (VlanTag(vid=0, pcp=5),)),
        HEAD + "8100 a000 0806 01",  # TPID, TCI, type
    ),
    "tag_with_everything": (
        EthernetFrame(GUARD, TESTER, 0x0806, b"", (VlanTag(vid=0xABC, pcp=7, dei=True),)),
        HEAD + "8100 fabc 0806",
    ),
    "two_tags_outermost_first": (
        EthernetFrame(GUARD, TESTER, 0x0806, b"", (VlanTag(100, tpid=ETHERTYPE_8021AD), VlanTag(10))),
        HEAD + "88a8 0064 8100 000a 0806",
    ),
}


@pytest.mark.parametrize(("frame", "octets"), FRAMES.values(), ids=FRAMES)
def test_frame_is_built_as_ieee_802_says(frame, octets):
    assert frame.build() == bytes.fromhex(octets)


@pytest.mark.parametrize(("frame", "octets"), FRAMES.values(), ids=FRAMES)
def test_frame_is_parsed_as_ieee_802_says(frame, octets):
    assert parse_ethernet(bytes.fromhex(octets)) == frame


@pytest.mark.parametrize(
    "octets",
    ["", "020000000001", HEAD, HEAD + "08", HEAD + "8100", HEAD + "810000", HEAD + "81000000", HEAD + "8100000008"],
    ids=["empty", "dst", "no_type", "half_a_type", "tpid", "half_a_tag", "tag", "half_a_type_behind_a_tag"],
)
def test_frame_cut_off_before_its_type_is_none(octets):
    assert parse_ethernet(bytes.fromhex(octets)) is None


@pytest.mark.parametrize(("min_len", "length"), [(0, 16), (16, 16), (60, 60)])
def test_frame_is_padded_to_the_least_length(min_len, length):
    frame = EthernetFrame(GUARD, TESTER, 0x0806, b"\xaa\xaa").build(min_len)
    assert len(frame) == length
    assert frame[16:] == bytes(length - 16)


macs = st.binary(min_size=6, max_size=6).map(MacAddress)
tags = st.builds(
    VlanTag, vid=st.integers(0, 4095), pcp=st.integers(0, 7), dei=st.booleans(), tpid=st.sampled_from(VLAN_ETHERTYPES)
)
frames = st.builds(
    EthernetFrame,
    dst=macs,
    src=macs,
    ethertype=st.integers(0, 0xFFFF).filter(lambda number: number not in VLAN_ETHERTYPES),
    payload=st.binary(max_size=64),
    tags=st.lists(tags, max_size=4).map(tuple),
)


@given(frames)
def test_every_frame_survives_its_bytes(frame):
    assert parse_ethernet(frame.build()) == frame


@given(st.binary(max_size=64))
def test_what_is_parsed_builds_the_same_bytes(octets):
    frame = parse_ethernet(octets)
    assert frame is None or frame.build() == octets
