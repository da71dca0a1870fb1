"""What Prometheus reads about this node: one table, each row with what it is and when to worry.

Nothing is kept up to date: a scrape reads the kernel's totals and what the agent knows at that moment.
docs/metrics.md is generated from the same rows.
"""

import itertools
from collections import Counter as Count
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from arpguard import __version__
from arpguard.addresses import Address
from arpguard.clock import WallClock, boot_ns
from arpguard.core.auditing import AuditFinding
from arpguard.core.explaining import FencesLeft, fences_left, is_owner, need_fences
from arpguard.core.keepalived import VrrpState
from arpguard.model import EntryKey, EventAccount, NodeControl, Tally
from arpguard.names import printable
from arpguard.node import ThisNode
from arpguard.observe import spec
from arpguard.observe.cluster import CLUSTER, look_at_cluster
from arpguard.observe.spec import Distribution, Row, Sample
from arpguard.units import NS_PER_S
from arpguard.verdict import VIP_KINDS, Kind, Mode, Reason, Verdict, Vouched

# A series for each VIP would be too many; those that others claim are few, until a host claims them all.
MAX_CLAIMS = 1000
MAX_AUDITED = 1000
MAX_OWNED = 1000
MODES = (Mode.OBSERVE, Mode.ENFORCE)
_ANSWERS = tuple(reason for reason in Reason if reason.verdict is Verdict.ANSWER)
LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One sample of a node: reads once what several metrics need.

    `left`: None while no VIP needs a fence. `owned`: the VIPs that this node answers for, each on one link.
    `claims`: (reports, last) by labels.
    """

    node: ThisNode
    clock: WallClock
    control: NodeControl
    tally: Tally
    events: EventAccount
    vouching: dict[Vouched, int]
    vips: Count[tuple[Kind, Mode]]
    left: FencesLeft | None
    owned: dict[Address, EntryKey]
    claims: dict[tuple[str, ...], tuple[int, int]]

    @property
    def listed(self) -> Iterator[tuple[Address, EntryKey]]:
        """Those of `owned` that have series of their own."""
        return itertools.islice(self.owned.items(), MAX_OWNED)

    def timestamp(self, then_ns: int) -> float:
        """Seconds since 1970 of an instant of the boot clock; whole milliseconds, so that it stands still."""
        return round(self.clock.real_ns(then_ns) / NS_PER_S, 3)


def sample_of(node: ThisNode) -> NodeSample:
    """Reads what the metrics are made of."""
    control = node.read_control()
    left = fences_left(control, node.read_grants(), boot_ns())
    tally, events, vouching = node.read_totals()

    vips: Count[tuple[Kind, Mode]] = Count()
    for entry, count in node.state.variety:
        vips[entry.kind, entry.mode or control.mode] += count

    return NodeSample(
        node=node,
        clock=WallClock.now(),
        control=control,
        tally=tally,
        events=events,
        vouching=vouching,
        vips=vips,
        left=left if need_fences(entry for entry, _ in node.state.variety) else None,
        owned=_owned(node, control, left),
        claims=_claims(node),
    )


def _owned(node: ThisNode, control: NodeControl, left: FencesLeft) -> dict[Address, EntryKey]:
    """Judges each different entry once: of many VIPs nearly all have one of a few."""
    owning = {id(entry) for entry, _ in node.state.variety if is_owner(entry, control, left)}
    return {key.vip: key for key, entry in node.state.entries.items() if id(entry) in owning}


def _claims(node: ThisNode) -> dict[tuple[str, ...], tuple[int, int]]:
    """The claims, never by MAC address, because the neighbours choose those."""
    claims: dict[tuple[str, ...], tuple[int, int]] = {}
    for claim in itertools.islice(node.conflicts.newest(), MAX_CLAIMS):
        key = str(claim.key.vip), claim.link, _word(claim.reason), _word(claim.claimant.kind)
        count, last_ns = claims.get(key, (0, claim.last_ns))
        claims[key] = count + claim.count, last_ns
    return claims


def _word(member: IntEnum) -> str:
    return member.name.lower()


# ---- this node ---------------------------------------------------------------------------------------------------


def _frames(sample: NodeSample) -> Iterator[Row]:
    for action, counts in (("enforced", sample.tally.enforced), ("observed", sample.tally.observed)):
        for reason in Reason:
            yield (_word(reason.verdict), _word(reason), action), counts.get(reason, 0)


def _voucher_fence(sample: NodeSample) -> float | None:
    left = sample.left.voucher_ns if sample.left is not None else None
    return left / NS_PER_S if left is not None else None


def _vips(sample: NodeSample) -> Iterator[Row]:
    for kind, mode in itertools.product(VIP_KINDS, MODES):
        yield (_word(kind), _word(mode)), sample.vips[kind, mode]


def _owners(sample: NodeSample) -> Iterator[Row]:
    node = sample.node
    vips = node.cluster.vips if node.cluster is not None else {}
    for address, _ in sample.listed:
        vip = vips.get(address)
        namespace, service = (vip.service if vip else None) or ("", "")
        yield (str(address), node.name, service, namespace), 1


def _since(sample: NodeSample) -> Iterator[Row]:
    for address, _ in sample.listed:
        since_ns = sample.node.tenures.since_ns(address)
        if since_ns is not None:
            yield (str(address),), sample.timestamp(since_ns)


def _answered(sample: NodeSample) -> Iterator[Row]:
    for address, key in sample.listed:
        tally = sample.node.table.tally(key)
        yield (str(address),), sum(tally.enforced.get(reason, 0) for reason in _ANSWERS)


def _links(sample: NodeSample) -> Iterator[Row]:
    for item in sample.node.state.attachments:
        yield (sample.node.link_name(item.ifindex), _word(item.hook), item.how), 1


def _drift(sample: NodeSample) -> Iterator[Row]:
    drift = sample.node.state.drift
    yield from ((("entry",), drift.entries), (("program",), drift.programs), (("control",), drift.control))


def _events(sample: NodeSample) -> Iterator[Row]:
    yield ("delivered",), sample.events.delivered
    yield ("limited",), sample.events.limited
    yield ("lost",), sample.events.lost
    yield ("received",), sample.node.decisions.received


def _vouching(sample: NodeSample) -> Iterator[Row]:
    yield from (((_word(what),), count) for what, count in sample.vouching.items())


def _answers(sample: NodeSample) -> Iterator[Row]:
    """Wrong answers come first. Silence is left out where no host has to answer: a 0 is a reason to worry."""
    wrong, found = sample.node.audits.wrong(MAX_AUDITED), sample.node.audits.found.values()
    heard = (audited for audited in found if not (audited.is_right and audited.finding is AuditFinding.NONE))
    macs: dict[str, int] = {}
    for audited in itertools.chain(wrong, heard):
        vip = str(audited.key.vip)
        if vip in macs or len(macs) < MAX_AUDITED:
            macs[vip] = max(macs.get(vip, 0), audited.macs)
        else:
            break
    return (((vip,), count) for vip, count in macs.items())


def _instances(sample: NodeSample) -> Iterator[Row]:
    states = Count(sample.node.keepalived.states.values())
    if states:
        yield from (((state.value.lower(),), states[state]) for state in VrrpState)


def _findings(sample: NodeSample) -> Iterator[Row]:
    counts = sample.node.audits.findings()
    return (((_word(finding),), counts[finding]) for finding in AuditFinding)


def _audit_age_s(sample: NodeSample) -> float | None:
    oldest_ns = sample.node.audits.oldest_ns()
    return (boot_ns() - oldest_ns) / NS_PER_S if oldest_ns is not None else None


_NODE: tuple[spec.Spec[NodeSample], ...] = (
    spec.Counter(
        "arpguard_frames_total",
        "ARP and neighbour discovery frames judged since the kernel's maps were made; frames with action=observed "
        "passed: the guard only counted them",
        "when reason=conflict grows: another host claims a VIP; when reason=fenced grows: this node lost the right to "
        "answer",
        _frames,
        ("verdict", "reason", "action"),
    ),
    spec.Gauge(
        "arpguard_vips",
        "VIPs on guarded links, by who may answer and by mode; a VIP on two links counts twice",
        "when kind=unclaimed is above 0: no host answers for those VIPs",
        _vips,
        ("kind", "mode"),
    ),
    spec.Gauge(
        "arpguard_vip_owner",
        "1 for each VIP that this node answers for, with the VIP's Service; service and namespace are empty for a VIP "
        "from the configuration; at most 1000 VIPs are listed",
        "when two nodes have the same VIP for longer than a scrape interval: both answer for it",
        _owners,
        ("vip", "node", "service", "namespace"),
    ),
    spec.Gauge(
        "arpguard_vip_owner_since_timestamp_seconds",
        "Unix time (in seconds) when this node began to answer for a VIP that arpguard_vip_owner lists; for a VIP that "
        "the node had before the agent started, the time when the agent started",
        "when it is recent, although no move of the VIP and no restart of the agent was planned",
        _since,
        ("vip",),
    ),
    spec.Counter(
        "arpguard_vip_requests_answered_total",
        "Requests that the guard answered for a VIP that arpguard_vip_owner lists; in observe mode, and for a VIP that "
        "another program on the node answers for, the guard answers none",
        "when it stops growing for a VIP in use: another host answers its clients, or none does",
        _answered,
        ("vip",),
    ),
    spec.Gauge(
        "arpguard_vip_owner_left_out",
        "VIPs that this node answers for, but that arpguard_vip_owner does not list",
        "when it is above 0: arpguard_vip_owner lists only 1000 VIPs; `arpguard vips` lists all",
        lambda sample: max(0, len(sample.owned) - MAX_OWNED),
    ),
    spec.Gauge(
        "arpguard_mode",
        "1 for the node's mode in the kernel, 0 for the other mode",
        "when mode=observe stays 1 where VIPs have to be guarded: everything passes",
        lambda sample: (((_word(mode),), sample.control.mode is mode) for mode in MODES),
        ("mode",),
    ),
    spec.Gauge(
        "arpguard_fence_seconds",
        "Seconds until the fence, at which this node's right to answer ends unless a renewal at the API server moves "
        "the fence; 0 once the right has ended; absent while no VIP of this node needs a fence",
        "when it stays below half a second: renewals are late; at 0, no node answers for the VIPs that need the fence",
        lambda sample: sample.left.api_ns / NS_PER_S if sample.left is not None else None,
    ),
    spec.Gauge(
        "arpguard_voucher_fence_seconds",
        "Seconds until the voucher's fence, at which this node's right to answer ends unless a grant of its voucher "
        "moves the fence; 0 once the right has ended; absent while no VIP of this node needs a fence, or while the "
        "kernel is bound to no voucher",
        "when it stays 0: no grant arrives, and the API server does not accept the renewal with which this node would "
        "drop its voucher",
        _voucher_fence,
    ),
    spec.Counter(
        "arpguard_ownership_changes_total",
        "How often this node took or gave up a VIP since the agent started",
        "when it grows without a change of the configuration: ownership flaps",
        lambda sample: sample.node.state.ownership_changes,
    ),
    spec.Counter(
        "arpguard_drift_repaired_total",
        "Changes by other programs to the guard's maps and programs, found and repaired since the agent started",
        "when it grows: another program writes to the maps or detaches the programs, and the guard is open until the "
        "repair",
        _drift,
        ("what",),
    ),
    spec.Counter(
        "arpguard_events_total",
        "Reports of decisions: delivered (to the agent's ring buffer), limited (not sent, because many identical "
        "reports had been sent), lost (the ring buffer was full), and received (by the agent since it started); "
        "arpguard_frames_total counts every frame, even if its report is lost",
        "when outcome=lost grows: the lists of decisions and conflicts have gaps",
        _events,
        ("outcome",),
    ),
    spec.Counter(
        "arpguard_vouching_frames_total",
        "Vouching frames received on guarded links since the kernel's maps were made, by what the kernel found in "
        "them; only pings and grants of this node's present term (its time with one voucher) have an effect",
        "when what=forged grows: two nodes have different secrets, or a host on the segment forges frames; when "
        "what=bad_stamp grows: grants come from before a restart of this machine, or are replayed",
        _vouching,
        ("what",),
    ),
    spec.Gauge(
        "arpguard_decisions_remembered",
        "Different decisions that the agent remembers and can list, at most decisions.capacity",
        "when it stays at the capacity and you miss older decisions: raise decisions.capacity",
        lambda sample: len(sample.node.decisions),
    ),
    spec.Gauge(
        "arpguard_conflicting_claims",
        "Reports of claims by other hosts, for the latest 1000 pairs of VIP and host; when there are many claims, "
        "the kernel reports only some; claimant says which kind of host has the MAC address: a cluster node (with or "
        "without an agent), a VRRP (or CARP), HSRP or GLBP router, or a host outside the cluster",
        "when reason is conflict: two hosts answer for the VIP; when claimant is a cluster node: two nodes do (split "
        "brain); with any other reason, the claimant may be the owner",
        lambda sample: ((key, count) for key, (count, _) in sample.claims.items()),
        ("vip", "link", "reason", "claimant"),
    ),
    spec.Gauge(
        "arpguard_conflict_last_timestamp_seconds",
        "Unix time (in seconds) of the latest claim counted by arpguard_conflicting_claims",
        "when it is recent, and reason is conflict or claimant is a cluster node: two hosts answer for the VIP now",
        lambda sample: ((key, sample.timestamp(last_ns)) for key, (_, last_ns) in sample.claims.items()),
        ("vip", "link", "reason", "claimant"),
    ),
    spec.Gauge(
        "arpguard_vip_answers",
        "How many MACs answered when this node last audited the VIP; one node audits each VIP, and at most 1000 VIPs "
        "are listed, those with a wrong answer first; a VIP is left out if no host should answer for it and none does",
        "when it is above 1: several hosts answer for the VIP; when it is 0: none does",
        _answers,
        ("vip",),
    ),
    spec.Gauge(
        "arpguard_audited_vips",
        "Pairs of VIP and link that this node audits, by what the last audit found: owner (the owner alone answers), "
        "none (no host does), another (another host does) or several (several hosts do)",
        "when a finding other than owner is above 0: `arpguard audit` names the VIPs, and the hosts that answer",
        _findings,
        ("finding",),
    ),
    spec.Gauge(
        "arpguard_audit_age_seconds",
        "Seconds since the last audit of the VIP that has waited longest for its next one",
        "when it is above twice audit.every: there are more VIPs than audit.rate allows for; raise audit.rate",
        _audit_age_s,
    ),
    spec.Gauge(
        "arpguard_keepalived_instances",
        "Instances of this node's keepalived, by the state that keepalived reported; absent while no VIP follows an "
        "instance",
        "when all nodes together report fewer masters than there are instances: an instance has no master; when they "
        "report more: an instance has two",
        _instances,
        ("state",),
    ),
    spec.Gauge(
        "arpguard_problems",
        "Problems that the agent sees, including those of the configuration; its log and `arpguard status` name them",
        "when it is above 0 for minutes: something is not guarded as configured",
        lambda sample: len(sample.node.state.problems),
    ),
    spec.Gauge(
        "arpguard_config_problems",
        "1 while the configuration has a change that the agent rejected; else 0",
        "when it is 1: this node still uses the last good configuration, but other nodes may use the new one",
        lambda sample: bool(sample.node.in_force.problem) if sample.node.in_force else None,
    ),
    spec.Gauge(
        "arpguard_config_generation",
        "Configurations that the agent applied since it started, including the first",
        "when it does not grow after a change: the change did not reach this node",
        lambda sample: sample.node.in_force.generation if sample.node.in_force else None,
    ),
    spec.Gauge(
        "arpguard_config_load_timestamp_seconds",
        "Unix time (in seconds) when the agent applied the configuration in force",
        "when it is older than the latest change, or differs between nodes by more than a few seconds: a node has not "
        "applied the change",
        lambda sample: sample.timestamp(sample.node.in_force.loaded_ns) if sample.node.in_force else None,
    ),
    spec.Gauge(
        "arpguard_links",
        "1 for each program that judges frames on a guarded link, with its hook and how it is attached",
        "when a guarded link has no tc_egress, or neither tc_ingress nor xdp: frames in that direction are not guarded",
        _links,
        ("link", "hook", "how"),
    ),
    spec.Gauge(
        "arpguard_link_up",
        "1 for a guarded link that is up, 0 for one that is down",
        "when it is 0: VIPs on that link are not reachable through this node",
        lambda sample: (((link.name,), link.up) for link in sample.node.state.links),
        ("link",),
    ),
    spec.Gauge(
        "arpguard_map_entries",
        "Pairs of VIP and link in the kernel's map",
        "when it comes near arpguard_map_capacity",
        lambda sample: len(sample.node.state.entries),
    ),
    spec.Gauge(
        "arpguard_map_capacity",
        "Pairs of VIP and link that the kernel's map has room for (bpf.max_entries)",
        "when arpguard_map_entries comes near it: VIPs that do not fit are not guarded",
        lambda sample: sample.node.table.capacity,
    ),
    spec.Gauge(
        "arpguard_map_left_out",
        "Pairs of VIP and link that do not fit into the kernel's map",
        "when it is above 0: those VIPs are not guarded; raise bpf.max_entries",
        lambda sample: len(sample.node.state.left_out),
    ),
    spec.Gauge(
        "arpguard_start_time_seconds",
        "Unix time (in seconds) when the agent started",
        "when it changes often: the agent is being restarted, and its log says why",
        lambda sample: sample.timestamp(sample.node.started_ns) if sample.node.started_ns is not None else None,
    ),
    spec.Gauge(
        "arpguard_build_info",
        "1, with the agent's version, and this node's name as `owner: {node: NAME}` uses it",
        "when versions differ for longer than an upgrade takes",
        lambda sample: [((__version__, sample.node.name), 1)],
        ("version", "node"),
    ),
)
_READ: tuple[spec.Spec[Any], ...] = (*_NODE, *CLUSTER)


class NodeCollector(Collector):
    """The metrics of a node."""

    def __init__(self, node: ThisNode) -> None:
        self._node = node

    def describe(self) -> Iterator[Metric]:
        """The metrics without values: registering reads nothing."""
        return map(_family, _READ)

    def collect(self) -> Iterator[Metric]:
        """The metrics now; to be called where no other code changes the node's state meanwhile."""
        sample = sample_of(self._node)
        for metric in _NODE:
            yield _filled(metric, sample)

        state = self._node.cluster
        if state is not None:
            of_cluster = look_at_cluster(state, self._node.state.entries)
            for of_kubernetes in CLUSTER:
                yield _filled(of_kubernetes, of_cluster)


def _filled(metric: spec.Spec[Sample], sample: Sample) -> Metric:
    family = _family(metric)
    for labels, value in metric.rows(sample):
        shown = [printable(label) for label in labels]
        if isinstance(family, HistogramMetricFamily) and isinstance(value, Distribution):
            family.add_metric(shown, value.buckets, value.total)
        elif not isinstance(family, HistogramMetricFamily) and not isinstance(value, Distribution):
            family.add_metric(shown, value)
    return family


def _family(metric: spec.Spec[Any]) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)


_FAMILIES: dict[str, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


# ---- the API -----------------------------------------------------------------------------------------------------

_REQUESTS = spec.Counter(
    "arpguard_api_requests_total",
    "API calls that have ended since the agent started, by method and status code",
    "when a code other than OK and CANCELLED (the caller ended the call) grows: RESOURCE_EXHAUSTED means that the "
    "agent reached a limit, UNAVAILABLE that it stopped, INTERNAL that it has a bug; the others are callers' mistakes",
    spec.counted,
    ("method", "code"),
)
_LATENCY = spec.Histogram(
    "arpguard_api_seconds",
    "Seconds that API calls took; for a stream, how long it was open",
    "when ListVips or GetStatus takes more than a tenth of a second: the agent is short of CPU",
    spec.counted,
    ("method",),
)
_WATCHERS = spec.Gauge(
    "arpguard_watchers",
    "Clients that read WatchDecisions now",
    "when there are many more than you run: clients do not close their streams",
    spec.counted,
)
_WATCH_LOST = spec.Counter(
    "arpguard_watch_lost_total",
    "Decisions that clients of WatchDecisions did not get, because they read too slowly, since the agent started",
    "when it grows: what the client shows has gaps; the stream says how many decisions are missing",
    spec.counted,
)


class ApiMetrics:
    """What the API counts. A method is one of the API's own, never text that a caller chose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # When each series began would double their number, and no rule asks for it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._requests = Counter(_REQUESTS.name, _REQUESTS.help, _REQUESTS.labels, registry=registry)
        self._latency = Histogram(
            _LATENCY.name, _LATENCY.help, _LATENCY.labels, registry=registry, buckets=LATENCY_BUCKETS
        )
        self._watchers = Gauge(_WATCHERS.name, _WATCHERS.help, registry=registry)
        self._watch_lost = Counter(_WATCH_LOST.name, _WATCH_LOST.help, registry=registry)

    def observe(self, method: str, code: str, seconds: float) -> None:
        """A call of `method` has ended with a status code."""
        self._requests.labels(method, code).inc()
        self._latency.labels(method).observe(seconds)

    def watchers_changed(self, delta: int) -> None:
        """A reader of decisions came (1) or went (-1)."""
        self._watchers.inc(delta)

    def lost(self, count: int) -> None:
        """Readers of decisions were too slow for so many."""
        self._watch_lost.inc(count)


SPECS = (*_READ, _REQUESTS, _LATENCY, _WATCHERS, _WATCH_LOST)


def node_registry(node: ThisNode) -> CollectorRegistry:
    """A registry with the metrics of a node and of this process (`process_*`, under their usual names)."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(node))
    ProcessCollector(registry=registry)
    return registry
