"""Whoever is on the segment cannot fill the log."""

from ipaddress import ip_address

from arpguard.addresses import MacAddress
from arpguard.model import Decision
from arpguard.runtime.conflicts import CAPACITY, FIRST_PER_S, LINES_PER_S, REPEAT_NS, ClaimLog
from support.frames.builders import a_claim

START = 10**12


def claim_of(sender: int = 1, vip: int = 50) -> Decision:
    return a_claim(ip_address("192.0.2.0") + vip, MacAddress(b"\x02" + sender.to_bytes(5, "big")))


def test_same_claim_is_news_once_a_minute():
    claims = ClaimLog()
    news = [n for n in range(121) if claims.is_news(claim_of(), START + n * 10**9)]

    assert news == [0, 60, 120]
    assert REPEAT_NS == 60 * 10**9


def test_flood_of_senders_makes_few_lines_and_little_memory():
    claims = ClaimLog()
    lines = sum(claims.is_news(claim_of(sender), START + sender * 10**5) for sender in range(100_000))

    assert lines <= 11 * LINES_PER_S
    assert len(claims._logged) <= CAPACITY


def test_flood_about_all_vips_is_bounded_too():
    claims = ClaimLog()
    lines = sum(claims.is_news(claim_of(number, number), START + number * 10**5) for number in range(100_000))

    assert lines <= 11 * (LINES_PER_S + FIRST_PER_S)
    assert len(claims._first) <= CAPACITY


def test_flood_of_senders_hides_nobody_who_claims_another_vip():
    claims = ClaimLog()
    for sender in range(1000):
        claims.is_news(claim_of(sender, vip=sender % 30), START)

    assert claims.is_news(claim_of(1, vip=50), START)
    assert not claims.is_news(claim_of(1, vip=50), START), "once a minute"
