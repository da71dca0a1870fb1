"""Which requests were answered, and how long nobody did."""

from ipaddress import IPv4Address
from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.units import NS_PER_MS
from arpguard_lab.asking import Stream, answered_by
from arpguard_lab.capture import Said

VIPS = [IPv4Address("198.51.100.50"), IPv4Address("198.51.100.51")]
A, B = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")


def a_stream(sent: int, addresses: int = 1 << 20) -> Stream:
    """One that has sent a request each millisecond."""
    stream = Stream(SimpleNamespace(mac=A), VIPS, addresses=addresses)
    stream._sent_ns.extend(number * NS_PER_MS for number in range(sent))
    return stream


def reply(number: int, at_ms: float | None = None, mac: MacAddress = A) -> Said:
    at_ns = round((number if at_ms is None else at_ms) * NS_PER_MS) + 1000
    return Said(at_ns, VIPS[number % 2], mac, "port1", IPv4Address("10.0.0.1") + number)


def test_every_request_is_counted_with_its_vip():
    stream = a_stream(10)
    stream.hear(reply(number) for number in range(10) if number not in (4, 7))
    assert [stream.lost(vip) for vip in VIPS] == [1, 1]
    assert stream.lost(VIPS[0], since_ns=5 * NS_PER_MS) == 0


def test_announcements_and_strangers_answer_no_request():
    stream = a_stream(2)
    stream.hear([Said(1, VIPS[0], A, "port1", VIPS[0]), Said(1, VIPS[0], A, "port1", IPv4Address("11.0.0.1"))])
    assert stream.lost(VIPS[0]) == 1


def test_an_address_that_is_used_again_means_the_last_request_before_the_reply():
    stream = a_stream(8, addresses=4)
    stream.hear([Said(round(2.5 * NS_PER_MS), VIPS[0], A, "port1", IPv4Address("10.0.0.3"))])
    assert (stream.lost(VIPS[0]), stream.lost(VIPS[0], until_ns=4 * NS_PER_MS)) == (3, 1)
    stream.hear([Said(round(6.5 * NS_PER_MS), VIPS[0], A, "port1", IPv4Address("10.0.0.3"))])
    assert stream.lost(VIPS[0], since_ns=4 * NS_PER_MS) == 1


@pytest.mark.parametrize(("missing", "length_ms"), [((), 0), ((4,), 4), ((4, 6), 6), ((16, 18), 4), ((0, 2), 4)])
def test_a_silence_lasts_from_answer_to_answer(missing, length_ms):
    stream = a_stream(20)
    stream.hear(reply(number) for number in range(20) if number not in missing)
    assert stream.silence(VIPS[0]).length_ms == length_ms


def test_silences_come_one_after_the_other():
    stream = a_stream(20)
    stream.hear(reply(number) for number in range(20) if number not in (4, 10, 12))
    assert [(each.length_ms, each.began_ns) for each in stream.silences(VIPS[0])] == [
        (4, 2 * NS_PER_MS),
        (6, 8 * NS_PER_MS),
    ]


def test_old_requests_are_forgotten_and_the_numbers_go_on():
    stream = a_stream(1001)
    stream.hear(reply(number) for number in range(1001) if number not in (4, 996))
    stream.forget(10)
    assert stream.sent == 1001
    assert len(stream._sent_ns) < 13
    assert [stream.lost(vip) for vip in VIPS] == [1, 0]
    stream._sent_ns.append(1001 * NS_PER_MS)
    stream.hear([reply(1001), reply(3)])
    assert (stream.sent, stream.lost(VIPS[1], since_ns=1001 * NS_PER_MS)) == (1002, 0)


def test_who_has_answered_since_a_time():
    heard = [reply(0), reply(2, mac=B), reply(4), reply(1, mac=B)]
    assert answered_by(heard, VIPS[0], since_ns=0) == {A, B}
    assert answered_by(heard, VIPS[0], since_ns=3 * NS_PER_MS) == {A}


def test_a_reply_is_of_the_last_request_with_its_address():
    stream = a_stream(8, addresses=4)
    assert [stream.request_of(reply(2, at_ms)) for at_ms in (2, 5, 6, 7)] == [2, 2, 6, 6]
    assert stream.request_of(reply(4, 8)) is None
    assert stream.request_of(Said(1, VIPS[0], A, "port1", VIPS[0])) is None


def test_only_requests_whose_answers_were_heard_are_forgotten():
    stream = a_stream(9)
    stream.forget(4)
    stream.hear([])
    assert [stream.lost(vip) for vip in VIPS] == [5, 4]

    stream.forget(4)
    assert [stream.lost(vip) for vip in VIPS] == [3, 2]
    assert (stream.request_of(reply(3)), stream.request_of(reply(4))) == (None, 4)
