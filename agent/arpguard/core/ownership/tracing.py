"""The protocol's events and effects as lines of a trace, which a checker compares with the rules (docs/protocol.md).

A line is a name and plain values, ready for JSON. `EVENTS` and `EFFECTS` say what is in a trace; whoever performs
effects tells about them (`effect_line`), because only then are they done.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeAlias

from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.records import (
    NOTHING_KEPT,
    ClearEntry,
    ClearTerm,
    DeleteClaim,
    Effect,
    Kept,
    SetEntry,
    SetFence,
    SetTerm,
    Version,
    WriteClaim,
    WriteHeartbeat,
)

Tell: TypeAlias = Callable[[str, Mapping[str, Any]], None]

# Methods of Ownership: what a line calls the event, and the names of the arguments, "" for one that it leaves out.
EVENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "heartbeat_seen": ("heartbeat seen", ("of", "found")),
    "heartbeat_read": ("heartbeat read", ("of", "found", "sent_ns")),
    "heartbeat_read_failed": ("heartbeat not read", ("of",)),
    "heartbeat_written": ("heartbeat answered", ("sent", "outcome", "version", "shown", "sent_ns")),
    "term_read": ("term looked at", ("seen",)),
    "claim_seen": ("claim seen", ("vip", "found")),
    "claim_read": ("claim read", ("vip", "found", "sent_ns")),
    "claim_written": ("claim answered", ("sent", "outcome", "version")),
    "claim_deleted": ("deletion answered", ("sent", "outcome", "version")),
    "own_claims_listed": ("own claims listed", ("", "sent_ns")),
    "drained": ("entry drained", ("vip",)),
    "probed": ("probe answered", ("vip", "taken_by")),
}
EFFECTS: dict[type[Any], str] = {
    SetFence: "fence set",
    SetEntry: "entry put in",
    ClearEntry: "entry taken out",
    SetTerm: "term set",
    ClearTerm: "term cleared",
    WriteHeartbeat: "heartbeat sent",
    WriteClaim: "claim sent",
    DeleteClaim: "deletion sent",
}
_LEFT_OUT = {"links", "speakers", "vouching"}  # what heartbeats publish, and no rule of the protocol reads


class TracedOwnership(Ownership):
    """The same protocol, but `tell` gets every event before the event has any effect."""

    def __init__(
        self,
        node: str,
        instance: str,
        times: Times,
        new_epoch: Callable[[], str],
        kept: Kept = NOTHING_KEPT,
        *,
        tell: Tell,
    ) -> None:
        super().__init__(node, instance, times, new_epoch, kept)
        self._tell = tell
        tell("started", {"times": plain(times), "kept": plain(kept)})

    def set_times(self, times: Times, now_ns: int) -> list[Effect]:
        """Other lengths of time from now on; they are set far more often than they change."""
        if times != self.peers.times:
            self._tell("times set", {"times": plain(times)})
        return super().set_times(times, now_ns)


def effect_line(effect: Effect) -> tuple[str, dict[str, Any]] | None:
    """The trace line for an effect; None for reports, and for reads and probes, whose answers have lines."""
    name = EFFECTS.get(type(effect))
    return (name, {"effect": plain(effect)}) if name else None


def plain(value: object) -> Any:
    """As JSON has it. A version is one string; records are objects."""
    if isinstance(value, Version):
        return f"{value.uid}/{value.resource_version}"
    if is_dataclass(value):
        named = ((field.name, getattr(value, field.name)) for field in fields(value) if field.name not in _LEFT_OUT)
        return {name: plain(each) for name, each in named}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _traced(method: str, name: str, arguments: tuple[str, ...]) -> Callable[..., list[Effect]]:
    """A method that tells of its event, and then does the same as that of Ownership."""

    def event(self: TracedOwnership, *given: Any) -> list[Effect]:
        told = zip(arguments, given, strict=False)  # the last argument is the time that the agent goes by
        self._tell(name, {**{each: plain(value) for each, value in told if each}, "now_ns": given[-1]})
        effects: list[Effect] = getattr(Ownership, method)(self, *given)
        return effects

    return event


for _method, (_name, _arguments) in EVENTS.items():
    setattr(TracedOwnership, _method, _traced(_method, _name, _arguments))
