"""What keys do to the live view: they leave it, hold it still, sort and filter VIPs, and scroll through them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, Protocol, TypeAlias, TypeVar

from arpguard.cli.words import outcome, word
from arpguard.v1 import agent_pb2 as pb

# Terminals send an escape sequence for a key that has no letter (ECMA-48 5.4, and the VT100's application mode).
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
_PAGE = 10
_LONGEST = 40
HELP = (
    ("q", "quit"),
    ("space", "pause or resume the screen"),
    ("s", "change the order of VIPs: frames per second, address, owner, total frames"),
    ("/", "filter by text; Enter keeps the filter, Escape clears it"),
    ("up, down, j, k", "scroll through the VIPs"),
    ("page up, page down", f"scroll by {_PAGE}"),
    ("home", "back to the first VIP"),
    ("?", "show or hide this help"),
)


class AnyVip(Protocol):
    """A VIP, with all its frames so far."""

    @property
    def vip(self) -> pb.Vip:
        """As an agent told it."""

    @property
    def total(self) -> int:
        """All its frames so far."""


SomeVip = TypeVar("SomeVip", bound=AnyVip)


def by_address(reading: AnyVip) -> tuple[int, int]:
    """Sorts IPv4 before IPv6, each by number."""
    try:
        found = ip_address(reading.vip.address)
    except ValueError:
        return 0, 0
    return found.version, int(found)


# What agents send is sorted by rate already.
ORDERS: tuple[tuple[str, Callable[[Any], Any] | None], ...] = (
    ("busiest first", None),
    ("by address", by_address),
    ("by owner", lambda reading: (reading.vip.claim.holder or reading.vip.owner, by_address(reading))),
    ("most frames first", lambda reading: -reading.total),
)


@dataclass(frozen=True, slots=True)
class Keys:
    """What was typed so far. `needle`: what is looked for; `first`: how many VIPs are scrolled over."""

    left: bool = False
    paused: bool = False
    helps: bool = False
    types: bool = False
    needle: str = ""
    order: int = 0
    first: int = 0

    def after(self, text: str, count: int) -> "Keys":
        """Once a terminal has sent some text. `count`: how many VIPs there are to scroll through."""
        keys = self
        for key in _KEY.findall(text):
            change = _typed(keys, key) if keys.types else _ACTIONS.get(key, _nothing)(keys)
            keys = replace(keys, **change)
        return replace(keys, first=max(0, min(keys.first, count - 1)))

    def vips(self, found: Sequence[SomeVip]) -> list[SomeVip]:
        """Those that are looked for, in their order."""
        kept = [reading for reading in found if self.is_wanted(_words_of_vip(reading.vip))]
        key = ORDERS[self.order][1]
        return sorted(kept, key=key) if key else kept

    def decisions(self, found: Iterable[pb.Decision]) -> list[pb.Decision]:
        """Those that are looked for."""
        return [decision for decision in found if self.is_wanted(_words_of_decision(decision))]

    def is_wanted(self, words: Iterable[str]) -> bool:
        """Whether a line with these words is looked for."""
        return not self.needle or self.needle.lower() in " ".join(words).lower()


NewFields: TypeAlias = dict[str, Any]  # fields of Keys that are another


def _nothing(_: Keys) -> NewFields:
    return {}


def _typed(keys: Keys, key: str) -> NewFields:
    """A key of what is looked for."""
    if key in ("\r", "\n"):
        return {"types": False}
    if key == "\x1b":
        return {"types": False, "needle": "", "first": 0}
    if key in ("\x7f", "\b"):
        return {"needle": keys.needle[:-1], "first": 0}
    return {"needle": (keys.needle + key)[:_LONGEST], "first": 0} if key.isprintable() else {}


def _scrolls(by: int) -> Callable[[Keys], NewFields]:
    return lambda keys: {"first": keys.first + by}


_ACTIONS: dict[str, Callable[[Keys], NewFields]] = {
    **dict.fromkeys(("q", "Q"), lambda _: {"left": True}),
    " ": lambda keys: {"paused": not keys.paused},
    "?": lambda keys: {"helps": not keys.helps},
    "s": lambda keys: {"order": (keys.order + 1) % len(ORDERS), "first": 0},
    "/": lambda _: {"types": True, "needle": "", "first": 0},
    "\x1b": lambda _: {"helps": False, "needle": "", "first": 0},
    **dict.fromkeys(("j", "\x1b[B", "\x1bOB"), _scrolls(1)),
    **dict.fromkeys(("k", "\x1b[A", "\x1bOA"), _scrolls(-1)),
    "\x1b[6~": _scrolls(_PAGE),
    "\x1b[5~": _scrolls(-_PAGE),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~"), lambda _: {"first": 0}),
}


def _words_of_vip(vip: pb.Vip) -> tuple[str, ...]:
    return vip.address, vip.link, vip.owner, vip.claim.holder, vip.source, word(vip, "kind"), word(vip, "mode")


def _words_of_decision(found: pb.Decision) -> tuple[str, ...]:
    return found.vip, found.link, found.sha, outcome(found), word(found, "reason")
