"""Messages between the agent and its voucher's process: values, each as one packet of JSON."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, TypeAlias

from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.voucher import AdoptedTerm, Exchange, TermReport


class Priority(Enum):
    """How the kernel schedules the voucher's process, best first."""

    REAL_TIME = "SCHED_RR"
    NICE = "nice"
    ORDINARY = "ordinary"


class Phase(Enum):
    """How far the voucher has come with a term. All phases but the first are final."""

    VOUCHING = "vouching"
    DECIDED = "decided"  # the node is dead, and its heartbeat may be revoked (V7)
    EPOCH_OVER = "epoch over"  # this node's epoch is not the one that the term names
    REFUSED = "refused"  # the term names another instance, or was over before
    NO_LINK = "no link"  # the link is not there


# ---- from the agent ----


@dataclass(frozen=True, slots=True)
class Adopt:
    """Vouch in this term, for the node that has this MAC on this link. `key`: 16 bytes."""

    term: AdoptedTerm
    ifname: str
    mac: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """Send nothing more in this term, and forget it."""

    number: int


@dataclass(frozen=True, slots=True)
class Farewell:
    """Say in pings that this voucher ends, and end when every term has been dropped, or after a while."""


Command: TypeAlias = Adopt | Drop | Farewell


# ---- to the agent ----


@dataclass(frozen=True, slots=True)
class Started:
    """The process is ready for commands."""

    priority: Priority


@dataclass(frozen=True, slots=True)
class TermNews:
    """The state of a term: when it was adopted, when its phase or `bound` changes, and each second.

    `report` None: nothing was ever sent in it.
    """

    number: int
    phase: Phase
    report: TermReport | None = None


News: TypeAlias = Started | TermNews


def encode(message: Command | News) -> bytes:
    """One packet."""
    return json.dumps([type(message).__name__, asdict(message)], default=_plain).encode()


def decode_command(packet: bytes) -> Command:
    """What the agent has sent. ValueError, KeyError or TypeError if it did not."""
    kind, fields = json.loads(packet)
    return _COMMANDS[kind](fields)


def decode_news(packet: bytes) -> News:
    """What the voucher's process has sent. ValueError, KeyError or TypeError if it did not."""
    kind, fields = json.loads(packet)
    return _NEWS[kind](fields)


def _plain(value: object) -> str:
    """What JSON has no word for: bytes, and a member of an enumeration."""
    return value.hex() if isinstance(value, bytes) else str(getattr(value, "value", value))


def _adopt(fields: dict[str, Any]) -> Adopt:
    mac, key = bytes.fromhex(fields["mac"]), bytes.fromhex(fields["key"])
    return Adopt(AdoptedTerm(**fields["term"]), fields["ifname"], mac, key)


def _term_news(fields: dict[str, Any]) -> TermNews:
    report = fields["report"]
    return TermNews(fields["number"], Phase(fields["phase"]), report and _report(report))


def _report(fields: dict[str, Any]) -> TermReport:
    gaps = {**fields["gaps"], "counts": tuple(fields["gaps"]["counts"])}
    first, last = (each and Exchange(**each) for each in (fields["first"], fields["last"]))
    return TermReport(**{**fields, "gaps": Gaps(**gaps), "first": first, "last": last})


_COMMANDS: Mapping[str, Callable[[dict[str, Any]], Command]] = {
    "Adopt": _adopt,
    "Drop": lambda fields: Drop(**fields),
    "Farewell": lambda fields: Farewell(**fields),
}
_NEWS: Mapping[str, Callable[[dict[str, Any]], News]] = {
    "Started": lambda fields: Started(Priority(fields["priority"])),
    "TermNews": _term_news,
}
