"""`arpguard links`: the guarded links and the programs on them."""

import argparse

from arpguard.cli import exits, render, tables
from arpguard.cli.targets import source
from arpguard.v1 import agent_pb2 as pb


def show_links(options: argparse.Namespace) -> int:
    """`arpguard links`."""
    with source(options) as asked:
        found = asked.get_status(pb.GetStatusRequest()).links
    if options.output == "table":
        print(tables.links(found))
    else:
        print(render.document({"links": [render.as_dict(link) for link in found]}, options.output))
    return exits.OK
