"""`kubectl arpguard mode`: switches the cluster between observe and enforce, and checks that every node follows."""

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Sequence

from arpguard.cli import exits, render, tables
from arpguard.cli.everywhere import NodeAnswer
from arpguard.cli.exits import AskError
from arpguard.cli.kubectl.reach import ReachedAgents, answer_of, finished, reached
from arpguard.cli.words import counted
from arpguard.config.files import parse_config
from arpguard.config.model import CONFIG_KEY
from arpguard.errors import ConfigError
from arpguard.kube.client import Client
from arpguard.kube.errors import ConflictError, JsonObject
from arpguard.kube.resources import CONFIG_MAPS, Request
from arpguard.v1 import agent_pb2 as pb

_NAME = "arpguard"
_LINE = re.compile(r"^mode:[ \t]*[^\s#]*", re.MULTILINE)
_TRIES = 3
_LOOK_S = 1.0
_MODES = {"observe": pb.MODE_OBSERVE, "enforce": pb.MODE_ENFORCE}
_OWNERS = {"Helm": "`helm upgrade` restores the mode in the chart's values: set config.mode there too"}


def run_mode(options: argparse.Namespace) -> int:
    """Exit code 1 when a node has not followed in time."""

    async def work() -> list[NodeAnswer[pb.GetStatusResponse]]:
        async with reached(options) as cluster:
            await _switch(cluster.client, options.namespace, options.mode)
            return await _wait(cluster, options)

    heard = finished(work())
    print(_page(heard, options.mode))
    late = [each for each in heard if not _has_followed(each, options.mode)]
    if not late:
        return exits.OK
    verdict = f"not in mode {options.mode}: {len(late)} of {counted(len(heard), 'node')}"
    print(f"\n{render.bad(verdict)}")
    return exits.NOT_RIGHT


async def _switch(client: Client, namespace: str, mode: str) -> None:
    """Writes the mode into the ConfigMap, unless it is there; says which tool may revert it. Raises ClusterError."""
    for _ in range(_TRIES):
        found = (await client.call(Request("get", CONFIG_MAPS, namespace, _NAME))).body
        before = _text(found, namespace)
        after = _edited(before, mode, f"ConfigMap {namespace}/{_NAME}")
        if after == before:
            sys.stderr.write(f"ConfigMap {namespace}/{_NAME} already says mode: {mode}\n")
            return

        found["data"][CONFIG_KEY] = after
        try:
            await client.call(Request("update", CONFIG_MAPS, namespace, _NAME, body=found))
        except ConflictError:
            continue
        manager = (found["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by", "")
        note = f"; {_OWNERS[manager]}" if manager in _OWNERS else ""
        sys.stderr.write(f"ConfigMap {namespace}/{_NAME} now says mode: {mode}{note}\n")
        return
    raise AskError(exits.UNREACHABLE, f"ConfigMap {namespace}/{_NAME} is being changed by someone else: try again")


def _text(found: JsonObject, namespace: str) -> str:
    text = (found.get("data") or {}).get(CONFIG_KEY)
    if not isinstance(text, str):
        raise AskError(exits.NOT_RIGHT, f"ConfigMap {namespace}/{_NAME} has no key {CONFIG_KEY}")
    return text


def _edited(text: str, mode: str, source: str) -> str:
    """The configuration in another mode, and still valid.

    Raises ConfigError for mistakes that are in it already, and AskError where a line for the mode is not enough.
    """
    edited = with_mode(text, mode)
    try:
        parse_config(edited, source)
    except ConfigError:
        parse_config(text, source)
        why = f"cannot change `mode` in {source} without rewriting the rest: put `mode: ...` on a line of its own"
        raise AskError(exits.USAGE, why) from None
    return edited


def with_mode(text: str, mode: str) -> str:
    """The configuration in another mode, and otherwise as it was written, comments too."""
    if _LINE.search(text):
        return _LINE.sub(f"mode: {mode}", text, count=1)
    return f"mode: {mode}\n{text}"


async def _wait(cluster: ReachedAgents, options: argparse.Namespace) -> list[NodeAnswer[pb.GetStatusResponse]]:
    """What the nodes say once all have followed, or time is up."""
    deadline_s = time.monotonic() + options.timeout
    while True:
        said = await cluster.run(["status", "--output=json"])
        heard = [answer_of(each, pb.GetStatusResponse) for each in said]
        if all(_has_followed(each, options.mode) for each in heard) or time.monotonic() >= deadline_s:
            return heard
        await asyncio.sleep(_LOOK_S)


def _has_followed(heard: NodeAnswer[pb.GetStatusResponse], mode: str) -> bool:
    return heard.answer is not None and heard.answer.mode == _MODES[mode]


def _page(heard: Sequence[NodeAnswer[pb.GetStatusResponse]], mode: str) -> str:
    rows = [
        (
            each.node,
            tables.mode(each.answer) if each.answer is not None else render.bad("-"),
            render.good("yes") if _has_followed(each, mode) else render.bad("no"),
            _why(each),
        )
        for each in heard
    ]
    return render.table(("NODE", "MODE", "SWITCHED", "WHY"), rows, yielding="WHY")


def _why(heard: NodeAnswer[pb.GetStatusResponse]) -> str:
    """Why a node may not have followed: it does not answer, or it cannot apply the configuration."""
    if heard.answer is None:
        return heard.error
    return "; ".join(heard.answer.config.problems) or "-"
