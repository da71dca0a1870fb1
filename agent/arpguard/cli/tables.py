"""The API's answers as pages that a person reads; each function gives the text for one answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from arpguard.addresses import ZERO_MAC
from arpguard.cli.clustering import cluster_facts, owner, sources
from arpguard.cli.render import (
    Columns,
    Styled,
    bad,
    careful,
    clean,
    facts,
    good,
    page_width,
    paragraphs,
    shortened,
    strong,
    table,
    table_width,
    wrapped,
)
from arpguard.cli.words import (
    NONE,
    age,
    counted,
    duration,
    fences,
    frames,
    local_time,
    outcome,
    problems,
    programs,
    seconds_since,
    span,
    time_of_day,
    word,
)
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.model import SERVICE_SOURCE
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import REASONS

CONFLICT_COLUMNS = ("VIP", "LINK", "CLAIMED BY", "WHO", "LAST", "REPORTS", "REASON", "CLAIM")
DECISION_COLUMNS = ("TIME", "LINK", "VIP", "VERDICT", "REASON", "OP", "FROM")
# What a narrow page can do without, in this order: the others say the same, or it is seldom another.
SPARE_OF_CONFLICTS = ("REASON", "LINK", "REPORTS")
SPARE_OF_DECISIONS = ("OP", "LINK", "COUNT")
_AGENTS_PROBLEMS = "problems unknown"
_NOT_ASKED = "pinned objects, read by arpguard {}; only a running agent knows of problems"
_USUAL_OUTCOME = ("would suppress", "egress_not_owner", "request", ZERO_MAC)
_USUAL_DECISION = ("00:00:00", "eth0", "255.255.255.255", *_USUAL_OUTCOME)
_LONGEST_OP = "advertisement"
_ROOM_FOR_NEIGHBOUR_DISCOVERY = 110  # columns; a narrower page would lose the operation
_NAME_WIDTH = 40
_ROOM_FOR_ALL = 100  # columns; on a narrower page addresses would be cut
_STYLES = {pb.VERDICT_CONFLICT: bad, pb.VERDICT_REPORT: careful}  # a reported claim is perhaps the owner's


def status(answer: pb.GetStatusResponse) -> str:
    """What the node guards, how, and what is wrong: one page."""
    blocks = [_headline(answer), facts(_status_facts(answer))]
    if answer.kubernetes.sources:
        blocks.append(sources(answer.kubernetes))
    if answer.links:
        blocks.append(links(answer.links))
    if answer.reasons:
        blocks.append(reasons(answer.reasons))
    blocks.append("\n".join(_problem_lines(answer)))
    return "\n\n".join(block for block in blocks if block)


def _headline(answer: pb.GetStatusResponse) -> str:
    used = f"{answer.entries} of {answer.entries_capacity} entries"
    return f"{strong(short_name(answer.node))}: mode {mode(answer)}, {used}, {_verdict_on(answer)}"


def _verdict_on(answer: pb.GetStatusResponse) -> Styled:
    """Pinned objects show hardly any problems: an empty list from them means nothing."""
    wrong = len(problems(answer))
    if wrong:
        return bad(counted(wrong, "problem"))
    return good("no problems") if answer.HasField("start_time") else careful(_AGENTS_PROBLEMS)


def short_name(text: str) -> str:
    """A name in a line that has more to tell."""
    return shortened(clean(text), _NAME_WIDTH)


def mode(message: pb.GetStatusResponse | pb.Vip) -> Styled:
    """A mode in its colour."""
    text = word(message, "mode")
    return good(text) if message.mode == pb.MODE_ENFORCE else careful(text)


def fence(answer: pb.GetStatusResponse) -> str:
    """How much is left of the right to answer, where that ends: by the first of two fences."""
    names = [name for name in ("fence_left", "voucher_fence_left") if answer.HasField(name)]
    left = min((getattr(answer, name) for name in names), key=Duration.ToNanoseconds, default=None)
    return duration(left) if left is not None else NONE


def owned(answer: pb.GetStatusResponse) -> int:
    """How many VIPs the node owns, each on each link."""
    return sum(kind.count for kind in answer.kinds if kind.kind == pb.KIND_OWNED)


def _status_facts(answer: pb.GetStatusResponse) -> Iterator[tuple[str, object]]:
    """What only an agent knows is left out where none was asked."""
    asked = answer.HasField("start_time")
    yield ("up since", _up_since(answer)) if asked else ("source", _NOT_ASKED.format(answer.version))

    if answer.HasField("config"):
        yield "config", _config(answer.config)
    yield (
        "fence",
        fences(answer, short_name(answer.kubernetes.vouching.voucher))
        if answer.HasField("fence_left")
        else "not needed",
    )

    if asked:
        yield from cluster_facts(answer)
        yield "drift", _drift(answer.drift)

    yield "reports", _events(answer.events, received=asked)
    yield "VIPs", ", ".join(f"{kind.count} {word(kind, 'kind')}" for kind in answer.kinds) or "none"
    if answer.closed_ranges:
        yield "closed ranges", "; ".join(map(_closed, answer.closed_ranges))


def _closed(closed: pb.ClosedRange) -> str:
    but = f", except {', '.join(closed.exceptions)}" if closed.exceptions else ""
    frames = sum(count.enforced + count.observed for count in closed.reasons if count.reason != pb.REASON_GUEST)
    return f"{closed.network} on {closed.link}{but} ({counted(frames, 'frame')} judged)"


def _up_since(answer: pb.GetStatusResponse) -> str:
    ago = span(seconds_since(answer.start_time))
    return f"{local_time(answer.start_time)} ({ago} ago), arpguard {answer.version}"


def _config(config: pb.Config) -> str:
    return f"{config.source}, generation {config.generation}, loaded {age(config.load_time)}"


def _drift(drift: pb.Drift) -> Styled:
    counts = {"entry": drift.entries, "program": drift.programs, "control": drift.control}
    mended = ", ".join(f"{count} x {thing}" for thing, count in counts.items() if count)
    return careful(f"repaired changes by other programs: {mended}") if mended else Styled("none")


def _events(events: pb.EventAccount, *, received: bool) -> Styled:
    text = f"{events.delivered} delivered, {events.limited} held back by the rate limit, {events.lost} lost"
    if received:
        text += f", {events.received} read by this agent"
    return careful(text) if events.lost else Styled(text)


def _problem_lines(answer: pb.GetStatusResponse) -> Iterator[str]:
    for text in problems(answer):
        first, *others = wrapped(text, page_width() - 9)
        yield str(bad(f"problem: {first}"))
        yield from (str(bad(f"         {line}")) for line in others)


def links(found: Iterable[pb.Link]) -> str:
    """Guarded links and the programs on them."""
    head = ("LINK", "STATE", "MAC", "DEVICE", "VIPS", "INGRESS", "EGRESS", "ADDRESSES")
    rows = [
        (
            link.name,
            good("up") if link.up else bad("down"),
            link.mac,
            link.device_kind or "hardware",
            link.vips,
            programs(link, outgoing=False) or bad("none"),
            programs(link, outgoing=True) or bad("none"),
            " ".join(link.addresses) or NONE,
        )
        for link in found
    ]

    spare = ("DEVICE",) if table_width() < _ROOM_FOR_ALL else ()
    return table(head, rows, "ADDRESSES", spare) if rows else "no link is guarded"


def reasons(counts: Sequence[pb.ReasonCount]) -> str:
    """How many frames had each reason."""
    rows = [(word(count, "reason"), _verdict_of(count.reason), count.enforced, count.observed) for count in counts]
    return table(("REASON", "VERDICT", "CARRIED OUT", "OBSERVED"), rows)


def _verdict_of(number: int) -> str:
    return REASONS[number].verdict.name.lower() if number in REASONS else NONE


def vips(answer: pb.ListVipsResponse, filters: str = "") -> str:
    """All guarded VIPs that the filters let through, a line for each link."""
    return vip_table(("VIP",), [((vip.address,), vip) for vip in answer.vips], filters)


def vip_table(head: tuple[str, ...], found: Sequence[tuple[tuple[str, ...], pb.Vip]], filters: str) -> str:
    """VIPs, each with the cells before it, of `head`; their Services where there are any, and room for them."""
    if not found:
        return nothing("VIP", filters, "is guarded")
    with_services = table_width() >= _ROOM_FOR_ALL and any(_service(vip) for _, vip in found)
    columns = {title: cell for title, cell in _VIP_COLUMNS.items() if title != "SERVICE" or with_services}
    rows = [(*before, *(cell(vip) for cell in columns.values())) for before, vip in found]
    return table((*head, *columns), rows, yielding="DECISIONS")


def _service(vip: pb.Vip) -> str:
    """Namespace and name of the Service that makes it a VIP; nothing where the configuration does."""
    return vip.source.removeprefix(SERVICE_SOURCE) if vip.source.startswith(SERVICE_SOURCE) else ""


def nothing(thing: str, filters: str, otherwise: str) -> str:
    """Why a list is empty; with filters that says nothing about all there is."""
    return f"no {thing} matches {filters}" if filters else f"no {thing} {otherwise}"


def kind(vip: pb.Vip) -> Styled:
    """Who may answer; this node's own stand out."""
    text = word(vip, "kind")
    return good(text) if vip.kind == pb.KIND_OWNED else Styled(text)


def _tally(vip: pb.Vip) -> str:
    """The reasons, the most frequent first: what is cut off at the page's end matters least."""
    counts = sorted(vip.reasons, key=lambda count: -count.enforced - count.observed)
    return " ".join(f"{word(count, 'reason')}={count.enforced + count.observed}" for count in counts) or NONE


def vip_details(answer: pb.GetVipResponse) -> str:
    """One VIP on each of its links."""
    return "\n\n".join(map(_vip_details, answer.vips))


def _vip_details(vip: pb.Vip) -> str:
    head = f"{strong(short_name(vip.address))} on {short_name(vip.link)}: {kind(vip)}, mode {mode(vip)}"
    decided = reasons(vip.reasons) if vip.reasons else "no frames yet"
    return f"{head}\n{facts(_vip_facts(vip), indent='  ')}\n\n{decided}"


def _vip_facts(vip: pb.Vip) -> Iterator[tuple[str, object]]:
    """What is not known is left out: without an agent, owner and source."""
    if vip.source:
        yield "owner", vip.owner
        yield "source", vip.source
    if vip.HasField("claim"):
        yield "held by", owner(vip)
    if vip.answer_mac:
        yield "answered with", vip.answer_mac
    if vip.owner_mac:
        yield "owner's MAC", vip.owner_mac
    if vip.kind == pb.KIND_OWNED:  # only the owner shows one
        yield "fence", f"none needed: {_why_held(vip)}" if vip.hold else f"needed, epoch {vip.epoch}"
    if vip.HasField("last_conflict"):
        yield "last claim", _last_claim(vip.last_conflict)


def _why_held(vip: pb.Vip) -> str:
    return "hold is set" if vip.HasField("claim") else "the owner is fixed"


def _last_claim(claim: pb.Conflict) -> Styled:
    who = f"{claim.mac} ({claimant(claim)})" if claim.HasField("claimant") else claim.mac
    text = f"{who}, {age(claim.last_time)}, {counted(claim.count, 'report')}, {_fate(claim).text}"
    return bad(text) if is_conflict(claim) else careful(text)


_VIP_COLUMNS: dict[str, Callable[[pb.Vip], object]] = {
    "LINK": lambda vip: vip.link,
    "KIND": kind,
    "MODE": mode,
    "OWNER": owner,
    "SERVICE": _service,
    "FRAMES": lambda vip: frames(vip.reasons),
    "DECISIONS": _tally,
}


def is_conflict(claim: pb.Conflict) -> bool:
    """Whether the claimant is known not to be the owner; other claimants may be the owner."""
    return claim.reason == pb.REASON_CONFLICT or is_split_brain(claim)


def is_split_brain(claim: pb.Conflict) -> bool:
    """Whether a node of the cluster claims a VIP that another node has, or none."""
    return bool(claim.claimant.node)


def claimant(claim: pb.Conflict) -> str:
    """Who claims, in words."""
    found = claim.claimant
    try:
        return str(Claimant(ClaimantKind(found.kind), found.node, found.router)) if found.kind else NONE
    except ValueError:  # a newer agent's
        return word(found, "kind")


def _in_short(claim: pb.Conflict) -> str:
    """The same, shorter, for a table. Perhaps it is the owner, whose MAC is not known."""
    if claim.claimant.kind == pb.Claimant.KIND_OUTSIDE and not (is_conflict(claim) or claim.dropped):
        return "unknown"
    return claimant(claim).replace("cluster node without an agent", "node, no agent").replace("cluster node", "node")


def _fate(claim: pb.Conflict) -> Styled:
    """What became of a claim, and whose it may be."""
    if claim.dropped:
        return Styled("dropped")
    return careful("passed" if is_conflict(claim) else "perhaps the owner's")


def decisions(answer: pb.ListDecisionsResponse, filters: str = "") -> str:
    """The latest decisions that the filters let through, equal ones as one line."""
    head = (*DECISION_COLUMNS, "COUNT")
    rows = [(*decision_row(found), found.count) for found in answer.decisions]
    return (
        table(head, rows, "REASON", SPARE_OF_DECISIONS)
        if rows
        else nothing("decision", filters, "has been reported since the agent started")
    )


def decision_row(found: pb.Decision) -> tuple[object, ...]:
    """The cells of DECISION_COLUMNS."""
    verdict = _STYLES.get(found.verdict, Styled)(outcome(found))
    reason = word(found, "reason")
    return time_of_day(found.last_time), found.link, found.vip or NONE, verdict, reason, found.op, found.sha


class DecisionLines:
    """Decisions as they come, a line each; equal widths as far as they can be known beforehand.

    `recent`: those that come first.
    """

    def __init__(self, recent: Iterable[pb.Decision] = ()) -> None:
        self._columns = Columns((*DECISION_COLUMNS, "COUNT"), "REASON", SPARE_OF_DECISIONS)
        self._columns.add((*_USUAL_DECISION, ""))
        for found in recent:
            self._columns.add((*decision_row(found), ""))
        if table_width() >= _ROOM_FOR_NEIGHBOUR_DISCOVERY:
            self._columns.add(("",) * 5 + (_LONGEST_OP, "", ""))
        self._columns.keep()

    def head(self) -> str:
        """The line with the titles."""
        return self._columns.head()

    def text(self, answer: pb.WatchDecisionsResponse) -> str:
        """What one message of the stream says."""
        lines = []
        if answer.lost:
            lines.append(str(bad(f"{counted(answer.lost, 'decision')} lost: this command was too slow")))
        if answer.HasField("decision"):
            count = answer.decision.count
            row = (*decision_row(answer.decision), str(count) if count > 1 else "")  # what comes has 1
            self._columns.add(row)
            lines.append(self._columns.line(row))
        return "\n".join(lines)


UNHEARD = """This list lacks hosts that only reply to requests: a reply goes only to the host that asked.
`arpguard audit` shows which hosts answer when nodes ask, and `arpguard audit ADDRESS` asks now."""


def conflicts(answer: pb.ListConflictsResponse, filters: str = "") -> str:
    """Which hosts claimed VIPs that are not theirs, or may not be."""
    rows = [conflict_cells(found) for found in answer.conflicts]
    return table(CONFLICT_COLUMNS, rows, "WHO", SPARE_OF_CONFLICTS) if rows else no_conflicts(filters)


def no_conflicts(filters: str) -> str:
    """What an empty list of claims does not mean."""
    return paragraphs(
        f"{nothing('claim by another host', filters, 'has been heard since the agent started')}\n{UNHEARD}"
    )


def conflict_cells(found: pb.Conflict) -> tuple[object, ...]:
    """The cells of CONFLICT_COLUMNS."""
    return (
        found.vip,
        found.link,
        bad(found.mac) if is_conflict(found) else careful(found.mac),
        bad(_in_short(found)) if is_split_brain(found) else _in_short(found),
        age(found.last_time),
        found.count,
        word(found, "reason"),
        _fate(found),
    )
