"""The objects of the protocol as one node sees them, what it is told, and what it asks to be done.

Every time is CLOCK_BOOTTIME of the node that holds the value, in nanoseconds: clocks of two nodes are never compared.
An epoch is a UUID as text; `""` in a claim's `holder` means released.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from arpguard.addresses import Address


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object: what a compare-and-swap names (metadata.uid and metadata.resourceVersion)."""

    uid: str
    resource_version: str

    def is_older_than(self, other: "Version | None") -> bool:
        """Whether this is what the same object was before. Servers hand out numbers that grow (KEP-5504)."""
        if other is None or self.uid != other.uid:
            return False
        mine, theirs = self.resource_version, other.resource_version
        return mine.isdecimal() and theirs.isdecimal() and int(mine) < int(theirs)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The Lease `node.<node>`. `duration_ns` is the lease's length as that node counts it."""

    node: str
    epoch: str
    instance: str
    duration_ns: int
    version: Version


@dataclass(frozen=True, slots=True)
class Claim:
    """The Lease `vip.<address>`. `deleting`: somebody deleted it, and its finalizer holds it."""

    vip: Address
    holder: str
    epoch: str
    version: Version
    deleting: bool = False


class Outcome(Enum):
    """What came of a write."""

    APPLIED = "applied"
    CONFLICT = "conflict"  # 409: another version, another uid, or it exists already
    MISSING = "missing"  # 404
    UNKNOWN = "unknown"  # no response: it may have been applied, or may yet be


# ---- effects: what the node is to do ----


@dataclass(frozen=True, slots=True)
class WriteHeartbeat:
    """Create (`version` None) or replace a heartbeat; the own one, or another node's to revoke it."""

    node: str
    epoch: str
    instance: str
    version: Version | None


@dataclass(frozen=True, slots=True)
class ReadHeartbeat:
    """A consistent read: never from a cache."""

    node: str


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Create (`version` None) or replace a claim; `holder` empty releases it. `let_go` takes the finalizer off."""

    vip: Address
    holder: str
    epoch: str
    version: Version | None
    let_go: bool = False


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """A consistent read."""

    vip: Address


@dataclass(frozen=True, slots=True)
class ListOwnClaims:
    """A consistent list of the claims that name this node."""


@dataclass(frozen=True, slots=True)
class SetFence:
    """Tell the kernel the epoch and the deadline, as one value; `fence_ns` 0: passed."""

    epoch: str
    fence_ns: int


@dataclass(frozen=True, slots=True)
class SetEntry:
    """Tell the kernel that this node owns the VIP in this epoch; then announce it."""

    vip: Address
    epoch: str


@dataclass(frozen=True, slots=True)
class ClearEntry:
    """Tell the kernel that this node does not own the VIP.

    `drain`: report `Drained` once no program runs that began before, and what it sent is on the wire.
    """

    vip: Address
    drain: bool = False


Effect: TypeAlias = (
    WriteHeartbeat | ReadHeartbeat | WriteClaim | ReadClaim | ListOwnClaims | SetFence | SetEntry | ClearEntry
)
