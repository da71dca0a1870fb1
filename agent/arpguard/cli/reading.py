"""Commands that show what the guard on this node is, does, and would do: read from the pinned kernel objects."""

import argparse
import asyncio
import socket
from ipaddress import IPv4Address

from arpguard.cli import exits, render
from arpguard.cli.arguments import host_address, need_root
from arpguard.core.stimulus import Operation, build_stimulus, describe
from arpguard.dataplane import loader
from arpguard.dataplane.explain import try_frame
from arpguard.dataplane.inspect import Snapshot, read_snapshot
from arpguard.dataplane.netlink import read_surroundings
from arpguard.dataplane.syscall import Fd
from arpguard.model import EntryKey, Link, Tally, VipEntry
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict


def show_status(options: argparse.Namespace) -> int:
    """`arpguard status`; exit code 1 while the kernel has not been told its mode."""
    snapshot = read_snapshot(options.pin_dir)
    code = exits.OK if snapshot.control else exits.NOT_RIGHT
    if options.output == "json":
        print(render.json_text(_status_json(snapshot)))
        return code
    mode = snapshot.control.mode.name.lower() if snapshot.control else "unknown"
    print(f"mode {mode}, {len(snapshot.entries)} of {snapshot.capacity} entries, pins under {options.pin_dir}")
    events = snapshot.events
    print(f"events: {events.delivered} reported, {events.limited} kept back by the rate limit, {events.lost} lost\n")
    rows = [
        (_ifname(pin.info.ifindex), pin.hook.name.lower(), pin.info.program_id or "-", pin.path.name)
        for pin in snapshot.pins
    ]
    print(render.table(("LINK", "HOOK", "PROGRAM", "PIN"), rows))
    print()
    decisions = _reason_rows(snapshot.totals)
    print(render.table(("REASON", "CARRIED OUT", "OBSERVED"), decisions) if decisions else "no decisions yet")
    return code


def show_vips(options: argparse.Namespace) -> int:
    """`arpguard vips`."""
    snapshot = read_snapshot(options.pin_dir)
    if options.output == "json":
        print(render.json_text(_vips_json(snapshot)))
        return exits.OK
    node_mode = snapshot.control.mode if snapshot.control else Mode.OBSERVE
    rows = []
    for key, entry in sorted(snapshot.entries.items()):
        tally = snapshot.tallies[key]
        shown = tally.enforced if (entry.mode or node_mode) is Mode.ENFORCE else tally.observed
        mode = (entry.mode or node_mode).name.lower()
        counts = " ".join(f"{reason.name.lower()}={count}" for reason, count in shown.items())
        rows.append((key.vip, _ifname(key.ifindex), entry.kind.name.lower(), mode, counts or "-"))
    print(render.table(("VIP", "LINK", "KIND", "MODE", "DECISIONS"), rows) if rows else "no VIP is guarded")
    return exits.OK


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
            "sent": snapshot.events.delivered,
            "limited": snapshot.events.limited,
            "lost": snapshot.events.lost,
        },
        "decisions": _tally_json(snapshot.totals),
    }


def _vips_json(snapshot: Snapshot) -> list[dict[str, object]]:
    return [
        _entry_json(key, entry) | {"decisions": _tally_json(snapshot.tallies[key])}
        for key, entry in sorted(snapshot.entries.items())
    ]


def _entry_json(key: EntryKey, entry: VipEntry) -> dict[str, object]:
    return {
        "vip": key.vip,
        "ifindex": key.ifindex,
        "link": _ifname(key.ifindex),
        "kind": entry.kind.name.lower(),
        "mode": entry.mode.name.lower(),
        "hold": entry.hold,
        "owner_mac": None if entry.owner_mac.is_zero else entry.owner_mac,
        "answer_mac": entry.answer_mac if entry.kind is Kind.OWNED else None,
    }


def _tally_json(tally: Tally) -> dict[str, dict[str, int]]:
    return {
        "carried_out": {reason.name.lower(): count for reason, count in tally.enforced.items()},
        "observed": {reason.name.lower(): count for reason, count in tally.observed.items()},
    }


def _reason_rows(tally: Tally) -> list[tuple[object, ...]]:
    return [
        (reason.name.lower(), tally.enforced.get(reason, 0), tally.observed.get(reason, 0))
        for reason in Reason
        if reason in tally.enforced or reason in tally.observed
    ]


def _ifname(ifindex: int) -> str:
    try:
        return socket.if_indextoname(ifindex)
    except OSError:
        return f"({ifindex})" if ifindex else "(gone)"


def explain(options: argparse.Namespace) -> int:
    """`arpguard explain`; exit code 1 when the address is guarded on no link."""
    address = host_address("explain", options.address)
    need_root()
    links = {link.ifindex: link for link in asyncio.run(read_surroundings()).links}
    snapshot = read_snapshot(options.pin_dir)
    programs = loader.open_programs(options.pin_dir)
    ingress = [pin for pin in snapshot.pins if pin.hook is not Hook.TC_EGRESS and pin.info.ifindex in links]
    stories = [_story(address, links[pin.info.ifindex], pin.hook, snapshot, programs) for pin in ingress]
    if options.output == "json":
        print(render.json_text(stories))
    else:
        print("\n\n".join(_told(story) for story in stories) or "no link of this network namespace is guarded")
    return exits.OK if any(story["entry"] for story in stories) else exits.NOT_RIGHT


def _story(
    address: IPv4Address, link: Link, ingress: Hook, snapshot: Snapshot, programs: dict[str, Fd]
) -> dict[str, object]:
    """What the programs of a link do with each kind of frame about an address, and the entry that decides it."""
    entry = snapshot.entries.get(EntryKey(link.ifindex, address))
    node_mode = snapshot.control.mode if snapshot.control else Mode.OBSERVE
    return {
        "address": address,
        "link": link.name,
        "mode": ((entry.mode if entry else None) or node_mode).name.lower(),
        "entry": _entry_json(EntryKey(link.ifindex, address), entry) if entry else None,
        "because": _because(entry),
        "frames": [_trial_json(operation, address, link, ingress, programs) for operation in Operation],
    }


def _trial_json(
    operation: Operation, address: IPv4Address, link: Link, ingress: Hook, programs: dict[str, Fd]
) -> dict[str, object]:
    frame = build_stimulus(operation, address, link.mac)
    hook = Hook.TC_EGRESS if operation.outgoing else ingress
    trial = try_frame(programs, hook, link.ifindex, frame)
    verdict, reason = trial.decisions[-1]
    return {
        "operation": operation.value,
        "meaning": operation.meaning,
        "hook": hook.name.lower(),
        "verdict": verdict.name.lower(),
        "reason": reason.name.lower(),
        "why": reason.meaning,
        "frame": frame.hex(),
        "result": trial.frame.hex() if trial.frame else None,
        "then": _fate(verdict, frame, trial.frame, answered=trial.answered),
    }


def _fate(verdict: Verdict, frame: bytes, result: bytes | None, *, answered: bool) -> str:
    if result is None:
        return "dropped"
    if answered:
        return f"back: {describe(result)}"
    if result != frame:
        return f"as: {describe(result)}"
    return "goes on" if verdict in (Verdict.PASS, Verdict.REPORT) else "goes on (observed only)"


_KIND_MEANING = {
    Kind.OWNED: "owned, this node answers",
    Kind.FOREIGN: "owned by another node or link, silent here",
    Kind.EXTERNAL: "owned by a host outside the cluster, silent here",
    Kind.UNCLAIMED: "owned by nobody, silent here",
    Kind.DELEGATED: "another program on this node answers",
}


def _because(entry: VipEntry | None) -> str:
    if entry is None:
        return "not guarded, the kernel and other programs answer"
    return _KIND_MEANING[entry.kind]


def _told(story: dict[str, object]) -> str:
    """A story for people."""
    frames = story["frames"]
    rows = [
        (frame["meaning"], frame["verdict"], frame["reason"], frame["then"])
        for frame in (frames if isinstance(frames, list) else [])
    ]
    head = f"{story['address']} on {story['link']}, mode {story['mode']}: {story['because']}"
    return head + "\n" + render.table(("FRAME", "VERDICT", "REASON", "THEN"), rows)
