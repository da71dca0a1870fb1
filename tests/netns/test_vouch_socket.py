"""The socket of one term: it hears the pongs of that term, from that node, and nothing else."""

from collections.abc import Iterator

import pytest

from arpguard.dataplane.vouchsocket import VouchSocket
from arpguard.errors import DataPlaneError
from arpguard.wire.vouching import VouchFrame, VouchType, pack
from support.frames.vouch_builders import ETHERTYPE
from support.netns.cable import Pair, a_pair
from support.netns.waiting import until
from support.netns.wire import a_raw_socket

pytestmark = pytest.mark.netns

TERM = 0x1122334455667788
KEY = bytes(16)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("vouch-socket") as made:
        yield made


def header(pair: Pair, source: bytes) -> bytes:
    """Of frames to the voucher's node."""
    return pair.client.mac.octets + source + ETHERTYPE.to_bytes(2, "big")


def test_the_socket_of_a_term_hears_its_pongs_only(pair):
    peer = pair.node.mac.octets
    ear = pair.client.netns.call(lambda: VouchSocket("eth0", ETHERTYPE, peer, TERM))
    sender = a_raw_socket(pair.node.netns)
    pong = pack(VouchFrame(VouchType.PONG, TERM, 1, 2), KEY)
    wrong = [
        header(pair, peer) + pack(VouchFrame(VouchType.PING, TERM, 1), KEY),
        header(pair, peer) + pack(VouchFrame(VouchType.GRANT, TERM, 1, 2), KEY),
        header(pair, peer) + pack(VouchFrame(VouchType.PONG, TERM ^ 1, 1, 2), KEY),
        header(pair, peer) + pack(VouchFrame(VouchType.PONG, TERM ^ 1 << 63, 1, 2), KEY),
        header(pair, peer[:5] + b"\xee") + pong,
        header(pair, b"\xee" + peer[1:]) + pong,
        b"\xff" * 6 + header(pair, peer)[6:] + pong,
        header(pair, peer)[:12] + b"\x88\xb6" + pong,
        header(pair, peer) + pong[:10],
    ]
    before = pair.client.netns.call(ear.frames_heard)
    for frame in [*wrong, header(pair, peer) + pong]:
        sender.send(frame)
    found = []
    until(lambda: found.append(ear.hear()) or found[-1] is not None)
    assert [each for each in found if each is not None] == [pong]
    assert ear.hear() is None
    assert pair.client.netns.call(ear.frames_heard) >= before + len(wrong) + 1

    pair.client.netns.run("ip", "link", "del", "eth0")
    assert not ear.send(pong)
    with pytest.raises(OSError, match="down"):
        ear.hear()
    assert ear.hear() is None
    assert pair.client.netns.call(ear.frames_heard) == 0
    ear.close()
    sender.close()


def test_there_is_no_socket_on_a_link_that_is_not_there(pair):
    with pytest.raises(DataPlaneError, match="eth9"):
        pair.client.netns.call(lambda: VouchSocket("eth9", ETHERTYPE, bytes(6), 1))
