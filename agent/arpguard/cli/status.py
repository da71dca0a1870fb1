"""`arpguard status`: what the guard on this node is and does."""

import argparse

from arpguard.cli import everywhere, exits, render, tables
from arpguard.cli.targets import source
from arpguard.cli.words import problems
from arpguard.v1 import agent_pb2 as pb


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 when there are problems."""
    if options.all_nodes:
        found = everywhere.ask(options, lambda agent: agent.get_status(pb.GetStatusRequest()))
        return everywhere.show(options, found, everywhere.statuses, lambda answers: not any(map(problems, answers)))
    with source(options) as asked:
        answer = asked.get_status(pb.GetStatusRequest())
    render.show(options, answer, tables.status)
    return exits.NOT_RIGHT if problems(answer) else exits.OK
