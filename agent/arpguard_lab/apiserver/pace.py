"""A server that takes so many writes in a second, one after the other, and refuses (429) whoever would wait for long.

So is a kube-apiserver on a busy machine: etcd writes at its own speed, and priority and fairness
(KEP-1040) let a few requests wait and refuse the others.
"""

import asyncio
from dataclasses import dataclass

from arpguard_lab.apiserver import statuses


@dataclass(slots=True)
class Pace:
    """`writes_per_s` 0: no limit. `queue`: how many may wait."""

    writes_per_s: float = 0.0
    queue: int = 100
    refused: int = 0
    _waiting: int = 0
    _free_s: float = 0.0  # the loop's time at which the next write's turn begins

    async def take_turn(self) -> None:
        """Returns when a write is done; ApiError (429) where too many wait."""
        if not self.writes_per_s:
            return
        if self._waiting >= self.queue:
            self.refused += 1
            raise statuses.failure(429)
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(now_s, self._free_s) + 1 / self.writes_per_s
        self._waiting += 1
        try:
            await asyncio.sleep(self._free_s - now_s)
        finally:
            self._waiting -= 1
