"""What a voucher does, as lines of a trace (docs/traces.md): terms that it adopts, what it grants in them, their ends.

As in `core/ownership/tracing` a line is a name and plain values. This imports no more than the voucher does, because
its process is a small one.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from arpguard.core.vouching.voucher import (
    AdoptedTerm,
    Decided,
    EpochOver,
    OwnRight,
    Pong,
    SeenBound,
    SendGrant,
    SendPing,
    Voucher,
    VoucherEffect,
)

_ENDS = {SeenBound: "bound seen", Decided: "term decided", EpochOver: "epoch over"}


class TracedVoucher(Voucher):
    """The same voucher, but `tell` gets each of its decisions before it takes effect.

    `heard_ns`: when the pong came that is passed on next, which only its caller knows.
    """

    def __init__(self, instance: str, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        super().__init__(instance)
        self._tell = tell
        self.heard_ns = 0
        self._pinged_ns: dict[int, int] = {}  # the last ping of each term

    def adopt(self, term: AdoptedTerm, now_ns: int) -> bool:
        """As in Voucher; a refusal leaves no line."""
        adopted = super().adopt(term, now_ns)
        if adopted:
            self._tell("term adopted", {"term": asdict(term)})
        return adopted

    def drop(self, number: int) -> None:
        """As in Voucher."""
        self._tell("term dropped", {"number": number})
        self._pinged_ns.pop(number, None)
        super().drop(number)

    def tick(self, now_ns: int) -> list[VoucherEffect]:
        """As in Voucher; a ping leaves no line of its own, but the next grant says when it was sent."""
        effects = super().tick(now_ns)
        self._pinged_ns |= {effect.term: effect.number for effect in effects if isinstance(effect, SendPing)}
        return effects

    def pong(self, number: int, pong: Pong, right: OwnRight | None, now_ns: int) -> list[VoucherEffect]:
        """As in Voucher; a grant's line has all that it was decided by."""
        effects = super().pong(number, pong, right, now_ns)
        for effect in effects:
            if isinstance(effect, SendGrant):
                self._tell("granted", self._grant(effect, right, now_ns))
            else:
                self._tell(_ENDS[type(effect)], {"number": number})
        return effects

    def _grant(self, effect: SendGrant, right: OwnRight | None, now_ns: int) -> dict[str, Any]:
        return {
            "number": effect.term,
            "ping": effect.number,
            "pinged_ns": self._pinged_ns.get(effect.term, 0),
            "stamp_ns": effect.stamp_ns,
            "right": right and asdict(right),
            "heard_ns": self.heard_ns,
            "noted_ns": now_ns,
        }

    def emptied(self, number: int, heard: Callable[[], int], now_ns: int) -> list[VoucherEffect]:
        """As in Voucher."""
        effects = super().emptied(number, heard, now_ns)
        for effect in effects:
            self._tell(_ENDS[type(effect)], {"number": number})
        return effects
