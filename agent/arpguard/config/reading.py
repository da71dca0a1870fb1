"""The parts of readers: functions from YAML, or an annotation, to a value and the problems in it.

A reader returns None for what is wrong, once it has said so at the place that it was given; then the default stands in.
It also has a JSON Schema (draft 7) of what it takes, so that editors and Helm refuse what it would refuse.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any, Generic, TypeAlias, TypeVar

from arpguard.errors import Problem, did_you_mean

T = TypeVar("T")
Raw: TypeAlias = Any  # what YAML gives: str, list or dict, nested
Schema: TypeAlias = Mapping[str, Any]
Trail: TypeAlias = tuple[str | int, ...]  # from the whole to a value: keys, and indexes of lists

_MAX_SHOWN = 60


class _Flow(Repr):
    """As YAML has it in one line. Of what is large only the beginning is looked at."""

    def repr_str(self, x: str, level: int) -> str:
        is_plain = x and x[:_MAX_SHOWN].isprintable()
        return shortened(x) if is_plain else super().repr_str(x, level)


_SHORT = _Flow()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 3, 4, 4, _MAX_SHOWN


def shown(value: Raw) -> str:
    """The beginning of a value, in a line that is safe to print."""
    if isinstance(value, str) and value and value[:_MAX_SHOWN].isprintable():
        return shortened(value)
    return shortened(_SHORT.repr(value))


def shortened(text: str) -> str:
    """The beginning of a text."""
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def either(words: Collection[str]) -> str:
    """`a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def path_of(steps: Trail) -> str:
    """A place as people write it: `vips[0].address`; the whole file: nothing."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{shown(step)}" for step in steps]
    return "".join(parts).removeprefix(".")


@dataclass(slots=True)
class Problems:
    """What is wrong, and where. It keeps the `first`, and counts the rest: nobody reads a hundred thousand."""

    most: int
    first: list[tuple[Trail, str]] = field(default_factory=list)
    more: int = 0

    def add(self, steps: Trail, message: str) -> None:
        """Notes one more."""
        if len(self.first) < self.most:
            self.first.append((steps, message))
        else:
            self.more += 1

    def named(self, lines: Mapping[Trail, int]) -> list[Problem]:
        """The first ones. `lines`: in which lines of a file their places are, as far as that is known."""
        return [Problem(path_of(steps), message, lines.get(steps) if steps else None) for steps, message in self.first]


@dataclass(slots=True)
class Place:
    """Where a value stands, and where what is wrong with it is noted."""

    problems: Problems
    steps: Trail = ()

    def wrong(self, value: Raw, allowed: str, hint: str = "") -> None:
        """Notes that this value is wrong here. `allowed`: what it must be; what comes after a semicolon is advice."""
        what, semicolon, advice = allowed.partition(";")
        self.say(f"must be {what}, not {shown(value)}{semicolon}{advice}{hint}")

    def say(self, message: str) -> None:
        """Notes what is wrong here."""
        self.problems.add(self.steps, message)

    def under(self, key: str) -> "Place":
        """Where the value of a key stands."""
        return Place(self.problems, (*self.steps, key))

    def item(self, index: int) -> "Place":
        """Where an item of a list stands."""
        return Place(self.problems, (*self.steps, index))


@dataclass(frozen=True, slots=True)
class ValueReader(Generic[T]):
    """Reads a value; `schema` is the JSON Schema of what it takes."""

    read: Callable[[Raw, Place], T | None]
    schema: Schema

    def __call__(self, raw: Raw, place: Place) -> T | None:
        """The value, or None once it has noted at `place` what is wrong."""
        return self.read(raw, place)


def reads(schema: Schema) -> Callable[[Callable[[Raw, Place], T | None]], ValueReader[T]]:
    """Makes a reader of a function."""
    return lambda read: ValueReader(read, schema)


# ---- of text ----


def scalar(
    read: Callable[[str], T | None], allowed: str, schema: Schema, hint: Callable[[str], str] = lambda _: ""
) -> ValueReader[T]:
    """A text that `read` turns into a value, not None or a ValueError. `hint`: the likely meaning of another text."""

    def reader(raw: Raw, place: Place) -> T | None:
        try:
            value = read(raw) if isinstance(raw, str) else None
        except ValueError:
            value = None
        if value is None:
            place.wrong(raw, allowed, hint(raw) if isinstance(raw, str) else "")
        return value

    return ValueReader(reader, schema)


def text(fits: Callable[[str], bool], allowed: str, pattern: str) -> ValueReader[str]:
    """A text of some form. `pattern`: of its schema; it may let more through than `fits`."""
    return scalar(lambda found: found if fits(found) else None, allowed, {"type": "string", "pattern": pattern})


def choice(values: Mapping[str, T], schema: Schema | None = None) -> ValueReader[T]:
    """One of a few words."""
    return scalar(values.get, either(values), schema or {"enum": [*values]}, lambda found: did_you_mean(found, values))


def number(largest: int, cost: str) -> ValueReader[int]:
    """A number from 1 on, in ASCII: Python takes the digits of all scripts for digits."""

    def read(found: str) -> int | None:
        is_short = found.isascii() and found.isdigit() and len(found) < 9
        return int(found) if is_short and 0 < int(found) <= largest else None

    schema = {"type": "integer", "minimum": 1, "maximum": largest}
    return scalar(read, f"a number from 1 to {largest}; {cost}", schema)


# ---- of other readers ----


def section(
    make: Callable[..., T], readers: Mapping[str, ValueReader[Any]], needed: Collection[str] = (), why: str = ""
) -> ValueReader[T]:
    """A mapping, to what `make` has for those keys that are there and right; the `needed` ones have to be."""
    known, required = ", ".join(readers), frozenset(needed)

    def read(raw: Raw, place: Place) -> T | None:
        if not isinstance(raw, dict):
            place.wrong(raw, f"a mapping (keys: {known})")
            return None

        right = {}
        for key, value in raw.items():
            if key not in readers:
                place.under(key).say(f"unknown key{did_you_mean(key, readers) or f'; known: {known}'}")
            elif (found := readers[key](value, place.under(key))) is not None:
                right[key] = found
        for key in needed:
            if key not in raw:
                place.under(key).say(f"missing; {why}")
        return make(**right) if right.keys() >= required else None

    schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
    schema |= {"required": [*needed]} if needed else {}
    return ValueReader(read, schema | {"properties": {key: reader.schema for key, reader in readers.items()}})


def items(reader: ValueReader[T], most: int | None = None) -> ValueReader[list[tuple[T, Place]]]:
    """A list, to its items that are right, and where they stand."""
    schema = {"type": "array", "items": reader.schema} | ({"maxItems": most} if most else {})
    return ValueReader(lambda raw, place: [*each(reader, raw, place, most)], schema)


def each(reader: ValueReader[T], raw: Raw, place: Place, most: int | None = None) -> Iterator[tuple[T, Place]]:
    """The items of a list, one after the other."""
    if not isinstance(raw, list):
        place.wrong(raw, "a list", f"; did you mean [{shown(raw)}]?" if isinstance(raw, str) and raw else "")
    elif most is not None and len(raw) > most:
        place.wrong(f"of {len(raw)}", f"a list of at most {most} items")
    else:
        for index, item in enumerate(raw):
            at = place.item(index)
            value = reader(item, at)
            if value is not None:
                yield value, at
