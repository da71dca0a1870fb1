"""A real HTTP server on loopback that does with each request what the next step of a script says.

For the failures of the network and of servers, which a well-behaved API server has no way to show.
"""

import asyncio
import functools
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from arpguard.kube.client import Client
from arpguard.kube.connecting import find_access
from arpguard_lab.patience import Patience

Step = Callable[[web.Request], Awaitable[web.StreamResponse]]
LONGEST_S = 600  # of a test, on a machine that others use


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: dict | None
    at: float

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass
class ScriptedApi:
    """Does the steps in their order; after the last one, `then`. All requests are in `seen`."""

    then: Step
    steps: deque[Step] = field(default_factory=deque)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    connections: set = field(default_factory=set)

    def script(self, *steps: Step) -> None:
        self.steps.extend(steps)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        self.connections.add(request.transport)
        self.seen.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(text) if text else None,
                asyncio.get_running_loop().time(),
            )
        )
        step = self.steps.popleft() if self.steps else self.then
        return await step(request)

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator["ScriptedApi"]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls, reuse_address=True)
            await site.start()
            self.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


def a_status(code: int, reason: str = "", message: str = "") -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def answer(status: int, body: dict | str, headers: dict[str, str] | None = None) -> Step:
    async def step(_request):
        text = body if isinstance(body, str) else json.dumps(body)
        kind = "text/plain" if isinstance(body, str) else "application/json"
        return web.Response(status=status, text=text, content_type=kind, headers=headers)

    return step


def refusal(code: int, reason: str = "", message: str = "", headers: dict[str, str] | None = None) -> Step:
    return answer(code, a_status(code, reason, message), headers)


def listing(*objects: dict, version: str = "10", token: str = "") -> Step:
    metadata = {"resourceVersion": version, **({"continue": token} if token else {})}
    return answer(200, {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": list(objects)})


def event(kind: str, raw: dict) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return event("BOOKMARK", {"kind": "Service", "metadata": {"resourceVersion": version}})


async def end(_response: web.StreamResponse, _request: web.Request) -> None:
    """The server ends the stream in good order."""


async def hold(_response: web.StreamResponse, _request: web.Request) -> None:
    """The connection stays, and nothing comes."""
    await asyncio.Event().wait()


async def reset(_response: web.StreamResponse, request: web.Request) -> None:
    """The connection breaks."""
    request.transport.abort()
    await asyncio.Event().wait()


def stream(*pieces: bytes | float, then=hold) -> Step:
    """A watch: bytes are sent, numbers are seconds to wait."""

    async def step(request):
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await (response.write(piece) if isinstance(piece, bytes) else asyncio.sleep(piece))
        await then(response, request)
        return response

    return step


async def silence(_request: web.Request) -> web.StreamResponse:
    """The request is read, and nothing comes, not even headers."""
    return await asyncio.Event().wait()


async def broken(request: web.Request) -> web.StreamResponse:
    """The request is read, and the connection breaks."""
    request.transport.abort()
    return await asyncio.Event().wait()


def kubeconfig(folder: Path, url: str, *, user: str = "{}", cluster: str = "") -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        f"""apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "{url}"{cluster}}}}}]
users: [{{name: me, user: {user}}}]
"""
    )
    return path


@asynccontextmanager
async def a_client(folder: Path, url: str, **more) -> AsyncIterator[Client]:
    client = Client(await find_access(kubeconfig(folder, url, **more)), "node-1")
    try:
        yield client
    finally:
        await client.aclose()


@asynccontextmanager
async def an_api(folder: Path, *steps: Step, then: Step = silence) -> AsyncIterator[tuple[ScriptedApi, Client]]:
    """A server with this script, and a client of it."""
    api = ScriptedApi(then)
    api.script(*steps)
    async with api.serving(), a_client(folder, api.url) as client:
        yield api, client


def in_loop(test):
    """Runs an async test in a loop of its own."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), LONGEST_S))

    return run


async def until(
    condition: Callable[[], object],
    seconds: float = 10.0,
    what: str | Callable[[], object] = "",
    pause_s: float = 0.002,
) -> None:
    """Waits for a condition; a test that waits in vain fails here, and says for what, or what there is instead."""
    patience = Patience(seconds)
    while not condition():
        assert not patience.is_in_vain(condition), f"waited in vain {what() if callable(what) else what}"
        await asyncio.sleep(pause_s)


def a_service(name: str = "web", version: str = "1", **spec) -> dict:
    return {
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}", "resourceVersion": version},
        "spec": {"type": "LoadBalancer", **spec},
    }
