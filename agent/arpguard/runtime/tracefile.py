"""The file of a trace (`arpguard agent --trace FILE`): one JSON object a line, appended by an agent and its voucher."""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from arpguard.clock import boot_ns

log = logging.getLogger(__name__)

Line: TypeAlias = tuple[int, str, Mapping[str, Any]]  # the time, what happened, and what about it

LONGEST_BYTES = 100_000_000  # about a day of three nodes, or two hours of three that vouch for each other
FULL = "trace ended: the file has reached its maximum size"


class TraceFile:
    """A file of lines, which ends once it has `longest` bytes; the last line says so.

    A failure to write the file ends the trace, and nothing else.
    """

    def __init__(self, path: Path, node: str, instance: str, longest: int = LONGEST_BYTES) -> None:
        self.path = path
        self._who = {"node": node, "instance": instance}
        self._longest = longest
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size >= longest:
            self._end(FULL)

    @property
    def words(self) -> tuple[str, str, str]:
        """What makes another one of the same file, in another process."""
        return str(self.path), self._who["node"], self._who["instance"]

    def tell(self, event: str, what: Mapping[str, Any]) -> None:
        """Appends a line, by a write of its own, so that it is in the file even if the agent is killed at once."""
        self.tell_all([(boot_ns(), event, what)])

    def tell_all(self, lines: Iterable[Line]) -> None:
        """Appends lines by one write: no line of another process comes in between."""
        if self._file is None:
            return
        try:
            os.write(self._file, b"".join(self._line(*line) for line in lines))
            if os.fstat(self._file).st_size >= self._longest:
                os.write(self._file, self._line(boot_ns(), FULL, {}))
                self._end(FULL)
        except OSError as error:
            self._end(f"cannot write to the file: {error.strerror}")

    def _line(self, now_ns: int, event: str, what: Mapping[str, Any]) -> bytes:
        line = {"ns": now_ns, **self._who, "event": event, **what}
        return json.dumps(line, separators=(",", ":")).encode() + b"\n"

    def _end(self, why: str) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None
        log.warning("trace: %s: writing no more lines: %s", self.path, why)


class BufferedTrace:
    """Lines that are written by `flush`, when there is time for it."""

    def __init__(self, file: TraceFile) -> None:
        self._file = file
        self._lines: list[Line] = []

    def tell(self, event: str, what: Mapping[str, Any]) -> None:
        """Keeps a line, with the time of now."""
        self._lines.append((boot_ns(), event, what))

    def flush(self) -> None:
        """Writes the lines that it has kept since the last time."""
        if self._lines:
            self._file.tell_all(self._lines)
            self._lines.clear()
