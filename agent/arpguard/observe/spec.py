"""How a metric is named, explained and valued."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeAlias, TypeVar


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a histogram has counted: how many did not exceed each bound, the last being "+Inf"; and their sum."""

    buckets: tuple[tuple[str, float], ...]
    total: float


Row: TypeAlias = tuple[tuple[str, ...], float | Distribution]
Sample = TypeVar("Sample")


@dataclass(frozen=True, slots=True)
class Spec(Generic[Sample]):
    """A metric as it is exported and documented; `kind` is Prometheus's type.

    `read` gives its value in a sample: rows if it has labels, else a number, or None while there is no such thing.
    """

    kind: ClassVar[str]
    name: str
    what: str
    worry: str
    read: Callable[[Sample], float | Iterable[Row] | None]
    labels: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """The HELP text."""
        return f"{self.what}. Worry {self.worry}."

    def rows(self, sample: Sample) -> Iterable[Row]:
        """Its values in a sample, by labels."""
        found = self.read(sample)
        if found is None:
            return ()
        return found if isinstance(found, Iterable) else (((), found),)


class Counter(Spec[Sample]):
    """What only grows."""

    kind = "counter"


class Gauge(Spec[Sample]):
    """What grows and falls."""

    kind = "gauge"


class Histogram(Spec[Sample]):
    """How often something took how long."""

    kind = "histogram"


def counted(_: object) -> None:
    """Reads nothing: prometheus_client itself keeps the values."""
