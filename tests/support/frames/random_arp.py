"""Random ARP frames about a few VIPs, and random maps that have entries of them."""

import random
from dataclasses import replace
from ipaddress import IPv4Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.wire.arp import ArpPacket
from arpguard.wire.ethernet import EthernetFrame, VlanTag
from support.frames.builders import GUARD, NOBODY, OWNER, PRIMARY_IP, TESTER, THIRD, patched
from support.programs.agreement import VIRTUAL_MAC, Maps, a_random_control, a_random_entry

VIPS = [IPv4Address(text) for text in ("192.0.2.100", "192.0.2.101", "10.0.0.1", "169.254.7.7", "0.0.0.5", "240.0.0.1")]
SPECIAL = [IPv4Address(text) for text in ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "239.1.2.3")]
ORDINARY = [IPv4Address(text) for text in ("192.0.2.7", "192.0.2.55", "192.0.2.255", "198.51.100.1")]
MULTICAST_MAC = MacAddress.parse("01:00:5e:00:00:01")
MACS = [GUARD, TESTER, THIRD, OWNER, ZERO_MAC, BROADCAST_MAC, MULTICAST_MAC]
TPIDS = [0x8100, 0x88A8]
IPV4 = b"\x08\x00"


# ---- random maps -------------------------------------------------------------------------------------------------


def random_maps(rng: random.Random, now_ns: int) -> Maps:
    likely = [(vip, 0.8) for vip in VIPS] + [(by_mistake, 0.1) for by_mistake in SPECIAL]
    entries = {vip: a_random_entry(rng, PRIMARY_IP) for vip, chance in likely if rng.random() < chance}
    control = a_random_control(rng, now_ns)
    if entries:  # as narrow as the agent makes it
        control = replace(control, vips4=(min(entries), max(entries)))
    return entries, control


# ---- random frames -----------------------------------------------------------------------------------------------


def a_random_address(rng: random.Random) -> IPv4Address:
    pool = rng.choices([VIPS, SPECIAL, ORDINARY, [NOBODY]], weights=[6, 1, 3, 2])[0]
    return rng.choice(pool)


def random_tags(rng: random.Random) -> tuple[VlanTag, ...]:
    depth = rng.choices(range(11), weights=[60, 12, 6, 2, 1, 1, 1, 4, 4, 4, 2])[0]
    other_vid = rng.random() < 0.1
    return tuple(
        VlanTag(
            rng.choice([0, 1, 10, 4095]) if other_vid else 0, rng.randrange(8), rng.random() < 0.5, rng.choice(TPIDS)
        )
        for _ in range(depth)
    )


def a_random_packet(rng: random.Random, sha: MacAddress) -> ArpPacket:
    spa = a_random_address(rng)
    return ArpPacket(
        op=rng.choices([1, 2, 0, 3, 8, 256], weights=[60, 25, 1, 1, 1, 1])[0],
        sha=sha if rng.random() < 0.8 else rng.choice(MACS),
        spa=spa,
        tha=rng.choice([ZERO_MAC, *MACS]),
        tpa=spa if rng.random() < 0.25 else a_random_address(rng),
        htype=rng.choices([1, 6, 2, 256], weights=[85, 8, 1, 1])[0],
    )


def a_random_frame(rng: random.Random) -> bytes:
    src = rng.choice([TESTER] * 6 + MACS)
    packet = a_random_packet(rng, src)
    frame = EthernetFrame(
        dst=rng.choice([BROADCAST_MAC, BROADCAST_MAC, GUARD, VIRTUAL_MAC, *MACS]),
        src=src,
        ethertype=rng.choices([0x0806, 0x0800, 0x8035, 46], weights=[96, 1, 1, 1])[0],
        payload=packet.build(),
        tags=random_tags(rng),
    )
    padding = rng.choice([b"", b"", rng.randbytes(rng.randrange(64)), bytes(18), b"\xaa" * 400])
    return frame.build() + padding


def flip_bit(rng: random.Random, frame: bytes) -> bytes:
    at = rng.randrange(len(frame))
    return patched(frame, at, bytes([frame[at] ^ 1 << rng.randrange(8)]))


def set_byte(rng: random.Random, frame: bytes) -> bytes:
    return patched(frame, rng.randrange(len(frame)), rng.randbytes(1))


def truncate(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randrange(14, len(frame) + 1)]


def extend(rng: random.Random, frame: bytes) -> bytes:
    return frame + rng.randbytes(rng.randrange(1, 80))


def set_length_field(rng: random.Random, frame: bytes) -> bytes:
    """hlen, plen or the high byte of ptype of an untagged frame."""
    return patched(frame, rng.choice([16, 18, 19]), rng.choice([b"\x00", b"\x04", b"\x06", b"\x08", b"\xff"]))


def cut_in_a_tag(rng: random.Random, frame: bytes) -> bytes:
    return (frame[:12] + rng.choice([b"\x81\x00", b"\x88\xa8"]) + bytes(6))[: rng.randrange(14, 21)]


MUTATIONS = [flip_bit, set_byte, truncate, extend, set_length_field, cut_in_a_tag]


def a_plain_request(rng: random.Random) -> bytes:
    """What hosts really send, and what an owner answers."""
    asked = ArpPacket(1, TESTER, rng.choice([NOBODY, *ORDINARY]), ZERO_MAC, rng.choice(VIPS))
    dst = rng.choice([BROADCAST_MAC, GUARD])
    tags = rng.choice([(), (), (VlanTag(0, rng.randrange(8), tpid=rng.choice(TPIDS)),)])
    return EthernetFrame(dst, TESTER, 0x0806, asked.build(), tags).build(rng.choice([42, 60, 64, 128]))


def a_stimulus(rng: random.Random) -> bytes:
    if rng.random() < 0.4:
        frame, mutations = a_plain_request(rng), rng.choice([0, 0, 0, 1])
    else:
        frame, mutations = a_random_frame(rng), rng.choice([0, 0, 1, 1, 2, 4])
    for _ in range(mutations):
        frame = rng.choice(MUTATIONS)(rng, frame)
    # BPF_PROG_TEST_RUN takes no less than an Ethernet header, and for IPv4 its header, too.
    return frame.ljust(64 if frame[12:14] == IPV4 else 14, b"\0")
