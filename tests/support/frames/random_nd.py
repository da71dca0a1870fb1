"""Random IPv6 frames about a few VIPs, and random maps that have entries of them."""

import random
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.verdict import Hook, Mode
from arpguard.wire.ethernet import parse_ethernet
from arpguard.wire.ndp import (
    ALL_NODES,
    UNSPECIFIED,
    NdFlag,
    NdMessage,
    NdPacket,
    NdType,
    OptionType,
    multicast_mac,
    parse_nd,
    solicited_node,
)
from reference.nd import MAX_READ_LEN
from support.frames.builders import GUARD, OWNER, TESTER, THIRD, patched
from support.frames.nd_builders import (
    NEIGHBOUR_IP6,
    PRIMARY_IP6,
    TESTER_IP6,
    TESTER_LINK_LOCAL,
    TYPE,
    VIP6,
    an_entry6,
    nd_frame,
    slla,
)
from support.frames.odd_nd import IPV6, Mutant, a_mutant, some_options
from support.programs.agreement import VIRTUAL_MAC, Maps, a_random_control, a_random_entry

V4_VIP = IPv4Address("192.0.2.100")
MAPPED = IPv6Address("::ffff:192.0.2.100")
VIPS = [VIP6, *map(IPv6Address, ("2001:db8::101", "2001:db8:1::ff00:100", "fd00::1", "::2", "fe80::1:100"))]
SPECIAL = [IPv6Address(text) for text in ("::", "::1", "ff02::1", "ff02::1:ff00:100")]
ORDINARY = [TESTER_IP6, TESTER_LINK_LOCAL, NEIGHBOUR_IP6, PRIMARY_IP6]
MULTICAST_MAC = multicast_mac(solicited_node(VIP6))
MACS = [GUARD, TESTER, THIRD, OWNER, VIRTUAL_MAC, ZERO_MAC, BROADCAST_MAC, MULTICAST_MAC]
IPV4 = b"\x08\x00"
OTHER_TYPES = bytes((128, 129, 133, 134, 137, 143, 0, 255))


def random_maps(rng: random.Random, now_ns: int) -> Maps:
    """IPv6 entries, all this node's at times, and now and then none; an IPv4 one, like a v4-mapped address."""
    likely = [(vip, 0.8) for vip in VIPS] + [(by_mistake, 0.2) for by_mistake in SPECIAL]
    entries = {vip: a_random_entry(rng, PRIMARY_IP6) for vip, chance in likely if rng.random() < chance}
    kind = rng.random()
    if kind < 0.35:
        entries = {vip: an_entry6(unfenced=True, answer_mac=rng.choice((GUARD, VIRTUAL_MAC))) for vip in entries}
    elif kind < 0.4:
        entries = {}
    strictest6 = rng.choice([Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE]) if entries else Mode.INHERIT
    control = replace(a_random_control(rng, now_ns), strictest6=strictest6)
    return {**entries, V4_VIP: a_random_entry(rng, IPv4Address("192.0.2.1"))}, control


# ---- random frames -----------------------------------------------------------------------------------------------


def an_address(rng: random.Random, *pools: list[IPv6Address]) -> IPv6Address:
    return rng.choice(rng.choice(pools))


def a_group_or_host(rng: random.Random, target: IPv6Address) -> IPv6Address:
    """Where a message about an address may go to, or at least might."""
    usual = (solicited_node(target),) * 6 + (target,) * 3 + (ALL_NODES,)
    return rng.choice((*usual, an_address(rng, VIPS, ORDINARY, SPECIAL), solicited_node(rng.choice(VIPS))))


def a_mac_for(rng: random.Random, dst: IPv6Address) -> MacAddress:
    if rng.random() < 0.75:
        return multicast_mac(dst) if dst.is_multicast else GUARD
    return rng.choice([multicast_mac(dst), *MACS])


def a_plain_question(rng: random.Random, mac: MacAddress, src: IPv6Address) -> tuple[NdMessage, MacAddress]:
    """What hosts really send, and what an owner answers."""
    target = rng.choice(VIPS)
    dst = solicited_node(target) if src == UNSPECIFIED or rng.random() < 0.6 else target
    options = () if src == UNSPECIFIED else (slla(mac),)
    message = NdMessage(NdType.SOLICITATION, src, dst, target, options=options)
    return message, multicast_mac(dst) if dst.is_multicast else GUARD


def a_random_solicitation(rng: random.Random, mac: MacAddress) -> NdMessage:
    target = an_address(rng, VIPS, VIPS, VIPS, VIPS, ORDINARY, SPECIAL, [MAPPED])
    src = an_address(rng, VIPS, VIPS, ORDINARY, ORDINARY, [UNSPECIFIED], SPECIAL, [MAPPED])
    options = some_options(rng, OptionType.SOURCE_LINK_LAYER, mac, rng.choice(MACS))
    if src == UNSPECIFIED and rng.random() < 0.7:
        options = ()
    return NdMessage(
        NdType.SOLICITATION,
        src,
        src if rng.random() < 0.02 else a_group_or_host(rng, target),
        src if rng.random() < 0.05 else target,
        options=options,
        hop_limit=rng.choice((255,) * 40 + (254, 0)),
        code=rng.choice((0,) * 40 + (1,)),
        reserved=rng.choice((0, 0, 0xFFFFFFFF)),
    )


def a_random_advertisement(rng: random.Random, mac: MacAddress) -> NdMessage:
    target = an_address(rng, VIPS, VIPS, VIPS, VIPS, ORDINARY, SPECIAL, [MAPPED])
    return NdMessage(
        NdType.ADVERTISEMENT,
        target if rng.random() < 0.8 else an_address(rng, VIPS, ORDINARY, SPECIAL),
        rng.choice((ALL_NODES, ALL_NODES, an_address(rng, ORDINARY, VIPS), a_group_or_host(rng, target))),
        target,
        NdFlag(rng.choice((0x20, 0x20, 0x60, 0, 0xE0))),
        some_options(rng, OptionType.TARGET_LINK_LAYER, mac, rng.choice(MACS)),
        hop_limit=rng.choice((255,) * 40 + (64,)),
        code=rng.choice((0,) * 40 + (1,)),
    )


class Stimuli:
    """Makes frames as they come from, or go out from, a host with such addresses; and counts what is in them."""

    def __init__(self, mac: MacAddress, addresses: list[IPv6Address]) -> None:
        self._mac, self._addresses = mac, addresses
        self.oddities: Counter[object] = Counter()

    def __call__(self, rng: random.Random) -> bytes:
        mutant = self._mutant(rng)
        frame = rng.choice(mutant.frames)
        if rng.random() < 0.02 and len(frame) > TYPE:
            frame = patched(frame, TYPE, rng.choice(OTHER_TYPES).to_bytes(1, "big"))
        # BPF_PROG_TEST_RUN takes no less than an Ethernet header, and for IP its header, too.
        frame = frame.ljust(TYPE if frame[12:14] in (IPV6, IPV4) else 14, b"\0")
        self.oddities.update({*mutant.oddities})
        self._look_into(frame)
        return frame

    def _mutant(self, rng: random.Random) -> Mutant:
        mac = rng.choice((self._mac,) * 16 + (OWNER, OWNER, *rng.sample(MACS, 2)))
        src = mac if rng.random() < 0.9 else rng.choice(MACS)
        kind = rng.random()
        if kind < 0.25:
            message, dst = a_plain_question(rng, mac, rng.choice(self._addresses))
            return Mutant((nd_frame(message, dst, src),), ("plain",))
        message = a_random_solicitation(rng, mac) if kind < 0.75 else a_random_advertisement(rng, mac)
        return a_mutant(rng, message, a_mac_for(rng, message.dst), src)

    def _look_into(self, frame: bytes) -> None:
        parsed = parse_ethernet(frame)
        read = parse_nd(parsed) if parsed is not None and frame[12:14] == IPV6 else None
        if isinstance(read, NdPacket):
            self.oddities[read.message.kind, read.flaw] += 1
            self.oddities[len(read.extensions), "extension headers"] += 1
            self.oddities["long"] += read.length > MAX_READ_LEN
            self.oddities["DAD"] += read.message.is_dad
            self.oddities["two VIPs"] += {read.message.src, read.message.target} <= {*VIPS}
            self.oddities["v4-mapped"] += MAPPED in (read.message.src, read.message.target)
        elif read is not None:
            self.oddities[read] += 1


def stimuli_for(hook: Hook) -> Stimuli:
    """What neighbours send, or what this host does."""
    if hook is Hook.TC_EGRESS:
        return Stimuli(GUARD, [UNSPECIFIED, *VIPS])
    return Stimuli(TESTER, [UNSPECIFIED, *ORDINARY])
