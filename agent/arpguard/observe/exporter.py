"""Serves the metrics over HTTP, so that no client affects the agent, however slow or hostile it is.

A thread accepts, and each connection has a thread of its own, a few at most. The node's state is read on the
agent's loop, so never half-written; if the loop hangs, the answer is 503: the agent rightly looks down.
"""

import asyncio
import io
import logging
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from socketserver import TCPServer
from typing import Any, TypeAlias
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIEnvironment

from prometheus_client import make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from arpguard.errors import ListenError

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 8
PLACES_OF_ONE = 2  # connections from one address
MAX_HEAD_BYTES = 8192  # request line and headers
DEADLINE_S = 5.0  # for a request to come in, for the loop to answer, and for the answer to go out
PATIENCE_S = 0.5  # how long a connection keeps its place when others wait; a scrape takes a hundredth
SILENCE_S = 0.05  # the same for one that has sent nothing; a scraper asks as soon as it is connected
REUSE_S = 0.1  # what was collected serves all who ask within it: the loop has other things to do
_PAUSE_S = 0.1  # after a connection could not be accepted, as when there is no descriptor left
_RECEIVED = slice(128, 136)  # tcpi_bytes_received in struct tcp_info (linux/tcp.h)
_NO_ANSWER = (TimeoutError, CancelledError)  # of a loop that hangs, or has ended

_Address: TypeAlias = Any  # socket addresses: a pair, or four things for IPv6
_Answer: TypeAlias = tuple[str, list[tuple[str, str]], bytes]

_TEXT = ("Content-Type", "text/plain; charset=utf-8")
_INDEX = b'<!doctype html><title>arpguard</title><p>arpguard: <a href="/metrics">/metrics</a>\n'


class Exporter:
    """Serves a registry on an address. To be started and closed on the loop's thread."""

    def __init__(self) -> None:
        self._server: _Server | None = None

    def start(self, listen: str, registry: Collector) -> None:
        """Serves /metrics on HOST:PORT or [IPv6]:PORT; ListenError when that cannot be. Empty: nowhere."""
        if not listen:
            return
        collector = _OnLoop(registry, asyncio.get_running_loop())
        try:
            self._server = _Server(listen, collector)
        except OSError as error:
            raise ListenError(listen, (error.strerror or str(error)).lower(), "metrics.listen") from error
        self._server.start()

    @property
    def port(self) -> int:
        """Where it listens; 0 when it does not."""
        return self._server.server_port if self._server else 0

    def close(self) -> None:
        """Ends it immediately, and cuts off open answers."""
        if self._server:
            self._server.close()
            self._server = None


class _OnLoop(Collector):
    """Collects on the loop's thread. Clients that ask while another waits, or shortly after, get the same."""

    def __init__(self, registry: Collector, loop: asyncio.AbstractEventLoop) -> None:
        self._registry = registry
        self._loop = loop
        self._lock = threading.Lock()
        self._result: Future[list[Metric]] = Future()
        self._result.cancel()  # there is none yet
        self._stale_s = 0.0
        self._closed = False

    def collect(self) -> Iterable[Metric]:
        """The metrics; one of `_NO_ANSWER` when the loop gives none."""
        with self._lock:
            if self._closed or self._loop.is_closed():
                raise CancelledError
            if self._result.done() and time.monotonic() >= self._stale_s:
                result: Future[list[Metric]] = Future()
                self._loop.call_soon_threadsafe(self._gather, result)
                self._result, self._stale_s = result, time.monotonic() + REUSE_S
            result = self._result
        return result.result(DEADLINE_S)

    def close(self) -> None:
        """Makes no client wait for the loop any longer."""
        self._closed = True
        self._result.cancel()

    def _gather(self, result: Future[list[Metric]]) -> None:
        if not result.set_running_or_notify_cancel():
            return
        try:
            result.set_result(list(self._registry.collect()))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            result.set_exception(error)


class _App:
    """WSGI: GET and HEAD of /metrics, and of a page that points there."""

    def __init__(self, collector: Collector) -> None:
        self._metrics = make_wsgi_app(collector)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        status, headers, body = self._answer(environ)
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _answer(self, environ: WSGIEnvironment) -> _Answer:
        pages = {"/metrics": self._scrape, "/": _index}
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            return "404 Not Found", [_TEXT], b"not found; the metrics are at /metrics\n"
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", [_TEXT, ("Allow", "GET, HEAD")], b"GET or HEAD\n"
        return page(environ)

    def _scrape(self, environ: WSGIEnvironment) -> _Answer:
        answer: list[Any] = []
        all_of_it = {**environ, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
        try:
            body = b"".join(self._metrics(all_of_it, lambda *head: answer.extend(head)))
        except _NO_ANSWER:
            return "503 Service Unavailable", [_TEXT], b"the agent does not answer\n"
        except Exception:
            log.exception("metrics cannot be collected")
            return "500 Internal Server Error", [_TEXT], b"see the agent's log\n"
        return answer[0], answer[1], body


def _index(_: WSGIEnvironment) -> _Answer:
    return "200 OK", [("Content-Type", "text/html; charset=utf-8")], _INDEX


class _Connections:
    """Those that are open. When all places are taken, the one whose patience ends first loses its to a newcomer.

    An address that has all its places taken loses one of these immediately: no client waits for one that comes again.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: dict[socket.socket, tuple[str, float]] = {}  # address, since when

    def add(self, connection: socket.socket, host: str) -> None:
        """Returns when there is a place."""
        with self._changed:
            while True:
                own = [each for each, (of, _) in self._open.items() if of == host]
                crowded = len(own) >= PLACES_OF_ONE
                if not crowded and len(self._open) < MAX_CONNECTIONS:
                    break
                first = min(own if crowded else self._open, key=self._until)
                left = 0 if crowded else self._until(first) - time.monotonic()
                if left <= 0:
                    _end(first)
                self._changed.wait(left if left > 0 else _PAUSE_S)
            self._open[connection] = host, time.monotonic()

    def _until(self, connection: socket.socket) -> float:
        return self._open[connection][1] + (SILENCE_S if _is_silent(connection) else PATIENCE_S)

    def remove(self, connection: socket.socket) -> None:
        """Before the connection is closed: another with the same descriptor might be ended in its stead."""
        with self._changed:
            self._open.pop(connection, None)
            self._changed.notify_all()

    def end_all(self) -> None:
        """Ends all, and waits a moment for their threads."""
        with self._changed:
            for connection in self._open:
                _end(connection)
            self._changed.wait_for(lambda: not self._open, PATIENCE_S)


def _is_silent(connection: socket.socket) -> bool:
    """Whether the peer has sent nothing, by the kernel's count: a thread may not have read yet what came."""
    return not any(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.stop)[_RECEIVED])


def _end(connection: socket.socket) -> None:
    """Makes all reads and writes of it return."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Server(WSGIServer):
    """Listens as soon as it exists, and answers as soon as it is started."""

    request_queue_size = 32

    def __init__(self, listen: str, collector: _OnLoop) -> None:
        host, _, port = listen.rpartition(":")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.app = _App(collector)
        self._collector = collector
        self._connections = _Connections()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="metrics", daemon=True)
        super().__init__((host.strip("[]"), int(port)), _Request)

    def server_bind(self) -> None:
        """Does not look the host up in the DNS, as HTTPServer does."""
        TCPServer.server_bind(self)
        host, self.server_port, *_ = self.socket.getsockname()
        self.server_name = str(host)
        self.setup_environ()

    def start(self) -> None:
        """Begins to accept."""
        self._thread.start()

    def close(self) -> None:
        """Ends all threads and connections."""
        self._closing.set()
        _end(self.socket)  # accept(2) returns
        self._collector.close()
        self._thread.join(DEADLINE_S)
        self._connections.end_all()
        self.server_close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, address = self.get_request()
            except OSError:
                self._closing.wait(_PAUSE_S)
                continue
            self._connections.add(connection, address[0])
            serving = threading.Thread(
                target=self._serve, args=(connection, address), name="metrics-request", daemon=True
            )
            try:
                serving.start()
            except RuntimeError:  # no more threads
                self._drop(connection)

    def _serve(self, connection: socket.socket, address: _Address) -> None:
        try:
            self.finish_request(connection, address)
        except Exception:
            # It left, or was too slow; and what strangers send must not fill the log.
            log.debug("request cannot be answered", exc_info=True)
        finally:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        self._connections.remove(connection)
        self.shutdown_request(connection)


class _Answering(ServerHandler):
    server_software = "arpguard"


class _Request(WSGIRequestHandler):
    """One request: read whole, under one deadline and limit, before anything is done about it."""

    timeout = DEADLINE_S
    server_version = "arpguard"
    sys_version = ""
    server: _Server

    def setup(self) -> None:
        """Reads the head."""
        super().setup()
        self.rfile.close()
        head = _read_head(self.connection)
        self._too_long = len(head) >= MAX_HEAD_BYTES
        self.rfile = io.BytesIO(head)

    def handle(self) -> None:
        """Answers."""
        self.raw_requestline = self.rfile.readline()
        if self._too_long:
            self.requestline = self.request_version = self.command = ""
            self.send_error(431)
        elif self.parse_request():
            # Errors go nowhere: wsgiref reports every client that leaves early.
            answering = _Answering(self.rfile, self.wfile, io.StringIO(), self.get_environ())  # type: ignore[arg-type]
            answering.request_handler = self  # type: ignore[attr-defined]
            answering.run(self.server.app)

    def log_message(self, *_: object) -> None:
        """Nothing for each request."""


def _read_head(connection: socket.socket) -> bytes:
    """Request line and headers, MAX_HEAD_BYTES at most; OSError when they are not there in time."""
    deadline_s = time.monotonic() + DEADLINE_S
    head = b""
    while len(head) < MAX_HEAD_BYTES and not (b"\r\n\r\n" in head or b"\n\n" in head):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(left_s)
        some = connection.recv(MAX_HEAD_BYTES - len(head))
        if not some:
            raise ConnectionResetError
        head += some
    connection.settimeout(DEADLINE_S)
    return head
