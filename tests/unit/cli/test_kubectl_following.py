"""`kubectl arpguard decisions --follow`: the order in which messages of several nodes are shown."""

from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli.kubectl.following import HELD_S, Lines, Merge
from arpguard.v1 import agent_pb2 as pb


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
