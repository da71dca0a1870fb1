"""The agents of a cluster: runs `arpguard` in the Pods of all nodes at the same time, which writes JSON."""

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from arpguard.cli import everywhere, exits
from arpguard.cli.everywhere import NodeAnswer, View
from arpguard.cli.exits import AskError
from arpguard.core.bounding import some
from arpguard.kube.client import MAX_BODY_BYTES, Client
from arpguard.kube.connecting import find_users_access
from arpguard.kube.errors import ClusterError, ForbiddenError, UnauthorizedError
from arpguard.kube.execing import Ended, PodCommand, execute
from arpguard.kube.pods import CONTAINER, AgentPod, read_agent_pods

Answer = TypeVar("Answer", bound=Message)
T = TypeVar("T")

# What a kube-apiserver says of a kubelet to which it has no connection.
_DIALED = re.compile(r'Internal error occurred: error (?:sending request: Post "[^"]*"|dialing backend): (dial .*)')
_AT_ONCE = 30  # a connection each; the client has 32
_RIGHTS = "docs/kubectl.md lists the rights that you need"


@dataclass(frozen=True, slots=True)
class Said:
    """The result of a command on one node: what it wrote, or (`error`) why it wrote nothing.

    `has_run`: False where it could not be run, or wrote nothing in time.
    """

    pod: AgentPod
    text: str = ""
    error: str = ""
    exit_code: int = exits.OK
    has_run: bool = True


class ReachedAgents:
    """The agents' Pods, and the connection to the API server."""

    def __init__(self, client: Client, options: argparse.Namespace, pods: Sequence[AgentPod]) -> None:
        self.client = client
        self.namespace: str = options.namespace
        self.pods = pods
        self.timeout_s: float = options.timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self, words: Sequence[str]) -> list[Said]:
        """`arpguard WORDS` on all nodes; what they said, by node.

        Ctrl-C ends it early; a node that has not answered by then has that as its error. Raises ForbiddenError or
        UnauthorizedError if the API server refuses this user.
        """
        progress = Progress(pod.node for pod in self.pods)
        tasks = [asyncio.create_task(self._run_and_tell(pod, words, progress)) for pod in self.pods]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        finally:
            progress.end()

        refusals = [refusal for task in tasks if not task.cancelled() and (refusal := task.exception())]
        if refusals:  # asyncio prints every exception that was not retrieved, so all of them are
            raise refusals[0]
        return [
            Said(pod, error="interrupted before it answered", exit_code=exits.UNREACHABLE)
            if task.cancelled()
            else task.result()
            for pod, task in zip(self.pods, tasks, strict=True)
        ]

    async def _run_and_tell(self, pod: AgentPod, words: Sequence[str], progress: "Progress") -> Said:
        said = await self.run_in(pod, ("arpguard", *words))
        progress.heard(pod.node)
        return said

    async def run_in(self, pod: AgentPod, words: Sequence[str]) -> Said:
        """A command on one node."""
        async with self._turns:
            return await self._run_in(pod, words)

    async def _run_in(self, pod: AgentPod, words: Sequence[str]) -> Said:
        out = bytearray()

        def take(data: bytes) -> None:
            out.extend(data)
            if len(out) > MAX_BODY_BYTES:
                raise AskError(exits.UNREACHABLE, f"its agent's answer has more than {MAX_BODY_BYTES} bytes")

        try:
            async with asyncio.timeout(self.timeout_s):
                ended = await self.stream(pod, words, take)
        except TimeoutError:
            why = f"no answer within {self.timeout_s:g} s: is the node up? To wait longer, give --timeout"
            return Said(pod, error=why, exit_code=exits.UNREACHABLE, has_run=bool(out))
        except AskError as error:
            return Said(pod, error=str(error), exit_code=error.exit_code, has_run=bool(out))
        text = out.decode(errors="replace")
        return Said(pod, text, "" if text else _reason(ended), ended.exit_code)

    async def stream(self, pod: AgentPod, words: Sequence[str], take: Callable[[bytes], None]) -> Ended:
        """The same, piece by piece and without a time limit. Raises AskError when the command cannot be run."""
        if pod.trouble:
            raise AskError(exits.UNREACHABLE, f"its Pod {pod.name} {pod.trouble}")
        command = PodCommand(self.namespace, pod.name, CONTAINER, words)
        try:
            return await execute(self.client, command, take)
        except (ForbiddenError, UnauthorizedError):  # of this user, whatever the node
            raise
        except ClusterError as error:
            raise AskError(exits.UNREACHABLE, _why_not(pod, error.failure.text)) from error


def _why_not(pod: AgentPod, text: str) -> str:
    """Why nothing could be run in a Pod."""
    dialed = _DIALED.fullmatch(text)
    if dialed:
        return f"the API server cannot reach its kubelet: {dialed[1]}"
    return f"cannot run a command in its Pod {pod.name}: {text}"


def _reason(ended: Ended) -> str:
    """The last line that the command wrote to standard error, without its own name."""
    lines = ended.stderr.strip().splitlines() or [f"exit code {ended.exit_code}, no output"]
    head, colon, rest = lines[-1].partition(": ")
    return rest if colon and head.startswith("arpguard ") else lines[-1]


class Progress:
    """A line on a terminal that says how many nodes have answered and which have not; nothing elsewhere."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._waiting = list(nodes)
        self._total = len(self._waiting)
        self._is_shown = sys.stderr.isatty()
        self._show()

    def heard(self, node: str) -> None:
        """A node has answered, or will not."""
        self._waiting.remove(node)
        self._show()

    def end(self) -> None:
        """Takes the line away."""
        self._write("")

    def _show(self) -> None:
        if self._waiting:
            done = self._total - len(self._waiting)
            self._write(f"{done} of {self._total} nodes have answered, waiting for {some(self._waiting, 3)}")

    def _write(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


@asynccontextmanager
async def reached(options: argparse.Namespace) -> AsyncIterator[ReachedAgents]:
    """The agents that the options name. AskError when there is none."""
    access = await find_users_access(options.kubeconfig, options.context)
    async with aclosing(Client(access, "kubectl")) as client:
        pods = await read_agent_pods(client, options.namespace)
        if not pods:
            why = f"no agent in the namespace {options.namespace}: name the DaemonSet's namespace with --namespace"
            raise AskError(exits.UNREACHABLE, why)
        unknown = sorted(set(options.node) - {pod.node for pod in pods})
        if unknown:
            raise AskError(exits.USAGE, f"--node: no agent on {some(unknown)}; agents run on {_names(pods)}")
        yield ReachedAgents(client, options, [pod for pod in pods if not options.node or pod.node in options.node])


def _names(pods: Iterable[AgentPod]) -> str:
    return some([pod.node for pod in pods])


def finished(work: Coroutine[object, object, T]) -> T:
    """Runs it to its end. AskError if the API server refuses or fails."""
    try:
        return asyncio.run(work)
    except (ForbiddenError, UnauthorizedError) as error:
        raise AskError(exits.UNREACHABLE, f"{error} ({_RIGHTS})") from error
    except ClusterError as error:
        raise AskError(exits.UNREACHABLE, str(error)) from error


def hear(options: argparse.Namespace, words: Sequence[str]) -> list[Said]:
    """What `arpguard WORDS` says on all nodes, by node. AskError where no agent can be asked."""

    async def work() -> list[Said]:
        async with reached(options) as cluster:
            return await cluster.run(words)

    return finished(work())


def show(options: argparse.Namespace, words: Sequence[str], kind: type[Answer], view: View[Answer]) -> int:
    """Prints what `arpguard WORDS` says on all nodes; gives the exit code. AskError where no agent can be asked.

    A part of the answers is useful: exit code 3 only where no node was reached. A node counts as reached if its agent
    refuses with NOT_RIGHT, as it does for a VIP that it does not guard.
    """
    heard = _ask(options, words, kind)
    right = everywhere.print_all(options, heard, view)
    silent = [each for each in heard if each.answer is None]
    away = [each for each in silent if each.exit_code != exits.NOT_RIGHT]
    if len(away) == len(heard):
        return exits.UNREACHABLE
    return exits.OK if right and not away and len(silent) < len(heard) else exits.NOT_RIGHT


def _ask(options: argparse.Namespace, words: Sequence[str], kind: type[Answer]) -> list[NodeAnswer[Answer]]:
    """All nodes' answers, by node."""
    heard = [answer_of(said, kind) for said in hear(options, [words[0], "--output=json", *words[1:]])]
    if all(each.exit_code == exits.USAGE for each in heard):  # every node says the same
        raise AskError(exits.USAGE, heard[0].error)
    return heard


def answer_of(said: Said, kind: type[Answer]) -> NodeAnswer[Answer]:
    """A node's answer as a message. An agent of another version may know fields that this program does not."""
    node, pod = said.pod.node, said.pod.name
    if said.error:
        return NodeAnswer(node, pod, None, said.error, said.exit_code)
    try:
        return NodeAnswer(node, pod, json_format.Parse(said.text, kind(), ignore_unknown_fields=True))
    except json_format.ParseError as error:
        return NodeAnswer(node, pod, None, f"its agent's answer is not valid: {error}", exits.UNREACHABLE)
