"""`arpguard whohas`: asks the segment which hosts answer for an address."""

import argparse
import asyncio
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from arpguard.addresses import NOBODY, Address, MacAddress
from arpguard.cli import documents, exits, render
from arpguard.cli.arguments import host_address, need_root
from arpguard.cli.client import Target, connected
from arpguard.cli.exits import AskError
from arpguard.cli.options import DEFAULT_TARGET
from arpguard.cli.render import bad, clean
from arpguard.cli.words import NONE
from arpguard.clock import boot_ns
from arpguard.core.bounding import some
from arpguard.core.choosing import route_to
from arpguard.core.claimants import virtual_router
from arpguard.core.desired import primary_address
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.dataplane.netlink import read_neighbours, read_surroundings
from arpguard.errors import DataPlaneError
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb

_AGENT_S = 1.0  # how long to wait for the names that the agent knows


def run_whohas(options: argparse.Namespace) -> int:
    """`arpguard whohas`."""
    address = host_address("whohas", options.address)
    need_root()

    ifname, spa = asyncio.run(_way_to(address, options.interface))
    asker = NeighbourSocket(ifname)
    began_ns = boot_ns()
    replies = asker.ask(address, spa, count=options.count, wait_s=options.wait)
    asker.close()
    waited_s = (boot_ns() - began_ns) / NS_PER_S
    counts = Counter(reply.packet.sha for reply in replies)
    names = _names(counts, address, options.agent)

    if options.output != "table":
        answers = [{"mac": str(mac), "replies": count, "who": names[mac]} for mac, count in counts.items()]
        found = {"address": str(address), "interface": ifname, "requests": options.count, "answers": answers}
        print(documents.document(found, options.output))
    elif counts:
        print("\n".join(_text(address, ifname, counts, names, options.count)))
    else:
        print(
            f"no host answers for {address} on {ifname} (waited {waited_s:.1f} s); this node does not hear its own "
            "answers"
        )
    return exits.OK if len(counts) == 1 else exits.NOT_RIGHT


def _text(
    address: Address, ifname: str, counts: Counter[MacAddress], names: dict[MacAddress, str], asked: int
) -> Iterator[str]:
    """Who answered how often, and what that means."""
    rows = [(address, mac, ifname, f"{count} of {asked}", names[mac]) for mac, count in counts.items()]
    yield render.table(("ADDRESS", "MAC", "INTERFACE", "ANSWERED", "WHO"), rows, yielding="WHO")
    yield ""
    if len(counts) == 1:
        yield f"exactly one host answers for {address} on {ifname}"
    else:
        yield str(bad(f"{len(counts)} hosts answer for {address} on {ifname}: a client may reach any of them"))


def _names(macs: Iterable[MacAddress], asked: Address, agent: str | None) -> dict[MacAddress, str]:
    """Who has each MAC: a virtual router, a node that the agent knows, or who else this node's neighbours show."""
    macs = list(macs)
    nodes = _nodes(agent) if macs else {}
    others = _neighbours(asked) if macs else {}
    routers = {mac: str(router) for mac in macs if (router := virtual_router(mac))}
    return {mac: routers.get(mac) or nodes.get(mac) or others.get(mac) or NONE for mac in macs}


def _nodes(agent: str | None) -> dict[MacAddress, str]:
    """The nodes of the cluster by MAC, as the agent on this node knows them; none where no agent answers."""
    target = Target(agent or os.environ.get("ARPGUARD_ADDRESS") or DEFAULT_TARGET, timeout_s=_AGENT_S)
    path = Path(target.address.removeprefix("unix://"))
    if target.address.startswith("unix:") and not path.exists():
        return {}

    try:
        with connected(target) as asked:
            status = asked.get_status(pb.GetStatusRequest())
    except AskError:
        return {}
    own = {mac: status.node for link in status.links if (mac := link.mac)}
    others = {mac: node.name for node in status.kubernetes.nodes for mac in node.macs}
    return {MacAddress.parse(mac): f"node {clean(name)}" for mac, name in (others | own).items()}


def _neighbours(asked: Address) -> dict[MacAddress, str]:
    """The other addresses of each MAC in this node's neighbour table."""
    addresses: dict[MacAddress, list[Address]] = {}
    for address, mac in asyncio.run(read_neighbours()):
        if address != asked:
            addresses.setdefault(mac, []).append(address)
    return {mac: f"also has {some(found, 2)}" for mac, found in addresses.items()}


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
