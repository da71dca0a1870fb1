"""The commands that ask the agents, or the pinned objects, and show the answer: status, vips, links and so on."""

import argparse
import time

from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.api.messages import OPERATIONS
from arpguard.cli import client, documents, everywhere, exits, tables
from arpguard.cli.client import AgentQuestions, Questions, every_page
from arpguard.cli.exits import AskError
from arpguard.cli.explanation import explanation, is_guarded
from arpguard.cli.options import DEFAULT_LIMIT, DEFAULT_PAST, filters, number_of
from arpguard.cli.targets import source, target
from arpguard.cli.words import problems
from arpguard.core.claimants import ClaimantKind
from arpguard.core.stimulus import Operation
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind, Reason, Verdict

# ---- status -------------------------------------------------------------------------------------------------


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 when there are problems."""
    if options.all_nodes:
        return everywhere.show(options, lambda agent: agent.get_status(pb.GetStatusRequest()), everywhere.STATUSES)
    with source(options) as asked:
        answer = asked.get_status(pb.GetStatusRequest())
    documents.show(options, answer, tables.status)
    return exits.NOT_RIGHT if problems(answer) else exits.OK


# ---- vips ---------------------------------------------------------------------------------------------------


def show_vips(options: argparse.Namespace) -> int:
    """`arpguard vips`; exit code 1 when an address was named that is guarded nowhere."""
    kind = pb.Kind.ValueType(number_of(Kind, options.kind))
    if options.all_nodes:
        return _show_vips_everywhere(options, kind)
    with source(options) as asked:
        if options.vip:
            documents.show(options, _one_vip(asked, options, kind), tables.vip_details)
        else:
            answer = every_page(asked.list_vips, pb.ListVipsRequest(link=options.link, kind=kind))
            documents.show(options, answer, lambda found: tables.vips(found, filters(options)))
    return exits.OK


def _show_vips_everywhere(options: argparse.Namespace, kind: pb.Kind.ValueType) -> int:
    """A list also for one address: what the nodes have of it is to be compared."""

    def ask(agent: AgentQuestions) -> pb.ListVipsResponse:
        if options.vip:
            return pb.ListVipsResponse(vips=_one_vip(agent, options, kind).vips)
        return every_page(agent.list_vips, pb.ListVipsRequest(link=options.link, kind=kind))

    return everywhere.show(options, ask, everywhere.vips(options))


def _one_vip(asked: Questions, options: argparse.Namespace, kind: pb.Kind.ValueType) -> pb.GetVipResponse:
    """A VIP on those of its links that the options let through: the API has no filter for one."""
    found = asked.get_vip(pb.GetVipRequest(address=options.vip)).vips
    kept = [vip for vip in found if options.link in ("", vip.link) and kind in (0, vip.kind)]
    if not kept:
        raise AskError(
            exits.NOT_RIGHT, f"{options.vip} is guarded, but nowhere with {filters(options, ('link', 'kind'))}"
        )
    return pb.GetVipResponse(vips=kept)


# ---- links --------------------------------------------------------------------------------------------------


def show_links(options: argparse.Namespace) -> int:
    """`arpguard links`."""
    with source(options) as asked:
        found = asked.get_status(pb.GetStatusRequest()).links
    if options.output == "table":
        print(tables.links(found))
    else:
        print(documents.document({"links": [documents.as_dict(link) for link in found]}, options.output))
    return exits.OK


# ---- decisions ----------------------------------------------------------------------------------------------


def show_decisions(options: argparse.Namespace) -> int:
    """`arpguard decisions`."""
    wanted = pb.DecisionFilter(
        vip=options.vip,
        link=options.link,
        verdict=pb.Verdict.ValueType(number_of(Verdict, options.verdict)),
        reason=pb.Reason.ValueType(number_of(Reason, options.reason)),
    )

    if options.since is not None:
        wanted.since.CopyFrom(_ago(options.since))

    with client.connected(target(options)) as agent:
        if options.follow:
            return _follow(options, agent, wanted)
        request = pb.ListDecisionsRequest(filter=wanted)
        answer = every_page(agent.list_decisions, request, options.limit or DEFAULT_LIMIT)

    documents.show(options, answer, lambda found: tables.decisions(found, filters(options)))
    return exits.OK


def _ago(seconds: float) -> Timestamp:
    found = Timestamp()
    found.FromNanoseconds(time.time_ns() - int(seconds * NS_PER_S))
    return found


def _follow(options: argparse.Namespace, agent: AgentQuestions, wanted: pb.DecisionFilter) -> int:
    """The last --limit decisions and then each as it comes; AskError when the agent stops."""
    wanted = _recent(agent, wanted, options.limit or DEFAULT_PAST)
    lines = tables.DecisionLines()
    if options.output == "table":
        print(lines.head(), flush=True)
    for answer in agent.watch_decisions(pb.WatchDecisionsRequest(filter=wanted, include_recent=True)):
        as_text = lines.text(answer) if options.output == "table" else documents.stream_document(answer, options.output)
        print(as_text, flush=True)
    return exits.OK


def _recent(agent: AgentQuestions, wanted: pb.DecisionFilter, count: int) -> pb.DecisionFilter:
    """The filter that lets the latest `count` of the past through, and all that comes.

    A stream has no deadline: this question says in time that there is no agent, too.
    """
    found = every_page(agent.list_decisions, pb.ListDecisionsRequest(filter=wanted), count).decisions
    narrowed = pb.DecisionFilter()
    narrowed.CopyFrom(wanted)
    if len(found) == count:
        narrowed.since.CopyFrom(found[-1].last_time)
    return narrowed


# ---- conflicts ----------------------------------------------------------------------------------------------


def show_conflicts(options: argparse.Namespace) -> int:
    """`arpguard conflicts`; exit code 1 when somebody claims what is known not to be theirs."""
    kind = pb.Claimant.Kind.ValueType(number_of(ClaimantKind, options.claimant))
    request = pb.ListConflictsRequest(vip=options.vip, link=options.link, claimant=kind)

    def ask(agent: AgentQuestions) -> pb.ListConflictsResponse:
        return every_page(agent.list_conflicts, request)

    if options.all_nodes:
        return everywhere.show(options, ask, everywhere.conflicts(options))
    with client.connected(target(options)) as agent:
        answer = ask(agent)
    documents.show(options, answer, lambda found: tables.conflicts(found, filters(options)))
    return exits.NOT_RIGHT if any(map(tables.is_conflict, answer.conflicts)) else exits.OK


# ---- explain ------------------------------------------------------------------------------------------------


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
        return everywhere.show(options, lambda agent: agent.explain_vip(request), everywhere.explanations(options))

    with source(options) as asked:
        answer = asked.explain_vip(request)
    documents.show(options, answer, lambda found: explanation(options.vip, found))
    return exits.OK if is_guarded(answer) else exits.NOT_RIGHT
