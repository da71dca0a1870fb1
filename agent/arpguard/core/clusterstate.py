"""What the agent knows of the cluster, for those who read: the API and the metrics."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimwords import Candidate
from arpguard.core.cluster import Node, SourceState
from arpguard.core.members import Member
from arpguard.core.origins import Origin
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Holder
from arpguard.core.vouching.state import VouchingState
from arpguard.model import Vip


@dataclass(slots=True)
class ClusterState:
    """What is known now: what can be asked for at any time, and what `refresh` brings up to date.

    `origin`: where an address comes from, and why it is not a VIP. `published`: nodes by their MACs.
    `sources`: what is followed, by the resource's name. `complete`: all of it was read at least once. `vips` has all
    VIPs, of the configuration and of the cluster. `renewed_ns` (boot clock): when the last renewal that succeeded was
    sent; `renewal_lost`: why none succeeds.
    `vouching`: its state, None if it is off. `nobody`: the elected VIPs that no node may own. `nodes` are the Node
    objects by name, `members` the nodes as an election sees them. `writes` counts (kind of object, outcome), as in
    ("heartbeat", "applied"); `events` counts Events that were "written" and "dropped".
    """

    server: str
    namespace: str
    candidates: Callable[[Vip], tuple[Candidate, ...]]
    holder: Callable[[Address], Holder]
    origin: Callable[[Address], Origin]
    refresh: Callable[[], None]
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
