"""Whoever is on the segment cannot fill the log."""

from ipaddress import ip_address

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.model import Decision, EntryKey
from arpguard.runtime.claimlog import CAPACITY, LINES_PER_S, REPEAT_NS, ClaimLog
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict

START = 10**12


def a_claim(sender: int = 1) -> Decision:
    mac = MacAddress(b"\x02" + sender.to_bytes(5, "big"))
    address = ip_address("192.0.2.50")
    return Decision(
        time_ns=0,
        key=EntryKey(2, address),
        verdict=Verdict.CONFLICT,
        reason=Reason.CONFLICT,
        hook=Hook.TC_INGRESS,
        mode=Mode.ENFORCE,
        kind=Kind.OWNED,
        op=1,
        spa=address,
        tpa=address,
        sha=mac,
        tha=mac,
        eth_src=mac,
        eth_dst=BROADCAST_MAC,
    )


def test_same_claim_is_news_once_a_minute():
    claims = ClaimLog()
    news = [n for n in range(121) if claims.is_news(a_claim(), START + n * 10**9)]

    assert news == [0, 60, 120]
    assert REPEAT_NS == 60 * 10**9


def test_flood_of_senders_makes_few_lines_and_little_memory():
    claims = ClaimLog()
    lines = sum(claims.is_news(a_claim(sender), START + sender * 10**5) for sender in range(100_000))

    assert lines <= 11 * LINES_PER_S
    assert len(claims._logged) <= CAPACITY
