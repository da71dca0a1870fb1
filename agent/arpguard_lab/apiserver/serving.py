"""One request after another: who asks, what goes wrong for them, what is asked, whether they may, and the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Never

import yaml
from aiohttp import web

from arpguard_lab.apiserver import (
    clients,
    discovery,
    execing,
    listing,
    managing,
    paths,
    rbac,
    reviews,
    selectors,
    statuses,
    views,
    watching,
)
from arpguard_lab.apiserver.clients import Client
from arpguard_lab.apiserver.counters import Request
from arpguard_lab.apiserver.decoding import parse_json
from arpguard_lab.apiserver.exchanges import JSON, Answer, Exchange, close, hang_up, read_body, reset, warning
from arpguard_lab.apiserver.faults import Faults
from arpguard_lab.apiserver.paths import Target
from arpguard_lab.apiserver.rbac import Use
from arpguard_lab.apiserver.registry import APPLY_PATCH, Done, Write
from arpguard_lab.apiserver.state import State
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import to_bytes

_YAML = "application/yaml"
_GONE = 410


class Handler:
    """Serves requests over a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serves one, whatever comes of it."""
        exchange = Exchange(request)
        try:
            return await self._serve(exchange)
        finally:
            self._count(exchange)

    async def _serve(self, exchange: Exchange) -> web.StreamResponse:
        try:
            exchange.client = self._state.clients.identify(exchange.request.headers.get("Authorization", ""))
            self._state.connections.add(exchange.client.name, exchange.request)
            exchange.body = await read_body(exchange.request)
            await self._suffer(exchange)
            if exchange.target is not None and exchange.verb == "watch":
                return await self._watch(exchange, exchange.target)
            if exchange.target is not None and exchange.target.subresource == "exec":
                return await self._execute(exchange, exchange.target)
            answer = await self._answer(exchange)
        except ApiError as error:
            answer = Answer(error.code, to_bytes(error.body()) + b"\n", headers=error.headers)
        return self._respond(exchange, answer)

    def _respond(self, exchange: Exchange, answer: Answer) -> web.Response:
        exchange.code, exchange.sent = answer.code, len(answer.body)
        headers = {"Content-Type": answer.content_type, **answer.headers}
        response = web.Response(status=answer.code, body=answer.body, headers=headers)
        for text in (*answer.warnings, *self._standing_warnings(exchange)):
            response.headers.add("Warning", warning(text))
        return response

    def _standing_warnings(self, exchange: Exchange) -> list[str]:
        deprecated = exchange.target.resource.deprecated if exchange.target else ""
        return [text for text in (deprecated, self._faults(exchange).warning) if text]

    def _count(self, exchange: Exchange) -> None:
        counters, name = self._state.counters, exchange.client.name
        counters.requests[Request(name, exchange.verb, exchange.resource, exchange.code)] += 1
        counters.received[name] += len(exchange.body)
        counters.sent[name] += exchange.sent

    def _faults(self, exchange: Exchange) -> Faults:
        return self._state.faults.of(exchange.client.name)

    async def _suffer(self, exchange: Exchange) -> None:
        """The faults that come before anything is done."""
        faults, name = self._state.faults, exchange.client.name
        request = exchange.request
        if faults.of(name).cut:
            await hang_up(request, reset)
        await faults.wait_while(name, lambda now: now.stall)
        if reviews.use_of(request.method, request.path) is None:
            exchange.target = paths.parse(self._state.catalogue, request.method, request.path, request.query)
        target = exchange.target
        if target is not None and target.verb in paths.WRITES:
            await faults.wait_while(name, lambda now: bool(now.hold) and target.name.startswith(now.hold))
        await asyncio.sleep(faults.of(name).delay_of(exchange.verb, exchange.resource))
        if (code := faults.take_failure(name, request.path)) is not None:
            raise statuses.failure(code)

    async def _answer(self, exchange: Exchange) -> Answer:
        target = exchange.target
        if target is None:
            return self._answer_path(exchange)
        self._authorize(exchange, target)
        if target.subresource == "log":
            return self._read_log(target)
        if target.subresource == "token":
            return self._issue_token(exchange, target)
        if target.verb in paths.WRITES:
            await self._state.pace.take_turn()
            return await self._write(exchange, target)
        return self._read(exchange, target)

    def _authorize(self, exchange: Exchange, target: Target) -> None:
        name = target.name or selectors.named(exchange.request.query.get("fieldSelector", ""))
        self._require(exchange.client, rbac.use_of(target, name))

    def _require(self, client: Client, use: Use) -> None:
        self._state.counters.uses.setdefault(client.name, set()).add(use)
        self._state.rbac.require(client, use)

    def _answer_path(self, exchange: Exchange) -> Answer:
        request, client = exchange.request, exchange.client
        use = reviews.use_of(request.method, request.path)
        if use is not None:
            self._require(client, use)
            return Answer(201, to_bytes(reviews.answer(self._state.rbac, client, use, _parse(exchange, "create"))))
        self._state.rbac.require_path(client, request.method.lower(), request.path)
        if request.method != "GET":
            raise statuses.method_not_allowed()
        content_type, body = discovery.answer(self._state.catalogue, request.path, exchange.accept)
        return Answer(200, body, content_type)

    def _read_log(self, target: Target) -> Answer:
        pod = listing.read_one(self._state.store, replace(target, subresource=""), "", None).body
        logged = self._state.kubelets.logs(pod["spec"].get("nodeName", ""))
        return Answer(200, logged.encode(), "text/plain")

    def _issue_token(self, exchange: Exchange, target: Target) -> Answer:
        """A TokenRequest: from now on whoever has the token acts as the account. It does not expire."""
        if target.key not in self._state.store.table(target.resource).live:
            raise statuses.not_found(target.resource, target.name)
        client = self._state.clients.add("/".join(target.key), "/".join(target.key))
        head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {"name": target.name}}
        asked = _parse(exchange, target.verb).get("spec") or {}
        status = {"token": clients.token(client), "expirationTimestamp": "9999-12-31T23:59:59Z"}
        return Answer(201, to_bytes({**head, "spec": asked, "status": status}) + b"\n")

    def _read(self, exchange: Exchange, target: Target) -> Answer:
        store, query = self._state.store, exchange.request.query
        view = views.choose(target.resource, exchange.accept)
        stale = self._faults(exchange).stale
        self._state.counters.past[exchange.client.name] += query.get("resourceVersion") == "0"
        if target.verb == "get":
            stored = listing.read_one(store, target, query.get("resourceVersion", ""), stale)
            return Answer(200, view.one(stored) + b"\n")
        listed = listing.read_list(store, target, query, stale)
        return Answer(200, view.many(listed.items, listed.metadata))

    async def _write(self, exchange: Exchange, target: Target) -> Answer:
        """A write, or what a fault makes of it."""
        view = views.choose(target.resource, exchange.accept)
        perform = partial(self._perform, exchange, target, _parse(exchange, target.verb))
        zombie_s = self._faults(exchange).zombie
        if zombie_s is not None:
            await self._outlive(perform, zombie_s)
        done = perform()
        if self._state.faults.take_swallow(exchange.client.name):
            exchange.code = done.code
            await hang_up(exchange.request, close)
        return _show(done, view, self._state.store.revision)

    def _perform(self, exchange: Exchange, target: Target, body: object) -> Done:
        query = exchange.request.query
        manager = managing.name_of(query, exchange.request.headers.get("User-Agent", ""))
        write = Write(target, body, query, exchange.content_type, manager)
        creation = Use("create", target.resource.group, target.resource.plural, target.namespace)
        return self._state.registry.perform(write, lambda: self._require(exchange.client, creation))

    async def _outlive(self, perform: Callable[[], Done], seconds: float) -> Never:
        """Waits until the client gives up, and only then lets the write arrive."""

        def arrive() -> None:
            self._state.zombies.discard(timer)
            with suppress(ApiError):
                perform()

        loop = asyncio.get_running_loop()
        try:
            await loop.create_future()
        finally:
            timer = loop.call_later(seconds, arrive)
            self._state.zombies.add(timer)
        raise AssertionError("a future that nobody sets")

    async def _watch(self, exchange: Exchange, target: Target) -> web.StreamResponse:
        request, name = exchange.request, exchange.client.name
        self._authorize(exchange, target)
        view = views.choose(target.resource, exchange.accept)
        watch = watching.Watch(self._state.store, target, request.query, view)
        first, lost = _start(watch, self._faults(exchange))
        response = self._stream(exchange)
        await response.prepare(request)

        async def write(lines: bytes) -> None:
            exchange.sent += len(lines)
            await response.write(lines)

        is_new_path = self._faults(exchange).half_open

        def gate() -> Awaitable[None]:
            return self._state.faults.wait_while(name, lambda now: now.still or (now.half_open and not is_new_path))

        with self._state.counters.watch(name):
            await gate()
            if first:
                await write(first)
            if not lost:
                await watch.run(write, gate, self._state.bookmark_interval_s)
        await response.write_eof()
        return response

    async def _execute(self, exchange: Exchange, target: Target) -> web.StreamResponse:
        """Needs two rights: `get`, because it is a GET, and since 1.35 `create`, which the answer does not name."""
        self._authorize(exchange, target)
        try:
            self._authorize(exchange, replace(target, verb="create"))
        except ApiError:
            raise statuses.forbidden_use(target.resource.plural, "", target.name, "") from None
        pod = listing.read_one(self._state.store, replace(target, subresource=""), "", None).body
        exchange.code = 101
        return await execing.execute(exchange.request, pod, self._state.kubelets, self._state.executions)

    def _stream(self, exchange: Exchange) -> web.StreamResponse:
        exchange.code = 200
        response = web.StreamResponse(headers={"Content-Type": JSON})
        for text in self._standing_warnings(exchange):
            response.headers.add("Warning", warning(text))
        response.enable_chunked_encoding()
        return response


def _start(watch: watching.Watch, faults: Faults) -> tuple[bytes, bool]:
    """The first lines, and whether they are the last: 410 is an event of the stream, unless a fault says otherwise."""
    try:
        return b"".join(watch.start(faults.stale)), False
    except ApiError as error:
        if error.code != _GONE or faults.gone_as_status:
            raise
        return watching.error_line(error), True


def _show(done: Done, view: views.View, revision: int) -> Answer:
    """What a write answers: the object, the deleted objects, or a Status."""
    if done.items is not None:
        body = view.many(done.items, {"resourceVersion": str(revision)})
    else:
        body = view.one(done.stored) if done.stored is not None else to_bytes(done.status)
    return Answer(done.code, body + b"\n", warnings=done.warnings)


def _parse(exchange: Exchange, verb: str) -> Any:
    """The body of a write. A patch says in its content type what it is."""
    if not exchange.body:
        return None if verb.startswith("delete") else {}
    if exchange.content_type == _YAML:
        return yaml.safe_load(exchange.body)
    if exchange.content_type == APPLY_PATCH:
        return _parse_yaml(exchange.body)
    if verb != "patch" and exchange.content_type != JSON:
        raise statuses.unsupported_media_type((JSON, _YAML))
    return parse_json(exchange.body)


def _parse_yaml(body: bytes) -> Any:
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise statuses.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
