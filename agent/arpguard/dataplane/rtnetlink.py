"""Plain messages of rtnetlink (linux/netlink.h): for what pyroute2 has no names for, and what there is much of."""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

# linux/netlink.h
_REQUEST_DUMP = 0x301
_DUMP_INTERRUPTED = 0x10
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_TYPE_MASK = 0x3FFF  # the two highest bits say how the value is to be read
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1
_NO_SUCH_GROUP = errno.EINVAL
_BUFFER = 1 << 16
_WATCH_BUFFER = 1 << 20
TRIES = 5


def align(length: int) -> int:
    """Where the next message, attribute or next hop begins."""
    return (length + 3) & ~3


def attributes(data: memoryview) -> dict[int, memoryview]:
    """The attributes in a message, by type; of several of one type the last."""
    found = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_MASK] = data[at + _ATTRIBUTE.size : at + length]
        at += align(length)
    return found


async def dump(request: int, header: bytes) -> list[memoryview]:
    """The bodies of all messages that the kernel answers a dump with.

    OSError when it refuses; BlockingIOError when what was dumped changed meanwhile, again and again.
    """
    for _ in range(TRIES):
        bodies = await _dump(request, header)
        if bodies is not None:
            return bodies
    raise BlockingIOError("the kernel's tables change faster than the agent can read them")


async def _dump(request: int, header: bytes) -> list[memoryview] | None:
    """None when it was interrupted by a change."""
    loop = asyncio.get_running_loop()
    with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)) as asked:
        asked.setblocking(False)
        asked.send(_HEADER.pack(_HEADER.size + len(header), request, _REQUEST_DUMP, 1, 0) + header)

        bodies: list[memoryview] = []
        while True:
            for kind, flags, body in _messages(memoryview(await loop.sock_recv(asked, _BUFFER))):
                if flags & _DUMP_INTERRUPTED:
                    return None
                if kind in (_DONE, _ERROR):
                    code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
                    if code:
                        raise OSError(code, os.strerror(code))
                    return bodies
                bodies.append(body)


def _messages(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size:
            return
        yield kind, flags, data[at + _HEADER.size : at + length]
        at += align(length)


def listen(groups: tuple[int, ...]) -> socket.socket:
    """A socket that receives changes; OSError when it cannot be had. A group that this kernel lacks is left out."""
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        heard.setblocking(False)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _WATCH_BUFFER)
        heard.bind((0, 0))
        for group in groups:
            _join(heard, group)
    except OSError:
        heard.close()
        raise
    return heard


def _join(heard: socket.socket, group: int) -> None:
    try:
        heard.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)
    except OSError as error:
        if error.errno != _NO_SUCH_GROUP:
            raise
