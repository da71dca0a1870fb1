"""The gRPC server: where it listens, how it is bounded, and mutual TLS for callers on other machines."""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2_grpc

from arpguard.api.calls import Calls, Meter
from arpguard.api.health import Health
from arpguard.api.reflecting import add_reflection
from arpguard.api.service import AgentService
from arpguard.api.watching import Broadcast
from arpguard.config.model import GrpcConfig, TlsConfig, is_local
from arpguard.core.decisions import Report
from arpguard.errors import ConfigError, ListenError, Problem
from arpguard.node import Auditor, ThisNode
from arpguard.paths import close_to_others, exposed
from arpguard.v1 import agent_pb2_grpc

log = logging.getLogger(__name__)

_SERVICES = ("arpguard.v1.AgentService", "grpc.health.v1.Health")
_MAX_CALLS = 256
_SOCKET_UMASK = 0o117  # 0660: owner and group may ask
_STOP_S = 0.5
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a second agent on the same port is refused, and does not share its callers
    ("grpc.max_allowed_incoming_connections", 64),
    ("grpc.server_handshake_timeout_ms", 3_000),  # who connects and says nothing keeps no descriptor
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_send_message_length", 4 << 20),
    ("grpc.max_concurrent_streams", 128),
    ("grpc.max_connection_idle_ms", 10 * 60_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # callers may look whether a stream is alive
)


class ApiServer:
    """The API of a node on all addresses of a configuration; ConfigError for TLS files that cannot be used.

    Each address has its own server, and so its own limits: callers that crowd a port do not shut out those that use
    the socket.
    """

    def __init__(self, node: ThisNode, meter: Meter, config: GrpcConfig, auditor: Auditor | None = None) -> None:
        self._broadcast, self._health = Broadcast(), Health(node)
        self._service = AgentService(node, self._broadcast, meter, auditor)
        self._meter = meter
        self._credentials = _credentials(config.tls) if config.tls else None
        self._waiting = list(config.listen)
        self._listeners: list[Listener] = []

    async def serve(self) -> list[str]:
        """Answers calls where it does not yet; returns obstacles. To be called again until there are none."""
        problems = []
        for address in list(self._waiting):
            credentials = None if is_local(address) else self._credentials
            try:
                listener = Listener(address, Calls(self._meter), credentials)
                self._add_services(listener.server)
                await listener.start()
            except ListenError as error:
                problems.append(str(error))
                continue
            self._waiting.remove(address)
            self._listeners.append(listener)
        return problems

    def _add_services(self, server: grpc.aio.Server) -> None:
        """What it serves, beside reflection."""
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self._service, server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        add_reflection(server, *_SERVICES)

    def publish(self, report: Report) -> None:
        """Sends a decision to all readers."""
        lost = self._broadcast.publish(report)
        if lost:
            self._meter.lost(lost)

    async def stop(self) -> None:
        """Ends streams with a word why, gives calls a moment to end, and takes the sockets away."""
        self._broadcast.close()
        self._health.close()
        await asyncio.gather(*(listener.stop() for listener in self._listeners))


class Listener:
    """A server on one address; ListenError for an address that is not free."""

    def __init__(
        self, address: str, calls: Calls | None = None, credentials: grpc.ServerCredentials | None = None
    ) -> None:
        _refuse_if_in_the_way(address, credentials)
        self._address = address
        self._path = _socket_path(address)
        self._calls = calls
        self._credentials = credentials
        interceptors = [calls] if calls else []
        self.server = grpc.aio.server(interceptors=interceptors, options=_OPTIONS, maximum_concurrent_rpcs=_MAX_CALLS)

    async def start(self) -> None:
        """Listens; ListenError when that is not possible."""
        try:
            with _umask(_SOCKET_UMASK):
                if self._credentials is None:
                    self.server.add_insecure_port(self._address)
                else:
                    self.server.add_secure_port(self._address, self._credentials)
        except RuntimeError as error:
            raise ListenError(self._address, "the address cannot be bound", "grpc.listen") from error
        await self.server.start()

    async def stop(self) -> None:
        """Ends it, its calls and its socket."""
        await self.server.stop(_STOP_S)
        if self._calls is not None:
            await self._calls.ended(_STOP_S)
        if self._path:
            self._path.unlink(missing_ok=True)


def _socket_path(address: str) -> Path | None:
    return Path(address.removeprefix("unix://")) if address.startswith("unix:") else None


def _refuse_if_in_the_way(address: str, credentials: grpc.ServerCredentials | None) -> None:
    """Raises ListenError for obstacles that show before a server is made, because the agent retries again and again."""
    path = _socket_path(address)
    why = _refusal(path) if path else _bind_error(address)
    if credentials is None and not is_local(address):
        why = "other hosts can reach it, and grpc.tls is not set"
    if why:
        raise ListenError(address, why, "grpc.listen")


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    """The socket has its mode from the first moment on."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _refusal(path: Path) -> str:
    """Why a socket cannot be made; makes its folder. gRPC would silently take over a socket that is in use."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        close_to_others(path.parent)
        why = exposed(path)
    except OSError as error:
        return error.strerror or str(error)
    if why:
        return f"other users could replace the socket: {why}"
    if path.is_symlink():
        return "a symbolic link of that name exists"
    if path.exists() and not path.is_socket():
        return "a file of that name exists and is not a socket"
    return "another process listens there" if _is_answered(path) else ""


def _is_answered(path: Path) -> bool:
    """Whether a process answers there, even one with too many waiting callers (EAGAIN)."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(str(path)) in (0, errno.EAGAIN)


def _bind_error(address: str) -> str:
    """Why a port cannot be bound, which gRPC does not tell; empty when it can."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
            probe.listen(1)
        except OSError as error:
            return (os.strerror(error.errno) if error.errno else str(error)).lower()
    return ""


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
        ("cert", tls.cert, lambda: context.load_verify_locations(tls.cert), "a certificate and its chain up to the CA"),
        (
            "key",
            tls.key,
            lambda: context.load_cert_chain(tls.cert, tls.key, ""),
            "the key of the certificate in grpc.tls.cert, without a password",
        ),
    )
    for name, path, use, content in uses:
        try:
            use()
        except OSError as error:
            why = str(getattr(error, "reason", None) or error.strerror).replace("_", " ").lower()
            problem = Problem(
                f"grpc.tls.{name}", f"{path}: {why}: must be a PEM file that root can read, with {content}"
            )
            raise ConfigError("configuration", [problem]) from error


class _PemFiles:
    """The certificate, its key, and the CA of clients, as files that may be replaced at any time."""

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._seen: tuple[tuple[int, int], ...] = ()
        self._useless: tuple[tuple[int, int], ...] | None = None

    def read(self) -> grpc.ServerCertificateConfiguration:
        """What is there now; ConfigError when a file cannot be read."""
        self._seen = self._look()
        contents = {}
        for name in ("key", "cert", "client_ca"):
            path: Path = getattr(self._tls, name)
            try:
                contents[name] = path.read_bytes()
            except OSError as error:
                problem = Problem(
                    f"grpc.tls.{name}", f"{path}: {error.strerror}: must be a PEM file that root can read"
                )
                raise ConfigError("configuration", [problem]) from error
        return grpc.ssl_server_certificate_configuration([(contents["key"], contents["cert"])], contents["client_ca"])

    def read_if_changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Called for every handshake, in a thread of gRPC's; None: as before."""
        found = self._look()
        if found in (self._seen, self._useless):
            return None
        try:
            _refuse_useless(self._tls)
            return self.read()
        except ConfigError as error:
            # Perhaps they are being replaced, one after the other: the next handshake looks again.
            self._useless = found
            log.warning("cannot use the changed TLS files; keeping the previous ones: %s", error)
            return None

    def _look(self) -> tuple[tuple[int, int], ...]:
        """What tells that a file was replaced."""
        with suppress(OSError):
            found = [os.stat(path) for path in (self._tls.cert, self._tls.key, self._tls.client_ca)]
            return tuple((file.st_ino, file.st_mtime_ns) for file in found)
        return ()
