"""What one source asks for: the addresses of an item of `vips:` or of a Service, and who is to answer for them.

A function of the Service and the configuration alone; `admission` decides whether an address may be a VIP.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from arpguard.config.model import AgentConfig, ServicesConfig
from arpguard.config.reading import Place, Problems, ValueReader, section, text
from arpguard.config.values import MODE, SHORT_OWNER, TRUTH
from arpguard.core.bids import ANNOTATED, CONFIGURED, SELECTED, Bid
from arpguard.core.cluster import OWNED_BY, PREFIX, Service
from arpguard.core.reporting import Notice, Subject
from arpguard.model import SERVICE_SOURCE, Owner, OwnerKind, Vip
from arpguard.names import is_ifname
from arpguard.verdict import Mode

ACTION = "Guard"
_MAX_WRONG = 4  # of annotations; as many as there are readers


@dataclass(frozen=True, slots=True)
class Offer:
    """What a source asks for: a bid for each address. `local_only`: only nodes with ready endpoints may own them.

    `problems` and `notices` are about the source as a whole; problems with one address are in its bid.
    """

    bids: tuple[Bid, ...] = ()
    problems: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    local_only: bool = False

    @property
    def needs_slices(self) -> bool:
        """Whether the result depends on EndpointSlices."""
        return self.local_only and any(bid.admitted for bid in self.bids)

    @property
    def follows(self) -> bool:
        """Whether the result depends on another announcer."""
        return any(bid.admitted and bid.vip.owner.kind is OwnerKind.FOLLOW for bid in self.bids)

    @property
    def has_news(self) -> bool:
        """Whether there is anything to report about it."""
        is_whole = all(bid.admitted and bid.complaint is None for bid in self.bids)
        return bool(self.problems or self.notices) or not is_whole


class _Terms(NamedTuple):
    """What annotations say. `owner` None: the owner is not known, so the addresses are left alone."""

    owner: Owner | None = None
    mode: Mode = Mode.INHERIT
    interface: str = ""
    hold: bool | None = None


_INTERFACE = text(lambda found: not found or is_ifname(found), "the name of an interface such as eth0", "")
_READERS: dict[str, ValueReader[Any]] = {"owner": SHORT_OWNER, "mode": MODE, "interface": _INTERFACE, "hold": TRUTH}
_TERMS = section(_Terms, _READERS)


def offer_of_config(config: AgentConfig) -> Offer:
    """The items of `vips:`."""
    return Offer(tuple(Bid((CONFIGURED, "", ""), vip, f"vips[{index}]") for index, vip in enumerate(config.vips)))


def offer_of(service: Service, config: ServicesConfig) -> Offer | None:
    """What a Service asks for; None if it has neither the annotation nor the labels that `services` selects."""
    annotations = {key.removeprefix(PREFIX): found for key, found in service.annotations}
    is_annotated = "owner" in annotations
    if not is_annotated and not (config.enabled and set(config.selector) <= set(service.labels)):
        return None

    terms, wrong = _read(annotations)
    owner = terms.owner if is_annotated else config.owner
    unfenced = config.hold if terms.hold is None else terms.hold
    name = name_of(service)
    vips = (Vip(at, owner, terms.mode, name, terms.interface, unfenced=unfenced) for at in service.addresses if owner)

    left = [_left_behind(service)] if service.owned_by and not config.owned_by else []
    order = ANNOTATED if is_annotated else SELECTED, service.namespace, service.name
    subject = Subject("v1", "Service", service.namespace, service.name, service.uid)
    return Offer(
        bids=tuple(Bid(order, vip, name, subject, service.made) for vip in vips),
        problems=tuple(f"{name}: {problem}" for problem in (*service.problems, *wrong, *left)),
        notices=tuple(Notice(subject, "BadAnnotation", ACTION, problem) for problem in wrong),
        local_only=service.local_only and owner is not None and owner.kind is OwnerKind.ELECT,
    )


def name_of(service: Service) -> str:
    """The name of a Service as the source of a VIP."""
    return f"{SERVICE_SOURCE}{service.namespace}/{service.name}"


def _left_behind(service: Service) -> str:
    """The remedy where agents do not write the annotation any more: it may name a former owner."""
    remove = f"kubectl -n {service.namespace} annotate service {service.name} {OWNED_BY}-"
    return (
        f"annotation {OWNED_BY} may name a former owner, because services.owned_by is false: remove it with `{remove}`"
    )


def _read(annotations: dict[str, str]) -> tuple[_Terms, list[str]]:
    """What annotations (without prefix) say, and what is wrong with them; wrong values come before unknown names."""
    problems = Problems(_MAX_WRONG)
    in_order = dict(sorted(annotations.items(), key=lambda item: (item[0] not in _READERS, item)))
    terms = _TERMS(in_order, Place(problems)) or _Terms()
    more = [f"and {problems.more} more such annotations"] if problems.more else []
    return terms, [*(f"annotation {PREFIX}{problem}" for problem in problems.named({})), *more]
