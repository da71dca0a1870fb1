"""What the agent and its voucher's process tell each other, and a loop that has nothing to do."""

import socket
import threading

import pytest

from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.voucher import AdoptedTerm, Exchange, TermReport
from arpguard.runtime.voucher import loop as voucher_loop
from arpguard.runtime.voucher.loop import Loop
from arpguard.runtime.voucher.messages import (
    Adopt,
    Drop,
    Farewell,
    Phase,
    Priority,
    Started,
    TermNews,
    decode_command,
    decode_news,
    encode,
)
from support.netns.waiting import HUNG_S

LARGEST = (1 << 64) - 1
TERM = AdoptedTerm(LARGEST, "an instance", LARGEST - 1, 600_000_000, trial=True)
REPORT = TermReport(
    number=LARGEST,
    bound=True,
    granted_ns=12,
    pings=3,
    pongs=2,
    gaps=Gaps().with_gap(51_000_000),
    first=Exchange(1, LARGEST, 3),
    last=None,
)
COMMANDS = [Adopt(TERM, "eth0", bytes(range(6)), bytes(range(16))), Drop(LARGEST), Farewell()]
NEWS = [
    Started(Priority.NICE),
    TermNews(7, Phase.NO_LINK),
    TermNews(LARGEST, Phase.DECIDED, REPORT),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: type(each).__name__)
def test_a_command_arrives_as_it_was_sent(command):
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize("news", NEWS, ids=lambda each: type(each).__name__)
def test_news_arrive_as_they_were_sent(news):
    assert decode_news(encode(news)) == news


@pytest.mark.parametrize("packet", [b"", b"7", b'["Other", {}]', b'["Drop", {"what": 1}]', b'["Adopt", {}]'])
def test_anything_else_is_refused(packet):
    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_command(packet)


def a_loop():
    """A running loop, and the agent's end of its channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    loop = Loop("an instance", 0x88B5, theirs, lambda: None)
    thread = threading.Thread(target=lambda: (loop.run(Priority.ORDINARY), loop.close()))
    thread.start()
    assert decode_news(ours.recv(4096)) == Started(Priority.ORDINARY)
    return thread, ours


def test_who_vouches_for_nobody_ends_at_once(monkeypatch):
    monkeypatch.setattr(voucher_loop, "FAREWELL_NS", 3600 * 10**9)
    thread, ours = a_loop()
    ours.send(encode(Farewell()))
    thread.join(HUNG_S)
    assert not thread.is_alive()
    ours.close()


def test_ends_with_its_agent():
    thread, ours = a_loop()
    ours.close()
    thread.join(HUNG_S)
    assert not thread.is_alive()


def test_what_cannot_be_vouched_for_is_told():
    thread, ours = a_loop()
    ours.send(encode(Adopt(TERM, "no such link", bytes(6), bytes(16))))
    assert decode_news(ours.recv(4096)) == TermNews(TERM.number, Phase.NO_LINK)
    ours.close()
    thread.join(HUNG_S)
