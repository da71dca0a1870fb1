"""The answers to all questions but the streaming one: functions of this node and a request.

Each raises RequestError with the status code that the proto file documents.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import grpc

from arpguard import __version__
from arpguard.addresses import Address
from arpguard.api import clustering, messages
from arpguard.api.messages import OPERATIONS, MessageClock
from arpguard.api.requests import (
    Cursor,
    RequestError,
    read_address,
    read_choice,
    read_cursor,
    read_host,
    read_link,
    read_mac,
    read_time,
    wrong,
)
from arpguard.clock import boot_ns
from arpguard.core.bounding import bounded
from arpguard.core.claimants import ClaimantKind
from arpguard.core.closing import range_of
from arpguard.core.decisions import Report, ReportFilter, RivalClaim
from arpguard.core.explaining import Viewpoint, explain_ownership, fences_left, need_fences, summary
from arpguard.core.keepalived import owner_shown, resolved
from arpguard.core.stimulus import STRANGERS, Operation, Party, build_stimulus
from arpguard.dataplane.explain import try_frame
from arpguard.model import Attachment, EntryKey, Link, NodeControl, Vip, VipEntry
from arpguard.node import Auditor, Busy, ThisNode
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import VIP_KINDS, Hook, Kind, Mode, Reason, Verdict

Numbered = TypeVar("Numbered", Report, RivalClaim)

_OPERATION_OF: dict[int, Operation] = {number: operation for operation, number in OPERATIONS.items()}
_MAX_OPERATIONS = 64
_MAX_PROBLEMS, _MAX_PROBLEM = 100, 2000


def get_status(node: ThisNode, _request: pb.GetStatusRequest) -> pb.GetStatusResponse:
    """GetStatus."""
    control, clock = node.read_control(), MessageClock.now()
    tally, events, _ = node.read_totals()
    drift, variety = node.state.drift, node.state.variety

    response = pb.GetStatusResponse(
        node=node.name,
        version=__version__,
        mode=pb.Mode.ValueType(control.mode),
        links=_links(node),
        epoch=control.epoch,
        kubernetes=clustering.kubernetes(node.cluster, clock),
        problems=_shortened(node.state.problems),
        drift=pb.Drift(entries=drift.entries, programs=drift.programs, control=drift.control),
        events=pb.EventAccount(
            delivered=events.delivered, limited=events.limited, lost=events.lost, received=node.decisions.received
        ),
        reasons=messages.reason_counts(tally),
        entries=len(node.state.entries),
        entries_capacity=node.table.capacity,
        kinds=_kinds(variety),
        closed_ranges=_closed(node),
    )

    # Unset where there is nothing to tell, not zero: clients ask whether the field is there.
    if need_fences(entry for entry, _ in variety):
        left = fences_left(control, node.read_grants(), boot_ns())
        response.fence_left.CopyFrom(messages.duration(left.api_ns))
        if left.voucher_ns is not None:
            response.voucher_fence_left.CopyFrom(messages.duration(left.voucher_ns))
    if node.started_ns is not None:
        response.start_time.CopyFrom(clock.timestamp(node.started_ns))
    _add_config(response, node, clock)

    return response


def list_vips(node: ThisNode, request: pb.ListVipsRequest) -> pb.ListVipsResponse:
    """ListVips."""
    page = read_cursor(request, 3)
    link = read_link("link", request.link)
    kind = read_choice("kind", request.kind, VIP_KINDS)

    keys = node.state.keys
    if link is not None:
        links = {known.ifindex for known in node.state.links if known.name == link}
        keys = [key for key in keys if key.ifindex in links]
    if kind is not None:
        keys = [key for key in keys if node.state.entries[key].kind is kind]

    wanted, token = _cut_keys(keys, page)
    return pb.ListVipsResponse(vips=_vips(node, wanted), next_page_token=token, total_size=len(keys))


def get_vip(node: ThisNode, request: pb.GetVipRequest) -> pb.GetVipResponse:
    """GetVip."""
    address = read_address("address", request.address)
    vips = list(_vips(node, [EntryKey(link.ifindex, address) for link in node.state.links]))
    if not vips:
        raise _unguarded(node, address)
    return pb.GetVipResponse(vips=vips)


def _unguarded(node: ThisNode, address: Address) -> RequestError:
    return RequestError(grpc.StatusCode.NOT_FOUND, f"address: {address}: not guarded on any link of {node.name}")


def explain_vip(node: ThisNode, request: pb.ExplainVipRequest) -> pb.ExplainVipResponse:
    """ExplainVip."""
    address = read_host("address", request.address)
    peer = _peer(request, address)
    name = read_link("link", request.link)
    operations = _operations(request.operations)

    links = [link for link in node.state.links if name in (None, link.name)]
    if name and not links:
        guarded = ", ".join(link.name for link in node.state.links) or "none"
        raise RequestError(
            grpc.StatusCode.NOT_FOUND, f"link: {name}: not guarded on this node; guarded links: {guarded}"
        )
    control = node.read_control()

    stories = []
    for link in links:
        story = _ownership(node, control, address, link)
        stimuli = ((operation, build_stimulus(operation, address, link.mac, peer)) for operation in operations)
        mode = story.entry.mode if story.HasField("entry") else pb.Mode.ValueType(control.mode)
        story.frames.extend(
            found for operation, frame in stimuli for found in _frame_story(node, link, operation, frame, mode)
        )
        stories.append(story)

    return pb.ExplainVipResponse(links=stories)


def _peer(request: pb.ExplainVipRequest, vip: Address) -> Party:
    """The host at the other end: a stranger, unless the request says otherwise."""
    peer = STRANGERS[vip.version]
    if request.sender_mac:
        peer = replace(peer, mac=read_mac("sender_mac", request.sender_mac))
    if request.sender_address:
        peer = replace(peer, address=read_host("sender_address", request.sender_address))
    if peer.address.version != vip.version:
        raise wrong("sender_address", request.sender_address, f"an IPv{vip.version} address, like {vip}")
    return peer


def list_decisions(node: ThisNode, request: pb.ListDecisionsRequest) -> pb.ListDecisionsResponse:
    """ListDecisions."""
    page, clock = read_cursor(request, 1), MessageClock.now()
    wanted = read_filter(request.filter, clock)
    found, token = _cut(node.decisions.newest(wanted, *page.after), page)
    return pb.ListDecisionsResponse(
        decisions=[messages.decision(report, clock) for report in found], next_page_token=token
    )


def list_conflicts(node: ThisNode, request: pb.ListConflictsRequest) -> pb.ListConflictsResponse:
    """ListConflicts."""
    page, clock = read_cursor(request, 1), MessageClock.now()
    vip = read_address("vip", request.vip) if request.vip else None
    link = read_link("link", request.link)
    kind = read_choice("claimant", request.claimant, ClaimantKind)
    claims = (
        claim
        for claim in node.conflicts.newest(*page.after)
        if vip in (None, claim.key.vip) and link in (None, claim.link) and kind in (None, claim.claimant.kind)
    )
    found, token = _cut(claims, page)
    return pb.ListConflictsResponse(
        conflicts=[messages.conflict(claim, clock) for claim in found], next_page_token=token
    )


def list_audits(node: ThisNode, request: pb.ListAuditsRequest) -> pb.ListAuditsResponse:
    """ListAudits."""
    page, clock = read_cursor(request, 3), MessageClock.now()
    wanted, token = _cut_keys(sorted(node.audits.found, key=lambda key: key.order), page)
    return pb.ListAuditsResponse(
        audits=[messages.audit(node.audits.found[key], clock) for key in wanted], next_page_token=token
    )


async def audit_vip(node: ThisNode, auditor: Auditor | None, request: pb.AuditVipRequest) -> pb.AuditVipResponse:
    """AuditVip. `auditor` None: nobody asks on this node."""
    address = read_address("address", request.address)
    if not any(EntryKey(link.ifindex, address) in node.state.entries for link in node.state.links):
        raise _unguarded(node, address)

    try:
        found = await auditor.ask(address) if auditor is not None else []
    except Busy:
        raise RequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many audits are waiting: try again later") from None
    if not found:
        why = (
            f"address: {address}: {node.name} cannot ask who answers: no link that is up has an address in the VIP's "
            "subnet"
        )
        raise RequestError(grpc.StatusCode.FAILED_PRECONDITION, why)
    clock = MessageClock.now()
    return pb.AuditVipResponse(audits=[messages.audit(audited, clock) for audited in found])


def _cut_keys(keys: Sequence[EntryKey], page: Cursor) -> tuple[Sequence[EntryKey], str]:
    """A page of keys in their order, and the token of the next page."""
    start = bisect_right(keys, page.after, key=lambda key: key.order) if page.after else 0
    found = keys[start : start + page.size]
    return found, page.token(*found[-1].order) if start + page.size < len(keys) else ""


def _cut(newest: Iterator[Numbered], page: Cursor) -> tuple[list[Numbered], str]:
    """A page of a list, the latest items first, and the token of the next page."""
    found = list(islice(newest, page.size + 1))
    return found[: page.size], page.token(found[page.size - 1].number) if len(found) > page.size else ""


def read_filter(message: pb.DecisionFilter, clock: MessageClock) -> ReportFilter:
    """Which decisions are wanted; RequestError for what makes no sense."""
    since = read_time("filter.since", message.since) - clock.ahead_ns if message.HasField("since") else None
    return ReportFilter(
        vip=read_address("filter.vip", message.vip) if message.vip else None,
        link=read_link("filter.link", message.link),
        verdict=read_choice("filter.verdict", message.verdict, Verdict),
        reason=read_choice("filter.reason", message.reason, Reason),
        since_ns=since,
    )


# ---- status ----


def _shortened(problems: Sequence[str]) -> list[str]:
    """The first problems: a file can have millions, and the list has to fit into a message."""
    found = bounded(problems, _MAX_PROBLEMS, "")
    return [text if len(text) <= _MAX_PROBLEM else f"{text[:_MAX_PROBLEM]}..." for text in found]


def _links(node: ThisNode) -> list[pb.Link]:
    vips = Counter(key.ifindex for key in node.state.entries)
    return [messages.link(link, _attachments(node, link.ifindex), vips[link.ifindex]) for link in node.state.links]


def _attachments(node: ThisNode, ifindex: int) -> list[Attachment]:
    return [attachment for attachment in node.state.attachments if attachment.ifindex == ifindex]


def _kinds(variety: Iterable[tuple[VipEntry, int]]) -> list[pb.KindCount]:
    counts: Counter[Kind] = Counter()
    for entry, count in variety:
        counts[entry.kind] += count
    return [pb.KindCount(kind=pb.Kind.ValueType(kind), count=counts[kind]) for kind in sorted(counts)]


def _closed(node: ThisNode) -> Iterator[pb.ClosedRange]:
    ranges = node.state.ranges
    for key in sorted((key for key, entry in ranges.items() if entry.kind is Kind.CLOSED), key=lambda key: key.order):
        exceptions = (other for other, entry in ranges.items() if entry.kind is Kind.OPEN and other.is_in(key))
        yield pb.ClosedRange(
            network=str(key.network),
            link=node.link_name(key.ifindex),
            exceptions=[str(each.network) for each in sorted(exceptions, key=lambda each: each.order)],
            reasons=messages.reason_counts(node.ranges.tally(key)),
        )


def _add_config(response: pb.GetStatusResponse, node: ThisNode, clock: MessageClock) -> None:
    """What only a running agent knows."""
    if node.in_force is None:
        return
    in_force = node.in_force
    response.config.source = in_force.source
    response.config.generation = in_force.generation
    response.config.load_time.CopyFrom(clock.timestamp(in_force.loaded_ns))
    response.config.problems.extend(_shortened([in_force.problem] if in_force.problem else []))
    lease, times = in_force.config.lease, node.cluster.times if node.cluster else None
    in_use = times if times is not None and times.duration_ns else lease
    response.lease.duration.CopyFrom(messages.duration(in_use.duration_ns))
    response.lease.renew_interval.CopyFrom(messages.duration(in_use.renew_ns))
    response.lease.margin.CopyFrom(messages.duration(in_use.margin_ns))
    response.lease.stretched = in_use.duration_ns > lease.duration_ns


# ---- VIPs ----


def _vips(node: ThisNode, keys: Iterable[EntryKey]) -> Iterator[pb.Vip]:
    """The pairs for which the kernel has an entry, with their counters."""
    mode, clock = node.read_control().mode, MessageClock.now()
    claims = node.conflicts.latest_by_key()
    for key in keys:
        entry = node.table.lookup(key)
        if entry is not None:
            yield _vip(node, key, entry, mode, claims.get(key), clock)


def _vip(
    node: ThisNode, key: EntryKey, entry: VipEntry, mode: Mode, claim: RivalClaim | None, clock: MessageClock
) -> pb.Vip:
    message = messages.vip(key, entry, node.link_name(key.ifindex), mode, node.table.tally(key))
    source, wanted = _source(node, key.vip)
    if wanted is not None:
        message.source, message.owner = source, owner_shown(wanted.owner, node.keepalived)
        if node.cluster is not None and wanted.elected:
            message.claim.CopyFrom(clustering.claim(node.cluster.holder(key.vip), clock))
    if claim is not None:
        message.last_conflict.CopyFrom(messages.conflict(claim, clock))
    return message


def _source(node: ThisNode, address: Address) -> tuple[str, Vip | None]:
    """The source of a VIP: its name, and the VIP. A Service has its own name."""
    if node.in_force is None:
        return "", None
    index, vip = node.in_force.find(address)
    if node.cluster is not None:
        vip = node.cluster.vips.get(address)
    if vip is not None:
        vip = resolved(vip, node.name, node.keepalived)
    if vip is not None and vip.source:
        return vip.source, vip
    return (f"vips[{index}]" if vip else ""), vip


# ---- explaining ----


def _operations(numbers: Sequence[int]) -> list[Operation]:
    if len(numbers) > _MAX_OPERATIONS:
        raise wrong("operations", f"{len(numbers)} items", f"at most {_MAX_OPERATIONS}")
    for number in numbers:
        if number not in _OPERATION_OF:
            raise wrong("operations", number, f"one of {', '.join(operation.name for operation in Operation)}")
    return [_OPERATION_OF[number] for number in dict.fromkeys(numbers)] or list(Operation)


def _ownership(node: ThisNode, control: NodeControl, address: Address, link: Link) -> pb.LinkExplanation:
    """Entry and chain, without frames."""
    key = EntryKey(link.ifindex, address)
    entry = node.table.lookup(key)
    item, vip = _source(node, address)
    where = node.in_force.source if node.in_force else ""
    source = f"{item} in {where}" if item and vip and not vip.source else item or where

    around, grants = range_of(address, link.ifindex, node.state.ranges), node.read_grants()
    now = node.name, link, node.state.links, node.surroundings, control, boot_ns()
    scene = Viewpoint(*now, around, grants, node.keepalived, node.waits)
    state = node.cluster
    cluster = clustering.in_cluster(state, address, vip) if state else None
    found = explain_ownership(address, source, vip, entry, scene, cluster)

    story = pb.LinkExplanation(link=link.name, summary=summary(entry, scene))
    story.ownership.source = source if vip else ""
    story.ownership.steps.extend(found.steps)
    for candidate in found.candidates:
        story.ownership.candidates.add(
            node=candidate.node, eligible=candidate.eligible, chosen=candidate.chosen, why=candidate.why
        )
    if cluster is not None and vip is not None and vip.elected:
        story.ownership.claim.CopyFrom(clustering.claim(cluster.holder, MessageClock.now()))

    if found.fence_left_ns is not None:
        story.ownership.fence_left.CopyFrom(messages.duration(found.fence_left_ns))
    if found.voucher_left_ns is not None:
        story.ownership.voucher_fence_left.CopyFrom(messages.duration(found.voucher_left_ns))
        story.ownership.voucher = state.vouching.voucher if state is not None and state.vouching is not None else ""

    # The kernel may have no entry for the address; then this adds none.
    for message in _vips(node, [key]):
        story.entry.CopyFrom(message)
    return story


def _frame_story(
    node: ThisNode, link: Link, operation: Operation, frame: bytes, mode: pb.Mode.ValueType
) -> Iterator[pb.FrameExplanation]:
    """What the program of the hook that the frame would meet does with it; nothing where none is attached."""
    for attachment in _attachments(node, link.ifindex):
        if (attachment.hook is Hook.TC_EGRESS) is not operation.outgoing:
            continue

        trial = try_frame(node.programs, attachment.hook, link.ifindex, frame)
        verdict, reason = trial.decisions[-1]

        yield pb.FrameExplanation(
            operation=OPERATIONS[operation],
            hook=pb.Hook.ValueType(attachment.hook),
            program_id=attachment.program_id,
            verdict=pb.Verdict.ValueType(verdict),
            reason=pb.Reason.ValueType(reason),
            meaning=reason.meaning,
            mode=mode,
            fate=pb.Fate.Value(trial.fate(frame)),
            frame=messages.frame(frame),
            result=messages.frame(trial.frame) if trial.frame else None,
        )
