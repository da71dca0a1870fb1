"""`arpguard conflicts`: hosts that claimed a VIP that is not theirs, or may not be."""

import argparse

from arpguard.cli import client, everywhere, exits, render, tables
from arpguard.cli.client import AgentQuestions, every_page
from arpguard.cli.options import filters, number_of
from arpguard.cli.targets import target
from arpguard.core.claimants import ClaimantKind
from arpguard.v1 import agent_pb2 as pb


def show_conflicts(options: argparse.Namespace) -> int:
    """`arpguard conflicts`; exit code 1 when somebody claims what is known not to be theirs."""
    kind = pb.Claimant.Kind.ValueType(number_of(ClaimantKind, options.claimant))
    request = pb.ListConflictsRequest(vip=options.vip, link=options.link, claimant=kind)

    def ask(agent: AgentQuestions) -> pb.ListConflictsResponse:
        return every_page(agent.list_conflicts, request)

    if options.all_nodes:
        return everywhere.show(
            options,
            everywhere.ask(options, ask),
            lambda answers: everywhere.conflicts(answers, filters(options)),
            lambda answers: not any(tables.is_conflict(claim) for answer in answers for claim in answer.conflicts),
        )
    with client.connected(target(options)) as agent:
        answer = ask(agent)
    render.show(options, answer, lambda found: tables.conflicts(found, filters(options)))
    return exits.NOT_RIGHT if any(map(tables.is_conflict, answer.conflicts)) else exits.OK
