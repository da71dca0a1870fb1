"""Every reader has a queue of its own: only the slow one loses, and it is told how much."""

import asyncio
from dataclasses import replace
from ipaddress import ip_address

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.api.watching import QUEUE_LEN, Broadcast, Reader
from arpguard.core.decisions import Report, ReportFilter
from arpguard.model import Decision, EntryKey
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from support.netns.waiting import HUNG_S

VIP, HOST = ip_address("192.0.2.100"), MacAddress.parse("02:00:00:00:00:07")
DECISION = Decision(
    time_ns=1,
    key=EntryKey(2, VIP),
    verdict=Verdict.SUPPRESS,
    reason=Reason.FOREIGN,
    hook=Hook.TC_INGRESS,
    mode=Mode.ENFORCE,
    kind=Kind.FOREIGN,
    op=1,
    spa=ip_address("192.0.2.7"),
    tpa=VIP,
    sha=HOST,
    tha=ZERO_MAC,
    eth_src=HOST,
    eth_dst=BROADCAST_MAC,
)
ALL = ReportFilter()


def a_report(number: int, link: str = "eth0") -> Report:
    return Report(number, link, replace(DECISION, time_ns=number), 1, number)


async def take(reader: Reader, count: int) -> list[tuple[int, int]]:
    """(number, lost) of so many."""
    found = [await asyncio.wait_for(reader.next(), HUNG_S) for _ in range(count)]
    return [(report.number, lost) for report, lost in filter(None, found)]


async def waits(reader: Reader) -> bool:
    """Whether nothing is there to be read."""
    task = asyncio.ensure_future(reader.next())
    await asyncio.sleep(0)
    task.cancel()
    return not task.done()


def test_reader_gets_what_is_published_in_order_and_then_waits():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ALL) as reader:
            assert [broadcast.publish(a_report(number)) for number in range(3)] == [0, 0, 0]
            assert await take(reader, 3) == [(0, 0), (1, 0), (2, 0)]
            assert await waits(reader)

    asyncio.run(go())


def test_waiting_reader_is_woken():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ALL) as reader:
            task = asyncio.ensure_future(take(reader, 1))
            await asyncio.sleep(0)
            broadcast.publish(a_report(7))
            assert await task == [(7, 0)]

    asyncio.run(go())


def test_full_queue_loses_the_oldest_and_the_reader_is_told_once_how_many():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ALL) as slow, broadcast.reader(ALL) as quick:
            lost = []
            for number in range(QUEUE_LEN + 5):
                lost.append(broadcast.publish(a_report(number)))
                assert await take(quick, 1) == [(number, 0)]
            assert lost == [0] * QUEUE_LEN + [1] * 5
            assert await take(slow, 2) == [(5, 5), (6, 0)]
            assert len(await take(slow, QUEUE_LEN - 2)) == QUEUE_LEN - 2
            assert await waits(slow)

    asyncio.run(go())


def test_exactly_full_queue_loses_nothing():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ALL) as reader:
            for number in range(QUEUE_LEN):
                broadcast.publish(a_report(number))
            assert await take(reader, QUEUE_LEN) == [(number, 0) for number in range(QUEUE_LEN)]

    asyncio.run(go())


def test_what_a_reader_did_not_ask_for_is_neither_queued_nor_lost():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ReportFilter(link="eth1")) as reader:
            for number in range(QUEUE_LEN + 1):
                assert broadcast.publish(a_report(number)) == 0
            broadcast.publish(a_report(9999, "eth1"))
            assert await take(reader, 1) == [(9999, 0)]

    asyncio.run(go())


def test_reader_that_has_gone_is_offered_nothing():
    broadcast = Broadcast()
    with broadcast.reader(ALL):
        pass

    assert sum(broadcast.publish(a_report(number)) for number in range(QUEUE_LEN + 9)) == 0


def test_closing_ends_every_reader_also_one_that_waits():
    async def go() -> None:
        broadcast = Broadcast()
        with broadcast.reader(ALL) as waiting, broadcast.reader(ALL) as behind:
            task = asyncio.ensure_future(waiting.next())
            await asyncio.sleep(0)
            broadcast.publish(a_report(1))
            await task
            broadcast.close()
            assert await waiting.next() is None
            assert await behind.next() is None

    asyncio.run(go())
