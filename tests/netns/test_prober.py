"""Probes on a real wire: who has an address already is found, and nobody costs no more than a fifth of a second."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from ipaddress import ip_address

import pytest

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, Address, MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.dataplane.prober import Prober
from arpguard.errors import DataPlaneError
from arpguard.model import InterfaceAddress, Link
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, build_request
from arpguard.wire.ethernet import ETHERTYPE_8021Q
from arpguard.wire.facts import Facts
from arpguard.wire.ndp import (
    NdFlag,
    NdMessage,
    NdType,
    build_dad_solicitation,
    build_unsolicited_advertisement,
    solicited_node,
)
from support.kube.scripted_server import until
from support.netns import waiting
from support.netns.cable import Pair, a_pair, address, address6, answers_for, groups_of, speak_ipv6
from support.netns.wire import a_wire

pytestmark = pytest.mark.netns

VIP, VIP6 = address(50), address6(50)
GROUP6 = solicited_node(VIP6)
NOBODY, NOBODY6 = ip_address("0.0.0.0"), ip_address("::")
STRANGER = MacAddress.parse("02:00:00:00:00:64")


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("prober") as made:
        speak_ipv6(made.node, made.client)
        yield made


@pytest.fixture(params=[VIP, VIP6], ids=["IPv4", "IPv6"])
def vip(request) -> Address:
    return request.param


@pytest.fixture
def occupied(pair, vip) -> Iterator[None]:
    pair.client.bind(vip, "eth0")
    waiting.until(lambda: answers_for(pair.client, vip))
    yield
    pair.client.unbind(vip, "eth0")


def a_link(pair: Pair, name: str = "eth0") -> Link:
    return Link(pair.ifindex(), name, pair.node.mac, up=True, addresses=(InterfaceAddress(pair.node.address, None),))


def nobody_is_ours(_address: Address, _mac: MacAddress) -> bool:
    return False


def run(pair: Pair, work, is_ours=nobody_is_ours):
    """Runs work with a prober in the node's namespace; its sockets are counted before and after."""

    async def inside():
        sockets = len(os.listdir("/proc/self/fd"))
        with closing(Prober(is_ours)) as prober:
            result = await work(prober)
            assert prober._sockets == {}
            assert prober._waiting == {}
            assert not prober._groups.joined
        assert len(os.listdir("/proc/self/fd")) == sockets
        return result

    return pair.node.netns.call(lambda: asyncio.run(inside()))


async def _probe(prober: Prober, pair: Pair, vip: Address = VIP) -> MacAddress | None:
    return await prober.probe(a_link(pair), vip)


def test_stranger_that_answers_is_found(pair, vip, occupied):
    assert run(pair, lambda prober: _probe(prober, pair, vip)) == pair.client.mac


def test_nobody_is_known_after_a_fifth_of_a_second(pair, vip):
    async def work(prober):
        began = time.monotonic()
        found = await _probe(prober, pair, vip)
        return found, time.monotonic() - began

    found, took_s = run(pair, work)

    assert found is None
    assert took_s > 0.18


def test_three_probes_are_sent_and_claim_nothing(pair):
    with a_wire(pair.client) as wire:
        run(pair, lambda prober: _probe(prober, pair))
        heard = [frame for frame in wire.listen(0.05) if frame[38:42] == VIP.packed]

    probe = build_frame(ArpPacket(ArpOp.REQUEST, pair.node.mac, NOBODY, ZERO_MAC, VIP), BROADCAST_MAC, pair.node.mac)
    assert [frame[: len(probe)] for frame in heard] == [probe] * 3


def an_ear(pair: Pair) -> NeighbourSocket:
    return pair.client.netns.call(lambda: NeighbourSocket("eth0"))


def test_three_solicitations_from_nobody_are_sent_with_a_nonce(pair):
    with closing(an_ear(pair)) as ear:

        async def work(prober):
            await _probe(prober, pair, VIP6)
            return prober._nonce

        nonce = run(pair, work)
        heard = [frame for frame in iter(partial(ear.hear, 0.05), None) if frame.packet.tpa == VIP6]

    asked = Facts(NdType.SOLICITATION, pair.node.mac, NOBODY6, ZERO_MAC, VIP6)
    assert [(each.packet, each.nonce) for each in heard] == [(asked, nonce)] * 3
    assert len(nonce) == 6


def during(pair: Pair, vip: Address, build, is_ours=nobody_is_ours) -> MacAddress | None:
    """Sends a frame when a probe is heard; gives what the probe came to. `build` is given the probe's nonce."""

    async def work(prober):
        with closing(an_ear(pair)) as ear:
            probing = asyncio.create_task(_probe(prober, pair, vip))
            heard = await asyncio.to_thread(ear.hear, 2.0)
            ear.send(build(heard.nonce))
            return await probing

    return run(pair, work, is_ours)


ANNOUNCES = {
    VIP: lambda _: build_request(STRANGER, VIP, VIP),
    VIP6: lambda _: build_unsolicited_advertisement(STRANGER, VIP6),
}
PROBES = {
    VIP: lambda _: build_request(STRANGER, NOBODY, VIP),
    VIP6: lambda _: build_dad_solicitation(STRANGER, VIP6),
}


def test_stranger_that_only_announces_while_probed_is_found(pair, vip):
    """It may have come up a moment before, and answer nothing yet."""
    assert during(pair, vip, ANNOUNCES[vip]) == STRANGER


def test_stranger_that_probes_for_the_same_address_is_found(pair, vip):
    """It is about to claim it (RFC 5227 2.1.1; RFC 4862 5.4.3)."""
    assert during(pair, vip, PROBES[vip]) == STRANGER


@pytest.mark.parametrize(("vid", "found"), [(0, STRANGER), (11, None)])
def test_a_claim_in_another_vlan_is_of_another_address(pair, vip, vid, found):
    """The socket hears all VLANs of the link, and their tags are beside the frame by then."""

    def tagged(_nonce: bytes) -> bytes:
        frame = ANNOUNCES[vip](b"")
        return frame[:12] + ETHERTYPE_8021Q.to_bytes(2, "big") + vid.to_bytes(2, "big") + frame[12:]

    assert during(pair, vip, tagged) == found


def test_cluster_node_that_probes_for_the_same_address_is_no_stranger(pair, vip):
    assert during(pair, vip, PROBES[vip], lambda address, mac: (address, mac) == (vip, STRANGER)) is None


def test_own_probe_that_comes_back_is_no_strangers(pair):
    """As hubs and access points send it: by RFC 7527 it is known by its nonce."""
    assert during(pair, VIP6, lambda nonce: build_dad_solicitation(STRANGER, VIP6, nonce)) is None


@pytest.mark.parametrize(
    "change",
    [{"hop_limit": 64}, {"code": 1}, {"flags": NdFlag.SOLICITED, "dst": ip_address("ff02::1")}],
    ids=["hop limit", "code", "solicited, to all"],
)
def test_advertisement_that_no_host_would_believe_is_nobodys(pair, change):
    """One that is not from the segment could be anybody's."""
    message = replace(NdMessage(NdType.ADVERTISEMENT, VIP6, NOBODY6, VIP6), **change)

    assert during(pair, VIP6, lambda _: message.build_frame(pair.node.mac, STRANGER)) is None


def test_group_of_the_address_is_listened_to_while_it_is_probed_for(pair):
    """Others that probe for it are heard there only, where a switch snoops or a NIC filters."""
    neighbour = VIP6 + (1 << 24)  # of the same group

    async def work(prober):
        probing = asyncio.create_task(_probe(prober, pair, VIP6))
        other = asyncio.create_task(_probe(prober, pair, neighbour))
        await until(lambda: len(prober._waiting) == 2)
        both = groups_of(pair.node.netns).get(GROUP6)
        probing.cancel()
        await asyncio.wait([probing])
        one = groups_of(pair.node.netns).get(GROUP6)
        await other
        return both, one, groups_of(pair.node.netns).get(GROUP6)

    assert run(pair, work) == (1, 1, None)


def test_cluster_node_that_answers_is_no_stranger(pair, vip, occupied):
    asked = []

    def is_ours(address: Address, mac: MacAddress) -> bool:
        asked.append((address, mac))
        return True

    assert run(pair, lambda prober: _probe(prober, pair, vip), is_ours) is None
    assert set(asked) == {(vip, pair.client.mac)}


def test_claim_of_another_address_is_not_taken_for_this_one(pair, vip, occupied):
    async def work(prober):
        return await asyncio.gather(_probe(prober, pair, vip), _probe(prober, pair, vip + 1))

    assert run(pair, work) == [pair.client.mac, None]


def test_what_the_kernel_reports_counts_as_heard(pair, vip):
    async def work(prober):
        probing = asyncio.create_task(_probe(prober, pair, vip))
        await until(lambda: prober._waiting)
        prober.claimed("eth1", vip, STRANGER)
        prober.claimed("eth0", vip, BROADCAST_MAC)
        assert not prober._waiting["eth0", vip].done()
        prober.claimed("eth0", vip, STRANGER)
        return await probing

    assert run(pair, work) == STRANGER


def test_link_that_is_down_cannot_be_probed_on(pair, vip):
    pair.node.netns.run("ip", "link", "set", "eth0", "down")
    try:
        with pytest.raises(DataPlaneError, match=f"cannot probe for {vip} on eth0"):
            run(pair, lambda prober: _probe(prober, pair, vip))
    finally:
        pair.node.netns.run("ip", "link", "set", "eth0", "up")
        pair.node.netns.run("ip", "addr", "replace", f"{address6(1)}/64", "dev", "eth0", "nodad")  # it went, too


def test_link_without_ipv6_cannot_be_probed_on(pair):
    """Its MTU is too small (RFC 8200 5)."""
    pair.node.netns.run("ip", "link", "set", "eth0", "mtu", "1000")
    try:
        with pytest.raises(DataPlaneError, match=f"cannot join multicast group {GROUP6}"):
            run(pair, lambda prober: _probe(prober, pair, VIP6))
    finally:
        pair.node.netns.run("ip", "link", "set", "eth0", "mtu", "1500")
        speak_ipv6(pair.node)


def test_link_that_is_not_there_cannot_be_probed_on(pair, vip):
    async def work(prober):
        with pytest.raises(DataPlaneError, match="eth7"):
            await prober.probe(a_link(pair, "eth7"), vip)

    run(pair, work)


def test_sockets_are_closed_though_a_probe_is_cut_short(pair, vip):
    async def work(prober):
        probing = asyncio.create_task(_probe(prober, pair, vip))
        await until(lambda: prober._sockets)
        probing.cancel()
        await asyncio.wait([probing])

    run(pair, work)
