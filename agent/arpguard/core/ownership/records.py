"""The objects of the protocol as one node sees them, the outcomes of its writes, and the effects it asks for.

Every time is CLOCK_BOOTTIME of the node that holds the value, in nanoseconds: clocks of two nodes are never compared.
An epoch is a UUID as text; `""` in a claim's `holder` means released.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias
from uuid import UUID

from arpguard.addresses import Address, MacAddress, Network
from arpguard.core.cluster import Key, SpeakerReport
from arpguard.wire.vouching import VouchTerm, term_number


def epoch_number(epoch: str) -> int:
    """The kernel's number for an epoch: the first 8 bytes of the UUID, never 0. ValueError if it is not a UUID."""
    return int.from_bytes(UUID(epoch).bytes[:8], "big") or 1


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object: what a compare-and-swap names (metadata.uid and metadata.resourceVersion)."""

    uid: str
    resource_version: str

    def is_older_than(self, other: "Version | None") -> bool:
        """Whether this is an earlier version of the same object. Servers hand out growing numbers (KEP-5504)."""
        if other is None or self.uid != other.uid:
            return False
        mine, theirs = self.resource_version, other.resource_version
        return mine.isdecimal() and theirs.isdecimal() and int(mine) < int(theirs)


@dataclass(frozen=True, slots=True)
class PublishedLink:
    """A guarded link of a node that is up, as its heartbeat publishes it."""

    name: str
    mac: MacAddress
    networks: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedVouching:
    """What a node that takes part in vouching tells the others, without binding any: which voucher it seeks.

    `accepts`: the nodes that it would vouch for, because their trials went well, and the least d of each (nanoseconds).
    `doubted`: the others may not hear it, so that any other node is a better owner.
    """

    seeks: str = ""
    accepts: tuple[tuple[str, int], ...] = ()
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """What a heartbeat tells the others besides the lease: the node's links, and whether its announcer answers.

    `vouching`: None if it takes no part in that.
    """

    links: tuple[PublishedLink, ...] = ()
    speakers: tuple[tuple[Key, SpeakerReport], ...] = ()
    vouching: PublishedVouching | None = None


@dataclass(frozen=True, slots=True)
class NamedVoucher:
    """A node's voucher, as the node's heartbeat names it: a node in one instance, epoch and term.

    `term`: a UUID that is used once. Only this voucher revokes the node before its lease is over: it does so
    `d_ns` after it granted last, and each grant lets the kernel answer for `d_ns - m_ns`.
    """

    node: str
    instance: str
    epoch: str
    term: str
    d_ns: int
    m_ns: int

    @property
    def number(self) -> int:
        """What the kernel and frames call the term. ValueError if it is not a UUID."""
        return term_number(self.term)

    def to(self, node: str, epoch: str) -> VouchTerm:
        """The term in which it vouches for a node in an epoch."""
        return VouchTerm(node, epoch, self.node, self.instance, self.epoch, self.term, self.d_ns, self.m_ns)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The Lease `node.<node>`. `duration_ns` is the lease's length as that node counts it, or longer.

    `epoch` empty: it cannot be understood, and makes no claim void. `instance` empty: another node has revoked it.
    `voucher`: None also if it cannot be understood. `bound`: its kernel answers by that voucher's grants only.
    `early`: it was revoked for its voucher's word, or for that voucher's end, and not for its own silence.
    """

    node: str
    epoch: str
    instance: str
    duration_ns: int
    version: Version
    links: tuple[PublishedLink, ...] = ()
    speakers: tuple[tuple[Key, SpeakerReport], ...] = ()
    voucher: NamedVoucher | None = None
    bound: bool = False
    vouching: PublishedVouching | None = None
    early: bool = False


@dataclass(frozen=True, slots=True)
class KernelTerm:
    """What this node's kernel has of its voucher: the number of the term (0: none), and whether it is bound to that.

    If so it answers no longer than until `fence_ns`, the voucher's fence (boot clock). `unheard`: pings come, but no
    grants.
    """

    number: int = 0
    bound: bool = False
    fence_ns: int = 0
    unheard: bool = False


NO_TERM = KernelTerm()


@dataclass(frozen=True, slots=True)
class Kept:
    """What the kernel still has from an agent before: entries of one epoch, the fence, and what it has of a voucher.

    `fence_ns` is 0 if the kernel treats it as passed, for whatever reason.
    """

    epoch: str
    vips: tuple[Address, ...]
    fence_ns: int
    term: KernelTerm = NO_TERM


NOTHING_KEPT = Kept("", (), 0)
UNSAID: Mapping[Address, str] = MappingProxyType({})  # no reason is given why VIPs are wanted


@dataclass(frozen=True, slots=True)
class Claim:
    """The Lease `vip.<address>`.

    `epoch`: the holder's; of a released claim the one in which it was claimed, if that was over by then, else "".
    `deleting`: it was deleted, and its finalizer keeps it. `external`: the MAC of a host outside the cluster
    that has the VIP, "" where there is none. `transitions`: how often the holder changed, for people. `holder_uid`: the
    uid of the holder's heartbeat, "" where the claim does not say.
    `unreadable`: why it cannot be understood. Such a claim is neither free nor void.
    """

    vip: Address
    holder: str
    epoch: str
    version: Version
    deleting: bool = False
    external: str = ""
    transitions: int = 0
    unreadable: str = ""
    holder_uid: str = ""

    @property
    def tenure(self) -> tuple[str, str, int]:
        """What changes when the VIP moves; all else may change while the same node has it."""
        return self.holder, self.epoch, self.transitions


def is_rolled_back(
    found: Heartbeat | Claim | None, sent_ns: int, known: Heartbeat | Claim | None, seen_ns: int
) -> bool:
    """Whether a consistent read found an older version of an object than had been seen here before it was sent.

    Only a server that was restored from a backup answers so.
    """
    is_older = found is not None and known is not None and found.version.is_older_than(known.version)
    return is_older and sent_ns > seen_ns


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a VIP. `node` is empty if no node has; `alive`: it renewed within its lease; `void` None: not known yet.

    `known` False: the claim has not been seen yet. `exists`: there is a claim. `seen_ns`: when this version of it came
    here, on this node's boot clock. `voucher`: the node that vouches for it, while it is bound to that; "" for none.
    `answers`: it is this node, and its kernel answers by this claim: it has the entry, and no fence has passed.
    The rest is as in the claim.
    """

    node: str = ""
    epoch: str = ""
    alive: bool = False
    void: bool | None = False
    external: str = ""
    known: bool = False
    deleting: bool = False
    unreadable: str = ""
    exists: bool = False
    transitions: int = 0
    voucher: str = ""
    answers: bool = False
    seen_ns: int = field(default=0, compare=False)


class Outcome(Enum):
    """The outcome of a write."""

    APPLIED = "applied"
    CONFLICT = "conflict"  # 409: another version, another uid, or it exists already
    MISSING = "missing"  # 404
    REFUSED = "refused"  # any other answer that says that nothing was done
    UNKNOWN = "unknown"  # no response: it may have been applied, or may yet be


# ---- effects: what the node has to do ----


@dataclass(frozen=True, slots=True)
class WriteHeartbeat:
    """Create (`version` None) or replace a heartbeat: this node's, or another's to revoke it (`instance` empty).

    Not to be sent if the SetFence before it failed. `duration_ns` is what it publishes, or less. `voucher`, `bound`,
    `early`: as in Heartbeat; a revoked node has no voucher any more. `quiet`: it repeats what the last
    renewal said, and the node is bound, so no other agent needs to see it.
    """

    node: str
    epoch: str
    instance: str
    version: Version | None
    duration_ns: int
    voucher: NamedVoucher | None = None
    bound: bool = False
    quiet: bool = False
    early: bool = False


@dataclass(frozen=True, slots=True)
class ReadHeartbeat:
    """A consistent read: never from a cache."""

    node: str


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Create (`version` None) or replace a claim; `holder` empty releases it, with `external` to a host outside.

    `let_go`: removes the finalizer of a claim that is being deleted, so that it vanishes.
    `epoch`, `holder_uid`: as in Claim.
    """

    vip: Address
    holder: str
    epoch: str
    version: Version | None
    let_go: bool = False
    external: str = ""
    transitions: int = 0
    holder_uid: str = ""


@dataclass(frozen=True, slots=True)
class DeleteHeartbeat:
    """Delete exactly this version of the heartbeat of a node that left the cluster. No event answers it."""

    node: str
    version: Version


@dataclass(frozen=True, slots=True)
class DeleteClaim:
    """Delete exactly this version of a claim; its finalizer keeps it, marked as deleted."""

    vip: Address
    version: Version


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """A consistent read."""

    vip: Address


@dataclass(frozen=True, slots=True)
class ListOwnClaims:
    """A consistent list of the claims that name this node."""


@dataclass(frozen=True, slots=True)
class SetFence:
    """Tell the kernel the epoch and the deadline, as one value; `fence_ns` 0: passed.

    `lease_ns`: a fence further ahead than that counts as passed.
    """

    epoch: str
    fence_ns: int
    lease_ns: int


@dataclass(frozen=True, slots=True)
class SetTerm:
    """Tell the kernel which node vouches for this one from now on; the kernel is not yet bound to the new term."""

    term: VouchTerm


@dataclass(frozen=True, slots=True)
class ClearTerm:
    """Tell the kernel that no node vouches for this one: it answers by the API server's fence alone."""


@dataclass(frozen=True, slots=True)
class ReadTerm:
    """Read what the kernel has of its voucher, and report `term_read`."""


@dataclass(frozen=True, slots=True)
class SetEntry:
    """Tell the kernel that this node owns the VIP in this epoch; then announce it. `why`: in words, for the log."""

    vip: Address
    epoch: str
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ClearEntry:
    """Tell the kernel that this node does not own the VIP.

    `drain`: report `drained` once every program that began earlier has ended, and what it sent is on the wire.
    `why`: in words, for the log.
    """

    vip: Address
    drain: bool = False
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class StartOver:
    """End this agent, and let another start: etcd was restored from a backup, and what this one knows is not true now.

    The effects before it took the right to answer from the kernel. No effect after it is to be performed.
    """


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the segment whether a host has the VIP (RFC 5227, 2.1.1), and report `probed`."""

    vip: Address


@dataclass(frozen=True, slots=True)
class ReportTaken:
    """Tell people that this node, which could take the VIP, leaves it to a host that answers for it."""

    vip: Address
    mac: MacAddress


Effect: TypeAlias = (
    WriteHeartbeat
    | ReadHeartbeat
    | DeleteHeartbeat
    | WriteClaim
    | ReadClaim
    | DeleteClaim
    | ListOwnClaims
    | SetFence
    | SetTerm
    | ClearTerm
    | ReadTerm
    | StartOver
    | SetEntry
    | ClearEntry
    | Probe
    | ReportTaken
)
