"""`arpguard whohas`: asks the wire who answers for an address."""

import argparse
import asyncio
from collections import Counter

from arpguard.addresses import NOBODY, Address
from arpguard.cli import exits, render
from arpguard.cli.arguments import host_address, need_root
from arpguard.clock import boot_ns
from arpguard.core.choosing import route_to
from arpguard.core.desired import primary_address
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.dataplane.netlink import read_surroundings
from arpguard.errors import DataPlaneError
from arpguard.units import NS_PER_S


def run_whohas(options: argparse.Namespace) -> int:
    """`arpguard whohas`."""
    address = host_address("whohas", options.address)
    need_root()

    ifname, spa = asyncio.run(_way_to(address, options.interface))
    asker = NeighbourSocket(ifname)
    began_ns = boot_ns()
    replies = asker.ask(address, spa, count=options.count, wait_s=options.wait)
    asker.close()
    counts = Counter(str(reply.packet.sha) for reply in replies)

    if options.json:
        answers = [{"mac": mac, "replies": count} for mac, count in counts.items()]
        found = {"address": address, "interface": ifname, "requests": options.count, "answers": answers}
        print(render.json_text(found))
    elif counts:
        rows = [(address, mac, ifname, f"{count} of {options.count}") for mac, count in counts.items()]
        print(render.table(("ADDRESS", "MAC", "INTERFACE", "ANSWERED"), rows))
    else:
        waited = (boot_ns() - began_ns) / NS_PER_S
        print(f"nobody answers for {address} on {ifname} ({waited:.1f} s); this node does not hear itself")
    return exits.OK if len(counts) == 1 else exits.NOT_RIGHT


async def _way_to(address: Address, ifname: str | None) -> tuple[str, Address]:
    """The interface to ask on, and the address to ask with: the link's own, or none (a probe)."""
    surroundings = await read_surroundings()
    route = route_to(address, surroundings.routes)

    named = [link for link in surroundings.links if ifname in link.names]
    link = named[0] if named else surroundings.link(route.ifindex) if route and not ifname else None
    if link is None:
        known = ", ".join(link.name for link in surroundings.links if link.ethernet)
        raise DataPlaneError(f"no interface {ifname or f'leads to {address}'}: name one with --interface ({known})")

    return link.name, primary_address(link, address.version, [address]) or NOBODY[address.version]
