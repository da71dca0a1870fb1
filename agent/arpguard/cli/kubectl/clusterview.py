"""The screen of `kubectl arpguard watch`: which node is in which mode, who has which VIP, what is wrong."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from arpguard.cli import screen, tables
from arpguard.cli.clustering import connection, lease_state, owner
from arpguard.cli.kubectl.moments import ClusterClaim, ClusterMoment, ClusterVip, NodeMoment
from arpguard.cli.render import clean
from arpguard.cli.screen import LOWEST, MEDIUM, MODE_STYLE, WIDE, Column, in_style, line, table
from arpguard.cli.watchkeys import HELP, Keys
from arpguard.cli.words import NONE, age, counted, problems, word
from arpguard.core.bounding import some
from arpguard.v1 import agent_pb2 as pb

_BAD = "bold red"
_NODES_SHOWN = 2


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node, and what it says; None: it says nothing."""

    name: str
    moment: NodeMoment | None


def view(moment: ClusterMoment, width: int, height: int, keys: Keys) -> RenderableType:
    """The whole view, in this many columns and lines."""
    refusal = screen.too_small(width, height)
    if refusal:
        return refusal

    head = [line(text, width) for text in _head(moment, max(1, height // 6))][: height - LOWEST + 2]
    if keys.helps:
        return Group(*head, Text(), table(screen.HELP, HELP[: height - len(head) - 2], width))

    nodes = _nodes(moment)[: max(2, height // 5)]
    claims = [claim for claim in moment.claims if keys.is_wanted(_words_of_claim(claim))]
    # Each table has a line of titles and an empty one above it; the last line tells how to leave.
    left = height - len(head) - len(nodes) - 5
    claims = claims[: max(0, (left - 2) // 3)]
    found = keys.vips(moment.vips)
    room = left - (len(claims) + 2 if claims else 0)
    first = min(keys.first, max(0, len(found) - room))
    vips = found[first : first + room]

    return Group(
        *head,
        Text(),
        table(_NODES, nodes, width),
        Text(),
        table(_VIPS, [VipRow(vip, bool(moment.lost)) for vip in vips], width),
        *_part(Text(), table(_CLAIMS, claims, width), shown=bool(claims)),
        *[Text()] * (room - len(vips)),
        screen.footer(keys, range(first, first + len(vips)), len(found), len(moment.vips)),
    )


def _part(*lines: RenderableType, shown: bool) -> tuple[RenderableType, ...]:
    return lines if shown else ()


def _head(moment: ClusterMoment, most: int) -> Iterator[Text]:
    """How many nodes there are and how they are, and then each problem."""
    yield _title(moment)
    wrong = [f"{node}: {why}" for node, why in sorted(moment.lost.items())]
    wrong += [f"{some(nodes, _NODES_SHOWN)}: {text}" for text, nodes in moment.problems.items()]
    more = len(wrong) - most
    shown = wrong[: most - 1] if more > 0 else wrong
    for text in shown:
        yield in_style(text, _BAD)
    if more > 0:
        yield in_style(f"and {counted(len(wrong) - len(shown), 'more problem')}: kubectl arpguard status", _BAD)


def _title(moment: ClusterMoment) -> Text:
    total = len(moment.nodes) + len(moment.lost)
    modes = Counter(node.status.mode for node in moment.nodes.values())
    parts = [Text(counted(total, "node"), "bold")]
    parts += [
        Text(f"{count} {word(pb.GetStatusResponse(mode=mode), 'mode')}", MODE_STYLE.get(mode, ""))
        for mode, count in sorted(modes.items(), reverse=True)
    ]
    if moment.lost:
        parts.append(Text(f"{len(moment.lost)} not answering", _BAD))
    parts.append(Text(counted(len(moment.vips), "VIP")))
    parts.append(Text(screen.rate(moment.per_second)))
    if not moment.lost and not moment.problems:
        parts.append(Text("no problems", "green"))
    return Text("   ").join(parts)


def _nodes(moment: ClusterMoment) -> list[NodeRow]:
    """Those that are lost first, then those with problems: the others may have no room."""
    rows = [NodeRow(name, None) for name in sorted(moment.lost)]
    heard = sorted(moment.nodes.items(), key=lambda item: -len(problems(item[1].status)))
    return rows + [NodeRow(name, node) for name, node in heard]


@dataclass(frozen=True, slots=True)
class VipRow:
    """A VIP. `partial`: a node that is not heard may be the one that answers."""

    cluster: ClusterVip
    partial: bool


def _name(row: NodeRow) -> Text:
    wrong = row.moment is None or problems(row.moment.status)
    return in_style(row.name, _BAD if wrong else "")


def _mode_of_node(row: NodeRow) -> Text:
    if row.moment is None:
        return Text("no answer", _BAD)
    status = row.moment.status
    return in_style(word(status, "mode"), MODE_STYLE.get(status.mode, ""))


def _heard(cell: Callable[[NodeMoment], str]) -> Callable[[NodeRow], str]:
    """A cell that is empty for a node that was not heard."""
    return lambda row: cell(row.moment) if row.moment else NONE


def _problems(row: NodeRow) -> Text:
    count = len(problems(row.moment.status)) if row.moment else 0
    return Text(f"{count}" if row.moment else NONE, _BAD if count else "")


def _answering(row: VipRow) -> Text:
    """More than one may be shown for a moment while a VIP moves: nodes are asked one after the other."""
    nodes = row.cluster.answering
    if not nodes:
        return Text("not known") if row.partial else Text("nobody")
    return in_style(some(nodes, _NODES_SHOWN), _BAD if len(nodes) > 1 else "green")


def _mode_of_vip(row: VipRow) -> Text:
    modes = sorted(row.cluster.modes)
    words = "+".join(word(pb.Vip(mode=mode), "mode") for mode in modes)
    return in_style(words, MODE_STYLE.get(modes[0], "") if len(modes) == 1 else "yellow")


def _words_of_claim(found: ClusterClaim) -> tuple[str, ...]:
    return found.claim.vip, found.claim.mac, tables.claimant(found.claim), *found.heard_by


def _mac(found: ClusterClaim) -> Text:
    return in_style(found.claim.mac, _BAD if tables.is_conflict(found.claim) else "yellow")


_NODES: tuple[Column[NodeRow], ...] = (
    Column("NODE", _name, yielding=True),
    Column("MODE", _mode_of_node),
    Column("KUBERNETES", _heard(lambda node: connection(node.status.kubernetes).text)),
    Column("LEASE", _heard(lambda node: lease_state(node.status).text), WIDE),
    Column("FENCE", _heard(lambda node: tables.fence(node.status))),
    Column("OWNED", _heard(lambda node: f"{tables.owned(node.status):,}"), number=True),
    Column("FRAMES/S", _heard(lambda node: f"{node.per_second:,.0f}"), number=True),
    Column("PROBLEMS", _problems, number=True),
    Column("VERSION", _heard(lambda node: node.status.version), WIDE),
)
_VIPS: tuple[Column[VipRow], ...] = (
    Column("VIP", lambda row: row.cluster.vip.address),
    Column("OWNER", lambda row: clean(owner(row.cluster.vip).text), yielding=True),
    Column("ANSWERS", _answering),
    Column("MODE", _mode_of_vip),
    Column("FRAMES/S", lambda row: f"{row.cluster.per_second:,.0f}", number=True),
    Column("TOTAL", lambda row: f"{row.cluster.total:,}", MEDIUM, number=True),
    Column("SOURCE", lambda row: row.cluster.vip.source or NONE, WIDE, yielding=True),
)
_CLAIMS: tuple[Column[ClusterClaim], ...] = (
    Column("VIP", lambda found: found.claim.vip),
    Column("CLAIMED BY", _mac),
    Column("WHO", lambda found: tables.claimant(found.claim), yielding=True),
    Column("LAST", lambda found: age(found.claim.last_time)),
    Column("HEARD BY", lambda found: some(found.heard_by, _NODES_SHOWN), MEDIUM),
)
