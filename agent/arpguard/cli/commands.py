"""One small function for each command; each returns the exit code."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address

from arpguard.addresses import vip_refusal
from arpguard.cli import render
from arpguard.clock import boot_ns
from arpguard.config import read_config
from arpguard.core.choosing import route_to
from arpguard.core.desired import primary_address
from arpguard.dataplane import bpffs, clsact
from arpguard.dataplane.arpsocket import ArpSocket
from arpguard.dataplane.attach import release_all
from arpguard.dataplane.inspect import Snapshot, read_snapshot
from arpguard.dataplane.netlink import read_surroundings
from arpguard.errors import ConfigError, DataPlaneError, Problem
from arpguard.lab import runner
from arpguard.model import Tally
from arpguard.runtime.agent import Agent, AgentOptions
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Mode, Reason

EXIT_OK, EXIT_NOT_RIGHT = 0, 1
_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"
_MAX_LAB_NODES = 16


def run_agent(options: argparse.Namespace) -> int:
    """`arpguard agent`."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=_LOG_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    agent = Agent(AgentOptions(config=options.config, node=options.node_name))
    _need_root()
    asyncio.run(agent.run())
    return EXIT_OK


def run_lab(options: argparse.Namespace) -> int:
    """`arpguard lab`."""
    if options.list:
        print(render.table(("SCENARIO", "WHAT IT SHOWS"), runner.catalogue()))
        return EXIT_OK
    if not 2 <= options.nodes <= _MAX_LAB_NODES:
        raise ConfigError("arpguard lab", [Problem("--nodes", str(options.nodes), f"2 to {_MAX_LAB_NODES}")])
    _need_root()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    show = None if options.json else _print_scenario
    results = runner.run(options.scenario, options.nodes, show)
    if options.json:
        print(render.json_text([step.as_json() for step in results]))
    else:
        failed = sum(not step.ok for step in results)
        verdict = render.bad(f"{failed} not as expected") if failed else render.good("all as expected")
        print(f"\n{len(results)} steps, {verdict}")
    return EXIT_OK if results and all(step.ok for step in results) else EXIT_NOT_RIGHT


def _leave(number: int, _frame: object) -> None:
    """Ends the command from within, so that what it built is taken down."""
    raise SystemExit(128 + number)


def _print_scenario(scenario: str, steps: Sequence[runner.Step]) -> None:
    rows = [(*step.cells(), render.good("ok") if step.ok else render.bad("NOT AS EXPECTED")) for step in steps]
    print(f"\n{scenario}: {runner.summary(scenario)}")
    print(render.table((*runner.COLUMNS, ""), rows), flush=True)


def run_whohas(options: argparse.Namespace) -> int:
    """`arpguard whohas`."""
    try:
        address = IPv4Address(options.address)
    except AddressValueError:
        raise ConfigError("arpguard whohas", [Problem("ADDRESS", options.address, "an IPv4 address")]) from None
    refusal = vip_refusal(address)
    if refusal:
        raise ConfigError("arpguard whohas", [Problem("ADDRESS", options.address, f"{refusal}; name a host's address")])
    _need_root()
    ifname, spa = asyncio.run(_way_to(address, options.interface))
    asker = ArpSocket(ifname)
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
        print(f"nobody answers for {address} on {ifname} ({(boot_ns() - began_ns) / NS_PER_S:.1f} s)")
    return EXIT_OK if len(counts) == 1 else EXIT_NOT_RIGHT


async def _way_to(address: IPv4Address, ifname: str | None) -> tuple[str, IPv4Address]:
    """The interface to ask on, and the spa to ask with: the link's own address, or 0.0.0.0 (a probe)."""
    surroundings = await read_surroundings()
    route = route_to(address, surroundings.routes)
    named = [link for link in surroundings.links if link.name == ifname]
    link = named[0] if named else surroundings.link(route.ifindex) if route and not ifname else None
    if link is None:
        known = ", ".join(link.name for link in surroundings.links if link.ethernet)
        raise DataPlaneError(f"no interface {ifname or f'leads to {address}'}: name one with --interface ({known})")
    return link.name, primary_address(link, [address]) or IPv4Address(0)


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config = read_config(options.file)
    print(f"{options.file}: ok, mode {config.mode.name.lower()}, {len(config.vips)} VIPs")
    return EXIT_OK


def clean_up(options: argparse.Namespace) -> int:
    """`arpguard cleanup`."""
    pin_dir = read_config(options.config).bpf.pin_dir if options.config else options.pin_dir
    _need_root()
    if not pin_dir.is_dir():
        print(f"nothing is pinned under {pin_dir}")
        return EXIT_OK
    if not bpffs.is_bpffs(pin_dir):
        raise DataPlaneError(f"{pin_dir} is no BPF file system: name the agent's bpf.pin_dir")
    with bpffs.lock(pin_dir):
        release_all(pin_dir)
    bpffs.remove_all(pin_dir)
    asyncio.run(clsact.delete_all())
    print(f"removed the guard and everything under {pin_dir}")
    return EXIT_OK


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 while the kernel has not been told its mode."""
    snapshot = read_snapshot(options.pin_dir)
    code = EXIT_OK if snapshot.control else EXIT_NOT_RIGHT
    if options.output == "json":
        print(render.json_text(_status_json(snapshot)))
        return code
    mode = snapshot.control.mode.name.lower() if snapshot.control else "unknown"
    print(f"mode {mode}, {len(snapshot.entries)} of {snapshot.capacity} entries, pins under {options.pin_dir}")
    events = snapshot.events
    print(f"events: {events.sent} reported, {events.limited} kept back by the rate limit, {events.lost} lost\n")
    rows = [
        (_ifname(pin.info.ifindex), pin.hook.name.lower(), pin.info.program_id or "-", pin.path.name)
        for pin in snapshot.pins
    ]
    print(render.table(("LINK", "HOOK", "PROGRAM", "PIN"), rows))
    print()
    print(render.table(("REASON", "CARRIED OUT", "OBSERVED", "MEANING"), _reason_rows(snapshot.totals)))
    return code


def show_vips(options: argparse.Namespace) -> int:
    """`arpguard vips`."""
    snapshot = read_snapshot(options.pin_dir)
    if options.output == "json":
        print(render.json_text(_vips_json(snapshot)))
        return EXIT_OK
    node_mode = snapshot.control.mode if snapshot.control else Mode.OBSERVE
    rows = []
    for key, entry in sorted(snapshot.entries.items()):
        tally = snapshot.tallies[key]
        shown = tally.enforced if (entry.mode or node_mode) is Mode.ENFORCE else tally.observed
        mode = (entry.mode or node_mode).name.lower()
        counts = " ".join(f"{reason.name.lower()}={count}" for reason, count in shown.items())
        rows.append((key.vip, _ifname(key.ifindex), entry.kind.name.lower(), mode, counts or "-"))
    print(render.table(("VIP", "LINK", "KIND", "MODE", "DECISIONS"), rows))
    return EXIT_OK


def _status_json(snapshot: Snapshot) -> dict[str, object]:
    control = snapshot.control
    return {
        "mode": control.mode.name.lower() if control else None,
        "generation": control.generation if control else None,
        "fence_ns": control.fence_ns if control else None,
        "entries": len(snapshot.entries),
        "capacity": snapshot.capacity,
        "links": [
            {
                "ifindex": pin.info.ifindex,
                "link": _ifname(pin.info.ifindex),
                "hook": pin.hook.name.lower(),
                "program": pin.info.program_id,
            }
            for pin in snapshot.pins
        ],
        "events": {
            "sent": snapshot.events.sent,
            "limited": snapshot.events.limited,
            "lost": snapshot.events.lost,
        },
        "decisions": _tally_json(snapshot.totals),
    }


def _vips_json(snapshot: Snapshot) -> list[dict[str, object]]:
    return [
        {
            "vip": key.vip,
            "ifindex": key.ifindex,
            "link": _ifname(key.ifindex),
            "kind": entry.kind.name.lower(),
            "mode": entry.mode.name.lower(),
            "hold": entry.hold,
            "owner_mac": None if entry.owner_mac.is_zero else entry.owner_mac,
            "answer_mac": entry.answer_mac if entry.kind is Kind.OWNED else None,
            "decisions": _tally_json(snapshot.tallies[key]),
        }
        for key, entry in sorted(snapshot.entries.items())
    ]


def _tally_json(tally: Tally) -> dict[str, dict[str, int]]:
    return {
        "carried_out": {reason.name.lower(): count for reason, count in tally.enforced.items()},
        "observed": {reason.name.lower(): count for reason, count in tally.observed.items()},
    }


def _reason_rows(tally: Tally) -> list[tuple[object, ...]]:
    return [
        (reason.name.lower(), tally.enforced.get(reason, 0), tally.observed.get(reason, 0), reason.meaning)
        for reason in Reason
        if reason in tally.enforced or reason in tally.observed
    ]


def _ifname(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return f"({ifindex})" if ifindex else "(gone)"


def _need_root() -> None:
    if os.geteuid() != 0:
        raise DataPlaneError("this needs root: run it with sudo")
