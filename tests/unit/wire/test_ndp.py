"""Neighbour discovery: values and labelled bytes, what receivers discard, and what cannot be read."""

import shutil
import struct
import subprocess
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import MacAddress
from arpguard.wire.ethernet import ETHERTYPE_8021AD, ETHERTYPE_IPV4, VlanTag, parse_ethernet
from arpguard.wire.ndp import (
    ALL_NODES,
    MAX_EXTENSION_HEADERS,
    UNSPECIFIED,
    Flaw,
    NdFlag,
    NdMessage,
    NdOption,
    NdPacket,
    NdType,
    NoMessage,
    OptionType,
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
    checksum,
    multicast_mac,
    parse_nd,
    parse_nd_frame,
    solicited_node,
)
from support.frames.builders import GUARD, TESTER, THIRD, patched
from support.frames.nd_builders import (
    CHECKSUM,
    CODE,
    DESTINATION,
    DESTINATION_AT,
    FRAGMENT,
    HOP_BY_HOP,
    HOP_LIMIT_AT,
    NEIGHBOUR_IP6,
    NEXT_HEADER,
    OPTIONS,
    PAYLOAD_LEN,
    ROUTING,
    TARGET,
    TESTER_IP6,
    TYPE,
    VERSION,
    VIP6,
    a_dad_ns,
    a_dad_solicitation,
    a_fragment_header,
    a_header,
    a_routing_header,
    a_solicitation,
    an_advertisement,
    an_na,
    an_ns,
    na6,
    nd_frame,
    nonce,
    slla,
    tlla,
)

HEADER_OF_TESTER = "20010db8000000000000000000000007"
HEADER_OF_VIP = "20010db8000000000000000000000100"
GROUP_OF_VIP = "ff0200000000000000000001ff000100"
EVERYBODY = "ff020000000000000000000000000001"

# name -> (frame, bytes)
FRAMES = {
    "solicitation": (
        build_solicitation(TESTER, TESTER_IP6, VIP6),
        (
            "3333ff000100 020000000007 86dd"
            f"60000000 0020 3a ff {HEADER_OF_TESTER} {GROUP_OF_VIP}"
            f"87 00 1a1f 00000000 {HEADER_OF_VIP}"
            "01 01 020000000007"
        ),
    ),
    "unicast_solicitation": (
        build_solicitation(TESTER, TESTER_IP6, VIP6, GUARD),
        (
            "020000000001 020000000007 86dd"
            f"60000000 0020 3a ff {HEADER_OF_TESTER} {HEADER_OF_VIP}"
            f"87 00 ea6a 00000000 {HEADER_OF_VIP}"
            "01 01 020000000007"
        ),
    ),
    "dad_solicitation": (
        build_dad_solicitation(TESTER, VIP6),
        (
            "3333ff000100 020000000007 86dd"
            f"60000000 0018 3a ff {'00' * 16} {GROUP_OF_VIP}"
            f"87 00 4aef 00000000 {HEADER_OF_VIP}"
        ),
    ),
    "dad_solicitation_with_nonce": (
        build_dad_solicitation(TESTER, VIP6, b"\x01\x02\x03\x04\x05\x06"),
        (
            "3333ff000100 020000000007 86dd"
            f"60000000 0020 3a ff {'00' * 16} {GROUP_OF_VIP}"
            f"87 00 33da 00000000 {HEADER_OF_VIP}"
            "0e 01 010203040506"
        ),
    ),
    "unsolicited_advertisement": (
        build_unsolicited_advertisement(GUARD, VIP6),
        (
            "333300000001 020000000001 86dd"
            f"60000000 0020 3a ff {HEADER_OF_VIP} {EVERYBODY}"
            f"88 00 f72c 20000000 {HEADER_OF_VIP}"
            "02 01 020000000001"
        ),
    ),
    "solicited_advertisement": (
        build_advertisement(GUARD, VIP6, TESTER_IP6, TESTER),
        (
            "020000000007 020000000001 86dd"
            f"60000000 0020 3a ff {HEADER_OF_VIP} {HEADER_OF_TESTER}"
            f"88 00 8870 60000000 {HEADER_OF_VIP}"
            "02 01 020000000001"
        ),
    ),
}


@pytest.mark.parametrize(("frame", "octets"), FRAMES.values(), ids=FRAMES)
def test_frame_is_built_as_rfc_4861_says(frame, octets):
    assert frame == bytes.fromhex(octets)


@pytest.mark.parametrize(("frame", "_"), FRAMES.values(), ids=FRAMES)
def test_frame_that_is_built_is_valid(frame, _):
    assert parse_nd_frame(frame).flaw is None


def test_answer_to_a_dad_solicitation_goes_to_everybody():
    assert build_advertisement(GUARD, VIP6, UNSPECIFIED, TESTER) == build_unsolicited_advertisement(GUARD, VIP6)


@pytest.mark.skipif(shutil.which("tcpdump") is None, reason="needs tcpdump")
def test_tcpdump_reads_what_is_built(tmp_path):
    """Another implementation agrees about checksums, flags and options."""
    capture = tmp_path / "nd.pcap"
    records = (struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame for frame, _ in FRAMES.values())
    capture.write_bytes(struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records))
    read = ["tcpdump", "-r", capture, "-n", "-v", "-v", "-t"]
    told = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    assert told.count("[icmp6 sum ok]") == len(FRAMES)
    assert "Flags [override]" in told
    assert "Flags [solicited, override]" in told
    assert told.count("source link-address option (1), length 8 (1): 02:00:00:00:00:07") == 2
    assert told.count("destination link-address option (2), length 8 (1): 02:00:00:00:00:01") == 2


def test_checksum_of_an_odd_length():
    """The example of RFC 1071 3 with a byte more, checked against the sum done by hand."""
    src, dst = IPv6Address("::1"), IPv6Address("::2")
    total = 1 + 2 + 3 + 58 + 0x0102 + 0x0300
    assert checksum(src, dst, b"\x01\x02\x03") == 0xFFFF - total


def test_groups():
    assert solicited_node(VIP6) == IPv6Address("ff02::1:ff00:100")
    assert multicast_mac(solicited_node(VIP6)) == MacAddress.parse("33:33:ff:00:01:00")
    assert multicast_mac(ALL_NODES) == MacAddress.parse("33:33:00:00:00:01")


# ---- there and back ----------------------------------------------------------------------------------------------

addresses = st.integers(0, 2**128 - 1).map(IPv6Address)
macs = st.binary(min_size=6, max_size=6).map(MacAddress)
options = st.builds(
    NdOption,
    st.integers(0, 255),
    st.integers(1, 6).flatmap(lambda n: st.binary(min_size=8 * n - 2, max_size=8 * n - 2)),
)
solicitations = st.builds(
    NdMessage,
    kind=st.just(NdType.SOLICITATION),
    src=addresses,
    dst=addresses,
    target=addresses,
    options=st.lists(options, max_size=4).map(tuple),
    hop_limit=st.integers(0, 255),
    code=st.integers(0, 255),
    reserved=st.integers(0, 2**32 - 1),
)
advertisements = st.builds(
    NdMessage,
    kind=st.just(NdType.ADVERTISEMENT),
    src=addresses,
    dst=addresses,
    target=addresses,
    flags=st.integers(0, 7).map(lambda bits: NdFlag(bits << 5)),
    options=st.lists(options, max_size=4).map(tuple),
    hop_limit=st.integers(0, 255),
    code=st.integers(0, 255),
    reserved=st.integers(0, 2**29 - 1),
)
header = st.sampled_from([a_header(HOP_BY_HOP), a_header(DESTINATION), a_routing_header(), a_fragment_header()])


@given(solicitations | advertisements, macs, macs, st.lists(header, max_size=MAX_EXTENSION_HEADERS))
def test_message_comes_back_as_it_was(message, dst, src, headers):
    frame = nd_frame(message, dst, src, headers=headers)
    packet = parse_nd_frame(frame)
    assert (packet.message, packet.frame_src) == (message, src)
    assert packet.extensions == tuple(kind for kind, _ in headers)
    assert frame[-packet.room :] == message.build()
    assert packet.length == len(message.build())
    assert packet.flaw is not Flaw.CHECKSUM


@given(solicitations | advertisements, st.data())
def test_every_flipped_bit_of_a_valid_message_is_noticed(message, data):
    """One bit always changes the sum (RFC 1071)."""
    body = message.build()
    at = data.draw(st.integers(0, 8 * len(body) - 1))
    flipped = patched(body, at // 8, bytes([body[at // 8] ^ 1 << at % 8]))
    assert checksum(message.src, message.dst, body) == 0
    assert checksum(message.src, message.dst, flipped) != 0


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_read(head, tail):
    for start in (b"", bytes(12) + b"\x86\xdd", an_ns()[: len(head)], an_ns(headers=[a_fragment_header()])[:70]):
        parse_nd_frame(start + head + tail)


@given(st.integers(0, len(an_ns(headers=[a_header(DESTINATION), a_fragment_header(more=True)]))), st.binary(max_size=8))
def test_every_prefix_is_read(length, tail):
    parse_nd_frame(an_ns(headers=[a_header(DESTINATION), a_fragment_header(more=True)])[:length] + tail)


# ---- validity ----------------------------------------------------------------------------------------------------


def mended(frame: bytes) -> bytes:
    """The frame with a checksum that is right for what is in it."""
    body = patched(frame[TYPE:], 2, b"\0\0")
    right = checksum(IPv6Address(frame[22:38]), IPv6Address(frame[38:54]), body)
    return patched(frame, CHECKSUM, right.to_bytes(2, "big"))


def plain_sum(body: bytes) -> int:
    """What the checksum would be if the IPv6 header did not count (as in ICMP for IPv4)."""
    total = sum(struct.unpack(f"!{len(body) // 2}H", patched(body, 2, b"\0\0")))
    return 0xFFFF - (total % 0xFFFF)


NS = an_ns()
NA = an_na()
FLAWS = {
    "hop_limit_254": (an_ns(hop_limit=254), Flaw.HOP_LIMIT),
    "hop_limit_0": (an_na(hop_limit=0), Flaw.HOP_LIMIT),
    "code_1": (an_ns(code=1), Flaw.CODE),
    "payload_shorter_than_a_message": (patched(NS, PAYLOAD_LEN, b"\x00\x17"), Flaw.LENGTH),
    "payload_longer_than_the_frame": (patched(NS, PAYLOAD_LEN, b"\x00\x21"), Flaw.LENGTH),
    "payload_empty": (patched(NS, PAYLOAD_LEN, b"\x00\x00"), Flaw.LENGTH),
    "multicast_target": (an_ns(target=IPv6Address("ff02::1")), Flaw.TARGET),
    "dad_to_the_target": (nd_frame(a_dad_solicitation(dst=VIP6)), Flaw.DAD_DESTINATION),
    "dad_to_all_nodes": (nd_frame(a_dad_solicitation(dst=ALL_NODES)), Flaw.DAD_DESTINATION),
    "solicited_advertisement_to_all_nodes": (an_na(flags=NdFlag.SOLICITED), Flaw.SOLICITED_TO_GROUP),
    "option_of_length_0": (mended(patched(NS, OPTIONS + 1, b"\x00")), Flaw.OPTIONS),
    "option_past_the_end": (mended(patched(NS, OPTIONS + 1, b"\x02")), Flaw.OPTIONS),
    "half_an_option": (mended(patched(NS, PAYLOAD_LEN, b"\x00\x19")[: OPTIONS + 1]), Flaw.OPTIONS),
    "long_slla": (an_ns(options=(NdOption(1, bytes(14)),)), Flaw.LINK_LAYER),
    "long_tlla": (an_na(options=(NdOption(2, bytes(14)),)), Flaw.LINK_LAYER),
    "dad_with_slla": (a_dad_ns(options=(slla(TESTER),)), Flaw.DAD_LINK_LAYER),
    "checksum": (patched(NS, CHECKSUM, b"\x12\x34"), Flaw.CHECKSUM),
    "checksum_without_pseudo_header": (patched(NS, CHECKSUM, struct.pack("!H", plain_sum(NS[TYPE:]))), Flaw.CHECKSUM),
    "another_source": (patched(NS, 22, NEIGHBOUR_IP6.packed), Flaw.CHECKSUM),
}


@pytest.mark.parametrize(("frame", "flaw"), FLAWS.values(), ids=FLAWS)
def test_flaw_is_told(frame, flaw):
    assert parse_nd_frame(frame).flaw is flaw


VALID = {
    "padding": NS + b"\xaa" * 10,
    "reserved_word": an_ns(reserved=0xFFFFFFFF),
    "reserved_bits_of_an_advertisement": an_na(reserved=0x1FFFFFFF),
    "unknown_option": an_ns(options=(NdOption(253, bytes(22)), slla(TESTER))),
    "second_link_layer_address_is_odd": an_ns(options=(slla(TESTER), NdOption(1, bytes(14)))),
    "tlla_in_a_solicitation": an_ns(options=(slla(TESTER), NdOption(2, bytes(14)))),
    "dad_with_nonce": a_dad_ns(options=(nonce(),)),
    "dad_to_another_solicited_node_group": nd_frame(a_dad_solicitation(dst=solicited_node(NEIGHBOUR_IP6))),
    "advertisement_without_option": an_na(options=()),
    "solicited_advertisement": nd_frame(an_advertisement(dst=TESTER_IP6, flags=NdFlag.SOLICITED)),
}


@pytest.mark.parametrize("frame", VALID.values(), ids=VALID)
def test_valid_message_has_no_flaw(frame):
    assert parse_nd_frame(frame).flaw is None


def test_first_link_layer_address_counts():
    packet = parse_nd_frame(an_ns(options=(nonce(), slla(THIRD), slla(TESTER))))
    assert (packet.message.link_layer, packet.sha) == (THIRD, THIRD)


def test_without_a_link_layer_address_the_sender_of_the_frame_counts():
    packet = parse_nd_frame(an_ns(options=(tlla(THIRD),)))
    assert (packet.message.link_layer, packet.sha) == (None, TESTER)


def test_nonce_is_read():
    assert parse_nd_frame(a_dad_ns(options=(nonce(b"abcdef"),))).message.nonce == b"abcdef"
    assert parse_nd_frame(NS).message.nonce == b""


def test_options_before_a_broken_one_are_read():
    packet = parse_nd_frame(mended(patched(an_ns(options=(slla(THIRD), nonce())), OPTIONS + 9, b"\0")))
    assert (packet.flaw, packet.sha) == (Flaw.OPTIONS, THIRD)


def test_option_is_padded_to_whole_units():
    assert NdOption(OptionType.NONCE, b"\x01").build() == bytes.fromhex("0e01010000000000")
    assert len(NdOption(253, bytes(7)).build()) == 16


# ---- extension headers -------------------------------------------------------------------------------------------

DEEP = [a_header(DESTINATION)] * MAX_EXTENSION_HEADERS
LONG = a_header(DESTINATION, bytes(6 + 8 * 200))


@pytest.mark.parametrize(
    "headers",
    [
        [a_header(HOP_BY_HOP)],
        [a_routing_header()],
        [a_fragment_header()],
        [a_header(HOP_BY_HOP), a_header(DESTINATION), a_routing_header(), a_fragment_header(), LONG],
        DEEP,
    ],
    ids=lambda headers: "_".join(str(kind) for kind, _ in headers),
)
def test_extension_headers_are_walked(headers):
    packet = parse_nd_frame(an_ns(headers=headers))
    assert packet.flaw is None
    assert packet.extensions == tuple(kind for kind, _ in headers)


def test_payload_of_no_length_ends_with_the_frame_behind_a_hop_by_hop_header():
    """As if a jumbo payload option gave it (RFC 2675): Linux asks for the option, but not that it is there."""
    frame = patched(an_ns(headers=[a_header(HOP_BY_HOP)]), PAYLOAD_LEN, b"\0\0")
    assert parse_nd_frame(frame).flaw is None
    assert parse_nd_frame(frame + b"\0").flaw is Flaw.OPTIONS


def unread(frame: bytes) -> NdPacket | NoMessage:
    return parse_nd(parse_ethernet(frame))


def with_payload_len(frame: bytes, length: int) -> bytes:
    return patched(frame, PAYLOAD_LEN, length.to_bytes(2, "big"))


MESSAGE = a_solicitation().build()
ECHO = b"\x80" + bytes(23)
ONE_FRAGMENT = [a_fragment_header(more=True)]
TWO_UNITS = a_header(DESTINATION, bytes(14))
UNREAD = {
    "nothing": (NS[:14], NoMessage.NO_ND),
    "half_an_ip_header": (NS[:53], NoMessage.NO_ND),
    "ip_header_only": (NS[:54], NoMessage.NO_ND),
    "echo_request": (patched(NS, TYPE, b"\x80"), NoMessage.NO_ND),
    "udp": (patched(NS, NEXT_HEADER, b"\x11"), NoMessage.NO_ND),
    "ip_version_4": (patched(NS, VERSION, b"\x40"), NoMessage.NO_ND),
    "half_a_word_of_the_message": (NS[:57], NoMessage.NO_ND),
    "word_of_the_message": (NS[:58], NoMessage.CUT_OFF),
    "half_a_target": (NS[: TARGET + 15], NoMessage.CUT_OFF),
    "one_header_too_many": (an_ns(headers=[*DEEP, a_header(DESTINATION)]), NoMessage.UNWALKABLE),
    "one_header_too_many_cut_off": (an_ns(headers=[*DEEP, a_header(DESTINATION)])[: 54 + 64 + 1], NoMessage.UNWALKABLE),
    "header_cut_off": (an_ns(headers=[a_header(DESTINATION)])[: 54 + 3], NoMessage.NO_ND),
    "header_past_the_end": (an_ns(headers=[LONG])[: 54 + 64], NoMessage.NO_ND),
    "later_fragment": (an_ns(headers=[a_fragment_header(offset=1)]), NoMessage.NO_ND),
    "last_fragment_of_all": (an_ns(headers=[a_fragment_header(offset=0x1FFF, more=True)]), NoMessage.NO_ND),
    "first_fragment": (an_ns(headers=ONE_FRAGMENT), NoMessage.UNWALKABLE),
    "first_fragment_with_nothing_in_it": (
        nd_frame(a_solicitation(), headers=ONE_FRAGMENT, body=b""),
        NoMessage.UNWALKABLE,
    ),
    "first_fragment_of_an_echo": (nd_frame(a_solicitation(), headers=ONE_FRAGMENT, body=ECHO), NoMessage.NO_ND),
    "first_fragment_ends_in_a_header": (
        an_ns(headers=[*ONE_FRAGMENT, TWO_UNITS])[: 54 + 8 + 3],
        NoMessage.UNWALKABLE,
    ),
    # What stands behind the packet in the frame is not what the next fragment brings.
    "first_fragment_ends_before_the_type_in_the_frame": (
        with_payload_len(nd_frame(a_solicitation(), headers=ONE_FRAGMENT, body=ECHO), 8),
        NoMessage.UNWALKABLE,
    ),
    "first_fragment_ends_in_a_header_in_the_frame": (
        with_payload_len(nd_frame(a_solicitation(), headers=[*ONE_FRAGMENT, TWO_UNITS], body=ECHO), 16),
        NoMessage.UNWALKABLE,
    ),
    "first_fragment_leads_to_a_later_one": (
        an_ns(headers=[*ONE_FRAGMENT, a_fragment_header(offset=3)]),
        NoMessage.NO_ND,
    ),
}


@pytest.mark.parametrize(("frame", "why"), UNREAD.values(), ids=UNREAD)
def test_what_cannot_be_read_is_told(frame, why):
    assert unread(frame) is why
    assert parse_nd_frame(frame) is None


def test_other_frames_are_none_of_its_business():
    assert parse_nd_frame(b"") is None
    assert parse_nd_frame(patched(NS, 12, ETHERTYPE_IPV4.to_bytes(2, "big"))) is None
    assert parse_nd_frame(an_ns(tags=(VlanTag(0),))) is None


def test_tags_do_not_matter_to_the_message():
    frame = an_ns(tags=(VlanTag(0), VlanTag(7, tpid=ETHERTYPE_8021AD)), headers=[a_header(HOP_BY_HOP)])
    packet = unread(frame)
    assert (len(frame) - packet.room, packet.flaw) == (70, None)
    assert packet.message == a_solicitation()


def test_answer_of_the_builders_is_the_codecs():
    assert na6(a_dad_solicitation()) == build_unsolicited_advertisement(GUARD, VIP6)


def test_offsets_of_the_builders():
    assert (NS[HOP_LIMIT_AT], NS[TYPE], NS[CODE]) == (255, 135, 0)
    assert IPv6Address(NS[TARGET:OPTIONS]) == VIP6
    assert IPv6Address(NS[DESTINATION_AT:TYPE]) == solicited_node(VIP6)
    assert NA[TYPE] == 136
    assert (ROUTING, FRAGMENT) == (43, 44)
