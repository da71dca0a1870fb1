"""`arpguard explain`: what a node does with frames about an address, and why."""

import argparse

from arpguard.api.messages import OPERATIONS
from arpguard.cli import documents, everywhere, exits
from arpguard.cli.explanation import explanation, is_guarded
from arpguard.cli.targets import source
from arpguard.core.stimulus import Operation
from arpguard.v1 import agent_pb2 as pb


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
