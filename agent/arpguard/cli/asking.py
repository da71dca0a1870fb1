"""Commands that ask an agent, or the pinned objects in its place; each returns the exit code."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.api.messages import OPERATIONS
from arpguard.cli import client, everywhere, exits, render, tables
from arpguard.cli.client import AgentQuestions, Questions
from arpguard.cli.exits import AskError
from arpguard.cli.explain import explanation
from arpguard.cli.options import DEFAULT_LIMIT, DEFAULT_PAST
from arpguard.cli.targets import source, target
from arpguard.cli.words import problems
from arpguard.core.claimants import ClaimantKind
from arpguard.core.stimulus import Operation
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind, Reason, Verdict

_MAX_PAGE_SIZE = 1000  # what the API gives at most
_FILTERS = ("vip", "link", "kind", "claimant", "verdict", "reason", "since")

Answer = TypeVar("Answer", bound=Message)


PagedRequest = TypeVar("PagedRequest", pb.ListVipsRequest, pb.ListDecisionsRequest, pb.ListConflictsRequest)
PagedAnswer = TypeVar("PagedAnswer", pb.ListVipsResponse, pb.ListDecisionsResponse, pb.ListConflictsResponse)


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 when there are problems."""
    if options.all_nodes:
        found = everywhere.ask(options, lambda agent: agent.get_status(pb.GetStatusRequest()))
        return everywhere.show(options, found, everywhere.statuses, lambda answers: not any(map(problems, answers)))
    with source(options) as asked:
        answer = asked.get_status(pb.GetStatusRequest())
    _show(options, answer, tables.status)
    return exits.NOT_RIGHT if problems(answer) else exits.OK


def show_vips(options: argparse.Namespace) -> int:
    """`arpguard vips`; exit code 1 when an address was named that is guarded nowhere."""
    kind = pb.Kind.ValueType(_number(Kind, options.kind))
    if options.all_nodes:
        return _show_vips_everywhere(options, kind)
    with source(options) as asked:
        if options.vip:
            _show(options, _one_vip(asked, options, kind), tables.vip_details)
        else:
            request = pb.ListVipsRequest(link=options.link, kind=kind)
            _show(options, _all(asked.list_vips, request), lambda found: tables.vips(found, _filters(options)))
    return exits.OK


def _show_vips_everywhere(options: argparse.Namespace, kind: pb.Kind.ValueType) -> int:
    """A list also for one address: what the nodes have of it is to be compared."""

    def ask(agent: AgentQuestions) -> pb.ListVipsResponse:
        if options.vip:
            return pb.ListVipsResponse(vips=_one_vip(agent, options, kind).vips)
        return _all(agent.list_vips, pb.ListVipsRequest(link=options.link, kind=kind))

    found = everywhere.ask(options, ask)
    return everywhere.show(
        options,
        found,
        lambda answers: everywhere.vips(answers, _filters(options)),
        lambda answers: bool(answers) or not options.vip,
    )


def _one_vip(asked: Questions, options: argparse.Namespace, kind: pb.Kind.ValueType) -> pb.GetVipResponse:
    """A VIP on those of its links that the options let through: the API has no filter for one."""
    found = asked.get_vip(pb.GetVipRequest(address=options.vip)).vips
    kept = [vip for vip in found if options.link in ("", vip.link) and kind in (0, vip.kind)]
    if not kept:
        raise AskError(
            exits.NOT_RIGHT, f"{options.vip} is guarded, but nowhere with {_filters(options, ('link', 'kind'))}"
        )
    return pb.GetVipResponse(vips=kept)


def show_links(options: argparse.Namespace) -> int:
    """`arpguard links`."""
    with source(options) as asked:
        found = asked.get_status(pb.GetStatusRequest()).links
    if options.output == "table":
        print(tables.links(found))
    else:
        print(render.document({"links": [render.as_dict(link) for link in found]}, options.output))
    return exits.OK


def show_decisions(options: argparse.Namespace) -> int:
    """`arpguard decisions`."""
    wanted = pb.DecisionFilter(
        vip=options.vip,
        link=options.link,
        verdict=pb.Verdict.ValueType(_number(Verdict, options.verdict)),
        reason=pb.Reason.ValueType(_number(Reason, options.reason)),
    )

    if options.since is not None:
        wanted.since.CopyFrom(_ago(options.since))

    with client.connected(target(options)) as agent:
        if options.follow:
            return _follow(options, agent, wanted)
        request = pb.ListDecisionsRequest(filter=wanted)
        answer = _all(agent.list_decisions, request, options.limit or DEFAULT_LIMIT)

    _show(options, answer, lambda found: tables.decisions(found, _filters(options)))
    return exits.OK


def show_conflicts(options: argparse.Namespace) -> int:
    """`arpguard conflicts`; exit code 1 when somebody claims what is known not to be theirs."""
    kind = pb.Claimant.Kind.ValueType(_number(ClaimantKind, options.claimant))
    request = pb.ListConflictsRequest(vip=options.vip, link=options.link, claimant=kind)

    def ask(agent: AgentQuestions) -> pb.ListConflictsResponse:
        return _all(agent.list_conflicts, request)

    if options.all_nodes:
        return everywhere.show(
            options,
            everywhere.ask(options, ask),
            lambda answers: everywhere.conflicts(answers, _filters(options)),
            lambda answers: not any(tables.is_conflict(claim) for answer in answers for claim in answer.conflicts),
        )
    with client.connected(target(options)) as agent:
        answer = ask(agent)
    _show(options, answer, lambda found: tables.conflicts(found, _filters(options)))
    return exits.NOT_RIGHT if any(map(tables.is_conflict, answer.conflicts)) else exits.OK


def explain(options: argparse.Namespace) -> int:
    """`arpguard explain`; exit code 1 when the address is guarded on none of the links."""
    request = pb.ExplainVipRequest(
        address=options.vip,
        link=options.link,
        operations=[OPERATIONS[Operation(name)] for name in options.operation],
        sender_mac=options.sender_mac,
        sender_address=options.sender_address,
    )

    if options.all_nodes:
        return everywhere.show(
            options,
            everywhere.ask(options, lambda agent: agent.explain_vip(request)),
            lambda answers: everywhere.explanations(options.vip, answers),
            lambda answers: any(map(_is_guarded, answers)),
        )

    with source(options) as asked:
        answer = asked.explain_vip(request)
    _show(options, answer, lambda found: explanation(options.vip, found))
    return exits.OK if _is_guarded(answer) else exits.NOT_RIGHT


def _is_guarded(answer: pb.ExplainVipResponse) -> bool:
    return any(link.HasField("entry") for link in answer.links)


def watch(options: argparse.Namespace) -> int:
    """`arpguard watch`."""
    from arpguard.cli.watch import watch as run  # noqa: PLC0415 - rich is for this command only

    return run(target(options), options.interval)


def _show(options: argparse.Namespace, answer: Answer, as_page: Callable[[Answer], str]) -> None:
    print(as_page(answer) if options.output == "table" else render.document(answer, options.output))


def _filters(options: argparse.Namespace, names: Sequence[str] = _FILTERS) -> str:
    """The options that leave something out of a list, as they may be typed."""
    given = {name: getattr(options, name, None) for name in names}
    words = {name: f"{value:g}s" if isinstance(value, float) else value for name, value in given.items()}
    return " ".join(f"--{name} {word}" for name, word in words.items() if word)


def _number(choices: type[IntEnum], word: str) -> int:
    """An enum's member by its name in lower case, as the API's number; 0 for any."""
    return int(choices[word.upper()]) if word else 0


def _ago(seconds: float) -> Timestamp:
    found = Timestamp()
    found.FromNanoseconds(time.time_ns() - int(seconds * NS_PER_S))
    return found


def _all(ask: Callable[[PagedRequest], PagedAnswer], request: PagedRequest, limit: int = sys.maxsize) -> PagedAnswer:
    """The pages of a list as one answer, with at most `limit` items."""
    request.page_size = min(limit, _MAX_PAGE_SIZE)
    whole = ask(request)
    while whole.next_page_token and limit > _MAX_PAGE_SIZE:
        limit -= _MAX_PAGE_SIZE
        request.page_size = min(limit, _MAX_PAGE_SIZE)
        request.page_token, whole.next_page_token = whole.next_page_token, ""
        whole.MergeFrom(ask(request))
    whole.next_page_token = ""
    return whole


def _follow(options: argparse.Namespace, agent: AgentQuestions, wanted: pb.DecisionFilter) -> int:
    """The last --limit decisions and then each as it comes; AskError when the agent stops."""
    wanted = _recent(agent, wanted, options.limit or DEFAULT_PAST)
    lines = tables.DecisionLines()
    if options.output == "table":
        print(lines.head(), flush=True)
    for answer in agent.watch_decisions(pb.WatchDecisionsRequest(filter=wanted, include_recent=True)):
        as_text = lines.text(answer) if options.output == "table" else render.stream_document(answer, options.output)
        print(as_text, flush=True)
    return exits.OK


def _recent(agent: AgentQuestions, wanted: pb.DecisionFilter, count: int) -> pb.DecisionFilter:
    """The filter that lets the latest `count` of the past through, and all that comes.

    A stream has no deadline: this question says in time that there is no agent, too.
    """
    found = _all(agent.list_decisions, pb.ListDecisionsRequest(filter=wanted), count).decisions
    narrowed = pb.DecisionFilter()
    narrowed.CopyFrom(wanted)
    if len(found) == count:
        narrowed.since.CopyFrom(found[-1].last_time)
    return narrowed
