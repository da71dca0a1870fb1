"""What an agent does in the claim protocol, as lines of its trace, once it is done."""

from collections.abc import Iterable, Iterator
from typing import Any

from arpguard.core.ownership.records import Effect
from arpguard.core.ownership.tracing import effect_line
from arpguard.runtime.cluster.leases import Leases
from arpguard.runtime.tracefile import TraceFile


class TracedLeases(Leases):
    """The same, but writes every effect into the trace once it is performed."""

    def __init__(self, trace: TraceFile, *parts: Any) -> None:
        super().__init__(*parts)
        self._trace = trace

    def do(self, effects: Iterable[Effect]) -> None:
        """Performs effects in order, and tells of each."""
        super().do(self._each(effects))

    def _each(self, effects: Iterable[Effect]) -> Iterator[Effect]:
        for effect in effects:
            yield effect
            told = effect_line(effect)
            if told is not None:
                self._trace.tell(*told)
