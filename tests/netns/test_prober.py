"""Probes on a real wire: who has an address already is found, and nobody costs no more than a fifth of a second."""

import asyncio
import os
import time
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from apiscript import until
from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.dataplane.prober import Prober
from arpguard.errors import DataPlaneError
from arpguard.model import InterfaceAddress, Link
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame
from labtools import Pair, a_pair, a_wire, address

pytestmark = pytest.mark.netns

VIP, OTHER = address(50), address(51)
STRANGER = MacAddress.parse("02:00:00:00:00:64")
HERE = ("eth0", VIP)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("prober") as made:
        yield made


@pytest.fixture
def occupied(pair) -> Iterator[None]:
    pair.client.netns.run("ip", "addr", "add", f"{VIP}/32", "dev", "eth0")
    yield
    pair.client.netns.run("ip", "addr", "del", f"{VIP}/32", "dev", "eth0")


def a_link(pair: Pair, name: str = "eth0") -> Link:
    return Link(2, name, pair.node.mac, up=True, addresses=(InterfaceAddress(pair.node.address, None),))


def nobody_is_ours(_mac: MacAddress) -> bool:
    return False


def run(pair: Pair, work, is_ours=nobody_is_ours):
    """Runs work with a prober in the node's namespace; its sockets are counted before and after."""

    async def inside():
        sockets = len(os.listdir("/proc/self/fd"))
        with Prober(is_ours) as prober:
            result = await work(prober)
            assert prober._sockets == {}
            assert prober._waiting == {}
        assert len(os.listdir("/proc/self/fd")) == sockets
        return result

    return pair.node.netns.call(lambda: asyncio.run(inside()))


async def _probe(prober: Prober, pair: Pair, vip=VIP) -> MacAddress | None:
    return await prober.probe(a_link(pair), vip)


def test_stranger_that_answers_is_found(pair, occupied):
    assert run(pair, lambda prober: _probe(prober, pair)) == pair.client.mac


def test_nobody_is_known_within_a_fifth_of_a_second(pair):
    async def work(prober):
        began = time.monotonic()
        found = await _probe(prober, pair)
        return found, time.monotonic() - began

    found, took_s = run(pair, work)

    assert found is None
    assert 0.18 < took_s < 1.0


def test_three_probes_are_sent_and_claim_nothing(pair):
    with a_wire(pair.client) as wire:
        run(pair, lambda prober: _probe(prober, pair))
        heard = [frame for frame in wire.listen(0.05) if frame[38:42] == VIP.packed]

    probe = build_frame(
        ArpPacket(ArpOp.REQUEST, pair.node.mac, IPv4Address(0), ZERO_MAC, VIP), BROADCAST_MAC, pair.node.mac
    )
    assert [frame[: len(probe)] for frame in heard] == [probe] * 3


def test_stranger_that_only_announces_while_probed_is_found(pair):
    """It may have come up a moment before, and answer nothing yet."""

    async def work(prober):
        with a_wire(pair.client) as wire:
            probing = asyncio.create_task(_probe(prober, pair))
            await asyncio.to_thread(wire.hear, 2.0)
            packet = ArpPacket(ArpOp.REQUEST, STRANGER, VIP, ZERO_MAC, VIP)
            wire.send(build_frame(packet, BROADCAST_MAC, STRANGER))
            return await probing

    assert run(pair, work) == STRANGER


def test_cluster_node_that_answers_is_no_stranger(pair, occupied):
    assert run(pair, lambda prober: _probe(prober, pair), lambda mac: mac == pair.client.mac) is None


def test_claim_of_another_address_is_not_taken_for_this_one(pair, occupied):
    async def work(prober):
        return await asyncio.gather(_probe(prober, pair), _probe(prober, pair, OTHER))

    assert run(pair, work) == [pair.client.mac, None]


def test_what_the_kernel_reports_counts_as_heard(pair):
    async def work(prober):
        probing = asyncio.create_task(_probe(prober, pair))
        await until(lambda: prober._waiting)
        prober.claimed("eth1", VIP, STRANGER)
        prober.claimed("eth0", VIP, BROADCAST_MAC)
        assert not prober._waiting[HERE].done()
        prober.claimed("eth0", VIP, STRANGER)
        return await probing

    assert run(pair, work) == STRANGER


def test_link_that_is_down_cannot_be_probed_on(pair):
    pair.node.netns.run("ip", "link", "set", "eth0", "down")
    try:
        with pytest.raises(DataPlaneError, match=f"{VIP} cannot be probed for on eth0"):
            run(pair, lambda prober: _probe(prober, pair))
    finally:
        pair.node.netns.run("ip", "link", "set", "eth0", "up")


def test_link_that_is_not_there_cannot_be_probed_on(pair):
    async def work(prober):
        with pytest.raises(DataPlaneError, match="eth7"):
            await prober.probe(a_link(pair, "eth7"), VIP)

    run(pair, work)


def test_sockets_are_closed_though_a_probe_is_cut_short(pair):
    async def work(prober):
        probing = asyncio.create_task(_probe(prober, pair))
        await until(lambda: prober._sockets)
        probing.cancel()
        await asyncio.wait([probing])

    run(pair, work)
