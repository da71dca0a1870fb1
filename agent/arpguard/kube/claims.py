"""Heartbeats and claims <-> Leases. A Lease's name says what it is about; annotations carry what has no field there.

Anybody who may write Leases can write nonsense: nothing here raises, and a claim that cannot be understood is
neither free nor void.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from ipaddress import ip_address, ip_network
from typing import TypeVar
from uuid import UUID

from arpguard.addresses import ZERO_MAC, Address, MacAddress, Network
from arpguard.core.cluster import PREFIX, Key, Lease, Pairs, SpeakerReport
from arpguard.core.ownership.records import (
    Claim,
    Heartbeat,
    NamedVoucher,
    Published,
    PublishedLink,
    PublishedVouching,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.speakers import MAX_REPORTS
from arpguard.kube.projections import MAX_INT32, VERSION_DIGITS, ordered_version
from arpguard.kube.writer import LeaseContent
from arpguard.names import MAX_SUBDOMAIN, is_subdomain
from arpguard.units import NS_PER_S

T = TypeVar("T")

KIND_LABEL = PREFIX + "kind"
HOLDER_LABEL = PREFIX + "holder"
FINALIZER = PREFIX + "claim"
HEARTBEAT, CLAIM, QUIET = "heartbeat", "claim", "quiet."

_EPOCH = PREFIX + "epoch"
_INSTANCE = PREFIX + "instance"
_LINKS = PREFIX + "links"
_SPEAKERS = PREFIX + "speakers"
_VOUCHERS = PREFIX + "vouchers"
_VOUCHING = PREFIX + "vouching"
_EARLY = PREFIX + "early"
_HOLDER_EPOCH = PREFIX + "holder-epoch"
_HOLDER_UID = PREFIX + "holder-uid"
_VIP = PREFIX + "vip"
_SOURCE = PREFIX + "source"
_EXTERNAL = PREFIX + "external"

MAX_LABEL = 63  # apimachinery, validation.LabelValueMaxLength
MAX_JSON = 4096  # as much of an annotation as kube/projections.py reads
MAX_SOURCE = 1024
MAX_LINKS = 64
MAX_NETWORKS = 64
MAX_ACCEPTED = 64
MAX_GRANT_NS = 60 * NS_PER_S  # longer than any d: a voucher that takes so long is of no use
NOTHING = Published()
CLAIM_DURATION_S = 1  # every Lease needs a duration; no agent reads a claim's

# ---- names ----


def node_lease_name(node: str) -> str:
    """The Lease of a node's heartbeat."""
    return f"node.{node}"


def node_of(name: str) -> str | None:
    """The node whose heartbeat has this Lease name; None if it is not a heartbeat's."""
    kind, _, node = name.partition(".")
    return node if kind == "node" and _has_lease(node) else None


def _has_lease(node: str) -> bool:
    """Whether this is a valid name for a node, and its Lease's name is valid, too."""
    return is_subdomain(node) and len(node_lease_name(node)) <= MAX_SUBDOMAIN


def lease_name(vip: Address) -> str:
    """The Lease of a VIP's claim; object names may not contain colons."""
    return f"vip.{vip.exploded.replace(':', '-')}"


def vip_of(name: str) -> Address | None:
    """The VIP whose claim has this Lease name; None if it is not a claim's, or spells the address differently."""
    kind, _, text = name.partition(".")
    try:
        vip = ip_address(text.replace("-", ":"))
        return vip if kind == "vip" and lease_name(vip) == name else None
    except ValueError:
        return None


def holder_label(node: str) -> str:
    """The value of the label `arpguard.io/holder` for a node: its name, or a hash if that is too long."""
    return node if len(node) <= MAX_LABEL else hashlib.sha256(node.encode()).hexdigest()[:MAX_LABEL]


def quiet_kind(node: str) -> str:
    """The kind of Lease that a heartbeat is while it says nothing new: only its own node watches it."""
    kind = QUIET + node
    return (
        kind if len(kind) <= MAX_LABEL else QUIET + hashlib.sha256(node.encode()).hexdigest()[: MAX_LABEL - len(QUIET)]
    )


def news_selector(node: str) -> str:
    """Selects claims, heartbeats that say something new, and a node's own heartbeat."""
    return f"{KIND_LABEL} in ({CLAIM},{HEARTBEAT},{quiet_kind(node)})"


def own_claims_selector(node: str) -> str:
    """Selects the claims that name a node."""
    return f"{HOLDER_LABEL}={holder_label(node)}"


# ---- reading ----


def heartbeat_of(lease: Lease) -> Heartbeat | None:
    """The heartbeat in a Lease; None if its name is not a heartbeat's.

    If its epoch cannot be read that is "", which makes no claim void.
    """
    node = node_of(lease.name)
    if node is None:
        return None

    annotations = dict(lease.annotations)
    instance = annotations.get(_INSTANCE, "")
    voucher, bound = parse_vouchers(annotations.get(_VOUCHERS, ""), instance)

    return Heartbeat(
        node=node,
        epoch=_epoch(annotations.get(_EPOCH, "")),
        instance=instance,
        duration_ns=max(0, lease.duration_s) * NS_PER_S,
        version=Version(lease.uid, lease.version),
        links=parse_links(annotations.get(_LINKS, "")),
        speakers=parse_speakers(annotations.get(_SPEAKERS, "")),
        voucher=voucher,
        bound=bound,
        vouching=parse_vouching(annotations.get(_VOUCHING, "")),
        early=not instance and _EARLY in annotations,
    )


def claim_of(lease: Lease) -> Claim | None:
    """The claim in a Lease; None if the Lease is not named like a claim."""
    vip = vip_of(lease.name)
    if vip is None:
        return None

    annotations = dict(lease.annotations)
    epoch = annotations.get(_HOLDER_EPOCH, "")

    return Claim(
        vip=vip,
        holder=lease.holder,
        epoch=_epoch(epoch),
        version=Version(lease.uid, lease.version),
        deleting=lease.deleting,
        external=_external(annotations.get(_EXTERNAL, "")),
        transitions=lease.transitions,
        unreadable=_unreadable(lease, epoch),
        holder_uid=annotations.get(_HOLDER_UID, "") if lease.holder else "",
    )


def _unreadable(lease: Lease, epoch: str) -> str:
    if lease.problems:
        return lease.problems[0]
    if lease.holder and not _has_lease(lease.holder):
        return f"spec.holderIdentity is not a node's name ({lease.holder!r:.80})"
    if lease.holder and not _epoch(epoch):
        return f"annotation {_HOLDER_EPOCH} is not a UUID ({epoch!r:.80})"
    return ""


def _epoch(text: str) -> str:
    """The epoch in the form in which epochs are compared, a UUID as this program writes it; "" if it is not one."""
    try:
        return text if str(UUID(text)) == text else ""
    except ValueError:
        return ""


def _external(text: str) -> str:
    """A MAC in canonical form; any other text says only that some host has the VIP."""
    return str(_mac(text) or ZERO_MAC) if text else ""


def _mac(text: str) -> MacAddress | None:
    try:
        return MacAddress.parse(text)
    except ValueError:
        return None


# ---- writing ----


def heartbeat_content(effect: WriteHeartbeat, published: Published = NOTHING) -> LeaseContent:
    """The Lease of a renewal, or of a revocation, which publishes nothing.

    Rounds the duration up: peers may wait longer than the fence needs, never less.
    """
    annotations = {_EPOCH: effect.epoch, _EARLY: "true" if effect.early else ""}
    absent: tuple[str, ...] = ()
    if effect.instance:
        annotations |= {_INSTANCE: effect.instance, _LINKS: encode_links(published.links)}
        # Also none of these: a renewal patches what is there.
        annotations[_SPEAKERS] = encode_speakers(published.speakers)
        vouching = {
            _VOUCHERS: encode_vouchers(effect.voucher, effect.instance, bound=effect.bound),
            _VOUCHING: encode_vouching(published.vouching),
        }
        absent = tuple(key for key, text in vouching.items() if not text)
        absent += (_EARLY,) if published.vouching is not None else ()
        annotations |= vouching

    return LeaseContent(
        holder=effect.node,
        duration_s=-(-effect.duration_ns // NS_PER_S),
        annotations=_pairs(annotations),
        labels=((KIND_LABEL, quiet_kind(effect.node) if effect.quiet else HEARTBEAT),),
        absent=absent,
    )


def claim_content(effect: WriteClaim, source: str = "") -> LeaseContent:
    """The Lease of a claim. `source`: the object that makes it a VIP, for people."""
    annotations = {
        _VIP: str(effect.vip),
        _SOURCE: source[:MAX_SOURCE],
        _HOLDER_EPOCH: effect.epoch,
        _HOLDER_UID: effect.holder_uid,
        _EXTERNAL: effect.external,
    }
    holder = {HOLDER_LABEL: holder_label(effect.holder)} if effect.holder else {}

    return LeaseContent(
        holder=effect.holder,
        duration_s=CLAIM_DURATION_S,
        annotations=_pairs(annotations),
        labels=_pairs({KIND_LABEL: CLAIM, **holder}),
        finalizers=() if effect.let_go else (FINALIZER,),
        transitions=min(effect.transitions, MAX_INT32),
    )


def _pairs(texts: dict[str, str]) -> Pairs:
    return tuple(sorted((key, text) for key, text in texts.items() if text))


# ---- links ----


def encode_links(links: Iterable[PublishedLink]) -> str:
    """The links as JSON, without the last ones if the text would be longer than readers accept."""
    items = [
        {"name": link.name, "mac": str(link.mac), "networks": [str(network) for network in link.networks]}
        for link in links
    ]
    return _bounded_json(items[:MAX_LINKS], list)


def _bounded_json(items: list[T], of: Callable[[list[T]], object]) -> str:
    while len(text := json.dumps(of(items), separators=(",", ":"))) > MAX_JSON:
        items.pop()
    return text


def parse_links(text: str) -> tuple[PublishedLink, ...]:
    """The links in a JSON text that anybody may have written: those that can be understood."""
    items = _json(text)
    return tuple(filter(None, map(_link, items[:MAX_LINKS]))) if isinstance(items, list) else ()


def _json(text: str) -> object:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _link(item: object) -> PublishedLink | None:
    match item:
        case {"name": str(name), "mac": str(text), "networks": list(networks)} if (mac := _mac(text)) is not None:
            return PublishedLink(name, mac, tuple(filter(None, map(_network, networks[:MAX_NETWORKS]))))
    return None


def _network(text: object) -> Network | None:
    try:
        return ip_network(text) if isinstance(text, str) else None
    except ValueError:
        return None


# ---- reports of announcers ----


def encode_speakers(reports: Iterable[tuple[Key, SpeakerReport]]) -> str:
    """Reports as JSON: `{"NAMESPACE/SERVICE": [VERSION, ANSWERS]}`; the last ones are left out, as of links."""
    items = [("/".join(key), [report.version.lstrip("0"), report.answers]) for key, report in reports]
    return _bounded_json(items, dict)


def parse_speakers(text: str) -> tuple[tuple[Key, SpeakerReport], ...]:
    """The reports in a JSON text that anybody may have written: those that can be understood."""
    items = _json(text)
    found = map(_speaker, list(items.items())[:MAX_REPORTS]) if isinstance(items, dict) else ()
    return tuple(filter(None, found))


def _speaker(item: tuple[str, object]) -> tuple[Key, SpeakerReport] | None:
    namespace, slash, name = item[0].partition("/")
    match item[1]:
        case [str(version), bool(answers)] if slash and (version + "0").isdecimal() and len(version) <= VERSION_DIGITS:
            return (namespace, name), SpeakerReport(ordered_version(version), answers)
    return None


# ---- vouchers ----


def encode_vouchers(voucher: NamedVoucher | None, instance: str, *, bound: bool) -> str:
    """The vouchers that a heartbeat names, as JSON; empty for none.

    `by` is the instance that says so. An agent that knows nothing of vouchers renews with a patch, and lets what its
    predecessor named stand; but its programs grant nothing, and no node may rely on them.
    """
    if voucher is None:
        return ""
    named = {
        "node": voucher.node,
        "instance": voucher.instance,
        "epoch": voucher.epoch,
        "term": voucher.term,
        "dNs": voucher.d_ns,
        "mNs": voucher.m_ns,
    }
    return json.dumps({"by": instance, "bound": bound, "vouchers": [named]}, separators=(",", ":"))


def parse_vouchers(text: str, instance: str) -> tuple[NamedVoucher | None, bool]:
    """The voucher in a JSON text that anybody may have written, and whether it says "bound"; `instance`: whose text.

    None, unless all of it can be understood: then no node revokes that one before its lease is over. Two vouchers are
    for a later version, in which one alone may not revoke.
    """
    match _json(text):
        case {"by": str(by), "bound": bool(bound), "vouchers": [dict(item)]} if by == instance != "":
            voucher = _voucher(item)
            return voucher, bound and voucher is not None
    return None, False


def _voucher(item: dict[str, object]) -> NamedVoucher | None:
    match item:
        case {
            "node": str(node),
            "instance": str(instance),
            "epoch": str(epoch),
            "term": str(term),
            "dNs": int(d_ns),
            "mNs": int(m_ns),
        } if _has_lease(node) and instance and _epoch(epoch) and _epoch(term) and 0 < m_ns < d_ns <= MAX_GRANT_NS:
            return NamedVoucher(node, instance, epoch, term, d_ns, m_ns)
    return None


def encode_vouching(vouching: PublishedVouching | None) -> str:
    """What a node tells the others of vouching, as JSON, cut like links. Empty: it takes no part."""
    if vouching is None:
        return ""
    accepts = list(vouching.accepts[:MAX_ACCEPTED])
    doubted = {"doubted": True} if vouching.doubted else {}
    return _bounded_json(accepts, lambda items: {"seeks": vouching.seeks, "accepts": dict(items), **doubted})


def parse_vouching(text: str) -> PublishedVouching | None:
    """The same from a JSON text that anybody may have written: what can be understood of it; None: it takes no part."""
    match _json(text):
        case {"seeks": str(seeks), "accepts": dict(accepts), **rest} if not seeks or _has_lease(seeks):
            items = list(accepts.items())[:MAX_ACCEPTED]
            accepted = tuple(item for item in items if _is_accepted(*item))
            return PublishedVouching(seeks, accepted, doubted=rest.get("doubted") is True)
    return None


def _is_accepted(node: str, d_ns: object) -> bool:
    return _has_lease(node) and type(d_ns) is int and 0 < d_ns <= MAX_GRANT_NS
