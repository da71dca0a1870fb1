"""The live view of a cluster: what nodes say put together, streams that end or are silent, and what fits the screen."""

import asyncio
import json
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from rich.cells import cell_len
from rich.console import Console

from arpguard.cli import documents
from arpguard.cli.kubectl import streaming
from arpguard.cli.kubectl.clusterview import view
from arpguard.cli.kubectl.moments import merged, read
from arpguard.cli.kubectl.watch import Moments
from arpguard.cli.watchkeys import Keys
from arpguard.kube.errors import Failure, ForbiddenError
from arpguard.kube.execing import Ended
from arpguard.kube.pods import AgentPod
from arpguard.v1 import agent_pb2 as pb
from support.cli import HOSTILE, lines_of
from support.kube.scripted_server import in_loop, until

SIZES = [(80, 24), (120, 40), (60, 12), (40, 8), (200, 60)]
PODS = (AgentPod("node-1", "one"), AgentPod("node-2", "two"))
CLAIM = pb.Conflict(vip="192.0.2.10", mac="02:00:00:00:00:99", reason=pb.REASON_CONFLICT)


def a_document(node, owned=(), foreign=(), mode=pb.MODE_ENFORCE, problems=(), *, claims=(), text="eth0"):
    """What `arpguard watch -o json` writes on a node."""
    status = pb.GetStatusResponse(node=node, mode=mode, problems=problems, version=text)
    vips = [(address, pb.KIND_OWNED) for address in owned] + [(address, pb.KIND_FOREIGN) for address in foreign]
    return {
        "status": documents.as_dict(status),
        "framesPerSecond": 7.0,
        "vips": [
            {
                "vip": documents.as_dict(pb.Vip(address=address, kind=kind, mode=mode, link=text, owner=text)),
                "frames": 10,
                "framesPerSecond": 2.5,
            }
            for address, kind in vips
        ],
        "conflicts": list(map(documents.as_dict, claims)),
    }


def a_moment(*documents, lost=None):
    """What is known by these documents, of nodes that are named in them."""
    nodes = {each["status"]["node"]: read(json.loads(json.dumps(each)), time.monotonic()) for each in documents}
    return merged(1, nodes, lost or {})


def drawn(moment, width=120, height=40, keys=None):
    console = Console(width=width, height=height, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(view(moment, width, height, keys or Keys()))
    return [line.rstrip() for line in lines_of(captured.get().removesuffix("\n"))]


def row(lines, first):
    (found,) = (line for line in lines if re.match(rf"{re.escape(first)}(  |$)", line))
    return re.split(r"  +", found)


# ---- what nodes say, put together ----------------------------------------------------------------------------------


def test_vip_is_one_line_with_the_node_that_answers_for_it_and_the_frames_of_all():
    lines = drawn(a_moment(a_document("node-1", ["192.0.2.10"]), a_document("node-2", foreign=["192.0.2.10"])))

    assert row(lines, "192.0.2.10")[2:6] == ["node-1", "enforce", "5", "20"]
    assert lines[0] == "2 nodes   2 enforce   1 VIP   14 frames/s   no problems"


def test_page_shows_the_lines_of_the_view():
    """docs/kubectl.md, whose numbers are those of an example: sentence, titles of both tables, and the last line."""
    page = (Path(__file__).resolve().parents[3] / "docs/kubectl.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(\d+ nodes .*?)^```", page, re.MULTILINE | re.DOTALL)
    documents = a_document("node-1", ["192.0.2.10"]), a_document("node-2", ["192.0.2.11"], foreign=["192.0.2.12"])
    lines = drawn(a_moment(*documents, lost={"node-3": "away"}), width=80)

    def form(these):
        return [
            re.sub(r"[\d.]+", "1", line).split() for line in these if re.match(r"\d+ nodes|NODE |VIP |q quit", line)
        ]

    assert form(shown.splitlines()) == form(lines)


def test_two_nodes_that_answer_are_both_named():
    lines = drawn(a_moment(a_document("node-1", ["192.0.2.10"]), a_document("node-2", ["192.0.2.10"])))

    assert row(lines, "192.0.2.10")[2] == "node-1, node-2"


def test_vip_that_nobody_answers_for_says_so_unless_a_node_is_not_heard():
    document = a_document("node-1", foreign=["192.0.2.10"])

    assert row(drawn(a_moment(document)), "192.0.2.10")[2] == "nobody"
    assert row(drawn(a_moment(document, lost={"node-2": "away"})), "192.0.2.10")[2] == "not known"


def test_node_that_is_lost_counts_no_more_and_is_named_with_the_reason():
    documents = a_document("node-1", foreign=["192.0.2.10"]), a_document("node-2", ["192.0.2.10"], problems=["old"])
    lines = drawn(a_moment(*documents, lost={"node-2": "no route to host"}))

    assert lines[0] == "2 nodes   1 enforce   1 not answering   1 VIP   7 frames/s"
    assert lines[1] == "node-2: no route to host"
    assert not any("old" in line for line in lines)
    assert row(lines, "node-2")[:3] == ["node-2", "no answer", "-"]
    assert [line.split()[0] for line in lines if line.startswith("node-")][1:] == ["node-2", "node-1"], (
        "the worst first"
    )


def test_modes_that_differ_are_told():
    documents = a_document("node-1", ["192.0.2.10"]), a_document("node-2", [], ["192.0.2.10"], mode=pb.MODE_OBSERVE)
    lines = drawn(a_moment(*documents))

    assert lines[0].startswith("2 nodes   1 enforce   1 observe ")
    assert row(lines, "192.0.2.10")[3] == "observe+enforce"


def test_problem_of_several_nodes_is_one_line_and_what_has_no_room_is_counted():
    both = [a_document(node, problems=["shared", f"own of {node}"]) for node in ("node-1", "node-2")]
    assert drawn(a_moment(*both))[1:4] == [
        "node-1, node-2: shared",
        "node-1: own of node-1",
        "node-2: own of node-2",
    ]

    many = a_document("node-1", problems=[f"p{number}" for number in range(9)])
    assert drawn(a_moment(many), 80, 24)[4] == "and 6 more problems: kubectl arpguard status"


def test_claim_that_several_nodes_heard_is_one_line_with_the_latest_time():
    claims = [pb.Conflict(), pb.Conflict()]
    for claim, ago_s in zip(claims, (60, 5), strict=True):
        claim.CopyFrom(CLAIM)
        claim.last_time.CopyFrom(Timestamp(seconds=int(time.time()) - ago_s))
    moment = a_moment(a_document("node-1", claims=claims[:1]), a_document("node-2", claims=claims[1:]))

    (found,) = moment.claims
    assert (found.heard_by, found.claim) == (["node-1", "node-2"], claims[1])
    assert any("02:00:00:00:00:99" in line and line.endswith("node-1, node-2") for line in drawn(moment))


def test_needle_is_looked_for_in_vips_and_claims():
    document = a_document("node-1", ["192.0.2.10", "192.0.2.11"], claims=[CLAIM])
    keys = Keys().after("/2.11\r", 2)
    lines = drawn(a_moment(document), keys=keys)

    assert row(lines, "192.0.2.11")
    assert not [line for line in lines if line.startswith("192.0.2.10")]
    assert lines[-1] == "q quit, ? help | /2.11: 1 of 2 VIPs"


# ---- the screen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("text", ["eth0", HOSTILE], ids=["plain", "hostile"])
@pytest.mark.parametrize("typed", ["", "?", "/x", "s"], ids=["view", "help", "filter", "sort"])
def test_view_fits_the_screen(size, text, typed):
    width, height = size
    vips = [f"192.0.2.{number}" for number in range(60)]
    documents = [
        a_document(f"{text} {node}", vips, problems=[f"{number} {text}" for number in range(9)], claims=[CLAIM] * 9)
        for node in range(8)
    ]
    moment = a_moment(*documents, lost={f"away {text}": text})
    lines = drawn(moment, width, height, Keys().after(typed, len(moment.vips)))

    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_view_fills_the_screen(size):
    moment = a_moment(a_document("node-1", [f"192.0.2.{number}" for number in range(200)], claims=[CLAIM]))
    lines = drawn(moment, *size)
    shown = [line for line in lines if re.match(r"192\.0\.2\.\d+ +eth0", line)]

    assert len(lines) == size[1]
    assert lines[-1] == f"q quit, ? help | 1 to {len(shown)} of 200 VIPs, busiest first"
    assert len(shown) > size[1] // 2


def test_before_the_first_answer_nodes_are_there_already():
    lines = drawn(a_moment(lost={"node-1": "no answer yet"}))

    assert lines[:2] == ["1 node   1 not answering   0 VIPs   0 frames/s", "node-1: no answer yet"]


# ---- streams -------------------------------------------------------------------------------------------------------


class Cluster:
    """Agents whose streams do what a test says: `plan[node]` are coroutine functions, one for each time it is asked."""

    client, namespace = None, "arpguard"

    def __init__(self, timeout_s=3600, **plan):
        self.timeout_s = timeout_s
        self.asked = []
        self._plan = {node.replace("_", "-"): iter(each) for node, each in plan.items()}

    async def stream(self, pod, words, take):
        self.asked.append((pod.name, words))
        return await next(self._plan[pod.node])(take)


def says(*documents):
    """A stream that goes on after these."""

    async def stream(take):
        for each in documents:
            take(json.dumps(each).encode() + b"\n")
        await asyncio.Event().wait()

    return stream


def ends(code, words):
    async def stream(_take):
        return Ended(code, words)

    return stream


@pytest.fixture
def _at_once(monkeypatch):
    async def same(_client, _namespace):
        return PODS

    monkeypatch.setattr(streaming, "AGAIN_S", 0)
    monkeypatch.setattr(streaming, "read_agent_pods", same)


async def followed(cluster, condition, pods=PODS):
    """What is known once a condition holds of it."""
    moments = Moments(cluster, 0.1)
    moments.keep_all(pods)
    try:
        await until(lambda: condition(moments))
        moments.check()
    finally:
        with suppress(asyncio.CancelledError):
            moments.end()
    return moments


@in_loop
async def test_each_node_is_asked_for_documents():
    cluster = Cluster(node_1=[says(a_document("node-1"))], node_2=[says(a_document("node-2"))])
    moments = await followed(cluster, lambda moments: len(moments.nodes) == 2)

    assert moments.lost == {}
    assert cluster.asked[0] == ("one", ["arpguard", "watch", "--output=json", "--interval=0.1"])


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (ends(3, "arpguard watch: no agent listens\n"), "arpguard watch: no agent listens"),
        (
            ends(2, "arpguard watch: unknown option '--output'\nTry 'arpguard watch --help'.\n"),
            "its agent is of an older version",
        ),
        (says({"status": 1}), "its agent's answer is not valid"),
    ],
    ids=["ended", "an older agent", "senseless"],
)
@in_loop
async def test_node_whose_stream_ends_is_lost_with_the_reason(stream, why, monkeypatch):
    monkeypatch.setattr(streaming, "AGAIN_S", 3600)
    cluster = Cluster(node_1=[says(a_document("node-1"))], node_2=[stream])
    moments = await followed(cluster, lambda moments: moments.nodes and moments.lost.get("node-2") != "no answer yet")

    assert list(moments.lost) == ["node-2"]
    assert moments.lost["node-2"].startswith(why)


@in_loop
async def test_node_that_says_nothing_is_lost(monkeypatch):
    monkeypatch.setattr(streaming, "AGAIN_S", 3600)
    moments = await followed(
        Cluster(0, node_1=[says()]), lambda moments: "no answer yet" not in moments.lost.values(), PODS[:1]
    )

    assert moments.lost == {"node-1": "nothing heard for 0.3 s: is the node up?"}


@pytest.mark.usefixtures("_at_once")
@in_loop
async def test_node_that_is_lost_is_asked_again():
    cluster = Cluster(node_1=[ends(3, "gone"), says(a_document("node-1"))])
    moments = await followed(cluster, lambda moments: moments.nodes, PODS[:1])

    assert moments.lost == {}


@in_loop
async def test_node_that_is_new_is_asked_and_one_that_is_gone_is_forgotten():
    cluster = Cluster(node_1=[says(a_document("node-1"))], node_2=[says(a_document("node-2"))])
    moments = Moments(cluster, 0.1)
    moments.keep_all(PODS[:1])
    await until(lambda: "node-1" in moments.nodes)
    moments.keep_all(PODS[1:])
    await until(lambda: "node-2" in moments.nodes)
    moments.end()

    assert (list(moments.nodes), moments.lost) == (["node-2"], {})


@in_loop
async def test_refusal_by_the_api_server_ends_the_view():
    async def refused(_take):
        raise ForbiddenError(Failure("create", "pods/exec", 403, "may not"))

    cluster = Cluster(node_1=[refused], node_2=[says()])
    moments = Moments(cluster, 0.1)
    moments.keep_all(PODS)
    with pytest.raises(ForbiddenError):
        await until(moments.check)
    moments.end()
