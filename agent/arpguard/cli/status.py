"""`arpguard status`: what an agent says of its node."""

import argparse

from arpguard.cli import documents, everywhere, exits, tables
from arpguard.cli.targets import source
from arpguard.cli.words import problems
from arpguard.v1 import agent_pb2 as pb


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 when there are problems."""
    if options.all_nodes:
        return everywhere.show(options, lambda agent: agent.get_status(pb.GetStatusRequest()), everywhere.STATUSES)
    with source(options) as asked:
        answer = asked.get_status(pb.GetStatusRequest())
    documents.show(options, answer, tables.status)
    return exits.NOT_RIGHT if problems(answer) else exits.OK
