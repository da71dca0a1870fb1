"""What a Service asks for: its addresses, and who is to answer for them, by its annotations or the configuration.

A function of the Service and the configuration alone. Whether an address may be guarded is decided in `sourcing`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from arpguard.config.model import ServicesConfig
from arpguard.config.reading import Place, Problems, section, text
from arpguard.config.values import MODE, SHORT_OWNER, TRUTH
from arpguard.core.cluster import PREFIX, Service
from arpguard.core.reporting import Notice, Subject
from arpguard.model import SERVICE_SOURCE, Owner, OwnerKind, Vip
from arpguard.names import is_ifname
from arpguard.verdict import Mode

ACTION = "Guard"
ANNOTATED, SELECTED = 1, 2
_MAX_WRONG = 4  # of annotations; as many as there are readers


@dataclass(frozen=True, slots=True)
class Offer:
    """What a Service brings. `order`: precedence, namespace, name; `local_only` and `made` as in `Service`."""

    order: tuple[int, str, str]
    subject: Subject
    vips: tuple[Vip, ...] = ()
    local_only: bool = False
    made: str = ""
    problems: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()


class _Terms(NamedTuple):
    """What annotations say. `owner` None: nobody knows whose the addresses are, and they are left alone."""

    owner: Owner | None = None
    mode: Mode = Mode.INHERIT
    interface: str = ""
    hold: bool | None = None


_INTERFACE = text(lambda found: not found or is_ifname(found), "the name of an interface such as eth0")
_READERS = {"owner": SHORT_OWNER, "mode": MODE, "interface": _INTERFACE, "hold": TRUTH}
_TERMS = section(_Terms, _READERS)


def offer_of(service: Service, config: ServicesConfig) -> Offer | None:
    """None for a Service that is not meant."""
    annotations = {key.removeprefix(PREFIX): found for key, found in service.annotations}
    is_annotated = "owner" in annotations
    if not is_annotated and not (config.enabled and set(config.selector) <= set(service.labels)):
        return None

    terms, wrong = _read(annotations)
    owner = terms.owner if is_annotated else config.owner
    hold = config.hold if terms.hold is None else terms.hold
    name = f"{SERVICE_SOURCE}{service.namespace}/{service.name}"
    addresses = dict.fromkeys(service.external_ips + service.ingress_ips)
    subject = Subject("v1", "Service", service.namespace, service.name, service.uid)
    return Offer(
        order=(ANNOTATED if is_annotated else SELECTED, service.namespace, service.name),
        subject=subject,
        vips=tuple(Vip(each, owner, terms.mode, name, terms.interface, hold=hold) for each in addresses if owner),
        local_only=service.local_only and owner is not None and owner.kind is OwnerKind.ELECT,
        made=service.made,
        problems=tuple(f"{name}: {problem}" for problem in (*service.problems, *wrong)),
        notices=tuple(Notice(subject, "BadAnnotation", ACTION, problem) for problem in wrong),
    )


def _read(annotations: dict[str, str]) -> tuple[_Terms, list[str]]:
    """What annotations, without their prefix, say, and what is wrong with them: first with those that are known."""
    problems = Problems(_MAX_WRONG)
    in_order = dict(sorted(annotations.items(), key=lambda item: (item[0] not in _READERS, item)))
    terms = _TERMS(in_order, Place(problems)) or _Terms()
    more = [f"and {problems.more} more such annotations"] if problems.more else []
    return terms, [*(f"annotation {PREFIX}{problem}" for problem in problems.first), *more]
