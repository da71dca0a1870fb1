"""A server, or what is between it and the agent, that sends anything: the reflector goes on, and stays small.

And hostile objects among good ones, over real HTTP: the good ones are there.
"""
# ruff: noqa: UP031 - JSON is full of braces

import gzip
import json
import re
from pathlib import Path

import pytest
from aiohttp import web

from arpguard.kube import client as client_module
from arpguard.kube.projections import service
from arpguard.kube.reflector import Pace, Reflector, Reflectors
from arpguard.kube.resources import SERVICES
from support.kube.scripted_server import a_service, an_api, event, in_loop, listing, stream, until

FAST = Pace(base_s=0.01, cap_s=0.05, steady_s=0.03, watch_s=(5, 9), answer_s=1.0, idle_s=1.0)
MIB = 1 << 20
WEB, DB = ("default", "web"), ("default", "db")
GOOD = listing(a_service())
MOST_KIB = 160 << 10  # of memory, while 64 MiB and more are sent


def deep(levels: int) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


def a_list(*items: str) -> str:
    return '{"kind": "List", "metadata": {"resourceVersion": "10"}, "items": [%s]}' % ",".join(items)


def says(text: str | bytes, headers: dict | None = None):
    async def step(_request):
        body = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        return web.Response(body=body, headers={"Content-Type": "application/json", **(headers or {})})

    return step


async def bomb(request):
    """64 MiB of spaces in 64 KiB."""
    return await says(gzip.compress(b" " * (64 * MIB)), {"Content-Encoding": "gzip"})(request)


async def endless(request):
    """Chunks that never make a whole."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(100):
        await response.write(b" " * MIB)
    return response


async def huge_header(request):
    return await says("{}", {"X-Huge": "x" * (8 * MIB)})(request)


async def raw_bytes(request):
    """No HTTP at all."""
    request.transport.write(b"\0\xff" * 50_000 + b"\r\n\r\n")
    request.transport.close()
    return web.Response()


NONSENSE = {
    "truncated": says(a_list(json.dumps(a_service()))[:-30]),
    "deep": says(deep(100_000)),
    "gzip bomb": bomb,
    "no gzip": says(b"\x1f\x8bxx", {"Content-Encoding": "gzip"}),
    "endless chunks": endless,
    "huge header": huge_header,
    "no HTTP": raw_bytes,
    "empty": says(""),
    "a list": says("[]"),
    "no items": says('{"metadata": {"resourceVersion": "1"}}'),
    "items that are none": says('{"metadata": {"resourceVersion": "1"}, "items": {"a": 1}}'),
    "metadata that is none": says('{"metadata": [], "items": []}'),
    "token that is none": says('{"metadata": {"resourceVersion": "1", "continue": {"a": 1}}, "items": []}'),
    "same token again": says('{"metadata": {"resourceVersion": "1", "continue": "x"}, "items": []}'),
    "UTF-16": says(json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode("utf-16")),
}


def forget_peak() -> None:
    """VmHWM begins anew (proc(5))."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_kib() -> int:
    return int(re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[0])


async def followed(folder, *steps, wanted):
    """What a reflector knows once it has what is wanted; it goes through all steps."""
    changes = []
    async with an_api(folder, *steps) as (api, client), Reflectors() as sources:
        reflector = Reflector(client, SERVICES, service, changes.append, pace=FAST)
        sources.start(reflector)
        await until(lambda: reflector.objects.keys() == wanted and not api.steps, 30)
        return reflector


@pytest.mark.parametrize("step", NONSENSE.values(), ids=NONSENSE.keys())
@in_loop
async def test_list_of_nonsense_is_asked_for_again(step, tmp_path):
    forget_peak()
    before = peak_kib()
    reflector = await followed(tmp_path, step, step, GOOD, wanted={WEB})

    assert reflector.state.failures >= 1
    assert peak_kib() - before < MOST_KIB


LINES = {
    "no JSON": b"{\n",
    "no event": b'{"type": 5, "object": []}\n',
    "deep": deep(100_000).encode() + b"\n",
    "no type": b'{"object": {}}\n',
    "error that is odd": b'{"type": "ERROR", "object": {"code": "x", "message": {"a": [[[]]]}}}\n',
    "error that is huge": b'{"type": "ERROR", "object": {"code": 410, "message": "%s"}}\n' % (b"x" * MIB),
    "a line without end": b"x" * (client_module.MAX_BODY_BYTES + MIB),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
@in_loop
async def test_stream_of_nonsense_is_left_and_asked_for_again(line, tmp_path):
    again = stream(event("ADDED", a_service("db", "12")))
    steps = [GOOD, stream(line)]
    changes = []
    async with an_api(tmp_path, *steps) as (api, client), Reflectors() as sources:
        reflector = Reflector(client, SERVICES, service, changes.append, pace=FAST)
        sources.start(reflector)
        await until(lambda: reflector.state.failures, 30)
        api.script(*([listing(a_service(), a_service("db"))] if "410" in str(line[:60]) else [again]))
        await until(lambda: DB in reflector.objects, 30)

        assert WEB in reflector.objects
        assert all(text.isprintable() and len(text) < 1000 for text in [reflector.state.lost])


HOSTILE = {
    "deep": '{"metadata": {"name": "bad", "managedFields": [%s]}}' % deep(5000),
    "number of 5,000 digits": '{"metadata": {"name": "bad"}, "spec": {"healthCheckNodePort": %s}}' % ("9" * 5000),
    "half a character": '{"metadata": {"name": "bad", "annotations": {"arpguard.io/owner": "\\ud800"}}}',
    "name that is none": '{"metadata": {"name": "\\u001b[2J", "namespace": "a\\nb"}}',
    "a megabyte": '{"metadata": {"name": "bad", "annotations": {"a": "%s"}}}' % ("x" * MIB),
    "a thousand addresses": '{"metadata": {"name": "bad"}, "spec": {"externalIPs": [%s]}}'
    % ",".join(f'"192.0.{n >> 8}.{n & 255}"' for n in range(1, 5000)),
    "not an object": '"bad"',
    "null": "null",
    "nothing": "{}",
    "constants": '{"metadata": {"name": "bad", "uid": NaN}, "spec": {"externalIPs": Infinity}}',
    "broken UTF-8": '{"metadata": {"name": "bad", "uid": "\udcff\udcfe"}}',
}


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE.keys())
@in_loop
async def test_hostile_object_hides_no_other_in_lists_and_streams(bad, tmp_path):
    good, data = json.dumps(a_service()), bad.encode("utf-8", "surrogateescape")
    both = a_list("BAD", good).encode().replace(b"BAD", data)
    lines = b'{"type": "ADDED", "object": %s}\n' % data if bad[0] == "{" else b""
    changes = []
    steps = says(both), stream(lines + event("ADDED", a_service("db", "12")))
    async with an_api(tmp_path, *steps) as (_, client), Reflectors() as sources:
        reflector = Reflector(client, SERVICES, service, changes.append, pace=FAST)
        sources.start(reflector)
        await until(lambda: {WEB, DB} <= reflector.objects.keys(), 30)

        assert reflector.state.failures == 0
