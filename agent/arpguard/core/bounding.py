"""Keeps lists for people short, and what is remembered small, however many objects or hosts there are."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def bounded(lines: Sequence[str], most: int, what: str = "problems") -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - most
    return [*lines[:most], f"and {more} more {what}".rstrip()] if more > 0 else list(lines)


def some(items: Sequence[object], limit: int = 5) -> str:
    """The first items, and how many more there are."""
    return ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")


def remember(memory: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Keeps a value as the newest of `most`; the oldest is forgotten."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > most:
        memory.popitem(last=False)
