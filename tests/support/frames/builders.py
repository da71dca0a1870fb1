"""Values for tests: small named constructors with defaults. Conformance cases name only what differs."""

from dataclasses import replace
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.model import Decision, EntryKey, NodeControl, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from arpguard.wire.arp import ArpOp, ArpPacket
from arpguard.wire.ethernet import ETHERTYPE_ARP, EthernetFrame, VlanTag

GUARD = MacAddress.parse("02:00:00:00:00:01")  # M: the guard's NIC
TESTER = MacAddress.parse("02:00:00:00:00:07")  # T
THIRD = MacAddress.parse("02:00:00:00:00:33")  # O
OWNER = MacAddress.parse("02:00:00:00:00:aa")  # the host that owns a VIP elsewhere

VIP = IPv4Address("192.0.2.100")
OTHER_VIP = IPv4Address("192.0.2.101")
TESTER_IP = IPv4Address("192.0.2.7")
NEIGHBOUR_IP = IPv4Address("192.0.2.55")  # guarded by nobody
PRIMARY_IP = IPv4Address("192.0.2.1")
NOBODY = IPv4Address("0.0.0.0")

EPOCH = 7
HOUR_NS = 3600 * NS_PER_S


def a_packet(**changes) -> ArpPacket:
    """The body of REQ of docs/conformance: a request for the VIP by the tester."""
    request = ArpPacket(ArpOp.REQUEST, sha=TESTER, spa=TESTER_IP, tha=ZERO_MAC, tpa=VIP)
    return replace(request, **changes)


def a_frame(packet: ArpPacket, dst=BROADCAST_MAC, src=TESTER, tags: tuple[VlanTag, ...] = (), min_len=60) -> bytes:
    return EthernetFrame(dst, src, ETHERTYPE_ARP, packet.build(), tags).build(min_len)


def an_arp_request(dst=BROADCAST_MAC, src=TESTER, tags=(), min_len=60, **changes) -> bytes:
    """REQ; keywords other than the Ethernet ones are fields of the packet."""
    return a_frame(a_packet(**changes), dst, src, tags, min_len)


def an_announcement(sha=TESTER, vip=VIP, **changes) -> bytes:
    """RFC 5227 1.1: a request for one's own address."""
    return an_arp_request(src=sha, sha=sha, spa=vip, tpa=vip, **changes)


def an_arp_reply(sha=TESTER, spa=VIP, tpa=NEIGHBOUR_IP, tha=THIRD, dst=THIRD) -> bytes:
    return a_frame(ArpPacket(ArpOp.REPLY, sha, spa, tha, tpa), dst, sha)


def the_answer(asked: ArpPacket, mac=GUARD, length: int = 60) -> bytes:
    """R4: the one correct reply to a request (RFC 826), zero-padded."""
    reply = ArpPacket(ArpOp.REPLY, sha=mac, spa=asked.tpa, tha=asked.sha, tpa=asked.spa)
    return a_frame(reply, dst=asked.sha, src=mac, min_len=length)


def patched(frame: bytes, at: int, octets: bytes) -> bytes:
    """`frame` with other bytes at an offset."""
    return frame[:at] + octets + frame[at + len(octets) :]


def an_entry(kind=Kind.OWNED, **changes) -> VipEntry:
    """An entry of the current epoch on a link whose MAC and primary address are known."""
    entry = VipEntry(kind, epoch=EPOCH, link_mac=GUARD, answer_mac=GUARD, primary=PRIMARY_IP)
    return replace(entry, **changes)


def a_claim(vip: Address, mac: MacAddress, time_ns: int = 0) -> Decision:
    """An announcement of an owned VIP by another host, which is dropped."""
    return Decision(
        time_ns=time_ns,
        key=EntryKey(2, vip),
        verdict=Verdict.CONFLICT,
        reason=Reason.CONFLICT,
        hook=Hook.TC_INGRESS,
        mode=Mode.ENFORCE,
        kind=Kind.OWNED,
        op=ArpOp.REQUEST,
        spa=vip,
        tpa=vip,
        sha=mac,
        tha=mac,
        eth_src=mac,
        eth_dst=BROADCAST_MAC,
    )


def a_control(mode=Mode.ENFORCE, **changes) -> NodeControl:
    """A node whose fence lies an hour ahead; each call reads the clock."""
    control = NodeControl(mode, generation=1, epoch=EPOCH, fence_ns=boot_ns() + HOUR_NS, lease_ns=2 * HOUR_NS)
    return replace(control, **changes)
