"""The stages of a claim on one node, and the table of what moves it from one to the next.

`claims` runs the table, and `docs/protocol.md` shows it (`make docs`). A stage has the data that it needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Idle:
    """The claim is not this node's; the node may wait, or probe.

    `not_before_ns`: write nothing before then, because writes have failed.
    """

    not_before_ns: int = 0


@dataclass(frozen=True, slots=True)
class Claiming:
    """The CAS is under way."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The claim is being read: it or the outcome of a write is unknown, or a write has lost.

    `not_before_ns`: as in `Idle`, which comes next. `again_ns`: when to read again, None while an answer is awaited.
    """

    not_before_ns: int = 0
    again_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Confirming:
    """The CAS was applied.

    `since_ns`: when that was known. `renewal`: how many renewals had been sent by then; a later one confirms.
    """

    since_ns: int
    renewal: int


@dataclass(frozen=True, slots=True)
class Owned:
    """The kernel answers. `since_ns`: when the CAS was known to be applied; 0: by an agent before this one."""

    since_ns: int = 0


@dataclass(frozen=True, slots=True)
class Draining:
    """The kernel is silent, but its last frames are on their way."""


@dataclass(frozen=True, slots=True)
class Releasing:
    """The CAS that releases the claim is under way."""


@dataclass(frozen=True, slots=True)
class Deleting:
    """The delete of the claim to a former VIP is under way."""


Stage: TypeAlias = Idle | Claiming | Reading | Confirming | Owned | Draining | Releasing | Deleting


class Cause(Enum):
    """Why a claim moves on, as the diagram says it."""

    KEPT = "an earlier agent left its entry in the kernel"
    HEARD = "seen, or wanted"
    UNKNOWN = "nothing is known about it"
    FREE = "wanted, and free or this node's; CAS"
    OUTSIDE = "a host outside has the VIP; a CAS records that"
    TAKEN = "applied, and this node's"
    DONE = "applied"
    FAILED = "conflict, or no clear answer"
    READ = "read"
    UNANSWERED = "no answer"
    DUE = "asked again"
    CONFIRMED = "a renewal sent since then succeeded"
    UNWANTED = "not wanted"
    DELETED = "marked as deleted"
    GONE = "the VIP no longer exists"
    LOST = "no longer this node's"
    EPOCH_ENDED = "epoch ended"
    UNLISTED = "not on this node's list of claims"
    DRAINED = "12 ms"


# From (None: nothing was known of the claim), and why: to.
TRANSITIONS: Mapping[tuple[type[Stage] | None, Cause], type[Stage]] = {
    (None, Cause.HEARD): Idle,
    (None, Cause.KEPT): Owned,
    (Idle, Cause.UNKNOWN): Reading,
    (Idle, Cause.FREE): Claiming,
    (Idle, Cause.OUTSIDE): Claiming,
    (Idle, Cause.UNWANTED): Releasing,
    (Idle, Cause.DELETED): Releasing,
    (Idle, Cause.GONE): Deleting,
    (Claiming, Cause.TAKEN): Confirming,
    (Claiming, Cause.DONE): Idle,
    (Claiming, Cause.FAILED): Reading,
    (Reading, Cause.READ): Idle,
    (Reading, Cause.UNANSWERED): Reading,
    (Reading, Cause.DUE): Reading,
    (Confirming, Cause.CONFIRMED): Owned,
    (Confirming, Cause.UNWANTED): Releasing,
    (Confirming, Cause.LOST): Idle,
    (Confirming, Cause.EPOCH_ENDED): Idle,
    (Confirming, Cause.UNLISTED): Reading,
    (Owned, Cause.UNWANTED): Draining,
    (Owned, Cause.DELETED): Draining,
    (Owned, Cause.GONE): Draining,
    (Owned, Cause.LOST): Idle,
    (Owned, Cause.EPOCH_ENDED): Idle,
    (Owned, Cause.UNLISTED): Reading,
    (Draining, Cause.DRAINED): Idle,
    (Releasing, Cause.DONE): Idle,
    (Releasing, Cause.FAILED): Reading,
    (Deleting, Cause.DONE): Idle,
    (Deleting, Cause.FAILED): Reading,
}


def after(stage: Stage | None, cause: Cause, *holds: int) -> Stage:
    """The next stage by the table, with its data. KeyError if there is none: a bug."""
    return TRANSITIONS[None if stage is None else type(stage), cause](*holds)
