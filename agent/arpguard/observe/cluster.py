"""The metrics of an agent that follows Kubernetes; a standalone one has none of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from arpguard.clock import boot_ns
from arpguard.core.cluster import SourceState
from arpguard.core.clusterstate import ClusterState
from arpguard.core.vouching.gaps import STEPS_NS
from arpguard.core.vouching.state import VouchingState
from arpguard.model import EntryKey, VipEntry
from arpguard.observe import spec
from arpguard.observe.spec import Distribution, Row
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """One look at the cluster. `elected`: how many elected VIPs the kernel has, by kind."""

    state: ClusterState
    elected: Mapping[Kind, int]
    now_ns: int


def look_at_cluster(state: ClusterState, entries: Mapping[EntryKey, VipEntry]) -> ClusterLook:
    """Counts each VIP once, however many links it is on: as owned if it is owned on one."""
    kinds: dict[object, Kind] = {}
    for key, entry in entries.items():
        vip = state.vips.get(key.vip)
        if vip is not None and vip.elected and kinds.get(key.vip) is not Kind.OWNED:
            kinds[key.vip] = entry.kind
    elected = dict.fromkeys(Kind, 0)
    for kind in kinds.values():
        elected[kind] += 1
    return ClusterLook(state, elected, boot_ns())


def _of_sources(value: Callable[[SourceState], int]) -> Callable[[ClusterLook], Iterator[Row]]:
    return lambda look: (((name,), value(source)) for name, source in look.state.sources.items())


def _events(look: ClusterLook) -> Iterator[Row]:
    yield (("written",), look.state.events["written"])
    yield (("dropped",), look.state.events["dropped"])


def _of_vouching(
    value: Callable[[VouchingState], float | Iterable[Row]],
) -> Callable[[ClusterLook], float | Iterable[Row] | None]:
    return lambda look: value(look.state.vouching) if look.state.vouching is not None else None


def _bound(look: ClusterLook) -> float | None:
    vouching = look.state.vouching
    return vouching.bound if vouching is not None and (vouching.bound or vouching.expected) else None


def _vouched(vouching: VouchingState) -> Iterator[Row]:
    tried = sum(node.trial for node in vouching.vouched)
    yield ("vouched",), len(vouching.vouched) - tried
    yield ("tried",), tried


def _gaps(vouching: VouchingState) -> Iterator[Row]:
    gaps = vouching.gaps
    bounds = [*(str(step_ns / NS_PER_S) for step_ns in STEPS_NS), "+Inf"]
    counts = map(float, accumulate(gaps.counts))
    yield (), Distribution(tuple(zip(bounds, counts, strict=True)), gaps.sum_ns / NS_PER_S)


CLUSTER: tuple[spec.Spec[ClusterLook], ...] = (
    spec.Gauge(
        "arpguard_kubernetes_complete",
        "1 once the agent has read all objects that say what to guard; 0 before",
        "when it stays 0 for more than a few seconds: meanwhile the agent leaves the kernel's maps as they are",
        lambda look: look.state.complete,
    ),
    spec.Gauge(
        "arpguard_kubernetes_source_up",
        "1 while the agent's watch on a kind of object works, 0 while the watch is lost",
        "when it is 0: what the agent knows about these objects is stale; `arpguard status` says why",
        _of_sources(lambda source: not source.lost),
        ("resource",),
    ),
    spec.Counter(
        "arpguard_kubernetes_lists_total",
        "Complete lists that the agent has read from the API server since it started",
        "when it grows more often than once every few minutes: watches break, and each list costs the server work",
        _of_sources(lambda source: source.lists),
        ("resource",),
    ),
    spec.Counter(
        "arpguard_kubernetes_streams_total",
        "Watches that the agent has opened at the API server since it started",
        "when it grows more often than once a minute: something between the agent and the server ends the watches",
        _of_sources(lambda source: source.streams),
        ("resource",),
    ),
    spec.Counter(
        "arpguard_kubernetes_failures_total",
        "Lists and watches that failed since the agent started",
        "when it grows: the API server does not answer, or refuses them; `arpguard status` says why",
        _of_sources(lambda source: source.failures),
        ("resource",),
    ),
    spec.Counter(
        "arpguard_kubernetes_unreadable_total",
        "Objects from the API server that the agent could not read at all, since it started",
        "when it grows: another program writes objects that this agent cannot read",
        _of_sources(lambda source: source.unreadable),
        ("resource",),
    ),
    spec.Counter(
        "arpguard_lease_writes_total",
        "Writes of Leases since the agent started: heartbeat (renewals), revocation (of silent nodes) and claim, by "
        "outcome",
        "when what=revocation grows: nodes fall silent; when outcome=refused grows: the API server refuses writes; "
        "when outcome=unknown grows: the API server does not answer in time",
        lambda look: (((what, outcome), count) for (what, outcome), count in sorted(look.state.writes.items())),
        ("what", "outcome"),
    ),
    spec.Gauge(
        "arpguard_renewal_age_seconds",
        "Seconds since this node sent its last successful lease renewal; absent before the first",
        "when it exceeds arpguard_lease_seconds (or 72, the lease of a node with a voucher, while "
        "arpguard_voucher_bound is 1) on a node that holds elected VIPs: that node no longer answers for those without "
        "`hold`",
        lambda look: (look.now_ns - look.state.renewed_ns) / NS_PER_S if look.state.renewed_ns is not None else None,
    ),
    spec.Gauge(
        "arpguard_renewal_failing",
        "1 while this node cannot renew its lease, else 0",
        "when it is 1: this node's elected VIPs fall silent when the fence expires; `arpguard status` says why",
        lambda look: bool(look.state.renewal_lost),
    ),
    spec.Gauge(
        "arpguard_lease_seconds",
        "Length of this node's lease in seconds, while the node holds or claims VIPs and is bound to no voucher; more "
        "than configured in clusters of more than 100 nodes",
        "when it is many times the configured duration: a takeover from a node without a voucher takes that much "
        "longer",
        lambda look: look.state.times.duration_ns / NS_PER_S,
    ),
    spec.Gauge(
        "arpguard_yielding",
        "1 while this agent stays silent because another agent uses this node's name, else 0",
        "when it is 1: two agents run with the same node name; end one of them",
        lambda look: look.state.yielding,
    ),
    spec.Gauge(
        "arpguard_nodes_alive",
        "Nodes that have renewed within their lease, this one included",
        "when it falls, or differs between nodes: a node is down or cut off",
        lambda look: sum(member.alive for member in look.state.members),
    ),
    spec.Gauge(
        "arpguard_nodes",
        "Node objects of the cluster",
        "when it is far above arpguard_nodes_alive: the other nodes run no agent, and nodes without a guard suppress "
        "nothing",
        lambda look: len(look.state.nodes),
    ),
    spec.Gauge(
        "arpguard_vips_held",
        "Elected VIPs that this node may answer for until its fence (the time when its right to answer ends); a VIP on "
        "several links counts once",
        "when the sum over all nodes differs from the number of elected VIPs for longer than a takeover takes: a VIP "
        "has no owner, or two",
        lambda look: look.elected[Kind.OWNED],
    ),
    spec.Gauge(
        "arpguard_vips_without_node",
        "Elected VIPs that no node is eligible to own",
        "when it is above 0: no node answers for them; `arpguard explain` says why for each node",
        lambda look: len(look.state.nobody),
    ),
    spec.Gauge(
        "arpguard_vips_taken_outside",
        "Elected VIPs that a host outside the cluster uses",
        "when it is above 0: no node answers for these VIPs until that host falls silent",
        lambda look: look.elected[Kind.EXTERNAL],
    ),
    spec.Counter(
        "arpguard_kubernetes_events_total",
        "Kubernetes Events that this agent has written, or dropped (over the rate limit, or not accepted by the API "
        "server), since it started",
        "when outcome=dropped grows: some changes have no Event; the log has them all",
        _events,
        ("outcome",),
    ),
    spec.Gauge(
        "arpguard_voucher_bound",
        "1 while this node's kernel answers only as long as its voucher's grants arrive, else 0; absent where "
        "no other node could vouch for this one, where this node is in observe mode or is not eligible to own any "
        "VIP, and (like all metrics of vouching) where vouching is off",
        "when it stays 0 for minutes: if this node dies, others take its VIPs only after its lease; `arpguard status` "
        "says why",
        _bound,
    ),
    spec.Gauge(
        "arpguard_vouched_nodes",
        "Nodes that this one vouches for (vouched), and nodes that it tests before it vouches for them (tried)",
        "when what=tried stays above 0 for minutes: pings are lost, or come back late",
        _of_vouching(_vouched),
        ("what",),
    ),
    spec.Counter(
        "arpguard_voucher_unbinds_total",
        "How often this node left a voucher whose grants did not arrive, since the agent started",
        "when it grows more often than once every few minutes: the segment loses frames, or vouchers stop",
        _of_vouching(lambda vouching: vouching.unbinds),
    ),
    spec.Counter(
        "arpguard_voucher_revocations_total",
        "How often other nodes ended this node's epoch while it was bound to a voucher, since the agent started",
        "when it grows: other nodes took this node for dead although it was alive, and its VIPs moved needlessly",
        _of_vouching(lambda vouching: vouching.revocations),
    ),
    spec.Counter(
        "arpguard_vouched_deaths_total",
        "Nodes that this node, as their voucher, found dead since the agent started; it revokes each immediately",
        "when it grows: a node died, or its segment lost every frame for longer than the voucher's timeout",
        _of_vouching(lambda vouching: vouching.decided),
    ),
    spec.Gauge(
        "arpguard_voucher_isolated",
        "1 while no node that this node has sought as its voucher hears this node, although this node reaches the API "
        "server and other nodes have vouchers; else 0",
        "when it is 1: clients may be unable to reach this node's VIPs, unless a switch just drops the EtherType of "
        "vouching",
        _of_vouching(lambda vouching: vouching.isolated),
    ),
    spec.Histogram(
        "arpguard_vouched_gap_seconds",
        "Seconds between grants that this node sent to each node that it vouches for, since the agent started",
        "when more than one gap in 1000 exceeds half the time for which a grant lets a node answer (d - m of the "
        "node's profile): a node that this one vouches for can fall silent for a moment, and look for another voucher",
        _of_vouching(_gaps),
    ),
)
