"""The trace of the claim protocol (`arpguard agent --trace FILE`): one JSON object a line, appended to a file."""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from arpguard.clock import boot_ns
from arpguard.core.ownership.records import Effect
from arpguard.core.ownership.tracing import effect_line
from arpguard.runtime.cluster.leases import Leases

log = logging.getLogger(__name__)

LONGEST_BYTES = 100_000_000  # about a day of three nodes
FULL = "trace ended: the file has its greatest size"


class TraceFile:
    """A file of lines, which ends once it has `longest` bytes; the last line says so.

    Whatever keeps it from being written ends the trace, and nothing else.
    """

    def __init__(self, path: Path, node: str, instance: str, longest: int = LONGEST_BYTES) -> None:
        self._path = path
        self._who = {"node": node, "instance": instance}
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._left = longest - os.fstat(self._file).st_size
        if self._left <= 0:
            self._end(FULL)

    def tell(self, event: str, what: Mapping[str, Any]) -> None:
        """Appends a line, by a write of its own, so that it is in the file even if the agent is killed at once."""
        if self._file is None:
            return
        line = self._line(event, what)
        self._left -= len(line)
        try:
            os.write(self._file, line)
            if self._left <= 0:
                os.write(self._file, self._line(FULL, {}))
        except OSError as error:
            self._end(f"cannot write it: {error.strerror}")
        else:
            if self._left <= 0:
                self._end(FULL)

    def _line(self, event: str, what: Mapping[str, Any]) -> bytes:
        line = {"ns": boot_ns(), **self._who, "event": event, **what}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _end(self, why: str) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
        log.warning("trace: %s: writing no more lines: %s", self._path, why)


class TracedLeases(Leases):
    """The same, and every effect is in the trace once it is performed."""

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
