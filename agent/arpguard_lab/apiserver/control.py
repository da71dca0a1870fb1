"""What a lab may do to a server that is a process of its own, over HTTP on a Unix socket or another port.

GET  /control/counters                       requests, bytes, watches, writes per second, uses of RBAC
GET  /control/journal[?since=REVISION]       every write of a Lease, with the time it was done at (wall clock)
PUT /control/faults/CLIENT                   `Faults` as JSON; {} ends them; CLIENT `*` is everybody
PUT /control/pace                            {"writes_per_s": N, "queue": M}; 0: as many as it can
POST /control/load                           YAML into the store
POST /control/down, /control/up              no connections, and connections again
POST /control/snapshots                      -> {"snapshot": N}
POST /control/restore/N[?bump=REVISIONS]
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import yaml
from aiohttp import web

from arpguard.errors import ArpguardError, ListenError
from arpguard_lab.apiserver import faults, manifests
from arpguard_lab.apiserver.resources import LEASES
from arpguard_lab.apiserver.server import ApiServer
from arpguard_lab.apiserver.store import Change, Snapshot

Json: TypeAlias = dict[str, Any]

_UNIX = "unix:"
_BODY_MAX = 1 << 28
_ERRORS = (ValueError, TypeError, KeyError, IndexError, yaml.YAMLError, ArpguardError)


class Control:
    """The endpoint."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._snapshots: list[Snapshot] = []
        self._runner: web.AppRunner | None = None

    async def start(self, address: str) -> None:
        """Listens at `unix:PATH` or `HOST:PORT`."""
        app = web.Application(middlewares=[_errors_as_json], client_max_size=_BODY_MAX)
        app.add_routes(self._routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        try:
            await self._site(self._runner, address).start()
        except OSError as error:
            raise ListenError(address, error.strerror or str(error), "--control") from error

    async def stop(self) -> None:
        """Listens no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _site(self, runner: web.AppRunner, address: str) -> web.BaseSite:
        if address.startswith(_UNIX):
            return web.UnixSite(runner, address.removeprefix(_UNIX).removeprefix("//"))
        host, _, port = address.rpartition(":")
        return web.TCPSite(runner, host, int(port))

    def _routes(self) -> list[web.RouteDef]:
        server = self._server
        return [
            web.get("/control/counters", self._counters),
            web.get("/control/journal", self._journal),
            web.put("/control/faults/{client}", self._set_faults),
            web.put("/control/pace", self._set_pace),
            web.post("/control/load", self._load),
            web.post("/control/down", _awaiting(server.go_down)),
            web.post("/control/up", _awaiting(server.come_up)),
            web.post("/control/snapshots", self._take_snapshot),
            web.post("/control/restore/{snapshot}", self._restore),
        ]

    async def _counters(self, _request: web.Request) -> web.Response:
        counted = self._server.counters.to_json()
        return web.json_response({**counted, "writes_per_second": self._server.store.write_rate()})

    async def _journal(self, request: web.Request) -> web.Response:
        changes = self._server.store.table(LEASES).since(int(request.query.get("since", "1")))
        return web.json_response([journal_row(change) for change in changes])

    async def _set_faults(self, request: web.Request) -> web.Response:
        self._server.set_faults(request.match_info["client"], faults.parse(await request.json()))
        return web.json_response({})

    async def _set_pace(self, request: web.Request) -> web.Response:
        self._server.pace(**await request.json())
        return web.json_response({})

    async def _load(self, request: web.Request) -> web.Response:
        self._server.load(manifests.parse(await request.text()))
        return web.json_response({})

    async def _take_snapshot(self, _request: web.Request) -> web.Response:
        self._snapshots.append(self._server.snapshot())
        return web.json_response({"snapshot": len(self._snapshots) - 1})

    async def _restore(self, request: web.Request) -> web.Response:
        snapshot = self._snapshots[int(request.match_info["snapshot"])]
        self._server.restore(snapshot, int(request.query.get("bump", "0")))
        return web.json_response({})


def _awaiting(action: Callable[[], Awaitable[None]]) -> Callable[[web.Request], Any]:
    async def handle(_request: web.Request) -> web.Response:
        await action()
        return web.json_response({})

    return handle


def journal_row(change: Change) -> Json:
    """A write, as the journal shows it."""
    namespace, name = change.key
    row: Json = {"revision": change.revision, "time_ns": change.time_ns, "namespace": namespace, "name": name}
    if change.after is not None:
        row["object"] = {part: change.after.body.get(part, {}) for part in ("metadata", "spec")}
    return row


@web.middleware
async def _errors_as_json(request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
    """400 with one line that says what was wrong."""
    try:
        response: web.StreamResponse = await handler(request)
    except _ERRORS as error:
        return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
    return response
