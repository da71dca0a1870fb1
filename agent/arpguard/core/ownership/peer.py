"""What is known of one other node."""

from collections import deque
from dataclasses import dataclass, field

from arpguard.core.ownership.records import Heartbeat
from arpguard.units import NS_PER_S

# A deleted heartbeat may have been that of a node at rest, whose lease lasts so long, or of one that parted.
MISSING_NS = 30 * NS_PER_S

_MAX_EPOCHS = 8


@dataclass(slots=True)
class Peer:
    """One other node.

    `since_ns`: when this version, or its absence, was first seen. `as_of_ns`: when the read or write was sent that
    showed it as of then or later; a watch shows the past, and sets none. `busy`: a read or a write is under way;
    `retry_ns`: not to retry before then; `lease_ns`: what the last seen version publishes, `longest_ns`: what any
    version did, of this object or of one before. `object_since_ns`: when this object (its uid) was first seen;
    `epochs`: those of its versions that were seen. `renewed`: a write of it was seen; a heartbeat that was only found
    may be months old. `ended_early`: it was revoked while it was bound, by its voucher's word or for that one's end.
    """

    known: Heartbeat | None
    since_ns: int
    as_of_ns: int | None = None
    busy: bool = False
    retry_ns: int = 0
    lease_ns: int = MISSING_NS
    longest_ns: int = 0
    object_since_ns: int = 0
    epochs: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_EPOCHS))
    renewed: bool = False
    ended_early: bool = False

    @property
    def is_first_looked_for(self) -> bool:
        """Whether none was ever seen, nor found missing: when it was asked for, it may still have been there."""
        return self.known is None and not self.epochs and self.as_of_ns is None

    def show(self, heartbeat: Heartbeat | None, now_ns: int) -> None:
        """Takes another version, or its absence."""
        if heartbeat is not None and (self.known is None or self.known.version.uid != heartbeat.version.uid):
            self.object_since_ns = now_ns
            self.epochs.clear()
        if heartbeat is not None and heartbeat.epoch not in self.epochs:
            self.epochs.append(heartbeat.epoch)
        before = self.known
        self.renewed = before is not None and heartbeat is not None
        was_bound = before is not None and before.bound
        self.ended_early = was_bound and heartbeat is not None and heartbeat.instance == "" and heartbeat.early
        self.known, self.since_ns, self.as_of_ns = heartbeat, now_ns, None
        self.lease_ns = heartbeat.duration_ns if heartbeat else max(self.lease_ns, MISSING_NS)
        self.longest_ns = max(self.longest_ns, heartbeat.duration_ns if heartbeat else 0)

    def was_read_since(self, moment_ns: int) -> bool:
        """Whether a read after that found it as it is known. The same moment is not after: a clock may be coarse."""
        return self.as_of_ns is not None and self.as_of_ns > moment_ns

    def longest_besides(self, *bound_ns: int) -> int:
        """The longest lease that former objects may have published (V18). `bound_ns`: 0 where nobody vouches."""
        return max(self.longest_ns, *bound_ns) if any(bound_ns) else 0
