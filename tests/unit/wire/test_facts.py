"""Who claims what and who is asked for, in frames of both families."""

from ipaddress import ip_address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, build_request
from arpguard.wire.ethernet import ETHERTYPE_ARP, EthernetFrame, VlanTag
from arpguard.wire.facts import Facts, facts_of
from arpguard.wire.ndp import (
    NdFlag,
    NdMessage,
    NdType,
    build_advertisement,
    build_dad_solicitation,
    build_solicitation,
    build_unsolicited_advertisement,
)

NODE, PEER = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:07")
VIP, HOST = ip_address("192.0.2.100"), ip_address("192.0.2.7")
VIP6, HOST6 = ip_address("2001:db8::100"), ip_address("2001:db8::7")
NOBODY, NOBODY6, ALL = ip_address("0.0.0.0"), ip_address("::"), ip_address("ff02::1")
REPLY = ArpPacket(ArpOp.REPLY, NODE, VIP, PEER, HOST)
NS, NA = NdType.SOLICITATION, NdType.ADVERTISEMENT
BARE = NdMessage(NA, VIP6, HOST6, VIP6, NdFlag.SOLICITED)  # without an option


@pytest.mark.parametrize(
    ("frame", "facts"),
    [
        (build_request(PEER, HOST, VIP), Facts(ArpOp.REQUEST, PEER, HOST, ZERO_MAC, VIP)),
        (build_request(PEER, NOBODY, VIP), Facts(ArpOp.REQUEST, PEER, NOBODY, ZERO_MAC, VIP)),
        (build_frame(REPLY, PEER, NODE), Facts(ArpOp.REPLY, NODE, VIP, PEER, HOST)),
        (build_solicitation(PEER, HOST6, VIP6), Facts(NS, PEER, HOST6, ZERO_MAC, VIP6)),
        (build_dad_solicitation(PEER, VIP6), Facts(NS, PEER, NOBODY6, ZERO_MAC, VIP6)),
        (build_advertisement(NODE, VIP6, HOST6, PEER), Facts(NA, NODE, VIP6, ZERO_MAC, HOST6)),
        (build_unsolicited_advertisement(NODE, VIP6), Facts(NA, NODE, VIP6, ZERO_MAC, ALL)),
        (BARE.build_frame(PEER, NODE), Facts(NA, NODE, VIP6, ZERO_MAC, HOST6)),
    ],
    ids=["request", "probe", "reply", "solicitation", "DAD", "answer", "announcement", "no option"],
)
def test_both_families_say_the_same_things(frame, facts):
    assert facts_of(frame) == facts


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        build_request(PEER, HOST, VIP)[:41],
        build_solicitation(PEER, HOST6, VIP6)[:77],
        build_request(PEER, HOST, VIP).replace(b"\x08\x06", b"\x08\x00"),
        EthernetFrame(BROADCAST_MAC, NODE, ETHERTYPE_ARP, REPLY.build(), (VlanTag(0),)).build(),
    ],
    ids=["empty", "cut off", "cut off, IPv6", "IPv4", "tag"],
)
def test_other_frames_say_nothing(frame):
    assert facts_of(frame) is None


@pytest.mark.parametrize(
    ("frame", "question", "probe"),
    [
        (build_request(PEER, HOST, VIP), True, False),
        (build_request(PEER, NOBODY, VIP), True, True),
        (build_frame(REPLY, PEER, NODE), False, False),
        (build_solicitation(PEER, HOST6, VIP6), True, False),
        (build_dad_solicitation(PEER, VIP6), True, True),
        (build_unsolicited_advertisement(NODE, VIP6), False, False),
    ],
)
def test_probe_is_a_question_of_somebody_without_an_address(frame, question, probe):
    facts = facts_of(frame)

    assert (facts.is_question, facts.is_probe) == (question, probe)
