"""`arpguard explain`: what this node does with frames about an address, and why."""

import argparse

from arpguard.api.messages import OPERATIONS
from arpguard.cli import everywhere, exits, render
from arpguard.cli.explanation import explanation
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
        return everywhere.show(
            options,
            everywhere.ask(options, lambda agent: agent.explain_vip(request)),
            lambda answers: everywhere.explanations(options.vip, answers),
            lambda answers: any(map(_is_guarded, answers)),
        )

    with source(options) as asked:
        answer = asked.explain_vip(request)
    render.show(options, answer, lambda found: explanation(options.vip, found))
    return exits.OK if _is_guarded(answer) else exits.NOT_RIGHT


def _is_guarded(answer: pb.ExplainVipResponse) -> bool:
    return any(link.HasField("entry") for link in answer.links)
