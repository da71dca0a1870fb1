"""Where an address comes from: which sources ask for it, which of them decides, and why no VIP comes of others."""

from collections.abc import Iterable
from dataclasses import dataclass

from arpguard.config.model import AgentConfig
from arpguard.core.bids import ANNOTATED, CONFIGURED, SELECTED, Bid, Complaint, ranking
from arpguard.core.bounding import bounded
from arpguard.core.cluster import Service
from arpguard.core.offers import name_of, offer_of

_MAX_ASKING = 20  # at most so many sources of an address are named
_MAX_SHOWN = 5  # ranges
_WHY = {
    CONFIGURED: "an item of `vips:` takes precedence over every Service",
    ANNOTATED: "its annotation arpguard.io/owner says so",
    SELECTED: "the setting `services` selects it",
}
_OUTRANKS = {CONFIGURED: "it is an item of `vips:`", ANNOTATED: "it has an owner annotation"}


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of one address, in words.

    `follows`: which object of another announcer names the node, if one is followed.
    `why`: why the first source decides; empty if the address is not a VIP. `others`: the other sources that ask for it.
    `refusals`: why an address is guarded nowhere, a sentence for each source; empty if no source asks for it.
    """

    why: str = ""
    others: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    follows: str = ""


def origin_of_vip(bids: Iterable[Bid]) -> Origin:
    """The origin of an address with bids."""
    first, *others = ranking(bids)
    return Origin(_WHY[first.order[0]], others=_few([_runner_up(bid, first) for bid in others]))


def origin_of_other(refusal: Complaint | None, asking: Iterable[Service], config: AgentConfig) -> Origin:
    """The origin of an address without bids. `refusal`: why it may not be a VIP; `asking`: Services that have it."""
    if refusal is None:
        return Origin(refusals=_few([_why_not(service, config) for service in asking]))
    return Origin(refusals=(refusal.why, *_few([f"{name_of(service)} has this address" for service in asking])))


def _few(lines: list[str]) -> tuple[str, ...]:
    return tuple(bounded(lines, _MAX_ASKING, "of them"))


def _runner_up(bid: Bid, first: Bid) -> str:
    if bid.vip.settings == first.vip.settings:
        return f"{bid.name} shares the address, with the same settings"
    if first.order[0] != CONFIGURED and bid.namespace != first.namespace:
        reason = "it is in the namespace with the oldest Service that has this address"
    elif bid.order[0] == first.order[0]:
        reason = "its name sorts first"
    else:
        reason = _OUTRANKS[first.order[0]]
    other = f"{bid.name} also has this address, with other settings (owner {bid.vip.owner})"
    return f"{other}; {first.name} takes precedence: {reason}"


def _why_not(service: Service, config: AgentConfig) -> str:
    """Why a Service does not make one of its addresses a VIP that could be one."""
    name, offer = name_of(service), offer_of(service, config.services)
    if offer is None:
        why = "`services.selector` does not select it" if config.services.enabled else "`services.enabled` is false"
        return f"{name} has this address, but is ignored: it has no annotation arpguard.io/owner, and {why}"
    if not offer.bids:
        return f"{name} has this address, but its owner cannot be read: {'; '.join(offer.problems)}"
    ranges = ", ".join(bounded([str(each) for each in config.ranges], _MAX_SHOWN, "")) or "none"
    return f"{name} has this address, but it is in none of the configuration's `ranges` ({ranges})"
