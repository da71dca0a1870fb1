"""Questions for VIPs on a real wire: as whom the node asks, and what the answers are worth."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.asking import Asker, Question, Replies
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.model import EntryKey
from support.netns.cable import Pair, a_pair, address, address6, speak_ipv6
from support.netns.rogue import a_rogue

pytestmark = pytest.mark.netns

VIP, VIP6 = address(50), address6(50)
ANSWERER = MacAddress.parse("02:00:00:00:00:99")
CHANGED = MacAddress.parse("02:00:00:00:00:77")
PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("asking") as made:
        speak_ipv6(made.node, made.client)
        yield made


@pytest.fixture(autouse=True)
def first_mac(pair) -> Iterator[None]:
    yield
    change_mac(pair, pair.node.mac)


def change_mac(pair: Pair, mac: MacAddress) -> None:
    pair.node.netns.run("ip", "link", "set", "eth0", "address", str(mac))


def a_question(pair: Pair, vip: Address, device: str = "eth0") -> Question:
    spa = pair.node.address if vip.version == 4 else pair.node.address6
    return Question(EntryKey(pair.ifindex(device), vip), device, spa)


def in_the_node(pair: Pair, work):
    """Runs work with an asker in the node's namespace."""

    async def inside():
        with closing(Asker()) as asker:
            return await work(asker)

    return pair.node.netns.call(lambda: asyncio.run(inside()))


async def replies_to(asker: Asker, question: Question, wait_s: float = 0.1) -> Replies:
    replies = Replies()
    await asker.ask([question], replies, times=1, wait_s=wait_s)
    return replies


async def answers_to(asker: Asker, question: Question) -> set[MacAddress]:
    """Asks until somebody answers: the machine may be busy."""
    deadline = time.monotonic() + PATIENCE_S
    while not (macs := (await replies_to(asker, question)).macs[question.key]) and time.monotonic() < deadline:
        pass
    return macs


def askers(ear: NeighbourSocket, question: Question) -> set[MacAddress]:
    """As whom the node has asked since the last look."""
    heard = [frame for frame in iter(partial(ear.hear, 0), None) if frame.packet.tpa == question.key.vip]
    assert {frame.eth_src for frame in heard} == {frame.packet.sha for frame in heard}
    return {frame.packet.sha for frame in heard}


@pytest.mark.parametrize("vip", [VIP, VIP6], ids=["IPv4", "IPv6"])
def test_node_asks_as_the_mac_that_its_link_has_now_and_hears_the_answer(pair, vip):
    """Neighbours enter what a question says, so an old MAC would take the node off the network."""
    question = a_question(pair, vip)
    ear = pair.client.netns.call(lambda: NeighbourSocket("eth0"))

    async def work(asker):
        assert await answers_to(asker, question) == {ANSWERER}
        assert askers(ear, question) == {pair.node.mac}
        change_mac(pair, CHANGED)
        assert await answers_to(asker, question) == {ANSWERER}
        assert askers(ear, question) == {CHANGED}

    with closing(ear), a_rogue(pair.client.netns, {vip}, ANSWERER):
        in_the_node(pair, work)


def test_silence_means_nothing_when_the_mac_changes_before_the_answer(pair):
    question = a_question(pair, VIP)

    async def work(asker):
        asking = asyncio.create_task(replies_to(asker, question))
        await asyncio.sleep(0)  # it has asked, and waits
        change_mac(pair, CHANGED)
        return await asking

    assert in_the_node(pair, work).unasked == {question.key}


def test_link_that_goes_cannot_be_asked_on(pair):
    pair.node.netns.batch(["link add eth1 type veth peer name far1", "link set eth1 up", "link set far1 up"])
    question, ear = a_question(pair, VIP, "eth1"), pair.node.netns.call(lambda: NeighbourSocket("eth1"))

    async def work(asker):
        await replies_to(asker, question)
        pair.node.netns.run("ip", "link", "del", "eth1")
        return await replies_to(asker, question)

    with closing(ear):
        found = in_the_node(pair, work)
        with pytest.raises(OSError, match="No such device"):
            _ = ear.mac
    assert (found.macs, found.unasked) == ({question.key: set()}, {question.key})
