"""Ethernet II framing with IEEE 802.1Q tags: bytes to values and back."""

import struct
from dataclasses import dataclass

from arpguard.addresses import MacAddress

ETHERTYPE_ARP = 0x0806
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_8021Q = 0x8100
ETHERTYPE_8021AD = 0x88A8
VLAN_ETHERTYPES = (ETHERTYPE_8021Q, ETHERTYPE_8021AD)
MIN_FRAME_LEN = 60


@dataclass(frozen=True, slots=True)
class VlanTag:
    """One tag: its TPID, priority (PCP), drop eligible bit and VLAN id."""

    vid: int
    pcp: int = 0
    dei: bool = False
    tpid: int = ETHERTYPE_8021Q


@dataclass(frozen=True, slots=True)
class EthernetFrame:
    """`dst`, `src`, `tags` outermost first, `ethertype` behind the last tag, and the payload with its padding."""

    dst: MacAddress
    src: MacAddress
    ethertype: int
    payload: bytes
    tags: tuple[VlanTag, ...] = ()

    def build(self, min_len: int = 0) -> bytes:
        """The frame without its check sequence, zero-padded to `min_len` bytes."""
        head = self.dst.octets + self.src.octets
        for tag in self.tags:
            head += struct.pack("!HH", tag.tpid, tag.pcp << 13 | tag.dei << 12 | tag.vid)
        return (head + struct.pack("!H", self.ethertype) + self.payload).ljust(min_len, b"\0")


def parse_ethernet(data: bytes) -> EthernetFrame | None:
    """The frame in `data`, or None when it is cut off before its EtherType."""
    tags: list[VlanTag] = []
    at = 12

    while len(data) >= at + 2:
        (ethertype,) = struct.unpack_from("!H", data, at)
        if ethertype not in VLAN_ETHERTYPES:
            return EthernetFrame(
                dst=MacAddress(data[:6]),
                src=MacAddress(data[6:12]),
                ethertype=ethertype,
                payload=data[at + 2 :],
                tags=tuple(tags),
            )

        if len(data) < at + 4:
            return None
        (tci,) = struct.unpack_from("!H", data, at + 2)
        tags.append(VlanTag(vid=tci & 0xFFF, pcp=tci >> 13, dei=bool(tci >> 12 & 1), tpid=ethertype))
        at += 4

    return None
