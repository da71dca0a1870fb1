"""How a metric is named, explained and valued."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

Row: TypeAlias = tuple[tuple[str, ...], float]
Sample = TypeVar("Sample")
Reader: TypeAlias = Callable[[Sample], Iterable[Row]]


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


class MetricTable(Generic[Sample]):
    """Metrics in the order in which they are declared, each above the function that reads its rows from a sample."""

    def __init__(self) -> None:
        self.rows: list[tuple[Spec, Reader[Sample]]] = []

    def counter(
        self, name: str, what: str, worry: str, labels: tuple[str, ...] = ()
    ) -> Callable[[Reader[Sample]], Reader[Sample]]:
        """Declares a counter."""
        return self._declaring(Spec("counter", name, labels, what, worry))

    def gauge(
        self, name: str, what: str, worry: str, labels: tuple[str, ...] = ()
    ) -> Callable[[Reader[Sample]], Reader[Sample]]:
        """Declares a gauge."""
        return self._declaring(Spec("gauge", name, labels, what, worry))

    def _declaring(self, spec: Spec) -> Callable[[Reader[Sample]], Reader[Sample]]:
        def declare(read: Reader[Sample]) -> Reader[Sample]:
            self.rows.append((spec, read))
            return read

        return declare
