"""`arpguard links`: the guarded links."""

import argparse

from arpguard.cli import documents, exits, tables
from arpguard.cli.targets import source
from arpguard.v1 import agent_pb2 as pb


def show_links(options: argparse.Namespace) -> int:
    """`arpguard links`."""
    with source(options) as asked:
        found = asked.get_status(pb.GetStatusRequest()).links
    if options.output == "table":
        print(tables.links(found))
    else:
        print(documents.document({"links": [documents.as_dict(link) for link in found]}, options.output))
    return exits.OK
