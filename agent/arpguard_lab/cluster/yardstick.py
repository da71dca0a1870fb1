"""What a write to the API server takes at a time, for a client that does nothing else: others are measured by it."""

import threading
import time
from contextlib import suppress
from typing import Self

from arpguard.units import NS_PER_MS
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.kubeapi import MERGE_PATCH, KubeApi, KubeApiError

_NAME = "yardstick"
_EACH_S = 0.02


class Yardstick:
    """Writes to one object over one connection, again and again, from entering to leaving."""

    def __init__(self, api: KubeApi, home: str) -> None:
        self._api = api
        self._home = home
        self._path = f"/api/v1/namespaces/{home}/configmaps"
        self._took: list[tuple[int, int]] = []  # when each ended (wall clock), and how long it took, in nanoseconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-yardstick", daemon=True)

    def __enter__(self) -> Self:
        self._api.create(self._path, objects.config_map(self._home, _NAME, ""))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with suppress(OSError, KubeApiError):
            self._api.delete(f"{self._path}/{_NAME}")

    def worst_ms(self, since_ns: int) -> int:
        """The longest that ended since a time (wall clock); of all there are, where there is none."""
        took = [length for ended, length in self._took if ended >= since_ns] or [length for _, length in self._took]
        return round(max(took, default=0) / NS_PER_MS)

    def _run(self) -> None:
        number = 0
        while not self._over.wait(_EACH_S):
            with suppress(OSError, KubeApiError), self._api.connected() as ask:
                while not self._over.wait(_EACH_S):
                    number += 1
                    began = time.monotonic_ns()
                    ask("PATCH", f"{self._path}/{_NAME}", {"data": {"number": str(number)}}, MERGE_PATCH)
                    self._took.append((time.time_ns(), time.monotonic_ns() - began))
