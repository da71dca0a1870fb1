"""Says in words who has an elected VIP, and why that node: by its claim and its candidates.

This is for people who ask why a VIP is on one node and not on another; it decides nothing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from arpguard.addresses import Address
from arpguard.core.bounding import some
from arpguard.core.ownership.records import Holder
from arpguard.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that might answer for a VIP. `leads`: it has the lead of the VIP's group, so it should have the VIP."""

    node: str
    eligible: bool
    chosen: bool
    why: str
    leads: bool = False


class ClaimState(Enum):
    """Whether a claim is in force, or why not."""

    VALID = "valid"
    VOID = "void"
    RELEASED = "released"
    EXTERNAL = "external"
    UNREADABLE = "unreadable"
    DELETING = "deleting"
    NONE = "none"
    UNKNOWN = "unknown"


def claim_state(holder: Holder) -> ClaimState:
    """The first state that applies: those that keep everybody from taking a VIP come before those that let them."""
    marks = (
        (not holder.known, ClaimState.UNKNOWN),
        (not holder.exists, ClaimState.NONE),
        (bool(holder.unreadable), ClaimState.UNREADABLE),
        (holder.deleting, ClaimState.DELETING),
        (bool(holder.external), ClaimState.EXTERNAL),
        (not holder.node, ClaimState.RELEASED),
        (holder.void is True, ClaimState.VOID),
        (holder.void is None, ClaimState.UNKNOWN),
    )
    return next((state for holds, state in marks if holds), ClaimState.VALID)


def claim_steps(address: Address, holder: Holder, candidates: tuple[Candidate, ...], now_ns: int) -> list[str]:
    """Who may own an elected VIP, who has it, and what happens next. `now_ns` is this node's boot clock."""
    return [_eligible(address, candidates), *_refused(candidates), *_claim_steps(address, holder, candidates, now_ns)]


def _eligible(address: Address, candidates: Iterable[Candidate]) -> str:
    names = [candidate.node for candidate in candidates if candidate.eligible]
    if not names:
        return f"no node is eligible to own {address}, so none answers"
    return f"{some(names)} may own the VIP" + (", in this order of preference" if len(names) > 1 else "")


def _refused(candidates: Iterable[Candidate]) -> Iterator[str]:
    """A sentence for each reason: those are few, however many nodes there are."""
    by_reason: dict[str, list[str]] = {}
    for candidate in candidates:
        if not candidate.eligible:
            by_reason.setdefault(candidate.why, []).append(candidate.node)
    return (f"{some(names)} cannot own the VIP: {why}" for why, names in by_reason.items())


def _claim_steps(address: Address, holder: Holder, candidates: tuple[Candidate, ...], now_ns: int) -> Iterator[str]:
    name, since = holder.node, _since(holder, now_ns)
    free = "any eligible node may take the VIP, in order of preference"
    before = f"first {name} falls silent, then the claim disappears; after that" if name else "after that"
    texts = {
        ClaimState.VALID: f"{name} holds the claim{since}",
        ClaimState.VOID: f"the claim names {name}, but is void, because the epoch in it has ended: {free}",
        ClaimState.RELEASED: f"the last holder has released the claim{since}: {free}",
        ClaimState.EXTERNAL: f"{holder.external}, a host outside the cluster, has {address}{since}: no node takes "
        "the VIP until that host falls silent",
        ClaimState.UNREADABLE: f"agents cannot read the claim, so no node takes the VIP: {holder.unreadable}",
        ClaimState.DELETING: f"the claim is being deleted by hand: {before} {free}",
        ClaimState.NONE: f"no node has claimed {address} yet: {free}",
        ClaimState.UNKNOWN: "the agent does not know yet whether the claim is valid",
    }

    state = claim_state(holder)
    yield texts[state]
    if state is ClaimState.VALID:
        yield from _valid_steps(holder, candidates)


def _since(holder: Holder, now_ns: int) -> str:
    """How long this node has seen the claim unchanged, and how often the VIP has moved."""
    if not holder.seen_ns:
        return ""
    times = "once" if holder.transitions == 1 else f"{holder.transitions} times"
    moved = f"; the VIP has moved {times} so far" if holder.transitions else ""
    return f" (this node has seen the claim unchanged for {(now_ns - holder.seen_ns) // NS_PER_S} s{moved})"


def _valid_steps(holder: Holder, candidates: tuple[Candidate, ...]) -> Iterator[str]:
    if not holder.alive:
        yield (
            f"{holder.node} has not renewed its lease in time: another eligible node declares {holder.node} dead "
            "(ends its epoch), and takes the VIP"
        )
        return

    yield f"{holder.node} renews its lease in time"
    own = next((candidate for candidate in candidates if candidate.node == holder.node), None)
    first = next((candidate.node for candidate in candidates if candidate.eligible), "")
    if own is None or not own.eligible:
        why = f": {own.why}" if own else ""
        yield f"{holder.node} is no longer eligible, and hands the VIP over{why}"
    elif first != holder.node and any(candidate.leads for candidate in candidates):
        yield f"{first} should have the VIP, and takes it over immediately"
    elif first != holder.node:
        yield f"{first} is preferred, but the owner keeps the VIP until a minute passes without changes"
