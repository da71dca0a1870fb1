"""What a Service asks for: its addresses, and who is to answer for them, by its annotations or the configuration.

A function of the Service and the configuration alone. Whether an address may be guarded is decided in `sourcing`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from arpguard.addresses import MacAddress
from arpguard.config import ServicesConfig
from arpguard.core.bounding import bounded
from arpguard.core.cluster import PREFIX, Service
from arpguard.core.reporting import Notice, Subject
from arpguard.model import SERVICE_SOURCE, Owner, OwnerKind, Vip
from arpguard.names import is_ifname, is_subdomain
from arpguard.verdict import Mode

T = TypeVar("T")

ACTION = "Guard"
ANNOTATED, SELECTED = 1, 2
_MAX_SHOWN = 60
_MAX_UNKNOWN = 4


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


def offer_of(service: Service, config: ServicesConfig) -> Offer | None:
    """None for a Service that is not meant."""
    annotations = {key.removeprefix(PREFIX): text for key, text in service.annotations}
    is_annotated = "owner" in annotations
    if not is_annotated and not (config.enabled and set(config.selector) <= set(service.labels)):
        return None
    name = f"{SERVICE_SOURCE}{service.namespace}/{service.name}"
    addresses = dict.fromkeys(service.external_ips + service.ingress_ips)
    read = _Annotations(annotations)
    owner = read.owner(config.owner)
    mode = read.one_of("mode", _MODES, Mode.INHERIT)
    hold = read.one_of("hold", _TRUTH, config.hold)
    interface = read.interface()
    subject = Subject("v1", "Service", service.namespace, service.name, service.uid)
    return Offer(
        order=(ANNOTATED if is_annotated else SELECTED, service.namespace, service.name),
        subject=subject,
        vips=tuple(Vip(each, owner, mode, name, interface, hold=hold) for each in addresses) if owner else (),
        local_only=service.local_only and owner is not None and owner.kind is OwnerKind.ELECT,
        made=service.made,
        problems=tuple(f"{name}: {problem}" for problem in (*service.problems, *read.problems)),
        notices=tuple(Notice(subject, "BadAnnotation", ACTION, problem) for problem in read.problems),
    )


_MODES = {"observe": Mode.OBSERVE, "enforce": Mode.ENFORCE}
_TRUTH = {"true": True, "false": False}


@dataclass(slots=True)
class _Annotations:
    """Annotations without their prefix, and what cannot be read of them."""

    texts: dict[str, str]
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = ("owner", "mode", "interface", "hold")
        unknown = [
            f"there is no annotation {PREFIX}{_shown(name)}: take it away, or use one of {', '.join(known)}"
            for name in sorted(self.texts.keys() - set(known))
        ]
        self.problems += bounded(unknown, _MAX_UNKNOWN, "such annotations")

    def owner(self, default: str) -> Owner | None:
        """None when it cannot be read: then nobody knows whose the addresses are, and they are left alone."""
        text = self.texts.get("owner", default)
        kind, slash, argument = text.partition("/")
        parse = _OWNERS.get(kind + slash)
        owner = parse(argument) if parse else None
        if owner is None:
            self._wrong("owner", text, "node/NAME, external, external/MAC, elect or follow; left alone until then")
        return owner

    def one_of(self, name: str, allowed: dict[str, T], default: T) -> T:
        text = self.texts.get(name)
        if text is not None and text not in allowed:
            self._wrong(name, text, " or ".join(allowed))
        return default if text is None else allowed.get(text, default)

    def interface(self) -> str:
        text = self.texts.get("interface", "")
        if not text or is_ifname(text):
            return text
        self._wrong("interface", text, "the name of an interface such as eth0")
        return ""

    def _wrong(self, name: str, text: str, allowed: str) -> None:
        self.problems.append(f"annotation {PREFIX}{name}: {_shown(text)}: write {allowed}")


def _node_owner(name: str) -> Owner | None:
    return Owner(OwnerKind.NODE, node=name) if is_subdomain(name) else None


def _pinned_owner(text: str) -> Owner | None:
    try:
        mac = MacAddress.parse(text)
    except ValueError:
        return None
    return None if mac.is_group or mac.is_zero else Owner(OwnerKind.EXTERNAL, mac=mac)


_OWNERS: dict[str, Callable[[str], Owner | None]] = {
    "node/": _node_owner,
    "external": lambda _: Owner(OwnerKind.EXTERNAL),
    "external/": _pinned_owner,
    "elect": lambda _: Owner(OwnerKind.ELECT),
    "follow": lambda _: Owner(OwnerKind.FOLLOW),
}


def _shown(text: str) -> str:
    short = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
    return short if short and short.isprintable() else repr(short)
