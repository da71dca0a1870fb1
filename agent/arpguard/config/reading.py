"""What readers are made with: functions from what YAML gives, or an annotation, to a value, and to what is wrong.

A reader returns None for what is wrong, once it has said so at the place that it was given; then the default stands in.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any, TypeAlias, TypeVar

from arpguard.errors import Problem

T = TypeVar("T")
Raw: TypeAlias = Any  # what YAML gives: str, list or dict, nested

_MAX_SHOWN = 60
_SHORT = Repr()  # of what is large only the beginning is looked at
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 4, 4, _MAX_SHOWN


def shown(value: Raw) -> str:
    """The beginning of a value, in a line that is safe to print."""
    if isinstance(value, str) and value and value[:_MAX_SHOWN].isprintable():
        return shortened(value)
    return shortened(_SHORT.repr(value))


def shortened(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


@dataclass(slots=True)
class Problems:
    """What is wrong. Nobody reads a hundred thousand problems, so it keeps the `first`, and counts the rest."""

    most: int
    first: list[Problem] = field(default_factory=list)
    more: int = 0

    def add(self, path: str, value: Raw, allowed: str) -> None:
        """Notes one more."""
        if len(self.first) < self.most:
            self.first.append(Problem(path or "(file)", shown(value), allowed))
        else:
            self.more += 1


@dataclass(slots=True)
class Place:
    """Where a value stands, and where what is wrong with it is noted."""

    problems: Problems
    path: str = ""

    def wrong(self, value: Raw, allowed: str) -> None:
        """Notes that this value is wrong here."""
        self.problems.add(self.path, value, allowed)

    def under(self, key: str) -> "Place":
        """Where the value of a key stands."""
        return Place(self.problems, f"{self.path}.{key}" if self.path else key)

    def item(self, index: int) -> "Place":
        """Where an item of a list stands."""
        return Place(self.problems, f"{self.path}[{index}]")


Reader: TypeAlias = Callable[[Raw, Place], T | None]


# ---- of text ----


def scalar(read: Callable[[str], T | None], allowed: str) -> Reader[T]:
    """A text that `read` has a value for, neither None nor a ValueError."""

    def reader(raw: Raw, place: Place) -> T | None:
        try:
            value = read(raw) if isinstance(raw, str) else None
        except ValueError:
            value = None
        if value is None:
            place.wrong(raw, allowed)
        return value

    return reader


def text(fits: Callable[[str], bool], allowed: str) -> Reader[str]:
    """A text of some form."""
    return scalar(lambda found: found if fits(found) else None, allowed)


def choice(values: Mapping[str, T]) -> Reader[T]:
    """One of a few words."""
    return scalar(values.get, f"one of {', '.join(values)}")


def number(largest: int, cost: str) -> Reader[int]:
    """A number from 1 on, in ASCII: Python takes the digits of all scripts for digits."""

    def read(found: str) -> int | None:
        is_short = found.isascii() and found.isdigit() and len(found) < 9
        return int(found) if is_short and 0 < int(found) <= largest else None

    return scalar(read, f"a number from 1 to {largest}; {cost}")


# ---- of other readers ----


def section(
    make: Callable[..., T], readers: Mapping[str, Reader[Any]], needed: Collection[str] = (), why: str = ""
) -> Reader[T]:
    """A mapping, to what `make` has for those keys that are there and right; the `needed` ones have to be."""
    known, required = ", ".join(readers), frozenset(needed)

    def read(raw: Raw, place: Place) -> T | None:
        if not isinstance(raw, dict):
            place.wrong(raw, f"a mapping with {known}")
            return None

        right = {}
        for key, value in raw.items():
            if key not in readers:
                place.under(shown(key)).wrong("unknown key", f"one of {known}")
            elif (found := readers[key](value, place.under(key))) is not None:
                right[key] = found
        for key in needed:
            if key not in raw:
                place.under(key).wrong("missing", why)
        return make(**right) if right.keys() >= required else None

    return read


def items(reader: Reader[T], most: int | None = None) -> Reader[list[tuple[T, Place]]]:
    """A list, to its items that are right, and where they stand."""
    return lambda raw, place: [*each(reader, raw, place, most)]


def each(reader: Reader[T], raw: Raw, place: Place, most: int | None = None) -> Iterator[tuple[T, Place]]:
    """The same, one after the other."""
    if not isinstance(raw, list):
        place.wrong(raw, "a list")
    elif most is not None and len(raw) > most:
        place.wrong(f"{len(raw)} items", f"a list of at most {most}")
    else:
        for index, item in enumerate(raw):
            at = place.item(index)
            value = reader(item, at)
            if value is not None:
                yield value, at
