"""`arpguard decisions`: what a node did with frames, and with --follow what it does."""

import argparse
import time
from collections.abc import Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli import client, documents, exits, tables
from arpguard.cli.client import AgentQuestions, every_page
from arpguard.cli.options import DEFAULT_LIMIT, DEFAULT_PAST, filters, number_of
from arpguard.cli.targets import target
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Reason, Verdict


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
    """Shows the last --limit decisions, and then each new one; AskError when the agent stops."""
    recent = _recent(agent, wanted, options.limit or DEFAULT_PAST)
    wanted = _from(recent, wanted, options.limit or DEFAULT_PAST)
    lines = tables.DecisionLines(recent)
    if options.output == "table":
        print(lines.head(), flush=True)
    for answer in agent.watch_decisions(pb.WatchDecisionsRequest(filter=wanted, include_recent=True)):
        as_text = lines.text(answer) if options.output == "table" else documents.stream_document(answer, options.output)
        print(as_text, flush=True)
    return exits.OK


def _recent(agent: AgentQuestions, wanted: pb.DecisionFilter, count: int) -> Sequence[pb.Decision]:
    """The latest `count` decisions of the past.

    A stream has no deadline: this request also finds out in time that there is no agent.
    """
    return every_page(agent.list_decisions, pb.ListDecisionsRequest(filter=wanted), count).decisions


def _from(recent: Sequence[pb.Decision], wanted: pb.DecisionFilter, count: int) -> pb.DecisionFilter:
    """The filter that selects these `count` decisions, or all where there are fewer, and all new ones."""
    narrowed = pb.DecisionFilter()
    narrowed.CopyFrom(wanted)
    if len(recent) == count:
        narrowed.since.CopyFrom(recent[-1].last_time)
    return narrowed
