"""Keeps lists for people short, however many objects somebody creates."""

from collections.abc import Sequence


def bounded(lines: Sequence[str], most: int, what: str = "problems") -> list[str]:
    """The first lines, and how many more there are."""
    more = len(lines) - most
    return [*lines[:most], f"and {more} more {what}".rstrip()] if more > 0 else list(lines)
