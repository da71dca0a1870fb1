"""The errors of arpguard, by who has to act.

`ConfigError` is the operator's: a wrong configuration or command line (exit code 2).
`DataPlaneError` is the node's: the kernel or the permissions (exit code 3).
An expected outcome (a foreign frame, a link that is not there yet) is a value and no exception.
A message ends with what to do, where this program can know that.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class ArpguardError(Exception):
    """Base of all errors that a person can act on; its text is one line for that person."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a configuration or a command: where, and what. `line`: of the file, from 1 on.

    The path is empty if the file as a whole is wrong.
    """

    path: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        at = f"line {self.line}: " if self.line else ""
        return at + (f"{self.path}: {self.message}" if self.path else self.message)


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`; did you mean 'status'?`, or nothing when no word is near."""
    of_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word[:_MAX_WORD].lower(), of_lower, n=1, cutoff=_NEAR)
    return f"; did you mean {of_lower[near[0]]!r}?" if near else ""


MAX_IN_LINE = 10
_NEAR = 0.7  # `openelb` is not near to `purelb`
_MAX_WORD = 64  # what is longer is near nothing; comparing takes the square of its length


class ConfigError(ArpguardError):
    """A configuration with problems; all of them, not just the first. Its text, one line, has the first ten."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        more = ["and more problems"] if len(problems) > MAX_IN_LINE else []
        super().__init__(f"{source}: " + "; ".join([*map(str, problems[:MAX_IN_LINE]), *more]))
        self.source = source
        self.problems = tuple(problems)


class DataPlaneError(ArpguardError):
    """The kernel or the permissions do not allow what was asked."""


class LockedError(DataPlaneError):
    """Another process has something that only one process may have."""


class MapFullError(DataPlaneError):
    """A BPF map has no room for another key (E2BIG, or ENOMEM for maps that are not preallocated)."""


class AttachConflictError(DataPlaneError):
    """Another program holds the hook, and the agent does not replace it."""


class RestoredError(ArpguardError):
    """Etcd was restored from a backup: what this agent knows of the cluster is no longer true, so it has to end."""

    def __init__(self) -> None:
        super().__init__(
            "etcd was restored from a backup: the API server shows an older version of an object than this agent has "
            "seen. This node's elected VIPs are silent until the next agent has started and claimed them"
        )


class ListenError(ArpguardError):
    """The agent cannot listen at an address of the configuration."""

    def __init__(self, address: str, why: str, setting: str) -> None:
        super().__init__(f"cannot listen on {address}: {why}; remove the cause, or change {setting}")
