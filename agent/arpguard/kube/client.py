"""The connection to the API server: one request is one HTTP request, with a time limit and a checked status.

Configuration, credentials and TLS are the official client's (`kubernetes.aio`); the requests are not. Its transport
retries nothing by itself, but aiohttp below it repeats a PUT whose connection broke, and follows redirects: a write
that succeeded and lost its answer would come back as a conflict. Objects stay plain JSON: models would drop fields that
they do not know, and cost ten times the memory.
"""

import asyncio
import json
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from arpguard import __version__
from arpguard.clock import boot_ns
from arpguard.kube.connecting import Access
from arpguard.kube.decoding import decode
from arpguard.kube.errors import (
    MAX_RETRY_AFTER_S,
    ClusterError,
    Failure,
    JsonObject,
    NotFoundError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    cut,
    describe,
    error_of,
)
from arpguard.kube.resources import METHODS, Request

REQUEST_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 16 << 20  # an object is 1.5 MB at most (etcd's limit on a request), and lists come in pages
MAX_CONNECTIONS = 32
_TLS_BUFFER = 64 * 1024  # bytes, all resident; reading takes as much CPU as with asyncio's 256 KiB, with 16 KiB twice
_WEBSOCKET_HEARTBEAT_S, _WEBSOCKET_CLOSE_S = 15.0, 1.0
_TROUBLES = (aiohttp.ClientError, TimeoutError, OSError)
# Of all errors only these are raised before there is a connection (aiohttp's connector).
_NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ConnectionTimeoutError,
)
_MERGE_PATCH = "application/merge-patch+json"  # RFC 7386

# A dead peer is noticed within 25 s, whether anything was sent to it or not (tcp(7)).
_KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 25_000),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A 2xx answer. `sent_ns` was read from the boot clock directly before the request was sent."""

    status: int
    body: JsonObject
    sent_ns: int


class Client:
    """Requests to one API server. Make, use and close it in one event loop."""

    def __init__(self, access: Access, node: str, *, clock: Callable[[], int] = boot_ns) -> None:
        self._access = access
        self._clock = clock
        self._agent = f"arpguard/{__version__} {node}"
        self._transports: WeakSet[asyncio.Transport] = WeakSet()
        self._session = aiohttp.ClientSession(
            connector=_connector(access, self._transports.add),
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=_keep_refusal,
            trust_env=False,  # True asks a thread for proxies on every request; kubeconfig's proxy-url is honoured
            auto_decompress=True,
        )
        # There is no public switch for it; aiohttp's own test client sets the same.
        self._session._retry_connection = False  # noqa: SLF001

    async def call(self, request: Request, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
        """Sends a request once and reads the answer.

        Raises ClusterError: the subclass says what became of the request.
        """
        limits = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S))
        async with self._exchange(request, limits) as (response, sent_ns):
            body = await self._read(response, request)
        return Answer(response.status, _parse(body, request), sent_ns)

    async def find(self, request: Request, timeout_s: float = REQUEST_TIMEOUT_S) -> JsonObject | None:
        """What a request reads; None when there is no such object, namespace or kind. Raises ClusterError."""
        try:
            return (await self.call(request, timeout_s)).body
        except NotFoundError:
            return None

    @asynccontextmanager
    async def stream(self, request: Request, answer_s: float, total_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Sends a request, and yields its body as it comes, in pieces of any size.

        Raises ClusterError, also when no answer begins within `answer_s`; so do the pieces, also when the body does not
        end within `total_s`. The reader decides how long they may be silent.
        """
        limits = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_TIMEOUT_S)
        async with self._exchange(request, limits, answer_s) as (response, _):
            yield self._pieces(response, request)

    @asynccontextmanager
    async def websocket(
        self, request: Request, query: Sequence[tuple[str, str]], protocols: Sequence[str]
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Opens a websocket with one of the protocols, and yields its messages as they come, until the server ends it.

        Raises ClusterError; so do the messages. The reader decides how long all of it may take.
        """
        headers = {"User-Agent": self._agent, **await self._access.headers()}
        url = URL(self._access.host + request.path, encoded=True).with_query(query)
        try:
            socket = await self._session.ws_connect(
                url,
                protocols=protocols,
                headers=headers,
                heartbeat=_WEBSOCKET_HEARTBEAT_S,
                timeout=aiohttp.ClientWSTimeout(ws_close=_WEBSOCKET_CLOSE_S),
                max_msg_size=MAX_BODY_BYTES,
                server_hostname=self._access.server_name,
                proxy=self._access.proxy,
            )
        except _UpgradeRefusedError as error:
            raise self._refused(request, error.status, error.body, error.wait_s) from error
        except _TROUBLES as error:
            raise self._translated(error, request) from error

        try:
            yield self._messages(socket, request)
        finally:
            await socket.close()

    async def _messages(
        self, socket: aiohttp.ClientWebSocketResponse[bool], request: Request
    ) -> AsyncGenerator[bytes, None]:
        async for message in socket:
            if message.type is aiohttp.WSMsgType.BINARY:
                yield message.data
            elif message.type is aiohttp.WSMsgType.ERROR:
                raise self._translated(message.data, request)

    async def aclose(self) -> None:
        """Closes all connections, also those whose TLS aiohttp is still ending: a program that exits does not wait."""
        try:
            await self._session.close()
        finally:
            for transport in list(self._transports):
                with suppress(AttributeError):  # under TLS, where the connection was just lost
                    transport.abort()
        await asyncio.sleep(0)  # lets the event loop close them

    @asynccontextmanager
    async def _exchange(
        self, request: Request, limits: aiohttp.ClientTimeout, answer_s: float | None = None
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, int]]:
        headers = {"User-Agent": self._agent, "Accept": "application/json", **await self._access.headers()}

        data = None
        if request.body is not None:
            headers["Content-Type"] = _MERGE_PATCH if request.verb == "patch" else "application/json"
            data = json.dumps(request.body).encode()

        url = URL(self._access.host + request.path, encoded=True).with_query(request.query)
        sent_ns = self._clock()
        # `answer_s` limits only the wait for the response headers: a stream may then last as long as `limits` allow.
        try:
            async with asyncio.timeout(answer_s):
                response = await self._session.request(
                    METHODS[request.verb],
                    url,
                    headers=headers,
                    data=data,
                    timeout=limits,
                    allow_redirects=False,
                    server_hostname=self._access.server_name,
                    proxy=self._access.proxy,
                )
        except _TROUBLES as error:
            raise self._translated(error, request) from error

        async with response:
            if not 200 <= response.status < 300:
                raise await self._refusal(response, request)
            yield response, sent_ns

    async def _pieces(self, response: aiohttp.ClientResponse, request: Request) -> AsyncGenerator[bytes, None]:
        try:
            async for piece in response.content.iter_any():
                yield piece
        except _TROUBLES as error:
            raise self._translated(error, request) from error

    async def _read(self, response: aiohttp.ClientResponse, request: Request) -> bytes:
        body = bytearray()
        async with aclosing(self._pieces(response, request)) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) > MAX_BODY_BYTES:
                    failure = Failure(
                        request.verb, request.what, response.status, f"the answer has more than {MAX_BODY_BYTES} bytes"
                    )
                    raise TooLargeError(failure)
        return bytes(body)

    async def _refusal(self, response: aiohttp.ClientResponse, request: Request) -> ClusterError:
        try:
            body = await self._read(response, request)
        except UnavailableError:
            body = b""  # the status says enough
        return self._refused(request, response.status, body, _retry_after_s(response))

    def _refused(self, request: Request, status: int, body: bytes, wait_s: float) -> ClusterError:
        error = error_of(Failure(request.verb, request.what, status, describe(status, body), wait_s))
        if isinstance(error, UnauthorizedError):
            self._access.doubt()
        return error

    def _translated(self, error: Exception, request: Request) -> UnavailableError:
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            self._access.doubt()
        text = cut(str(error)) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
        return UnavailableError(
            Failure(request.verb, request.what, 0, text), outcome_unknown=not isinstance(error, _NEVER_SENT)
        )


class _UpgradeRefusedError(Exception):
    """A websocket that the server did not open."""

    def __init__(self, status: int, body: bytes, wait_s: float) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.wait_s = wait_s


async def _keep_refusal(response: aiohttp.ClientResponse) -> None:
    """For websockets: aiohttp's error has the status of the answer, but not the body, which says why."""
    if "Upgrade" in response.request_info.headers and response.status != HTTPStatus.SWITCHING_PROTOCOLS:
        body = await response.content.read(MAX_BODY_BYTES)
        raise _UpgradeRefusedError(response.status, body, _retry_after_s(response))


def _parse(body: bytes, request: Request) -> JsonObject:
    """A 2xx with a body that makes no sense is a failure: the write may be done, or a proxy answered for the server."""
    try:
        value = decode(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        why = f"the answer ({len(body)} bytes) is not a JSON object"
        raise UnavailableError(Failure(request.verb, request.what, 0, why))
    return value


def _retry_after_s(response: aiohttp.ClientResponse) -> float:
    """Retry-After in seconds (RFC 9110 10.2.3); the API server never sends a date."""
    text = response.headers.get("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_S) if text.isascii() and text.isdigit() else 0.0


def _connector(access: Access, tell: Callable[[asyncio.Transport], None]) -> aiohttp.TCPConnector:
    SSLProtocol.max_size = _TLS_BUFFER  # asyncio has no public way to choose it
    made = aiohttp.TCPConnector(ssl=access.tls, limit=MAX_CONNECTIONS, socket_factory=_kept_alive)
    # There is no public way to see a connection whose request was cancelled while it was made.
    made._factory = partial(_telling(tell), loop=asyncio.get_running_loop())  # noqa: SLF001
    return made


def _telling(tell: Callable[[asyncio.Transport], None]) -> type[ResponseHandler]:
    """Connections that report their transport; aiohttp forgets that of a cancelled request."""

    class Telling(ResponseHandler):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            if self.transport is not None:
                tell(self.transport)

    return Telling


def _kept_alive(info: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = info
    made = socket.socket(family=family, type=kind, proto=protocol)
    for level, option, value in _KEEPALIVE:
        made.setsockopt(level, option, value)
    return made


async def gather_lines(pieces: AsyncIterable[bytes], limit: int = MAX_BODY_BYTES) -> AsyncGenerator[bytes, None]:
    """Whole lines out of pieces of any size; an unfinished last line is dropped. ValueError beyond `limit`.

    Not aiohttp's readline: that fails beyond its buffer, and an object may be larger.
    """
    rest = bytearray()
    async for piece in pieces:
        start = len(rest)
        rest += piece
        end = rest.rfind(b"\n", start)
        if end >= 0:
            for line in bytes(rest[:end]).split(b"\n"):
                yield line
            del rest[: end + 1]
        if len(rest) > limit:
            raise ValueError(f"a line of more than {limit} bytes")
