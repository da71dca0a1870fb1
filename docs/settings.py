"""The tables of docs/configuration.md: values and defaults from the schema and config/model.py.

What a setting means stays in the page. Values stay there, too, where the schema has more than an enumeration or a
range to say: addresses, names, paths and durations.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from arpguard.config.model import AgentConfig, VouchingConfig
from arpguard.config.sections import SCHEMA
from arpguard.units import NS_PER_S

TOP = Path(__file__).resolve().parent.parent
_CONFIG = AgentConfig()
_ROW = re.compile(r"^\| (`[a-z_]+[`.\[].*?) \| (.*?) \| (.*?) \| (.*) \|$", re.MULTILINE)
_PATH = re.compile(r"`([^`]*)`")


# Those that are not the attribute of that name, nor a time in the one of that name and `_ns`, as the page shows them.
_SHOWN: Mapping[str, Callable[[], object]] = {
    "audit.rate": lambda: f"{_CONFIG.audit.rate}/s",
    "interfaces": lambda: f"[{', '.join(map(str, _CONFIG.interfaces))}]",
    "services.selector": lambda: "{}" if not _CONFIG.services.selector else _CONFIG.services.selector,
    "services.owner": _CONFIG.services.owner.kind.name.lower,
    "ranges": lambda: f"{[*_CONFIG.ranges]}",
    "unknown": lambda: "suppress" if _CONFIG.closed else "pass",
    "follow.metallb.namespace": lambda: _CONFIG.follow.metallb,
    "follow.cilium.namespace": lambda: _CONFIG.follow.cilium,
    "follow.kube_vip.namespace": lambda: _CONFIG.follow.kube_vip,
    "follow.openelb.namespace": lambda: _CONFIG.follow.openelb,
    "follow.kube_vip.lease": lambda: _CONFIG.follow.kube_vip_lease,
    "lease.vouching.secret": lambda: VouchingConfig().secret,
}
# They have no default, one that depends on others, or one that takes a sentence.
_IN_WORDS = {
    *("vips[].address", "vips[].owner", "vips[].mode", "vips[].hold", "services", "grpc.listen", "grpc.tls"),
    *("lease.vouching", "lease.vouching.ethertype", "lease.vouching.profile"),
}


def page() -> str:
    """The page as it has to be."""
    text = (TOP / "docs/configuration.md").read_text(encoding="utf-8")
    return _ROW.sub(lambda row: f"| {row[1]} | {_values(row)} | {_defaults(row)} | {row[4]} |", text)


def paths(cell: str) -> list[str]:
    """The settings of a row: `.renew` stands for the one before with another end."""
    found: list[str] = []
    for name in _PATH.findall(cell):
        found.append(found[-1].rpartition(".")[0] + name if name.startswith(".") else name)
    return found


def _values(row: "re.Match[str]") -> str:
    (said, *others) = {_said(_schema(path)) for path in paths(row[1])}
    return row[2] if others or said is None else said


def _said(schema: Mapping[str, Any] | None) -> str | None:
    """What the schema can say: None where that is not all."""
    match schema:
        case {"enum": [*values]}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "boolean"}:
            return "`true`, `false`"
        case {"type": "integer", "minimum": least, "maximum": most}:
            return f"{least} to {most}"
    return None


def _schema(path: str) -> Mapping[str, Any] | None:
    """What the schema says of a setting; None: it is none."""
    found: Mapping[str, Any] = SCHEMA
    for part in re.findall(r"[^.\[]+|\[\]", path):
        forms = [found, *found.get("anyOf", ())]
        below = [form.get("items") if part == "[]" else form.get("properties", {}).get(part) for form in forms]
        found = next((each for each in below if each is not None), {})
        if not found:
            return None
    return found


def _defaults(row: "re.Match[str]") -> str:
    names = paths(row[1])
    if _IN_WORDS & set(names):
        return row[3]
    values = [_default(name) for name in names]
    return ", ".join(f"{value}" if value.isdigit() else f"`{value}`" for value in values)


def _default(path: str) -> str:
    if path in _SHOWN:
        return str(_SHOWN[path]())
    value: object = _CONFIG
    for part in path.split("."):
        if hasattr(value, f"{part}_ns"):
            value = f"{getattr(value, f'{part}_ns') / NS_PER_S:g}s"
        elif hasattr(value, part):
            value = getattr(value, part)
        else:
            message = f"{path}: config/model.py has no such attribute; put its default into _SHOWN or _IN_WORDS"
            raise LookupError(message)
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return value.name.lower()
    return str(value)
