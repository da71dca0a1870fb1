"""What the nodes of a cluster report at one moment, merged: each VIP once, each claim once, each problem once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from arpguard.cli.polling import VipRate
from arpguard.cli.words import problems
from arpguard.kube.errors import JsonObject
from arpguard.v1 import agent_pb2 as pb

_ANSWERING = {pb.KIND_OWNED, pb.KIND_DELEGATED}

AnyMessage = TypeVar("AnyMessage", bound=Message)


@dataclass(frozen=True, slots=True)
class NodeMoment:
    """A document of `arpguard watch` on a node; `heard_s`: when it came, by time.monotonic()."""

    status: pb.GetStatusResponse
    per_second: float
    vips: Sequence[VipRate]
    conflicts: Sequence[pb.Conflict]
    heard_s: float


def read(document: JsonObject, now_s: float) -> NodeMoment:
    """Raises KeyError, TypeError, ValueError or ParseError for anything else. A newer agent's fields are left out."""
    return NodeMoment(
        _message(document["status"], pb.GetStatusResponse()),
        float(document["framesPerSecond"]),
        [
            VipRate(_message(each["vip"], pb.Vip()), int(each["frames"]), now_s, float(each["framesPerSecond"]))
            for each in document["vips"]
        ],
        [_message(each, pb.Conflict()) for each in document["conflicts"]],
        now_s,
    )


def _message(plain: JsonObject, empty: AnyMessage) -> AnyMessage:
    return json_format.ParseDict(plain, empty, ignore_unknown_fields=True)


@dataclass(slots=True)
class ClusterVip:
    """A VIP as all nodes see it, on all their links; `vip`: as the node sees it that answers for it, if one does.

    `answering`: the nodes whose kernel may answer for it, or lets another program of the node do so.
    """

    vip: pb.Vip
    total: int = 0
    per_second: float = 0.0
    answering: list[str] = field(default_factory=list)
    modes: set[pb.Mode.ValueType] = field(default_factory=set)

    def take(self, node: str, reading: VipRate) -> None:
        """Takes in what one node says about a VIP on one link."""
        vip = reading.vip
        self.total += reading.total
        self.per_second += reading.per_second
        self.modes.add(vip.mode)
        if vip.kind in _ANSWERING:
            self.vip = vip
            if node not in self.answering:
                self.answering.append(node)


@dataclass(frozen=True, slots=True)
class ClusterClaim:
    """A foreign claim, and the nodes that heard it."""

    claim: pb.Conflict
    heard_by: list[str]


@dataclass(frozen=True, slots=True)
class ClusterMoment:
    """All nodes at one moment. `lost`: why a node does not report now, or has not reported yet."""

    number: int = 0
    nodes: Mapping[str, NodeMoment] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    vips: Sequence[ClusterVip] = ()
    claims: Sequence[ClusterClaim] = ()
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        """Frames about VIPs, on all nodes."""
        return sum(node.per_second for node in self.nodes.values())


def merged(number: int, nodes: Mapping[str, NodeMoment], lost: Mapping[str, str]) -> ClusterMoment:
    """The nodes that are heard, in the order of their names; nothing is known of those that are lost."""
    heard = {name: nodes[name] for name in sorted(nodes) if name not in lost}
    return ClusterMoment(number, heard, lost, _vips(heard), _claims(heard), _problems(heard))


def _vips(nodes: Mapping[str, NodeMoment]) -> list[ClusterVip]:
    """The busiest first."""
    found: dict[str, ClusterVip] = {}
    for name, node in nodes.items():
        for reading in node.vips:
            found.setdefault(reading.vip.address, ClusterVip(reading.vip)).take(name, reading)
    return sorted(found.values(), key=lambda each: (-each.per_second, -each.total))


def _claims(nodes: Mapping[str, NodeMoment]) -> list[ClusterClaim]:
    """Each host that claims a VIP, the latest first."""
    found: dict[tuple[str, str], ClusterClaim] = {}
    for name, claim in ((name, claim) for name, node in nodes.items() for claim in node.conflicts):
        before = found.get((claim.vip, claim.mac))
        heard_by = [*before.heard_by, name] if before else [name]
        latest = max((claim, before.claim), key=_when) if before else claim
        found[claim.vip, claim.mac] = ClusterClaim(latest, list(dict.fromkeys(heard_by)))
    return sorted(found.values(), key=lambda each: _when(each.claim), reverse=True)


def _when(claim: pb.Conflict) -> int:
    return claim.last_time.ToNanoseconds()


def _problems(nodes: Mapping[str, NodeMoment]) -> dict[str, list[str]]:
    """Each problem, and the nodes that have it; what most nodes have comes first."""
    found: dict[str, list[str]] = {}
    for name, text in chain.from_iterable(_of_node(name, node) for name, node in nodes.items()):
        found.setdefault(text, []).append(name)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _of_node(name: str, node: NodeMoment) -> Iterable[tuple[str, str]]:
    return ((name, text) for text in problems(node.status))
