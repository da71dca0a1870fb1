"""What goes wrong for whom. A test sets it while the server runs; who waits for it to be over is woken.

`*` stands for every client that has no faults of its own.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from arpguard_lab.apiserver.statuses import FAILURE_CODES

Json: TypeAlias = dict[str, Any]

EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Delay:
    """Requests of this verb for this resource wait so long before anything is done."""

    seconds: float
    verb: str = "*"
    resource: str = "*"

    def matches(self, verb: str, resource: str) -> bool:
        """Whether it is about such a request."""
        return self.verb in ("*", verb) and self.resource in ("*", resource)


@dataclass(frozen=True, slots=True)
class Faults:
    """One client's faults. The default is none."""

    stall: bool = False  # requests are read and not answered, watches stand still; all continues afterwards
    cut: bool = False  # connections are reset, and new ones with their first request
    freeze: bool = False  # watches stand still: no events, no bookmarks, no end
    half_open: bool = False  # so do those that have begun before, and only those: their connections lead nowhere
    delay: tuple[Delay, ...] = ()
    hold: str = ""  # writes of objects whose names begin so wait until this is over
    swallow: int = 0  # the next so many writes are done, and the connection is closed instead of an answer
    zombie: float | None = None  # writes are not answered, and done so many seconds after the client gave up
    fail: int = 0  # the next so many requests are answered by `code`; -1: all
    code: int = 503
    group: str = ""  # only requests for this API group fail, as where its APIService has no server
    stale: int | None = None  # reads with resourceVersion=0 are answered as of this revision
    gone_as_status: bool = False  # a watch from too long ago is refused by HTTP 410, not by an ERROR event
    warning: str = ""  # a Warning on every answer

    @property
    def still(self) -> bool:
        """Whether watches stand still."""
        return self.stall or self.freeze

    def delay_of(self, verb: str, resource: str) -> float:
        """How long such a request waits, in seconds."""
        return sum(delay.seconds for delay in self.delay if delay.matches(verb, resource))


_NONE = Faults()


def parse(value: Json) -> Faults:
    """Faults from JSON; ValueError says what is wrong."""
    known = {field.name for field in fields(Faults)}
    if unknown := sorted(value.keys() - known):
        raise ValueError(f"{', '.join(unknown)}: no such fault; there are {', '.join(sorted(known))}")
    if value.get("code", 503) not in FAILURE_CODES:
        raise ValueError(f"code: {value['code']}: must be one of {', '.join(map(str, FAILURE_CODES))}")
    delays = tuple(Delay(**delay) for delay in value.get("delay", ()))
    return Faults(**{**value, "delay": delays})


class FaultTable:
    """The faults of all clients."""

    def __init__(self) -> None:
        self._faults: dict[str, Faults] = {}
        self._changed = asyncio.Event()

    def of(self, client: str) -> Faults:
        """A client's faults now."""
        return self._faults.get(client) or self._faults.get(EVERYBODY, _NONE)

    def set(self, client: str, faults: Faults) -> None:
        """Replaces a client's faults."""
        self._faults[client] = faults
        if client == EVERYBODY:
            self._faults = {EVERYBODY: faults}
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()

    async def wait_while(self, client: str, holds: Callable[[Faults], bool]) -> None:
        """Returns once a fault is over."""
        while holds(self.of(client)):
            await self._changed.wait()

    def take_failure(self, client: str, path: str) -> int | None:
        """The code that this request shall fail with, counted off."""
        faults = self.of(client)
        if faults.group and not path.startswith(f"/apis/{faults.group}/"):
            return None
        if faults.fail > 0:
            self.set(client, replace(faults, fail=faults.fail - 1))
        return faults.code if faults.fail else None

    def take_swallow(self, client: str) -> bool:
        """Whether this write's answer shall be lost, counted off."""
        faults = self.of(client)
        if faults.swallow:
            self.set(client, replace(faults, swallow=faults.swallow - 1))
        return faults.swallow > 0
