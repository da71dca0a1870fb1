"""Notices that a file was changed, replaced, or linked to another one.

It calls stat(2) several times a second: that follows the symbolic links by which kubelet switches a mounted ConfigMap,
and works on every file system.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

POLL_S = 0.2


class FileWatch:
    """Watches one path from the moment the watch is made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._look()

    async def changes(self) -> AsyncIterator[None]:
        """Yields after every change, once the file has been still for a moment, so that it is not half written.

        A missing file, as while it is replaced, is not a change.
        """
        last = self._seen
        while True:
            await asyncio.sleep(POLL_S)
            before, last = last, self._look()
            if last is not None and last == before and last != self._seen:
                self._seen = last
                yield

    def _look(self) -> tuple[int, int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size
