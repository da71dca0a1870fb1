"""What an agent knows of a cluster, for tests of what it shows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node, SourceState
from arpguard.core.members import Member
from arpguard.core.origins import Origin
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Owner, OwnerKind, Vip

ELECTED = Owner(OwnerKind.ELECT)


@dataclass
class KnownCluster:
    """A `ClusterState` with what a test says."""

    server: str
    namespace: str
    candidates: Callable[[Vip], tuple[Candidate, ...]]
    holder: Callable[[Address], Holder]
    origin: Callable[[Address], Origin]
    published: Callable[[], Mapping[MacAddress, str]] = dict
    times: Times = field(default_factory=lambda: Times(0, 0, 0, 0))
    complete: bool = False
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    vips: Mapping[Address, Vip] = field(default_factory=dict)
    nobody: frozenset[Address] = frozenset()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    renewed_ns: int | None = None
    renewal_lost: str = ""
    yielding: bool = False
    vouching: VouchingState | None = None
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)


def an_elected(address: Address, name: str = "shop/web", **more: Any) -> Vip:
    return Vip(address, ELECTED, source=f"service {name}", **more)


def a_cluster(
    vips: Iterable[Vip] = (),
    holder: Holder = Holder(),  # noqa: B008 - it never changes
    candidates: tuple[Candidate, ...] = (),
    origin: Origin = Origin(),  # noqa: B008 - it never changes
    **more: Any,
) -> KnownCluster:
    """One in which all is well: three nodes, Services and Leases are followed, and the lease is renewed."""
    names = ("node-1", "node-2", "node-3")
    state = KnownCluster(
        "https://api.example:6443",
        "arpguard",
        candidates=lambda _vip: candidates,
        holder=lambda _address: holder,
        origin=lambda _address: origin,
        complete=True,
        sources={"services": SourceState(lists=1, streams=2), "leases": SourceState(lists=1, streams=1)},
        vips={vip.address: vip for vip in vips},
        nodes={name: Node(name, ready=True) for name in names},
        members=tuple(Member(name) for name in names),
        events=Counter(written=4),
    )
    for name, value in more.items():
        setattr(state, name, value)
    return state
