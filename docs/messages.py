"""docs/api-messages.md: methods and messages of the API, from the comments of proto/arpguard/v1/agent.proto."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROTO = Path(__file__).resolve().parent.parent / "proto/arpguard/v1/agent.proto"
_HEAD = """# Messages of the API

For developers whose programs ask agents: look up a method, a message or a field.

This page has the comments of [agent.proto](../proto/arpguard/v1/agent.proto).
[The API](api.md) says how to connect, and has examples.
The [glossary](glossary.md) defines fence, epoch and the other terms.
"""
_COMMENT = re.compile(r"\s*// ?(.*)")
_OPENS = re.compile(r"\s*(service|message|enum|oneof) (\w+) \{(\})?")
_RPC = re.compile(r"\s*rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\)")
_FIELD = re.compile(r"\s*((?:repeated |optional )?[\w.<>, ]+?) ?(\b\w+) = (\d+)")


@dataclass(slots=True)
class Part:
    """A message, an enumeration or the service: its name, its comment, and a row for each member."""

    kind: str
    name: str
    said: str
    rows: list[tuple[str, ...]] = field(default_factory=list)


def page() -> str:
    """The page."""
    parts = list(_parts(PROTO.read_text(encoding="utf-8")))
    order = {"service": 0, "message": 1, "enum": 2}
    return _HEAD + "".join(_section(part) for part in sorted(parts, key=lambda part: order[part.kind]))


def _section(part: Part) -> str:
    columns = {
        "service": ("method", "request", "answer", "does"),
        "message": ("field", "type", "means"),
        "enum": ("value", "means"),
    }[part.kind]
    said = f"\n{part.said}\n" if part.said else ""
    head = f"\n| {' | '.join(columns)} |\n{'|---' * len(columns)}|\n" if part.rows else "\nIt has no fields.\n"
    return f"\n## {part.name}\n{said}{head}" + "".join(f"| {' | '.join(row)} |\n" for row in part.rows)


def _parts(text: str) -> Iterator[Part]:
    """All of them, those inside others by their full names."""
    open_parts: list[Part] = []
    comment: list[str] = []
    for line in text.splitlines():
        if found := _COMMENT.fullmatch(line):
            comment.append(found[1])
            continue
        if found := _OPENS.match(line):
            if found[1] == "oneof":
                open_parts.append(open_parts[-1])
            else:
                name = ".".join([*dict.fromkeys(part.name for part in open_parts[-1:]), found[2]])
                part = Part(found[1], name, _plain(comment))
                yield part
                if not found[3]:
                    open_parts.append(part)
        elif open_parts and (row := _row(open_parts[-1], line, comment)):
            open_parts[-1].rows.append(row)
        elif line.strip() == "}":
            open_parts.pop()
        comment = []


def _row(part: Part, line: str, comment: list[str]) -> tuple[str, ...]:
    """A member's row; empty: this line has none."""
    if found := _RPC.match(line):
        said = _plain(comment)
        return f"`{found[1]}`", _link(found[2]), ("a stream of " if found[3] else "") + _link(found[4]), said
    found = _FIELD.match(line) if part.kind == "message" else re.match(r"\s*(\w+) = (\d+)", line)
    if not found:
        return ()
    if part.kind == "enum":
        return f"`{found[1]}`", _plain(comment)
    return f"`{found[2]}`", f"`{found[1].strip()}`", _plain(comment)


def _link(name: str) -> str:
    return f"[`{name}`](#{name.lower()})"


def _plain(comment: list[str]) -> str:
    """A comment in one line of Markdown; an indented line of it is an error and when it comes."""
    found = [re.fullmatch(r"  ([A-Z_]+)  +(.*)", line) for line in comment]
    errors = ", ".join(f"`{error[1]}` ({error[2]})" for error in found if error and error[1] != "OK")
    first = next((number for number, error in enumerate(found) if error), len(comment))
    before, after = comment[:first], [line for line, error in zip(comment, found, strict=True) if not error][first:]
    if errors:
        errors = f"{errors}." if before[-1].endswith("return") else f"Errors: {errors}."
    return " ".join(" ".join([*before, errors, *after]).replace("|", "\\|").replace("<", "&lt;").split())
