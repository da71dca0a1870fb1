"""`kubectl arpguard decisions --follow`: the decisions of all nodes as they come, in the order of time."""

import argparse
import asyncio
import heapq
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from google.protobuf import json_format

from arpguard.cli import documents, exits, render
from arpguard.cli.exits import AskError
from arpguard.cli.kubectl.asking import forwarded
from arpguard.cli.kubectl.reach import finished, reached
from arpguard.cli.kubectl.streaming import AGAIN_S, NodeStreams, why_ended
from arpguard.cli.options import DEFAULT_PAST
from arpguard.cli.tables import DecisionLines
from arpguard.cli.words import counted
from arpguard.kube.pods import AgentPod
from arpguard.v1 import agent_pb2 as pb

HELD_S = 1.0  # how much later than another node's a decision may arrive and still be shown before it
_LOOK_S = 0.1


class Merge:
    """The nodes' messages in the order of their times; each waits for HELD_S for those of other nodes."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, float, str, pb.WatchDecisionsResponse]] = []
        self._numbers = count()

    def take(self, node: str, message: pb.WatchDecisionsResponse, now_s: float) -> None:
        """Takes a message that has just arrived. One without a decision, which only counts lost ones, is not held."""
        at_ns = message.decision.last_time.ToNanoseconds() if message.HasField("decision") else 0
        heapq.heappush(self._waiting, (at_ns, next(self._numbers), now_s, node, message))

    def due(self, now_s: float) -> Iterator[tuple[str, pb.WatchDecisionsResponse]]:
        """Those that have waited long enough, with all that are older."""
        late = [at_ns for at_ns, _, taken_s, _, _ in self._waiting if now_s - taken_s >= HELD_S]
        while self._waiting and late and self._waiting[0][0] <= max(late):
            _, _, _, node, message = heapq.heappop(self._waiting)
            yield node, message


@dataclass(slots=True)
class Follower(NodeStreams):
    """Streams of decisions."""

    options: argparse.Namespace
    merge: Merge = field(default_factory=Merge)
    heard_s: dict[str, float] = field(default_factory=dict)  # when each node's stream opened, or last said something
    lost: set[str] = field(default_factory=set)  # those without a stream now
    told: dict[str, str] = field(default_factory=dict)  # why each was lost last

    async def follow(self, show: Callable[[str, pb.WatchDecisionsResponse], None]) -> None:
        """Until it is interrupted. AskError when no node can be followed at first."""
        streams = [asyncio.create_task(self.keep(pod)) for pod in self.cluster.pods]

        try:
            while True:
                for node, message in self.merge.due(time.monotonic()):
                    show(node, message)
                for stream in streams:
                    if stream.done():
                        stream.result()
                if not self.heard_s and len(self.lost) == len(streams):
                    raise AskError(exits.UNREACHABLE, "no node's decisions can be followed")
                await asyncio.sleep(_LOOK_S)
        finally:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)

    def lose(self, node: str, why: str) -> None:
        """Says why, once and not each time."""
        self.lost.add(node)
        if self.told.get(node) != why:
            self.told[node] = why
            sys.stderr.write(render.clean(f"{node}: {why}; retrying every {AGAIN_S:g} s") + "\n")

    def ask_again(self, node: str) -> None:
        """The node is not lost, unless this stream ends, too."""
        self.lost.discard(node)

    async def stream(self, pod: AgentPod) -> str:
        """Follows until the stream ends; returns why it did.

        An API server opens the websocket before it has reached the kubelet, and an agent without decisions says
        nothing. So a stream counts as open once it has said something, or has lasted as long as an answer may take.
        """
        words = ["decisions", "--follow", "--output=json", *self._filters(pod.node)]

        def take(line: bytes) -> None:
            self.heard_s[pod.node] = time.monotonic()
            message = json_format.Parse(line, pb.WatchDecisionsResponse(), ignore_unknown_fields=True)
            self.merge.take(pod.node, message, time.monotonic())

        loop = asyncio.get_running_loop()
        opening = loop.call_later(self.cluster.timeout_s, self.heard_s.setdefault, pod.node, time.monotonic())
        try:
            ended = await self.lines(pod, words, take)
        except (AskError, json_format.ParseError) as error:
            return str(error)
        finally:
            opening.cancel()
        if ended.exit_code == exits.USAGE:
            raise AskError(exits.USAGE, ended.stderr.strip())
        return why_ended(ended)

    def _filters(self, node: str) -> Iterator[str]:
        """Makes a node that was lost send all decisions since it was last heard."""
        yield from forwarded(self.options, "vip", "link", "verdict", "reason")
        if node in self.heard_s:
            yield f"--since={time.monotonic() - self.heard_s[node]:.3f}s"
        else:
            yield f"--limit={self.options.limit or DEFAULT_PAST}"


class Printer:
    """A line for each decision, with the node in front; or a document."""

    def __init__(self, form: str, nodes: list[str]) -> None:
        self._form = form
        self._width = max(len("NODE"), *map(len, nodes))
        self._lines = DecisionLines()
        if form == "table":
            print(f"{render.strong('NODE'.ljust(self._width))}  {self._lines.head()}", flush=True)

    def show(self, node: str, message: pb.WatchDecisionsResponse) -> None:
        """Prints a message."""
        if self._form == "table":
            name = render.clean(node).ljust(self._width)
            for line in self._lines.text(message).splitlines():
                print(f"{name}  {line}", flush=True)
        else:
            print(documents.stream_document({"node": node, **documents.as_dict(message)}, self._form), flush=True)


def follow(options: argparse.Namespace) -> int:
    """Runs until it is interrupted."""

    async def work() -> None:
        async with reached(options) as cluster:
            printer = Printer(options.output, [pod.node for pod in cluster.pods])
            sys.stderr.write(f"following {counted(len(cluster.pods), 'node')}; Ctrl-C to stop\n")
            await Follower(cluster, options).follow(printer.show)

    finished(work())
    return exits.OK
