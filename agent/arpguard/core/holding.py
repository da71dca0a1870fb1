"""Who has an elected VIP, and why it is that node: a claim and its candidates in words.

The words are for one who asks why a VIP is on this node and not on that; nothing is decided here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from arpguard.addresses import Address
from arpguard.core.ownership.records import Holder

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that might answer for a VIP."""

    node: str
    eligible: bool
    chosen: bool
    why: str


class ClaimState(Enum):
    """What a claim is worth."""

    VALID = "valid"
    VOID = "void"
    RELEASED = "released"
    EXTERNAL = "external"
    UNREADABLE = "unreadable"
    DELETING = "deleting"
    NONE = "none"
    UNKNOWN = "unknown"


def claim_state(holder: Holder) -> ClaimState:
    """The first that holds: what keeps everybody from taking a VIP comes before what lets them."""
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


def holding_steps(address: Address, holder: Holder, candidates: tuple[Candidate, ...]) -> list[str]:
    """Who may own an elected VIP, who has it, and what comes of that."""
    return [_eligible(address, candidates), *_refused(candidates), *_claim_steps(address, holder, candidates)]


def _eligible(address: Address, candidates: Iterable[Candidate]) -> str:
    names = [candidate.node for candidate in candidates if candidate.eligible]
    if not names:
        return f"no node may own {address}: nobody answers for it"
    return f"{_some(names)} may own it" + (", in this order of preference" if len(names) > 1 else "")


def _refused(candidates: Iterable[Candidate]) -> list[str]:
    refused = [f"{candidate.node} ({candidate.why})" for candidate in candidates if not candidate.eligible]
    return [f"not eligible: {_some(refused)}"] if refused else []


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _claim_steps(address: Address, holder: Holder, candidates: Iterable[Candidate]) -> Iterator[str]:
    name, free = holder.node or "nobody", "whoever is eligible may take it, the first choice first"
    texts = {
        ClaimState.VALID: f"{name} holds the claim{_changes(holder)}",
        ClaimState.VOID: f"the claim names {name}, of an epoch of it that has ended (void){_changes(holder)}: {free}",
        ClaimState.RELEASED: f"the claim was released by its holder{_changes(holder)}: {free}",
        ClaimState.EXTERNAL: f"{holder.external} has {address}, and is no node of the cluster: no node takes it before "
        "that host is silent",
        ClaimState.UNREADABLE: f"the claim cannot be understood, so nobody takes it: {holder.unreadable}",
        ClaimState.DELETING: f"somebody deleted the claim: {name} falls silent before it is gone, and then {free}",
        ClaimState.NONE: f"there is no claim yet: {free}",
        ClaimState.UNKNOWN: "what the claim says, or is worth, is not known yet",
    }
    state = claim_state(holder)
    yield texts[state]
    if state is ClaimState.VALID:
        yield from _valid_steps(holder, {candidate.node: candidate for candidate in candidates})


def _valid_steps(holder: Holder, candidates: dict[str, Candidate]) -> Iterator[str]:
    if not holder.alive:
        yield f"{holder.node} is not heard of for a lease: the next eligible node voids its epoch, and takes the VIP"
        return
    yield f"the heartbeat of {holder.node} is alive"
    candidate = candidates.get(holder.node)
    if candidate is None or not candidate.eligible:
        why = f" ({candidate.why})" if candidate else ""
        yield f"{holder.node} may own it no more{why}: it hands the VIP over"
    elif next((each.node for each in candidates.values() if each.eligible), "") != holder.node:
        yield f"{holder.node} is not the first choice: who has a VIP and may own it keeps it, but for balance"


def _changes(holder: Holder) -> str:
    return f" (its holder changed {holder.transitions} times)" if holder.transitions > 1 else ""
