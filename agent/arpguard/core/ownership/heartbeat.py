"""This node's heartbeat: what renews the right to answer, and what ends it.

The fence counts from before the renewal was sent (an answer that is late makes it no longer), and is told to the
kernel only after the server said yes to a compare-and-swap that carried the epoch. Whatever else comes back,
nothing is extended, and the object is read: if it is not this node's any more, all is given up and begun again
in a new epoch.

The others count the lease that a renewal publishes from when they see it. So before one that publishes a shorter
lease is sent, the kernel gets the fence that belongs to that: otherwise it would answer on the longer one.

A node that holds nothing and has nothing to claim rests: it renews seldom, for a lease that is as much longer. So the
others know who is alive when the first VIP comes. Before a node at rest claims, it publishes its ordinary lease: nobody
then waits for the long one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from arpguard.units import NS_PER_S

RENEWALS_IN_REST_LEASE = 3


@dataclass(frozen=True, slots=True)
class Times:
    """Lengths of time in nanoseconds: the lease D, how often it is renewed R, the margin M, how often to sync S.

    `rest_ns`: how often a node at rest renews.
    """

    duration_ns: int
    renew_ns: int
    margin_ns: int
    sync_ns: int
    rest_ns: int = 10 * NS_PER_S

    @property
    def answers_ns(self) -> int:
        """How long after a renewal was sent the kernel answers."""
        return self.duration_ns - self.margin_ns

    def lasting(self, lease_ns: int) -> "Times":
        """The same for a lease of another length: the margin is the same part of it."""
        return replace(self, duration_ns=lease_ns, margin_ns=-(-lease_ns * self.margin_ns // self.duration_ns))

    @property
    def at_rest(self) -> "Times":
        """Those of a node at rest: two renewals may be lost, as usual, before it counts as silent."""
        rest_ns = max(self.rest_ns, self.renew_ns)
        return replace(self.lasting(max(self.duration_ns, RENEWALS_IN_REST_LEASE * rest_ns)), renew_ns=rest_ns)


class _Phase(Enum):
    READING = "reading"  # a read is under way, or due
    WRITING = "writing"
    HELD = "held"  # the last write was applied, and the next is not due
    YIELDING = "yielding"  # another agent speaks as this node


class OwnHeartbeat:
    """The state machine of the own heartbeat.

    `kept_epoch`, `kept_fence_ns`: of entries that an agent before this one left, and what the kernel has for a fence.
    `resting`: nothing is held or claimed, so renewals are few. `rested`: the lease of a rest may be published still.
    """

    def __init__(
        self,
        node: str,
        instance: str,
        times: Times,
        new_epoch: Callable[[], str],
        kept_epoch: str,
        kept_fence_ns: int,
    ) -> None:
        self.epoch = kept_epoch
        self.asked = 0  # how many renewals have been sent
        self.renewed_ns: int | None = None  # when the last one that was applied was sent
        self.yielding = False
        self.resting = False
        self.rested = False
        self.parted = False

        self._node = node
        self._instance = instance
        self._times = times
        self._new_epoch = new_epoch

        self._phase = _Phase.READING
        self._version: Version | None = None
        self._busy = False
        self._held_once = False
        self._failures = 0
        self._due_ns = 0

        self._published = times  # by the last renewal that was sent
        self._published_rest = False
        self._parting: Times | None = None

        self._applied: int | None = None
        self._reach_ns = 0  # how far renewals allow the fence
        self._fence_ns = kept_fence_ns

        self._synced_ns: int | None = None
        self._sync_due_ns = 0
        self._syncing = False
        self._foreign: tuple[Version, int] | None = None

    @property
    def holds(self) -> bool:
        """Whether the server has this node's epoch, as far as is known."""
        return self._held_once and self._phase in (_Phase.HELD, _Phase.WRITING)

    @property
    def parting(self) -> bool:
        """Whether the agent ends, and its last renewal is under way or done."""
        return self._parting is not None

    @property
    def renewal(self) -> int | None:
        """Which of the renewals that were asked for was applied last; None while the heartbeat is not held."""
        return self._applied if self.holds else None

    def next_ns(self) -> int | None:
        """When `tick` has something to do next, if nothing else happens."""
        if self.parted:
            return None
        syncs = not (self._syncing or self.parting or self.resting)
        times = [self._due_ns] * (not self._busy) + [self._sync_due_ns] * syncs
        return min(times, default=None)

    def set_times(self, times: Times, now_ns: int) -> None:
        """Other lengths from now on: the next renewal publishes them."""
        self._times = times
        self._due_ns = min(self._due_ns, now_ns + self._pace.renew_ns)
        self._sync_due_ns = min(self._sync_due_ns, now_ns + times.sync_ns)

    @property
    def _pace(self) -> Times:
        return self._times.at_rest if self.resting else self._times

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due: a read, a renewal, a list of own claims."""
        if self.parted:
            return []
        return self._sync(now_ns) + self._go_on(now_ns)

    def rest(self, yes: bool, now_ns: int) -> list[Effect]:  # noqa: FBT001 - it is the event
        """Whether anything is held, or may be claimed. A rest ends with a renewal at once."""
        if self.resting == yes:
            return []
        self.resting = yes
        return [] if yes else self.hurry(now_ns)

    def end(self) -> None:
        """Nothing more is sent: the heartbeat is about to be deleted."""
        self._parting = self._parting or self._times
        self.parted = True

    def hurry(self, now_ns: int) -> list[Effect]:
        """A renewal is wanted at once; one that is under way is waited for."""
        if self._phase is _Phase.HELD and not self.parting:
            self._due_ns = min(self._due_ns, now_ns)
        return self._go_on(now_ns) if self._phase is _Phase.HELD and not self.parted else []

    def part(self, lease_ns: int, now_ns: int) -> list[Effect]:
        """One last renewal, for so long; then nothing more. If anything goes wrong, there is none."""
        if self._parting is None:
            self._parting = self._times.lasting(lease_ns)
            self._due_ns = now_ns
            self.parted = self.resting or self.yielding
        return self.tick(now_ns)

    def _sync(self, now_ns: int) -> list[Effect]:
        if self._syncing or self.parting or self.resting or now_ns < self._sync_due_ns:
            return []
        self._syncing = True
        return [ListOwnClaims()]

    def _go_on(self, now_ns: int) -> list[Effect]:
        if self._busy or now_ns < self._due_ns:
            return []
        if self._phase is _Phase.HELD:
            return self._write(now_ns)
        self._busy = True
        return [ReadHeartbeat(self._node)]

    def read(self, found: Heartbeat | None, now_ns: int) -> list[Effect]:
        """The object as it is, or None where there is none."""
        self._busy = False
        if self.parted:
            return []
        if found is not None and self._held_once and found.instance not in ("", self._instance):
            return self._yield_to(found, now_ns)
        mine = found is not None and found.epoch == self.epoch and self.epoch != ""
        gone = not mine or (self._held_once and found is not None and found.instance != self._instance)
        effects = self._begin_anew() if gone else []
        self._version = found.version if found else None
        if gone and self.parting:
            self.parted = True
            return effects
        return [*effects, *self._write(now_ns)]

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
        self.parted = self.parting
        return []

    def written(self, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """What came of a write; `sent_ns` was read before it was sent."""
        self._busy = False

        if outcome is not Outcome.APPLIED:
            return self._failed(now_ns)

        self._phase = _Phase.HELD
        self._version = version
        self._held_once = True
        self._failures = 0
        self.yielding = False
        self._applied = self.asked

        self.renewed_ns = sent_ns
        self._reach_ns = sent_ns + self._published.answers_ns
        self._due_ns = sent_ns + self._published.renew_ns
        self.rested = self._published_rest
        self.parted = self.parted or self._published is self._parting

        is_late = (self.parting or (self.rested and not self.resting)) and not self.parted
        return [*self._extend(), *(self._write(now_ns) if is_late else [])]

    def _failed(self, now_ns: int) -> list[Effect]:
        """The object is read: at once after the first failure, later after more, for the server may refuse for ever."""
        self._phase = _Phase.READING
        self._due_ns = now_ns if not self._failures else now_ns + self._times.renew_ns
        self._failures += 1
        self.parted = self.parting
        return []

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

    def _write(self, now_ns: int) -> list[Effect]:
        """A renewal; before it the fence is moved back to what it will allow, if it publishes a shorter lease.

        Until the server has applied a later one, this may be the one that counts, whatever its outcome.
        """
        self._phase = _Phase.WRITING
        self._busy = True
        self.asked += 1
        lease = self._published = self._parting or self._pace
        self._published_rest = self.resting and not self.parting
        self.rested = self.rested or self._published_rest
        self._reach_ns = min(self._reach_ns, now_ns + lease.answers_ns)
        effects: list[Effect] = []
        if self._fence_ns > now_ns + lease.answers_ns:
            effects = self._set_fence(now_ns + lease.answers_ns)
        return [*effects, WriteHeartbeat(self._node, self.epoch, self._instance, self._version, lease.duration_ns)]

    def _extend(self) -> list[Effect]:
        """Moves the fence on, never back, and never further than a sync allows.

        Whoever strips a finalizer can get two answers for as long as S and the lease that was published last, which
        is the parting lease when the agent has parted.
        """
        if self._synced_ns is None:
            return []
        fence_ns = min(self._reach_ns, self._synced_ns + self._times.sync_ns + self._published.duration_ns)
        return self._set_fence(fence_ns) if fence_ns > self._fence_ns else []

    def _set_fence(self, fence_ns: int) -> list[Effect]:
        self._fence_ns = fence_ns
        return [SetFence(self.epoch, fence_ns, self._published.duration_ns)]

    def _begin_anew(self) -> list[Effect]:
        """Gives up all that the old epoch gave."""
        self.epoch = self._new_epoch()
        self._held_once = False
        self._applied = None
        self._reach_ns = 0
        return self._set_fence(0)

    def _yield_to(self, found: Heartbeat, now_ns: int) -> list[Effect]:
        """Another agent took this node's name: this one is silent until that one has been, for a lease."""
        effects = [] if self.yielding else self._begin_anew()
        self.yielding = True
        self.parted = self.parting
        self._held_once = True
        if self._foreign is None or self._foreign[0] != found.version:
            self._foreign = found.version, now_ns
        if now_ns - self._foreign[1] >= max(found.duration_ns, self._times.duration_ns) and not self.parted:
            self._foreign = None
            self._version = found.version
            return [*effects, *self._write(now_ns)]
        self._phase = _Phase.YIELDING
        self._due_ns = now_ns + self._times.renew_ns
        return effects
