"""How a metric is named, explained and valued."""

from dataclasses import dataclass
from typing import TypeAlias

Row: TypeAlias = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric as it is exported and documented; `kind` is Prometheus's type."""

    kind: str
    name: str
    labels: tuple[str, ...]
    what: str
    worry: str

    @property
    def help(self) -> str:
        """The HELP text."""
        return f"{self.what}. Worry {self.worry}."
