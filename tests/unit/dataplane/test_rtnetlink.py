"""Plain messages of rtnetlink, with the kernel that runs; reading needs no privilege."""

import asyncio
import errno
import socket
import struct
from contextlib import closing

import pytest

from arpguard.dataplane import rtnetlink
from arpguard.dataplane.rtnetlink import TRIES, attributes, dump, listen

GETLINK, GETROUTE = 18, 26
IFINFOMSG, IFNAME = struct.Struct("=BxHiII"), 3


def test_dump_is_read_to_its_end():
    bodies = asyncio.run(dump(GETLINK, bytes(IFINFOMSG.size)))
    names = [bytes(attributes(body[IFINFOMSG.size :])[IFNAME]).rstrip(b"\0").decode() for body in bodies]

    assert sorted(names) == sorted(name for _, name in socket.if_nameindex())


def test_refusal_of_the_kernel_is_an_error():
    with pytest.raises(OSError, match="supported") as caught:
        asyncio.run(dump(0x3FF, bytes(16)))
    assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("interruptions", [0, 1, TRIES - 1])
def test_dump_that_a_change_interrupted_is_begun_anew(monkeypatch, interruptions):
    outcomes = iter([None] * interruptions + [[]])

    async def once(_request, _header):
        return next(outcomes)

    monkeypatch.setattr(rtnetlink, "_dump", once)

    assert asyncio.run(dump(GETROUTE, b"")) == []


def test_dump_that_is_always_interrupted_is_given_up(monkeypatch):
    async def once(_request, _header):
        return None

    monkeypatch.setattr(rtnetlink, "_dump", once)
    with pytest.raises(BlockingIOError, match="change faster"):
        asyncio.run(dump(GETROUTE, b""))


def test_group_that_the_kernel_lacks_is_left_out():
    """RTNLGRP_NEXTHOP came with 5.3."""
    with closing(listen((1, 4000))) as heard:
        assert heard.fileno() > 0
