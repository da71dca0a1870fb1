"""The traces of agents on one machine, and the journal of its API server, as one trace in the order of time.

Leases are read here as docs/protocol.md and docs/vouching.md describe them, and not by the agent's own code.
"""

import json
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from itertools import takewhile
from pathlib import Path

from support.protocol.trace_state import S_NS, Json

PREFIX = "arpguard.io/"
JOURNAL = "journal"  # in a folder of traces


def merged(traces: Iterable[Path], journal: Iterable[Json], boot_ns_of_wall: int) -> list[Json]:
    """`journal`: rows of the API server's double; its clock is the wall's, which `boot_ns_of_wall` is added to."""
    lines = [line for path in traces for line in lines_of(path)]
    for row in journal:
        line = stored(row)
        if line is not None:
            lines.append({"at": row["time_ns"] + boot_ns_of_wall, **line})
    return sorted(lines, key=lambda line: int(line["at"]))


def of_folder(folder: Path) -> Iterator[Json]:
    """The lines of all files of a folder that the lab wrote, in the order of time; each says where it is.

    A file is read when its first line comes, so thousands of agents, of which few ran at once, need no more memory.
    What agents wrote after the last row of the journal is left out: that row is the last by which they can be judged.
    """
    ends_at = max((int(row["ns"]) for row in _rows(folder / JOURNAL) if row is not None), default=0)
    yield from takewhile(lambda line: line["at"] <= ends_at, _in_order(folder))


def _in_order(folder: Path) -> Iterator[Json]:
    files = [path for path in sorted(folder.iterdir()) if path.name == JOURNAL or path.suffix == ".trace"]
    waiting = [(_first_at(path), number, _file_lines(path)) for number, path in enumerate(files)]
    heapify(waiting)
    lines: dict[int, Json] = {}
    while waiting:
        _, number, rest = waiting[0]
        if number in lines:
            yield lines.pop(number)
        line = next(rest, None)
        if line is None:
            heappop(waiting)
        else:
            lines[number] = line
            heapreplace(waiting, (line["at"], number, rest))


def _first_at(path: Path) -> int:
    with path.open(encoding="utf-8") as file:
        return next((int(line["ns"]) for text in file if (line := _parsed(text)) is not None), 0)


def _file_lines(path: Path) -> Iterator[Json]:
    """Sorted: a voucher writes its lines later than its agent."""
    if path.name == JOURNAL:
        rows = [(number, row) for number, row in enumerate(_rows(path), 1) if row is not None]
        lines = [
            {"at": row["ns"], "where": f"{JOURNAL}:{number}", **line} for number, row in rows if (line := stored(row))
        ]
    else:
        lines = list(lines_of(path))
    yield from sorted(lines, key=lambda line: int(line["at"]))


def _rows(path: Path) -> Iterator[Json | None]:
    return map(_parsed, path.read_text(encoding="utf-8").splitlines())


def lines_of(path: Path) -> Iterator[Json]:
    """The boot clock is the same for all agents of a machine. What a killed agent wrote in part is left out."""
    for number, line in enumerate(_rows(path), 1):
        if line is not None:
            yield {"at": line["ns"], "where": f"{path.name}:{number}", **line}


def _parsed(text: str) -> Json | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


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
    texts = {each: named[each] for each in ("node", "instance", "epoch", "term")}
    return {**texts, "d_ns": int(named["dNs"]), "m_ns": int(named["mNs"])}


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
