"""The frames that questions about an address are put with: each says what its name does, in both families."""

from ipaddress import ip_address

import pytest

from arpguard.addresses import ZERO_MAC, MacAddress
from arpguard.core.stimulus import STRANGERS, Operation, Party, build_stimulus, describe
from arpguard.wire.arp import ArpOp
from arpguard.wire.ethernet import parse_ethernet
from arpguard.wire.facts import Facts, facts_of
from arpguard.wire.ndp import NdFlag, NdType, multicast_mac, parse_nd_frame, solicited_node

VIP, VIP6 = ip_address("192.0.2.100"), ip_address("2001:db8::100")
NODE, PEER = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:07")
HOST, HOST6 = ip_address("192.0.2.7"), ip_address("2001:db8::7")
ALL, NOBODY, NOBODY6 = ip_address("ff02::1"), ip_address("0.0.0.0"), ip_address("::")
PARTY, PARTY6 = Party(PEER, HOST), Party(PEER, HOST6)
ASK, SAY = NdType.SOLICITATION, NdType.ADVERTISEMENT


@pytest.mark.parametrize(
    ("operation", "facts"),
    [
        (Operation.REQUEST, Facts(ArpOp.REQUEST, PEER, HOST, ZERO_MAC, VIP)),
        (Operation.PROBE, Facts(ArpOp.REQUEST, PEER, NOBODY, ZERO_MAC, VIP)),
        (Operation.REPLY, Facts(ArpOp.REPLY, PEER, VIP, NODE, HOST)),
        (Operation.ANNOUNCEMENT, Facts(ArpOp.REQUEST, PEER, VIP, ZERO_MAC, VIP)),
        (Operation.OUT_REQUEST, Facts(ArpOp.REQUEST, NODE, VIP, ZERO_MAC, HOST)),
        (Operation.OUT_REPLY, Facts(ArpOp.REPLY, NODE, VIP, PEER, HOST)),
        (Operation.OUT_ANNOUNCEMENT, Facts(ArpOp.REQUEST, NODE, VIP, ZERO_MAC, VIP)),
    ],
)
def test_arp_frame_of_each_operation(operation, facts):
    assert facts_of(build_stimulus(operation, VIP, NODE, PARTY)) == facts


@pytest.mark.parametrize(
    ("operation", "facts", "flags", "dst"),
    [
        (Operation.REQUEST, Facts(ASK, PEER, HOST6, ZERO_MAC, VIP6), NdFlag.NONE, multicast_mac(solicited_node(VIP6))),
        (Operation.PROBE, Facts(ASK, PEER, NOBODY6, ZERO_MAC, VIP6), NdFlag.NONE, multicast_mac(solicited_node(VIP6))),
        (Operation.REPLY, Facts(SAY, PEER, VIP6, ZERO_MAC, HOST6), NdFlag.SOLICITED | NdFlag.OVERRIDE, NODE),
        (Operation.ANNOUNCEMENT, Facts(SAY, PEER, VIP6, ZERO_MAC, ALL), NdFlag.OVERRIDE, multicast_mac(ALL)),
        (
            Operation.OUT_REQUEST,
            Facts(ASK, NODE, VIP6, ZERO_MAC, HOST6),
            NdFlag.NONE,
            multicast_mac(solicited_node(HOST6)),
        ),
        (Operation.OUT_REPLY, Facts(SAY, NODE, VIP6, ZERO_MAC, HOST6), NdFlag.SOLICITED | NdFlag.OVERRIDE, PEER),
        (Operation.OUT_ANNOUNCEMENT, Facts(SAY, NODE, VIP6, ZERO_MAC, ALL), NdFlag.OVERRIDE, multicast_mac(ALL)),
    ],
)
def test_frame_of_neighbour_discovery_of_each_operation(operation, facts, flags, dst):
    frame = build_stimulus(operation, VIP6, NODE, PARTY6)
    packet = parse_nd_frame(frame)

    assert facts_of(frame) == facts
    assert (packet.message.flags, parse_ethernet(frame).dst, packet.flaw) == (flags, dst, None)


@pytest.mark.parametrize("operation", Operation)
def test_meaning_of_an_operation_says_which_way_the_frame_goes(operation):
    way, _, what = operation.meaning.partition(": ")

    assert way == ("out" if operation.outgoing else "in")
    assert operation.value.removeprefix("out-") in {*what.split(), "announcement"}


@pytest.mark.parametrize("vip", [VIP, VIP6])
@pytest.mark.parametrize("operation", Operation)
def test_stranger_is_of_the_addresss_own_family(operation, vip):
    assert build_stimulus(operation, vip, NODE) == build_stimulus(operation, vip, NODE, STRANGERS[vip.version])


@pytest.mark.parametrize(("vip", "party"), [(VIP, PARTY6), (VIP6, PARTY)])
def test_peer_of_another_family_is_refused(vip, party):
    with pytest.raises(ValueError, match=f"{party.address} is not of the same family as {vip}"):
        build_stimulus(Operation.REQUEST, vip, NODE, party)


@pytest.mark.parametrize(
    ("operation", "vip", "text"),
    [
        (Operation.REQUEST, VIP, "who-has 192.0.2.100 tell 192.0.0.8"),
        (Operation.OUT_REPLY, VIP, "192.0.2.100 is-at 02:00:00:00:00:01"),
        (Operation.REQUEST, VIP6, "neighbor solicitation, who has 2001:db8::100 tell 100::1"),
        (Operation.PROBE, VIP6, "neighbor solicitation, who has 2001:db8::100 tell ::"),
        (Operation.OUT_ANNOUNCEMENT, VIP6, "neighbor advertisement, tgt is 2001:db8::100 at 02:00:00:00:00:01"),
    ],
)
def test_frames_are_told_in_tcpdumps_words(operation, vip, text):
    assert describe(build_stimulus(operation, vip, NODE)) == text


def test_other_frames_are_told_by_their_length():
    assert describe(bytes(64)) == "64 bytes that are neither ARP nor neighbour discovery"
