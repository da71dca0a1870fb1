"""What an agent knows of a cluster, for tests of what it shows."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from arpguard.addresses import Address
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node, SourceState
from arpguard.core.clusterstate import ClusterState
from arpguard.core.members import Member
from arpguard.core.origins import Origin
from arpguard.core.ownership.records import Holder
from arpguard.model import Owner, OwnerKind, Vip

ELECTED = Owner(OwnerKind.ELECT)


def an_elected(address: Address, name: str = "shop/web", **more: Any) -> Vip:
    return Vip(address, ELECTED, source=f"service {name}", **more)


def a_cluster(
    vips: Iterable[Vip] = (),
    holder: Holder = Holder(),  # noqa: B008 - it never changes
    candidates: tuple[Candidate, ...] = (),
    origin: Origin = Origin(),  # noqa: B008 - it never changes
    **more: Any,
) -> ClusterState:
    """One in which all is well: three nodes, Services and Leases are followed, and the lease is renewed."""
    names = ("node-1", "node-2", "node-3")
    state = ClusterState(
        "https://api.example:6443",
        "arpguard",
        candidates=lambda _vip: candidates,
        holder=lambda _address: holder,
        origin=lambda _address: origin,
        refresh=lambda: None,
        complete=True,
        sources={"services": SourceState(lists=1, streams=2), "leases": SourceState(lists=1, streams=1)},
        vips={vip.address: vip for vip in vips},
        nodes={name: Node(name, ready=True) for name in names},
        members=tuple(Member(name) for name in names),
        events=Counter(written=4),
    )
    for field, value in more.items():
        setattr(state, field, value)
    return state
