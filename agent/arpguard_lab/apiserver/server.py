"""The server in an event loop: `async with ApiServer() as server`. A test or a lab changes what it does as it runs."""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import yaml
from aiohttp import web

from arpguard.errors import ListenError
from arpguard_lab.apiserver import clients, manifests, tls
from arpguard_lab.apiserver.clients import Client
from arpguard_lab.apiserver.counters import Counters
from arpguard_lab.apiserver.execing import Kubelets
from arpguard_lab.apiserver.faults import EVERYBODY, Faults
from arpguard_lab.apiserver.rbac import DEFAULT_MANIFESTS, Grant
from arpguard_lab.apiserver.serving import Handler
from arpguard_lab.apiserver.state import State
from arpguard_lab.apiserver.store import Snapshot, Store
from arpguard_lab.apiserver.watching import BOOKMARK_INTERVAL_S

Json: TypeAlias = dict[str, Any]

_BACKLOG = 1024
_PRIVATE = 0o600
_TURNS = 5  # asyncio needs three for a connection: the socket, the transport, the protocol


@dataclass(frozen=True, slots=True)
class Options:
    """How the server is found and what it starts with."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any
    tls: bool = True  # kubectl sends no token over plain HTTP
    rbac: Sequence[Json] = ()  # RBAC objects; with none, everybody may do everything
    objects: Sequence[Json] = ()
    bookmark_interval_s: float = BOOKMARK_INTERVAL_S
    bare: bool = False  # as where no kube-controller-manager runs
    kubelets: Kubelets = field(default_factory=Kubelets)


class ApiServer:
    """One API server with its store."""

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or Options()
        self._port = self._options.port
        self._state = State(self._options.bookmark_interval_s, self._options.bare, self._options.kubelets)
        self._runner: web.ServerRunner | None = None
        self._socket: socket.socket | None = None
        self._site: web.SockSite | None = None
        self._context: ssl.SSLContext | None = None
        self._authority: bytes | None = None
        if self._options.rbac:
            self.load(self._options.rbac)
            self.enforce_rbac()
        self.load(self._options.objects)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens; ListenError if that cannot be."""
        if self._options.tls and self._context is None:
            with tempfile.TemporaryDirectory() as folder:
                self._context, self._authority = await asyncio.to_thread(tls.make, Path(folder), self._options.host)
        server = web.Server(Handler(self._state), handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0)
        await self._runner.setup()
        await self._listen()

    async def stop(self) -> None:
        """Ends every connection, and listens no more."""
        for timer in self._state.zombies:
            timer.cancel()
        self._state.connections.reset(None)
        await self._stop_listening()
        if self._runner is not None:
            await self._runner.cleanup()
            await _pass_turns()
        if self._state.executions:  # their requests have been cancelled, and they wait for the end of a process
            await asyncio.wait(self._state.executions)

    @property
    def url(self) -> str:
        """Where clients find it."""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"{'https' if self._context else 'http'}://{host}:{self._port}"

    @property
    def store(self) -> Store:
        """The objects."""
        return self._state.store

    @property
    def counters(self) -> Counters:
        """What was asked."""
        return self._state.counters

    @property
    def zombies(self) -> int:
        """Writes that are still on their way although their clients have given up."""
        return len(self._state.zombies)

    def add_client(self, name: str, service_account: str = "") -> Client:
        """Makes a client known: as the service account `NAMESPACE/NAME`, or as an administrator."""
        return self._state.clients.add(name, service_account)

    def kubeconfig(self, name: str) -> Json:
        """A kubeconfig for a known client."""
        return clients.kubeconfig(self._state.clients.find(name), self.url, self._authority)

    def write_kubeconfig(self, path: Path, name: str, service_account: str = "") -> None:
        """Makes a client known and writes a kubeconfig for it."""
        self.add_client(name, service_account)
        path.touch(mode=_PRIVATE)
        path.write_text(yaml.safe_dump(self.kubeconfig(name)))

    def load(self, documents: Iterable[Json]) -> None:
        """Puts objects into the store as they are, with their status."""
        manifests.load(self._state.registry, self._state.catalogue, documents, "objects")

    def put(self, body: Json) -> Json:
        """Puts one object into the store as it is; what became of it."""
        stored = manifests.load(self._state.registry, self._state.catalogue, [body], "objects")
        return stored[0].body

    def enforce_rbac(self) -> None:
        """From now on nobody may do what no role allows."""
        role_kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
        self.load({**role_kind, **document} for document in DEFAULT_MANIFESTS)
        self._state.rbac.enabled = True

    def grants(self, name: str) -> list[Grant]:
        """What a client may do with resources, beside what everybody may."""
        return list(self._state.rbac.grants(self._state.clients.find(name), own=True))

    def unused_grants(self, name: str) -> list[Grant]:
        """What a client may do and never did."""
        uses = self._state.counters.uses.get(name, set())
        return [grant for grant in self.grants(name) if not any(map(grant.covers, uses))]

    def fault(self, client: str = EVERYBODY, **faults: Any) -> None:
        """Replaces a client's faults (see `Faults`); with none given, all is well again."""
        self.set_faults(client, Faults(**faults))

    def set_faults(self, client: str, faults: Faults) -> None:
        """The same with a value."""
        self._state.faults.set(client, faults)
        if faults.cut:
            self._state.connections.reset(None if client == EVERYBODY else client)

    def pace(self, writes_per_s: float, queue: int = 100) -> None:
        """From now on it takes so many writes in a second (0: as many as it can), and so many may wait."""
        self._state.pace.writes_per_s, self._state.pace.queue = writes_per_s, queue

    @property
    def refused(self) -> int:
        """How many writes it refused because too many waited."""
        return self._state.pace.refused

    def expire(self) -> None:
        """Empties the watch cache: a watch that starts from before now gets 410."""
        self._state.store.expire()

    def compact(self) -> None:
        """Forgets the past: also lists that are being continued, and watches that lag, get 410."""
        self._state.store.compact()

    async def go_down(self) -> None:
        """Drops all connections and refuses new ones."""
        await self._stop_listening()
        self._state.connections.reset(None)

    async def come_up(self) -> None:
        """The end of `go_down`: objects stay, and the watch cache is empty."""
        self.expire()
        if self._site is None:
            await self._listen()

    def snapshot(self) -> Snapshot:
        """The state now."""
        return self._state.store.snapshot()

    def restore(self, snapshot: Snapshot, bump: int = 0) -> None:
        """Goes back to a snapshot, as etcd does from a backup; all connections are dropped."""
        self._state.store.restore(snapshot, bump)
        self._state.connections.reset(None)

    async def _listen(self) -> None:
        if self._runner is None:
            raise RuntimeError("not started")
        host = self._options.host
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, self._port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ListenError(f"{host}:{self._port}", error.strerror or str(error), "--listen") from error
        self._site = web.SockSite(self._runner, self._socket, ssl_context=self._context, backlog=_BACKLOG)
        await self._site.start()
        self._port = self._socket.getsockname()[1]

    async def _stop_listening(self) -> None:
        """Accepts no more, and only then closes: asyncio forgets to close what it accepted just before that."""
        if self._site is not None and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            await _pass_turns()
            await self._site.stop()
            self._site = None


async def _pass_turns() -> None:
    """As many turns of the event loop as it needs to make or to end a connection that it has accepted or closed."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
