"""`arpguard vips`: the VIPs of a node, or of all, and one in detail."""

import argparse

from arpguard.cli import documents, everywhere, exits, tables
from arpguard.cli.client import AgentQuestions, Questions, every_page
from arpguard.cli.exits import AskError
from arpguard.cli.options import filters, number_of
from arpguard.cli.targets import source
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind


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
    """Shows a list for one address, too, so that the nodes' entries for it can be compared."""

    def ask(agent: AgentQuestions) -> pb.ListVipsResponse:
        if options.vip:
            return pb.ListVipsResponse(vips=_one_vip(agent, options, kind).vips)
        return every_page(agent.list_vips, pb.ListVipsRequest(link=options.link, kind=kind))

    return everywhere.show(options, ask, everywhere.vips(options))


def _one_vip(asked: Questions, options: argparse.Namespace, kind: pb.Kind.ValueType) -> pb.GetVipResponse:
    """A VIP on those of its links that the options select: the API has no filter for one VIP."""
    found = asked.get_vip(pb.GetVipRequest(address=options.vip)).vips
    kept = [vip for vip in found if options.link in ("", vip.link) and kind in (0, vip.kind)]
    if not kept:
        raise AskError(
            exits.NOT_RIGHT, f"{options.vip} is guarded, but no entry matches {filters(options, ('link', 'kind'))}"
        )
    return pb.GetVipResponse(vips=kept)
