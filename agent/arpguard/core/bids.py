"""Which source gets a VIP that several ask for: `decide`, a function of their bids alone.

| order | source                                                             |
| ----- | ------------------------------------------------------------------ |
| 0     | an item of `vips:`                                                 |
| 1     | a Service with the annotation arpguard.io/owner                    |
| 2     | a Service that has the labels of `services.selector`, if `enabled` |

The configuration comes before all Services. Among Services, the namespace that has the oldest Service decides, and
within it the Service that is first by order and name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from arpguard.core.reporting import Subject
from arpguard.model import Vip

CONFIGURED, ANNOTATED, SELECTED = range(3)


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a source does not get the VIP that it asks for. `reason`: of the Event; `own`: only on this node."""

    reason: str
    why: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class Bid:
    """What one source asks for one address: `vip`. `order`: precedence, namespace, name of the source.

    `subject` None: the configuration. `made`: when the Service was made (RFC 3339). `admitted`: the address may be a
    VIP. `undecided`: its nodes are not known yet.
    """

    order: tuple[int, str, str]
    vip: Vip
    name: str
    subject: Subject | None = None
    made: str = ""
    admitted: bool = True
    undecided: bool = False
    complaint: Complaint | None = None

    @property
    def namespace(self) -> str:
        """That of the Service; empty for the configuration."""
        return self.order[1]


@dataclass(frozen=True, slots=True)
class Award:
    """The result of all bids for an address. `vip` None: there are none.

    `undecided`: it is an elected VIP whose nodes are not known yet. `disputed`: the bids that do not get what they ask
    for, each with its complaint.
    """

    vip: Vip | None = None
    undecided: bool = False
    disputed: tuple[Bid, ...] = ()


def decide(bids: Iterable[Bid]) -> Award:
    """Decides an address by all admitted bids for it."""
    ranked = ranking(bids)
    if not ranked:
        return Award()

    first, sharing = ranked[0], _sharing(ranked)
    vip, undecided = first.vip, any(bid.undecided for bid in sharing)
    if len(sharing) > 1 and not undecided:
        lead = next((bid.vip.lead for bid in sharing if bid.vip.lead is not None), None)
        vip = replace(vip, nodes=_common_nodes(sharing), lead=lead)

    complaints = ((bid, _complaint(bid, first, vip)) for bid in ranked[1:])
    return Award(vip, undecided, tuple(replace(bid, complaint=found) for bid, found in complaints if found is not None))


def ranking(bids: Iterable[Bid]) -> list[Bid]:
    """The bids by precedence: the configuration, then the namespace with the oldest Service.

    So creating a Service takes no address from another namespace, whatever its name and annotations. Editing an older
    one can: no object records since when a Service has had an address.
    """
    bids = list(bids)
    since: dict[str, str] = {}
    for bid in bids:
        since[bid.namespace] = min(bid.made, since.get(bid.namespace, bid.made))
    return sorted(bids, key=lambda bid: (bool(bid.order[0]), since[bid.namespace], bid.namespace, bid.order))


def _sharing(ranked: Sequence[Bid]) -> list[Bid]:
    """The bids that share the address with the first: the same settings, and only Services of its namespace.

    Otherwise a tenant could choose where another's VIP goes, with a Service that has endpoints there.
    """
    namespace = next((bid.namespace for bid in ranked if bid.namespace), "")
    settings = ranked[0].vip.settings
    return [bid for bid in ranked if bid.vip.settings == settings and bid.namespace in ("", namespace)]


def _common_nodes(sharing: Iterable[Bid]) -> frozenset[str] | None:
    """The nodes that serve all Services which share an address: elsewhere some of its ports would lead nowhere.

    A Service does not count if no node, or none that serves the ones before it, can serve it: it must not take the
    others' address away.
    """
    common: frozenset[str] | None = None
    restricting = [bid.vip.nodes for bid in sharing]
    for nodes in filter(None, restricting):
        common = nodes if common is None else (common & nodes or common)
    return frozenset() if common is None and all(nodes is not None for nodes in restricting) else common


def _complaint(bid: Bid, first: Bid, vip: Vip) -> Complaint | None:
    """Which wishes of a bid that is not the first are not met, now that the address has become `vip`."""
    if bid.vip.settings != first.vip.settings:
        why = f"{first.name} takes precedence for {vip.address}, but has other settings: give both the same settings"
        return Complaint("VIPConflictingSources", why)

    if bid.vip.nodes and vip.nodes and not bid.vip.nodes & vip.nodes:
        why = (
            f"{first.name} shares {vip.address}, but no node has ready endpoints for both Services: run Pods of both "
            "on one node"
        )
        return Complaint("VIPWithoutCommonNode", why)

    if bid.vip.lead not in (None, vip.lead):
        owner = (
            f" and decides that the owner of {vip.lead} owns it" if vip.lead is not None else " and decides its owner"
        )
        why = (
            f"{first.name} also has {vip.address},{owner}; this Service's {bid.vip.lead} may have another owner: "
            "give both Services the same first IPv4 address, or different IPv6 addresses"
        )
        return Complaint("VIPPairDivided", why)
    return None
