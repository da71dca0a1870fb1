"""The traces of agents on one machine, and the journal of its API server, as one trace in the order of time.

Leases are read here as docs/protocol.md and docs/vouching.md describe them, and not by the agent's own code.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.protocol.trace_state import S_NS, Json

PREFIX = "arpguard.io/"


def merged(traces: Iterable[Path], journal: Iterable[Json], boot_ns_of_wall: int) -> list[Json]:
    """`journal`: rows of the API server's double; its clock is the wall's, which `boot_ns_of_wall` is added to."""
    lines = [line for path in traces for line in lines_of(path)]
    for row in journal:
        line = stored(row)
        if line is not None:
            lines.append({"at": row["time_ns"] + boot_ns_of_wall, **line})
    return sorted(lines, key=lambda line: int(line["at"]))


def lines_of(path: Path) -> Iterator[Json]:
    """The boot clock is the same for all agents of a machine. What a killed agent wrote in part is left out."""
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        yield {"at": line["ns"], **line}


def stored(row: Json) -> Json | None:
    """A row of the journal as a line; None if it is about another Lease."""
    kind, _, of = str(row["name"]).partition(".")
    lease = row.get("object")
    if kind == "node":
        return {"event": "heartbeat stored", "of": of, "found": lease and _heartbeat(of, lease)}
    if kind == "vip":
        vip = of.replace("-", ":")
        return {"event": "claim stored", "vip": vip, "found": lease and _claim(vip, lease)}
    return None


def _heartbeat(node: str, lease: Json) -> Json:
    notes = _notes(lease)
    vouchers = json.loads(notes.get("vouchers") or "{}")
    instance = notes.get("instance", "")
    names = vouchers.get("vouchers") if vouchers.get("by") == instance else None
    return {
        "node": node,
        "epoch": notes.get("epoch", ""),
        "instance": instance,
        "duration_ns": lease["spec"].get("leaseDurationSeconds", 0) * S_NS,
        "version": _version(lease),
        "voucher": _voucher(names[0]) if names else None,
        "bound": bool(names and vouchers.get("bound")),
        "early": not instance and "early" in notes,
    }


def _voucher(named: Json) -> Json:
    return {**{each: named[each] for each in ("node", "instance", "epoch", "term")}, "d_ns": int(named["dNs"])}


def _claim(vip: str, lease: Json) -> Json:
    notes = _notes(lease)
    return {
        "vip": vip,
        "holder": lease["spec"].get("holderIdentity") or "",
        "epoch": notes.get("holder-epoch", ""),
        "version": _version(lease),
        "external": notes.get("external", ""),
        "holder_uid": notes.get("holder-uid", ""),
    }


def _notes(lease: Json) -> dict[str, str]:
    found = lease["metadata"].get("annotations") or {}
    return {name.removeprefix(PREFIX): text for name, text in found.items()}


def _version(lease: Json) -> str:
    return f"{lease['metadata']['uid']}/{lease['metadata']['resourceVersion']}"
