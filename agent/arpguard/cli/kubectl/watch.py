"""`kubectl arpguard watch`: the whole cluster on one screen, until q or Ctrl-C."""

import argparse
import asyncio
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from google.protobuf import json_format

from arpguard.cli import exits, screen
from arpguard.cli.exits import AskError
from arpguard.cli.kubectl.clusterview import view
from arpguard.cli.kubectl.moments import ClusterMoment, NodeMoment, merged, read
from arpguard.cli.kubectl.reach import ReachedAgents, finished, reached
from arpguard.cli.kubectl.streaming import NodeStreams, why_ended
from arpguard.errors import ArpguardError
from arpguard.kube.errors import ClusterError
from arpguard.kube.pods import AgentPod, read_agent_pods

_ASKED = "no answer yet"
_SENSELESS = "its agent's answer is not valid: is the agent of another version?"
_OLDER = "its agent is of an older version, which has no `arpguard watch -o json`"
_LATE = 3  # intervals without a word
_LOOK_S = 0.2
_PODS_S = 10.0  # how soon a new node is on the screen
_PARTING_S = 2.0


def watch(options: argparse.Namespace) -> int:
    """`kubectl arpguard watch`. AskError when no agent can be asked at first."""
    screen.need_terminal("`kubectl arpguard status` and `kubectl arpguard decisions --follow` need none")
    watcher = Watcher(options)
    watcher.start()
    try:
        watcher.wait()
        screen.show(watcher.latest, view)
    finally:
        watcher.end()
    return exits.OK


@dataclass(slots=True)
class Moments(NodeStreams):
    """The latest document of each node."""

    interval_s: float
    nodes: dict[str, NodeMoment] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    changes: int = 0
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def keep_all(self, pods: Sequence[AgentPod]) -> None:
        """Asks the nodes that are new, and forgets those that are gone."""
        named = {pod.node: pod for pod in pods}
        for node, pod in named.items():
            if node not in self._tasks:
                self.lost[node] = _ASKED
                self._tasks[node] = asyncio.create_task(self.keep(pod))
        for node in self._tasks.keys() - named.keys():
            self._tasks.pop(node).cancel()
            self.nodes.pop(node, None)
            self.lost.pop(node, None)
        self.changes += 1

    def end(self) -> None:
        """Asks no more."""
        for task in self._tasks.values():
            task.cancel()

    def check(self) -> None:
        """Raises the error that ends a stream for good: this user lacks the right."""
        for task in self._tasks.values():
            if task.done():
                task.result()

    async def stream(self, pod: AgentPod) -> str:
        """Follows until the stream ends; why it did."""
        words = ["watch", "--output=json", f"--interval={self.interval_s:g}"]
        late_s = max(_LATE * self.interval_s, self.cluster.timeout_s)

        def take(line: bytes) -> None:
            limit.reschedule(asyncio.get_running_loop().time() + late_s)
            self.nodes[pod.node] = read(json.loads(line), time.monotonic())
            self.lost.pop(pod.node, None)
            self.changes += 1

        try:
            async with asyncio.timeout(late_s) as limit:
                ended = await self.lines(pod, words, take)
        except TimeoutError:
            return f"nothing heard for {late_s:g} s: is the node up?"
        except AskError as error:
            return str(error)
        except (json_format.ParseError, KeyError, TypeError, ValueError):
            return _SENSELESS
        return _OLDER if ended.exit_code == exits.USAGE else why_ended(ended)

    def lose(self, node: str, why: str) -> None:
        """Forgets what the node said."""
        self.lost[node] = why
        self.changes += 1

    def ask_again(self, node: str) -> None:
        """The node stays lost until it says something."""


class Watcher(threading.Thread):
    """Follows the nodes, so that the screen never waits for them."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self._latest = ClusterMoment()
        self._options = options
        self._begun = threading.Event()
        self._ending = threading.Event()
        self._error: ArpguardError | None = None

    def run(self) -> None:
        """Until `end`."""
        try:
            finished(self._follow())
        except ArpguardError as error:
            self._error = error
        finally:
            self._begun.set()

    def wait(self) -> None:
        """Until the agents are known. Raises AskError where they cannot be."""
        self._begun.wait()
        self.latest()

    def latest(self) -> ClusterMoment:
        """What the nodes say. Raises AskError once the API server refuses."""
        if self._error is not None:
            raise self._error
        return self._latest

    def end(self) -> None:
        """Ends the streams, as far as they do so soon."""
        self._ending.set()
        self.join(_PARTING_S)

    async def _follow(self) -> None:
        async with reached(self._options) as cluster:
            moments, read_s = Moments(cluster, self._options.interval), time.monotonic()
            moments.keep_all(cluster.pods)
            while not self._ending.is_set():
                moments.check()
                if self._latest.number != moments.changes:
                    self._latest = merged(moments.changes, moments.nodes, dict(moments.lost))
                self._begun.set()
                await asyncio.sleep(_LOOK_S)
                if time.monotonic() - read_s > _PODS_S:
                    read_s = time.monotonic()
                    moments.keep_all(await self._pods_now(cluster))
            moments.end()

    async def _pods_now(self, cluster: ReachedAgents) -> Sequence[AgentPod]:
        """The Pods of the nodes that are asked for, or the same ones while the API server does not say."""
        try:
            pods = await read_agent_pods(cluster.client, cluster.namespace)
        except ClusterError:
            return cluster.pods
        cluster.pods = [pod for pod in pods if not self._options.node or pod.node in self._options.node]
        return cluster.pods
