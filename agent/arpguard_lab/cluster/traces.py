"""The traces of a cluster's agents, and the API server's journal, in one folder (docs/traces.md).

Each agent that is started has a file of its own, so that the line in which one was killed ends no other's. A row of the
journal has the time of the boot clock besides, as the agents' lines have it: the server writes down the wall clock's.
"""

import json
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from arpguard.clock import boot_ns

JOURNAL = "journal"


class Traces:
    """A folder for them; what an earlier run left there goes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for path in [*folder.glob("*.trace"), folder / JOURNAL]:
            path.unlink(missing_ok=True)
        self._folder = folder
        self._numbers = count(1)

    def file_for(self, node: str) -> Path:
        """That of the next agent of a node."""
        return self._folder / f"{node}.{next(self._numbers):04}.trace"

    def keep(self, rows: Iterable[dict[str, Any]]) -> None:
        """Appends rows of the journal."""
        boot_ns_of_wall = boot_ns() - time.time_ns()
        with (self._folder / JOURNAL).open("a", encoding="utf-8") as file:
            file.writelines(json.dumps({"ns": row["time_ns"] + boot_ns_of_wall, **row}) + "\n" for row in rows)
