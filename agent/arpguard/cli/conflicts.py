"""`arpguard conflicts`: who else claims VIPs."""

import argparse
from contextlib import suppress

from arpguard.cli import client, documents, everywhere, exits, tables
from arpguard.cli.audit import of_wrong
from arpguard.cli.client import AgentQuestions, every_page
from arpguard.cli.exits import AskError
from arpguard.cli.options import filters, number_of
from arpguard.cli.render import bad
from arpguard.cli.targets import target
from arpguard.core.claimants import ClaimantKind
from arpguard.v1 import agent_pb2 as pb


def show_conflicts(options: argparse.Namespace) -> int:
    """`arpguard conflicts`; exit code 1 when a host certainly claims a VIP that is not its own."""
    kind = pb.Claimant.Kind.ValueType(number_of(ClaimantKind, options.claimant))
    request = pb.ListConflictsRequest(vip=options.vip, link=options.link, claimant=kind)

    def ask(agent: AgentQuestions) -> pb.ListConflictsResponse:
        return every_page(agent.list_conflicts, request)

    if options.all_nodes:
        return everywhere.show(options, ask, everywhere.conflicts(options))
    with client.connected(target(options)) as agent:
        answer = ask(agent)
        unheard = _of_audit(agent, options)
    documents.show(options, answer, lambda found: tables.conflicts(found, filters(options)) + unheard)
    return exits.NOT_RIGHT if any(map(tables.is_conflict, answer.conflicts)) else exits.OK


def _of_audit(agent: AgentQuestions, options: argparse.Namespace) -> str:
    """What the agent's own audit found besides: which of several hosts is not the owner, it may not know."""
    with suppress(AskError):  # an older agent has none
        found = of_wrong(every_page(agent.list_audits, pb.ListAuditsRequest()), options.vip, options.link)
        return f"\n\n{bad(found)}" if found else ""
    return ""
