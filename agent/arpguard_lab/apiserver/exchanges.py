"""HTTP below the API: requests with their bodies, answers, and the connections that they come by."""

import asyncio
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Never
from weakref import WeakSet

from aiohttp import web

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.clients import ANONYMOUS, Client
from arpguard_lab.apiserver.counters import NO_ANSWER
from arpguard_lab.apiserver.paths import Target

JSON = "application/json"
_BODY_MAX = 3 * 1024 * 1024
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class Exchange:
    """A request that is being served."""

    request: web.BaseRequest
    body: bytes = b""
    client: Client = ANONYMOUS
    target: Target | None = None
    code: int = NO_ANSWER
    sent: int = 0

    @property
    def verb(self) -> str:
        """As RBAC calls it; for other paths the method."""
        return self.target.verb if self.target else self.request.method.lower()

    @property
    def resource(self) -> str:
        """Its plural, with the subresource; for other paths the path."""
        return self.target.resource_path if self.target else self.request.path

    @property
    def accept(self) -> str:
        """The forms that are wanted."""
        return self.request.headers.get("Accept", "")

    @property
    def content_type(self) -> str:
        """Of the body, without parameters."""
        return self.request.headers.get("Content-Type", JSON).partition(";")[0].strip()


class Connections:
    """The connections of each client, so that they can be cut."""

    def __init__(self) -> None:
        self._open: defaultdict[str, WeakSet[asyncio.Transport]] = defaultdict(WeakSet)

    def add(self, client: str, request: web.BaseRequest) -> None:
        """A request tells whose connection it came by."""
        if request.transport is not None:
            self._open[client].add(request.transport)

    def reset(self, client: str | None) -> None:
        """Cuts the connections of one client, or (None) of all."""
        for name in list(self._open) if client is None else [client]:
            for transport in list(self._open[name]):
                reset(transport)


def reset(transport: asyncio.Transport) -> None:
    """Ends a connection by RST."""
    with suppress(AttributeError, OSError):  # under TLS, one that was just lost has no socket any more
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    with suppress(AttributeError):
        transport.abort()


def close(transport: asyncio.Transport) -> None:
    """Ends a connection in order."""
    transport.close()


async def hang_up(request: web.BaseRequest, end: Callable[[asyncio.Transport], None]) -> Never:
    """Ends the connection, and with it the task that serves the request: aiohttp cancels it."""
    if request.transport is not None:
        end(request.transport)
    await asyncio.get_running_loop().create_future()
    raise AssertionError("a future that nobody sets")


async def read_body(request: web.BaseRequest) -> bytes:
    """The body; 413 if it is longer than a kube-apiserver reads."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > _BODY_MAX:
            raise statuses.too_large()
    return bytes(body)


def warning(text: str) -> str:
    """The value of a Warning header (RFC 7234 5.5)."""
    escaped = text.replace('"', '\\"')
    return f'299 - "{escaped}"'
