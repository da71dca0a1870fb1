"""The gRPC server: where it listens, how it is bounded, and mutual TLS for whoever is not on this machine."""

import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2_grpc

from arpguard.api.calls import Calls, Meter
from arpguard.api.health import Health
from arpguard.api.reflecting import add_reflection
from arpguard.api.service import AgentService
from arpguard.api.watching import Broadcast
from arpguard.config import GrpcConfig, TlsConfig, is_local
from arpguard.core.decisions import Report
from arpguard.errors import ConfigError, ListenError, Problem
from arpguard.node import Node
from arpguard.v1 import agent_pb2_grpc

_SERVICES = ("arpguard.v1.AgentService", "grpc.health.v1.Health")
_MAX_CALLS = 256
_SOCKET_UMASK = 0o117  # 0660: owner and group may ask
_STOP_S = 0.5
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second agent on the same port is refused, and does not share its callers
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_send_message_length", 4 << 20),
    ("grpc.max_concurrent_streams", 128),
    ("grpc.max_connection_idle_ms", 10 * 60_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),  # callers may look whether a stream is alive
)


class ApiServer:
    """The API of a node: `listen`, `serve`, `stop`."""

    def __init__(self, node: Node, meter: Meter) -> None:
        self._broadcast, self._health = Broadcast(), Health(node)
        self._calls = Calls(meter)
        self._meter = meter
        self._paths: list[Path] = []
        self._server = grpc.aio.server(interceptors=[self._calls], options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(AgentService(node, self._broadcast, meter), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        add_reflection(self._server, *_SERVICES)

    def listen(self, config: GrpcConfig) -> Self:
        """Takes all addresses; ListenError, or ConfigError for TLS files, when that is not possible.

        Who connects now is answered as soon as calls are served.
        """
        credentials = _credentials(config.tls) if config.tls else None
        for address in config.listen:
            if address.startswith("unix:"):
                self._listen_unix(Path(address.removeprefix("unix://")), address)
            elif is_local(address) or credentials is None:
                self._bind(address, None)
            else:
                self._bind(address, credentials)
        return self

    async def serve(self) -> None:
        """Answers calls from now on."""
        await self._server.start()

    def publish(self, report: Report) -> None:
        """A decision, to whoever watches."""
        lost = self._broadcast.publish(report)
        if lost:
            self._meter.lost(lost)

    async def stop(self) -> None:
        """Ends streams with a word why, gives calls a moment to end, and takes the sockets away."""
        self._broadcast.close()
        self._health.close()
        await self._server.stop(_STOP_S)
        await self._calls.ended(_STOP_S)
        for path in self._paths:
            path.unlink(missing_ok=True)

    def _bind(self, address: str, credentials: grpc.ServerCredentials | None) -> None:
        if credentials is None and not is_local(address):
            raise ListenError(address, "others can reach it, and grpc.tls is not set", "grpc.listen")
        try:
            if credentials is None:
                self._server.add_insecure_port(address)
            else:
                self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ListenError(address, _why_not(address), "grpc.listen") from error

    def _listen_unix(self, path: Path, address: str) -> None:
        """Refuses a socket that somebody answers at: gRPC would take its file over without a question."""
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            raise ListenError(address, error.strerror or str(error), "grpc.listen") from error
        if path.exists() and not path.is_socket():
            raise ListenError(address, "a file of that name is there, and no socket", "grpc.listen")
        if _is_answered(path):
            raise ListenError(address, "another process listens there", "grpc.listen")
        with _umask(_SOCKET_UMASK):
            self._bind(address, None)
        self._paths.append(path)


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    """The socket has its mode from the first moment on."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _is_answered(path: Path) -> bool:
    """Also by somebody who has more callers waiting than they take (EAGAIN)."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) in (0, errno.EAGAIN)


def _why_not(address: str) -> str:
    """The reason that gRPC does not give: the same bind(2) fails with it."""
    if address.startswith("unix:"):
        return "the socket cannot be made"
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        with suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError as error:
            return (os.strerror(error.errno) if error.errno else str(error)).lower()
    return os.strerror(errno.EADDRINUSE).lower()


def _credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Mutual TLS. The files are read again for a handshake when they have changed, so certificates can be renewed."""
    _refuse_useless(tls)
    files = _PemFiles(tls)
    again: Any = files.read_if_changed  # None is allowed, says grpc's documentation; its stubs do not
    return grpc.dynamic_ssl_server_credentials(files.read(), again, require_client_authentication=True)


def _refuse_useless(tls: TlsConfig) -> None:
    """ConfigError for the first file that cannot be used: gRPC would not say which, nor why."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    uses: tuple[tuple[str, Path, Callable[[], None], str], ...] = (
        ("client_ca", tls.client_ca, lambda: context.load_verify_locations(tls.client_ca), "certificates"),
        ("cert", tls.cert, lambda: context.load_verify_locations(tls.cert), "a certificate, and those up to its CA"),
        ("key", tls.key, lambda: context.load_cert_chain(tls.cert, tls.key, ""), "that certificate's key, no password"),
    )
    for name, path, use, content in uses:
        try:
            use()
        except OSError as error:
            why = str(getattr(error, "reason", None) or error.strerror).replace("_", " ").lower()
            problem = Problem(f"grpc.tls.{name}", str(path), f"{why}: a PEM file that root can read: {content}")
            raise ConfigError("configuration", [problem]) from error


class _PemFiles:
    """The certificate, its key, and the CA of clients, as files that may be replaced at any time."""

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._seen: tuple[tuple[int, int], ...] = ()

    def read(self) -> grpc.ServerCertificateConfiguration:
        """What is there now; ConfigError when a file cannot be read."""
        self._seen = self._look()
        contents = {}
        for name in ("key", "cert", "client_ca"):
            path: Path = getattr(self._tls, name)
            try:
                contents[name] = path.read_bytes()
            except OSError as error:
                problem = Problem(f"grpc.tls.{name}", str(path), f"{error.strerror}: a PEM file that root can read")
                raise ConfigError("configuration", [problem]) from error
        return grpc.ssl_server_certificate_configuration([(contents["key"], contents["cert"])], contents["client_ca"])

    def read_if_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called for every handshake, in a thread of gRPC's; None: as before."""
        if self._look() == self._seen:
            return None
        try:
            return self.read()
        except ConfigError:
            return None  # being replaced: the next handshake looks again

    def _look(self) -> tuple[tuple[int, int], ...]:
        """What tells that a file was replaced."""
        with suppress(OSError):
            found = [os.stat(path) for path in (self._tls.cert, self._tls.key, self._tls.client_ca)]
            return tuple((file.st_ino, file.st_mtime_ns) for file in found)
        return ()
