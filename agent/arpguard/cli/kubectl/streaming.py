"""A command that runs on all nodes at once and keeps writing: its lines, from streams that are opened again."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arpguard.cli.kubectl.reach import ReachedAgents
from arpguard.kube.errors import ClusterError
from arpguard.kube.execing import Ended
from arpguard.kube.pods import AgentPod, read_agent_pods

AGAIN_S = 5.0


@dataclass(slots=True)
class Lines:
    """Pieces of a stream, put together to lines."""

    rest: bytes = b""

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self.rest = (self.rest + piece).split(b"\n")
        return [line for line in lines if line]


@dataclass(slots=True)
class NodeStreams(ABC):
    """Streams of nodes; a subclass says what they carry."""

    cluster: ReachedAgents

    async def keep(self, pod: AgentPod) -> None:
        """One node's stream; one that ends is opened again, in the Pod that the node has then."""
        while True:
            why = await self.stream(pod)
            self.lose(pod.node, why)
            await asyncio.sleep(AGAIN_S)
            pod = await self._pod_now(pod)
            self.ask_again(pod.node)

    @abstractmethod
    async def stream(self, pod: AgentPod) -> str:
        """Follows until the stream ends; gives why it did."""

    @abstractmethod
    def lose(self, node: str, why: str) -> None:
        """A node's stream has ended."""

    @abstractmethod
    def ask_again(self, node: str) -> None:
        """It is about to be opened again."""

    async def lines(self, pod: AgentPod, words: Sequence[str], take: Callable[[bytes], None]) -> Ended:
        """Runs a command of the agent, and hands over each line. Raises AskError when it cannot be run."""
        lines = Lines()

        def take_piece(piece: bytes) -> None:
            for line in lines.take(piece):
                take(line)

        return await self.cluster.stream(pod, ["arpguard", *words], take_piece)

    async def _pod_now(self, pod: AgentPod) -> AgentPod:
        """The Pod that the node has by now, or the same one while the API server does not say."""
        try:
            pods = await read_agent_pods(self.cluster.client, self.cluster.namespace)
        except ClusterError:
            return pod
        return next((each for each in pods if each.node == pod.node), pod)


def why_ended(ended: Ended) -> str:
    """The last line that a command wrote to standard error."""
    return ended.stderr.strip().rpartition("\n")[2] or "the stream ended"
