"""What the tests of the command line share: messages, and text that means harm."""

from arpguard.v1 import agent_pb2 as pb

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eback\u202c 名前名前 e\u0301 " + "long" * 60


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    assert all(line.isprintable() for line in lines), text
    return lines


VIP = pb.Vip(
    address="192.0.2.10",
    link="eth0",
    ifindex=2,
    kind=pb.KIND_OWNED,
    mode=pb.MODE_ENFORCE,
    owner="node-1",
    source="vips[0]",
    hold=True,
    answer_mac="02:00:00:00:00:01",
    reasons=[pb.ReasonCount(reason=pb.REASON_ANSWERED, enforced=5, observed=2)],
)
DECISION = pb.Decision(
    vip="192.0.2.10",
    link="eth0",
    hook=pb.HOOK_TC_INGRESS,
    verdict=pb.VERDICT_ANSWER,
    reason=pb.REASON_ANSWERED,
    mode=pb.MODE_ENFORCE,
    kind=pb.KIND_OWNED,
    op="request",
    sha="02:00:00:00:00:64",
    count=3,
)
