"""Keeps lists for people short, however many objects somebody creates."""

from collections.abc import Sequence


def bounded(lines: Sequence[str], most: int, what: str = "problems") -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - most
    return [*lines[:most], f"and {more} more {what}".rstrip()] if more > 0 else list(lines)


def some(items: Sequence[object], limit: int = 5) -> str:
    """The first items, and how many more there are."""
    return ", ".join(map(str, items[:limit])) + (f" and {len(items) - limit} more" if len(items) > limit else "")
