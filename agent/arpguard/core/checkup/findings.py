"""What a check says: a grade, what was seen, what it means, and the fix in words and as shell lines."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeAlias


class Grade(Enum):
    """The grades, the best first. Only a bad finding needs fixing.

    `skip`: there is nothing here that the check is about. `unknown`: it was not checked, and the finding says why.
    """

    SKIP = "skip"
    OK = "ok"
    UNKNOWN = "unknown"
    WARN = "warn"
    BAD = "bad"


_ORDER = list(Grade)


def worst(grades: Iterable[Grade]) -> Grade:
    """The grade that matters most; SKIP where there are none."""
    return max(grades, key=_ORDER.index, default=Grade.SKIP)


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict. `about` is the VIP, the link or the like that it is about, and empty for the node as a whole.

    `commands` are shell lines that do what `fix` says; none where a person has to decide.
    """

    grade: Grade
    seen: str
    about: str = ""
    why: str = ""
    fix: str = ""
    commands: tuple[str, ...] = ()


Findings: TypeAlias = Sequence[Finding]


def by_weight(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    return tuple(sorted(findings, key=lambda finding: _ORDER.index(finding.grade), reverse=True))


skip = partial(Finding, Grade.SKIP)  # nothing here is of that kind
ok = partial(Finding, Grade.OK)
bad = partial(Finding, Grade.BAD)  # it needs fixing
warn = partial(Finding, Grade.WARN)  # to know, and perhaps to change
unknown = partial(Finding, Grade.UNKNOWN)  # not checked


def summed_up(findings: Findings, nothing: str) -> Iterator[Finding]:
    """Bad findings one by one, and all good ones in one, which names the first few; `nothing` where none is."""
    yield from (finding for finding in findings if finding.grade is not Grade.OK)
    good = [f"{finding.about}: {finding.seen}" for finding in findings if finding.grade is Grade.OK]
    if good:
        yield ok(listed(good, 3, "; "))
    elif not findings:
        yield skip(nothing)


def listed(things: Iterable[object], most: int = 5, comma: str = ", ") -> str:
    """A list in words; of many things the first few, and how many more."""
    texts = [str(thing) for thing in things]
    shown = texts[:most] if len(texts) > most + 1 else texts
    more = f" and {len(texts) - len(shown)} more" if len(shown) < len(texts) else ""
    return comma.join(shown) + more


def shell(*words: object) -> str:
    """A command line; words that need quotes have them."""
    return shlex.join(str(word) for word in words)
