"""This node's heartbeat: what renews the right to answer, and what ends that right.

Only an applied compare-and-swap that carried the epoch moves the fence on (`fence`). After any other
outcome nothing is extended, and the agent reads the object: if it is no longer this node's, the agent gives up all and
starts over in a new epoch. `lease` decides which lease a renewal publishes, and `naming` which voucher it names.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from arpguard.core.ownership.fence import Fence
from arpguard.core.ownership.lease import PublishedLease, Times
from arpguard.core.ownership.naming import Naming
from arpguard.core.ownership.records import (
    Effect,
    Heartbeat,
    Kept,
    KernelTerm,
    ListOwnClaims,
    NamedVoucher,
    Outcome,
    ReadHeartbeat,
    StartOver,
    Version,
    WriteHeartbeat,
)


class _Phase(Enum):
    READING = "reading"  # a read is under way, or due
    WRITING = "writing"
    HELD = "held"  # the last write was applied, and the next is not due
    YIELDING = "yielding"  # another agent speaks as this node


class _OwnClaimsList:
    """When to list this node's claims, to check that they are still its own."""

    def __init__(self) -> None:
        self._due_ns = 0
        self._under_way = False

    @property
    def next_ns(self) -> int | None:
        """When the next list is due; None while one is under way."""
        return None if self._under_way else self._due_ns

    def ask(self, now_ns: int) -> list[Effect]:
        """A list, if one is due."""
        if self._under_way or now_ns < self._due_ns:
            return []
        self._under_way = True
        return [ListOwnClaims()]

    def answered(self, again_ns: int) -> None:
        """A list came, or none did."""
        self._under_way, self._due_ns = False, again_ns

    def hasten(self, due_ns: int) -> None:
        """Makes the next list due then at the latest."""
        self._due_ns = min(self._due_ns, due_ns)


class OwnHeartbeat:
    """The state machine of this node's heartbeat."""

    def __init__(self, node: str, instance: str, times: Times, new_epoch: Callable[[], str], kept: Kept) -> None:
        self.epoch = kept.epoch
        self.asked = 0  # how many renewals have been sent
        self.yielding = False
        self.parted = False
        self.lease = PublishedLease(times)
        self.naming = Naming(node, new_epoch, kept.term, adopts=times.bound_ns > 0)

        self._node = node
        self._instance = instance
        self._new_epoch = new_epoch

        self._phase = _Phase.READING
        self._version: Version | None = None
        self._busy = False
        self._held_once = False
        self._failures = 0
        self._due_ns = 0

        self.fence = Fence(kept.fence_ns)
        self._said: WriteHeartbeat | None = None  # the last renewal, while it is certain that it was applied
        self._applied: int | None = None
        self._own_claims = _OwnClaimsList()
        self._foreign: tuple[Version, int] | None = None

    @property
    def holds(self) -> bool:
        """Whether the server has this node's epoch, as far as is known."""
        return self._held_once and self._phase in (_Phase.HELD, _Phase.WRITING)

    @property
    def renewal(self) -> int | None:
        """Which of the renewals that were asked for was applied last; None while the heartbeat is not held."""
        return self._applied if self.holds else None

    @property
    def uid(self) -> str:
        """The object's uid, "" if none is known."""
        return self._version.uid if self._version else ""

    def next_ns(self) -> int | None:
        """When `tick` has something to do next, if nothing else happens."""
        if self.parted:
            return None
        moments = (
            None if self._busy else self._due_ns,
            self._own_claims.next_ns if self._syncs else None,
            self.naming.next_ns,
        )
        return min((moment for moment in moments if moment is not None), default=None)

    def set_times(self, times: Times, now_ns: int) -> None:
        """Takes other lengths of time: the next renewal publishes them."""
        self.lease.times = times
        self._due_ns = min(self._due_ns, now_ns + self.lease.pace.renew_ns)
        self._own_claims.hasten(now_ns + times.sync_ns)

    def tick(self, now_ns: int) -> list[Effect]:
        """What is due: a look at the kernel, a read, a renewal, a list of own claims."""
        if self.parted:
            return []
        asked = self._own_claims.ask(now_ns) if self._syncs else []
        return [*self.naming.tick(now_ns), *asked, *self._go_on(now_ns)]

    @property
    def _syncs(self) -> bool:
        """A node at rest needs a fence where it may vouch for others: it grants within its own right only (V16)."""
        return not self.lease.parting and (not self.lease.resting or self.lease.times.bound_ns > 0)

    def rest(self, yes: bool, now_ns: int) -> list[Effect]:  # noqa: FBT001 - it is the event
        """Whether anything is held, or may be claimed. A rest ends with a renewal at once."""
        if self.lease.resting == yes:
            return []
        self.lease.resting = yes
        return [] if yes else self.hurry(now_ns)

    def end(self) -> None:
        """Sends nothing more: the heartbeat is about to be deleted, or the agent starts over."""
        self.lease.part(self.lease.times.duration_ns)
        self.parted = True

    def hurry(self, now_ns: int) -> list[Effect]:
        """Asks for a renewal at once, for example when the heartbeat's content has changed; waits for one under way."""
        if self._phase is _Phase.HELD and not self.lease.parting:
            self._due_ns = min(self._due_ns, now_ns)
        return self._go_on(now_ns) if self._phase is _Phase.HELD and not self.parted else []

    def part(self, lease_ns: int, now_ns: int) -> list[Effect]:
        """The agent ends, and another continues: one last renewal, for so long, or none if anything goes wrong.

        Before it comes one without a voucher, if there is one (V11).
        """
        if not self.lease.parting:
            self.lease.part(lease_ns)
            self.naming.wish(None)
            self._due_ns = now_ns
            self.parted = (self.lease.resting and self.naming.named is None) or self.yielding
        return self.tick(now_ns)

    # ---- the voucher ----

    def name(self, voucher: NamedVoucher | None, now_ns: int) -> list[Effect]:
        """Whom to name as voucher from now on, in a new term if it is another one. An epoch begins without any."""
        if self.lease.parting:
            return []
        self.naming.wish(voucher)
        return self._keep_named(now_ns)

    def term_read(self, seen: KernelTerm, now_ns: int) -> list[Effect]:
        """Takes what the kernel has of its voucher."""
        self.naming.looked(seen, now_ns)
        return self._keep_named(now_ns)

    def voucher_is_behind(self, yes: bool, now_ns: int) -> list[Effect]:  # noqa: FBT001 - it is the event
        """Whether the voucher has not renewed for so long that it could not revoke this node (V19)."""
        self.naming.is_behind = yes
        return self._keep_named(now_ns)

    def _keep_named(self, now_ns: int) -> list[Effect]:
        return self.hurry(now_ns) if self.naming.is_stale(self._may_name) else []

    @property
    def _may_name(self) -> bool:
        """Whether a renewal may name a new voucher: it replaces one of this epoch."""
        return self._held_once and self._version is not None

    def _go_on(self, now_ns: int) -> list[Effect]:
        if self._busy or now_ns < self._due_ns:
            return []
        if self._phase is _Phase.HELD:
            return self._write(now_ns)
        self._busy = True
        return [ReadHeartbeat(self._node)]

    def read(self, found: Heartbeat | None, now_ns: int) -> list[Effect]:
        """Takes the object as a read found it; None: there is none."""
        self._busy = False
        if self.parted:
            return []
        if found is not None and found.version.is_older_than(self._version):
            return self.start_over()

        if found is not None and self._held_once and found.instance not in ("", self._instance):
            return self._yield_to(found, now_ns)
        mine = found is not None and found.epoch == self.epoch and self.epoch != ""
        gone = not mine or (self._held_once and found is not None and found.instance != self._instance)
        effects = self._begin_anew() if gone or found is None else self.naming.read(found, now_ns)
        self._version = found.version if found else None
        if gone and self.lease.parting:
            self.parted = True
            return effects
        return [*effects, *self._write(now_ns)]

    def start_over(self) -> list[Effect]:
        """The server was restored from a backup: gives up all, and ends the agent.

        The server has forgotten epochs that this node knows, and will hand out again versions that it has seen.
        """
        self.end()
        return [*self._begin_anew(), StartOver()]

    def suspect(self, shown: Heartbeat | None, now_ns: int) -> None:
        """A watch shows this node's heartbeat: when another program changed it, reads it at once."""
        if shown is not None:
            is_own = (shown.epoch, shown.instance) == (self.epoch, self._instance)
            if is_own or shown.version.is_older_than(self._version):
                return
        if self._phase is _Phase.HELD:
            self._phase = _Phase.READING
            self._due_ns = now_ns

    def read_failed(self, now_ns: int) -> list[Effect]:
        """No answer: again when the next renewal would be due."""
        self._busy = False
        self._due_ns = now_ns + self.lease.times.renew_ns
        self.parted = self.lease.parting
        return []

    def written(self, outcome: Outcome, version: Version | None, sent_ns: int, now_ns: int) -> list[Effect]:
        """What came of a write; `sent_ns` was read before it was sent."""
        self._busy = False
        if self.parted:
            return []
        if outcome is not Outcome.APPLIED:
            return self._failed(now_ns)

        self._phase = _Phase.HELD
        self._version = version
        self._held_once = True
        self._failures = 0
        self.yielding = False
        self._applied = self.asked

        self.fence.renewed(sent_ns, self.lease.published)
        self._due_ns = sent_ns + self.lease.published.renew_ns
        self.parted = self.lease.applied() or self.parted
        told = self.naming.applied(self.epoch, now_ns)

        again = (self.lease.is_late or self.naming.is_stale(self._may_name)) and not self.parted
        return [*told, *self._extend(), *(self._write(now_ns) if again else [])]

    def _failed(self, now_ns: int) -> list[Effect]:
        """Reads it: at once after the first failure, later after more, because the server may refuse for ever."""
        self._said = None
        self._phase = _Phase.READING
        self._due_ns = now_ns if not self._failures else now_ns + self.lease.times.renew_ns
        self._failures += 1
        self.parted = self.lease.parting
        return []

    def synced(self, sent_ns: int) -> list[Effect]:
        """A list of this node's claims that was sent then has been acted on."""
        self._own_claims.answered(sent_ns + self.lease.times.sync_ns)
        self.fence.synced(sent_ns)
        return self._extend()

    def sync_failed(self, now_ns: int) -> None:
        """No list came: again soon."""
        self._own_claims.answered(now_ns + self.lease.times.renew_ns)

    def _write(self, now_ns: int) -> list[Effect]:
        """A renewal; before it the fence is moved back to what it will allow, if it publishes a shorter lease."""
        self._phase = _Phase.WRITING
        self._busy = True
        self.asked += 1

        voucher, bound = self.naming.publish(self._may_name)
        lease = self.lease.publish(bound=bound, may_part=self.naming.named is None)
        renewal = WriteHeartbeat(
            self._node, self.epoch, self._instance, self._version, lease.duration_ns, voucher, bound
        )
        said, self._said = self._said, renewal
        if bound and said is not None and replace(said, version=self._version) == renewal:
            renewal = replace(renewal, quiet=True)
        return [*self.fence.shorten(self.epoch, lease, now_ns), renewal]

    def _extend(self) -> list[Effect]:
        return self.fence.extend(self.epoch, self.lease.published, self.lease.times.sync_ns)

    def _begin_anew(self) -> list[Effect]:
        """Gives up all that the old epoch gave."""
        self.epoch = self._new_epoch()
        self._held_once = False
        self._applied = None
        return [*self.fence.drop(self.epoch, self.lease.published), *self.naming.begin_anew()]

    def _yield_to(self, found: Heartbeat, now_ns: int) -> list[Effect]:
        """Another agent took this node's name: this one is silent until that one has been, for a lease."""
        effects = [] if self.yielding else self._begin_anew()
        self.yielding = True
        self.parted = self.lease.parting
        self._held_once = True
        if self._foreign is None or self._foreign[0] != found.version:
            self._foreign = found.version, now_ns
        if now_ns - self._foreign[1] >= max(found.duration_ns, self.lease.times.duration_ns) and not self.parted:
            self._foreign = None
            self._version = found.version
            return [*effects, *self._write(now_ns)]
        self._phase = _Phase.YIELDING
        self._due_ns = now_ns + self.lease.times.renew_ns
        return effects
