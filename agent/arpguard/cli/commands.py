"""Commands that ask nobody but the kernel and the wire; each returns the exit code."""

import argparse
import asyncio

from arpguard.addresses import NOBODY, Address
from arpguard.cli import exits, render
from arpguard.cli.arguments import host_address, need_root
from arpguard.clock import boot_ns
from arpguard.config.files import read_config
from arpguard.config.model import NOT_A_PIN_DIR
from arpguard.core.choosing import route_to
from arpguard.core.desired import primary_address
from arpguard.dataplane import bpffs
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.dataplane.netlink import read_surroundings
from arpguard.errors import ConfigError, DataPlaneError, Problem
from arpguard.runtime.cluster.leaving import remove_guard
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
    counts: dict[str, int] = {}
    for reply in replies:
        counts[str(reply.packet.sha)] = counts.get(str(reply.packet.sha), 0) + 1
    if options.json:
        answers = [{"mac": mac, "replies": count} for mac, count in counts.items()]
        print(
            render.json_text({"address": address, "interface": ifname, "requests": options.count, "answers": answers})
        )
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


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config = read_config(options.file)
    print(f"{options.file}: ok, mode {config.mode.name.lower()}, {len(config.vips)} VIPs")
    return exits.OK


def clean_up(options: argparse.Namespace) -> int:
    """`arpguard cleanup`."""
    pin_dir = read_config(options.config).bpf.pin_dir if options.config else options.pin_dir
    need_root()
    if pin_dir in NOT_A_PIN_DIR:
        raise ConfigError("arpguard cleanup", [Problem("--pin-dir", str(pin_dir), "must be the agent's own folder")])
    if not pin_dir.is_dir():
        print(f"nothing is pinned under {pin_dir}")
        return exits.OK
    if not bpffs.is_bpffs(pin_dir):
        raise DataPlaneError(f"{pin_dir} is no BPF file system: name the agent's bpf.pin_dir")
    with bpffs.lock(pin_dir):
        asyncio.run(remove_guard(pin_dir))
    bpffs.remove_all(pin_dir)
    print(f"removed the guard and everything under {pin_dir}")
    return exits.OK
