"""This node's heartbeat: what renews the right to answer, and what ends it.

The fence counts from before the renewal was sent (an answer that is late makes it no longer), and is told to the
kernel only after the server said yes to a compare-and-swap that carried the epoch. Whatever else comes back,
nothing is extended, and the object is read: if it is not this node's any more, all is given up and begun again
in a new epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from arpguard.core.ownership.records import (
    Effect,
    Heartbeat,
    ListOwnClaims,
    Outcome,
    ReadHeartbeat,
    SetFence,
    Version,
    WriteHeartbeat,
)


@dataclass(frozen=True, slots=True)
class Times:
    """Lengths of time in nanoseconds: the lease D, how often it is renewed R, the margin M, how often to sync S."""

    duration_ns: int
    renew_ns: int
    margin_ns: int
    sync_ns: int


class _Phase(Enum):
    READING = "reading"  # a read is under way, or due
    WRITING = "writing"
    HELD = "held"  # the last write was applied, and the next is not due
    YIELDING = "yielding"  # another agent speaks as this node


class OwnHeartbeat:
    """The state machine of the own heartbeat. `kept_epoch`: of entries that an agent before this one left."""

    def __init__(self, node: str, instance: str, times: Times, new_epoch: Callable[[], str], kept_epoch: str) -> None:
        self.epoch = kept_epoch
        self.renewed_ns: int | None = None
        self.yielding = False
        self._node = node
        self._instance = instance
        self._times = times
        self._new_epoch = new_epoch
        self._phase = _Phase.READING
        self._version: Version | None = None
        self._busy = False
        self._held_once = False
        self._due_ns = 0
        self._synced_ns: int | None = None
        self._sync_due_ns = 0
        self._syncing = False
        self._fence_ns = 0
        self._foreign: tuple[Version, int] | None = None

    @property
    def holds(self) -> bool:
        """Whether the server has this node's epoch, as far as is known."""
        return self._held_once and self._phase in (_Phase.HELD, _Phase.WRITING)

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due: a read, a renewal, a list of own claims."""
        effects: list[Effect] = []
        if not self._syncing and now_ns >= self._sync_due_ns:
            self._syncing = True
            effects.append(ListOwnClaims())
        if self._busy or now_ns < self._due_ns:
            return effects
        self._busy = True
        if self._phase is _Phase.HELD:
            self._phase = _Phase.WRITING
            effects.append(self._write())
        else:
            effects.append(ReadHeartbeat(self._node))
        return effects

    def read(self, found: Heartbeat | None, now_ns: int) -> list[Effect]:
        """The object as it is, or None where there is none."""
        self._busy = False
        if found is not None and self._held_once and found.instance not in ("", self._instance):
            return self._yield_to(found, now_ns)
        mine = found is not None and found.epoch == self.epoch and self.epoch != ""
        gone = not mine or (self._held_once and found is not None and found.instance != self._instance)
        effects = self._begin_anew() if gone else []
        self._version = found.version if found else None
        self._phase = _Phase.WRITING
        self._busy = True
        return [*effects, self._write()]

    def suspect(self, shown: Heartbeat | None, now_ns: int) -> None:
        """A watch shows the own heartbeat: when it is somebody else's doing, it is read at once."""
        if shown is not None and (shown.version.is_older_than(self._version) or self._wrote(shown)):
            return
        if self._phase is _Phase.HELD:
            self._phase = _Phase.READING
            self._due_ns = now_ns

    def _wrote(self, shown: Heartbeat) -> bool:
        return shown.epoch == self.epoch and shown.instance == self._instance

    def read_failed(self, now_ns: int) -> list[Effect]:
        """No answer: again when the next renewal would be due."""
        self._busy = False
        self._due_ns = now_ns + self._times.renew_ns
        return []

    def written(self, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """What came of a write; `sent_ns` was read before it was sent."""
        self._busy = False
        if outcome is not Outcome.APPLIED:
            self._phase = _Phase.READING
            self._due_ns = now_ns
            return []
        self._phase = _Phase.HELD
        self._version = version
        self._held_once = True
        self.yielding = False
        self.renewed_ns = sent_ns
        self._due_ns = sent_ns + self._times.renew_ns
        return self._extend()

    def synced(self, sent_ns: int) -> list[Effect]:
        """A list of the own claims that was sent then has been acted on."""
        self._syncing = False
        self._synced_ns = sent_ns
        self._sync_due_ns = sent_ns + self._times.sync_ns
        return self._extend()

    def sync_failed(self, now_ns: int) -> None:
        """No list came: again soon."""
        self._syncing = False
        self._sync_due_ns = now_ns + self._times.renew_ns

    def _write(self) -> Effect:
        return WriteHeartbeat(self._node, self.epoch, self._instance, self._version)

    def _extend(self) -> list[Effect]:
        """Moves the fence on, never back, and never further than a sync allows."""
        if self.renewed_ns is None or self._synced_ns is None:
            return []
        times = self._times
        by_renewal = self.renewed_ns + times.duration_ns - times.margin_ns
        fence_ns = min(by_renewal, self._synced_ns + times.sync_ns + times.duration_ns)
        if fence_ns <= self._fence_ns:
            return []
        self._fence_ns = fence_ns
        return [SetFence(self.epoch, fence_ns)]

    def _begin_anew(self) -> list[Effect]:
        """Gives up all that the old epoch gave."""
        self.epoch = self._new_epoch()
        self.renewed_ns = None
        self._held_once = False
        self._fence_ns = 0
        return [SetFence(self.epoch, 0)]

    def _yield_to(self, found: Heartbeat, now_ns: int) -> list[Effect]:
        """Another agent took this node's name: this one is silent until that one has been, for a lease."""
        effects = [] if self.yielding else self._begin_anew()
        self.yielding = True
        self._held_once = True
        if self._foreign is None or self._foreign[0] != found.version:
            self._foreign = found.version, now_ns
        if now_ns - self._foreign[1] >= max(found.duration_ns, self._times.duration_ns):
            self._foreign = None
            self._version = found.version
            self._phase = _Phase.WRITING
            self._busy = True
            return [*effects, self._write()]
        self._phase = _Phase.YIELDING
        self._due_ns = now_ns + self._times.renew_ns
        return effects
