"""`kubectl arpguard decisions --follow`: the order in which messages of several nodes are shown."""

import asyncio
from argparse import Namespace
from contextlib import suppress

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli.exits import UNREACHABLE, AskError
from arpguard.cli.kubectl import following, streaming
from arpguard.cli.kubectl.following import HELD_S, Follower, Merge
from arpguard.cli.kubectl.streaming import Lines
from arpguard.kube.errors import Failure, UnavailableError
from arpguard.kube.pods import AgentPod
from arpguard.v1 import agent_pb2 as pb
from support.kube.scripted_server import in_loop, until

OPTIONS = Namespace(vip="", link="", verdict="", reason="", limit=None, since=None)
GONE = AskError(UNREACHABLE, "its Pod is gone")
PODS = (AgentPod("node-1", "one"), AgentPod("node-2", "two"))


def told(seconds: int) -> pb.WatchDecisionsResponse:
    return pb.WatchDecisionsResponse(decision=pb.Decision(last_time=Timestamp(seconds=seconds)))


def nodes(merge: Merge, now_s: float) -> list[str]:
    return [node for node, _ in merge.due(now_s)]


def test_decisions_of_several_nodes_come_in_the_order_of_time():
    merge = Merge()
    merge.take("node-1", told(20), now_s=0)
    merge.take("node-2", told(10), now_s=0.5)
    merge.take("node-3", told(30), now_s=0.6)

    assert nodes(merge, 0.9) == []
    assert nodes(merge, HELD_S) == ["node-2", "node-1"]
    assert nodes(merge, HELD_S + 0.5) == []
    assert nodes(merge, HELD_S + 0.6) == ["node-3"]


def test_decisions_of_one_moment_come_as_they_arrived():
    merge = Merge()
    for node in ("node-3", "node-1", "node-2"):
        merge.take(node, told(10), now_s=0)

    assert nodes(merge, HELD_S) == ["node-3", "node-1", "node-2"]


def test_word_of_lost_decisions_is_not_held_behind_others():
    merge = Merge()
    merge.take("node-1", told(10), now_s=0)
    merge.take("node-2", pb.WatchDecisionsResponse(lost=3), now_s=0.2)

    assert nodes(merge, HELD_S) == ["node-2", "node-1"]


def test_lines_are_put_together_from_pieces_of_any_size():
    lines = Lines()
    assert [lines.take(piece) for piece in (b"ab", b"c\nd", b"e\n\nf\n", b"g")] == [[], [b"abc"], [b"de", b"f"], []]


# ---- streams that end --------------------------------------------------------------------------------------------


class Streams:
    """Agents whose streams do what a test says: `plan[node]` are coroutine functions, one for each time it is asked."""

    client, namespace = None, "arpguard"

    def __init__(self, timeout_s: float = 3600, **plan) -> None:
        self.timeout_s = timeout_s
        self.asked: list[tuple[AgentPod, list[str]]] = []
        self._plan = {node.replace("_", "-"): iter(each) for node, each in plan.items()}
        self.pods = [pod for pod in PODS if pod.node in self._plan]

    async def stream(self, pod, words, take):
        self.asked.append((pod, words))
        await next(self._plan[pod.node])(take)
        raise GONE


async def forever(_take) -> None:
    await asyncio.Event().wait()


async def ends(_take) -> None:
    pass


def sets(event: asyncio.Event):
    async def stream(_take) -> None:
        event.set()
        await forever(_take)

    return stream


@pytest.fixture
def pods(monkeypatch):
    """How the Pods are read again, at once."""
    monkeypatch.setattr(streaming, "AGAIN_S", 0)

    def set_to(read):
        monkeypatch.setattr(streaming, "read_agent_pods", read)

    async def same(_client, _namespace):
        return PODS

    set_to(same)
    return set_to


class Looks(Merge):
    """Tells that the follower has looked who is lost, which it does whenever it has shown what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.looked = asyncio.Event()

    def due(self, now_s: float):
        self.looked.set()
        return super().due(now_s)


async def followed(follower: Follower, event: asyncio.Event) -> None:
    """Follows until something has happened, or following has ended by itself."""
    task = asyncio.create_task(follower.follow(lambda _node, _message: None))
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if task.done():
        task.result()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@in_loop
async def test_api_server_that_is_away_while_pods_are_read_ends_nothing(pods):
    again = asyncio.Event()

    async def one_decision(take) -> None:
        take(b"{}\n")

    async def away(_client, _namespace):
        raise UnavailableError(Failure("list", "pods", 0, "connection refused"))

    pods(away)
    cluster = Streams(node_1=[one_decision, sets(again)])
    await followed(Follower(cluster, OPTIONS), again)

    assert [pod.name for pod, _ in cluster.asked] == ["one", "one"]


@in_loop
async def test_quiet_node_whose_stream_was_open_is_not_one_that_cannot_be_followed(pods):
    """Nothing happened on it; what happens while it is lost must not be missed."""
    again = asyncio.Event()

    async def quiet(_take) -> None:
        await until(lambda: follower.heard_s)

    async def after_a_look(_client, _namespace):
        looks.looked.clear()
        await looks.looked.wait()
        return PODS

    pods(after_a_look)
    cluster, looks = Streams(0, node_1=[quiet, sets(again)]), Looks()
    follower = Follower(cluster, OPTIONS, looks)
    await followed(follower, again)

    first, second = (words[-1] for _, words in cluster.asked)
    assert (first, second.partition("=")[0]) == (f"--limit={following.DEFAULT_PAST}", "--since")


@in_loop
async def test_node_whose_stream_is_open_again_is_not_lost(pods):
    again, reading = asyncio.Event(), asyncio.Event()

    async def after_the_other(_take) -> None:
        await again.wait()

    async def read(_client, _namespace):
        if again.is_set():
            reading.set()
            await forever(None)
        return PODS

    pods(read)
    cluster = Streams(node_1=[ends, sets(again)], node_2=[after_the_other])
    follower = Follower(cluster, OPTIONS)
    await followed(follower, reading)

    assert follower.lost == {"node-2"}
