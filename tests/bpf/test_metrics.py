"""Metrics of a real node: the numbers are those of the kernel's maps, after real programs judged real frames."""

import time
from collections import Counter as Count
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from prometheus_client import generate_latest

from arpguard import __version__
from arpguard.addresses import MacAddress
from arpguard.api.answers import get_status
from arpguard.clock import boot_ns
from arpguard.config.model import AgentConfig
from arpguard.core.auditing import Expected, judge
from arpguard.core.claimants import OUTSIDE
from arpguard.core.cluster import SourceState
from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.core.keepalived import InstanceStates, VrrpState
from arpguard.core.members import Member
from arpguard.core.ownership.lease import Times
from arpguard.core.vouching.state import VouchingState
from arpguard.dataplane.build import read_build
from arpguard.dataplane.events import EventReader
from arpguard.model import Attachment, Drift, EntryKey, Grants, Link, NodeState, Owner, OwnerKind, Surroundings, Vip
from arpguard.node import ConfigInForce, ThisNode
from arpguard.observe.metrics import MAX_CLAIMS, MAX_OWNED, SPECS, ApiMetrics, node_registry
from arpguard.overlay import Overlay
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import VIP_KINDS, Hook, Kind, Mode, Reason, Vouched
from support.frames.builders import (
    GUARD,
    HOUR_NS,
    NEIGHBOUR_IP,
    OTHER_VIP,
    VIP,
    a_control,
    an_announcement,
    an_arp_request,
    an_entry,
)
from support.frames.vouch_builders import a_ping, a_vouching_control, in_frame, sealed
from support.kube.cluster_states import a_cluster, an_elected
from support.netns.waiting import until
from support.programs.prog_run import LO, NO_GRANTS, a_plane
from support.prometheus import run_promtool

pytestmark = pytest.mark.bpf

MANY = 10_000
TERM = 7
LINK = Link(LO, "eth0", GUARD, up=True)


class Guarded:
    """A node on a plane, its events read as the agent reads them."""

    def __init__(self, plane) -> None:
        self.plane = plane
        self.node = ThisNode(
            name="node-1",
            table=plane.table,
            ranges=plane.ranges,
            control=plane.control,
            totals=plane.maps["totals"],
            grants=plane.maps["grants"],
            programs=plane.programs,
            state=NodeState(links=(LINK,)),
            surroundings=Surroundings(),
            decisions=DecisionLog(100),
            conflicts=ConflictLog(),
            started_ns=boot_ns(),
            in_force=ConfigInForce("config.yaml", AgentConfig()),
        )
        self.registry = node_registry(self.node)
        self.api = ApiMetrics(self.registry)

    def guard(self, entries, control=None, grants=NO_GRANTS) -> None:
        self.plane.set(entries, control or a_control(), grants=grants)
        self.node.state.guarded = Overlay(self.plane.table.read().entries)

    def bind(self, entries, left_ns: int) -> None:
        """The node is bound to a voucher, and so much of that one's fence is left; the API's is an hour ahead."""
        self.guard(entries, a_control(term=TERM), Grants(boot_ns() + left_ns, bound_term=TERM, window_ns=HOUR_NS))

    def run(self, frame, hook=Hook.TC_INGRESS) -> None:
        self.plane.run(hook, frame)

    def value(self, name, **labels) -> float | None:
        return self.registry.get_sample_value(f"arpguard_{name}", labels)

    def frames(self, reason, action="enforced") -> float:
        return self.value(
            "frames_total", verdict=reason.verdict.name.lower(), reason=reason.name.lower(), action=action
        )

    def series(self, name) -> dict:
        """Value by labels."""
        samples = [sample for family in self.registry.collect() for sample in family.samples]
        return {tuple(sample.labels.values()): sample.value for sample in samples if sample.name == f"arpguard_{name}"}

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    @contextmanager
    def reading_events(self):
        def receive(decision):
            self.node.conflicts.add(self.node.decisions.add(decision, self.node.link_name(decision.key.ifindex)))

        reader = EventReader(self.plane.maps["events"], lambda _: None)
        while reader.consume():
            pass  # what other tests have left
        reader.close()
        reader = EventReader(self.plane.maps["events"], receive)
        try:
            yield reader
        finally:
            reader.close()


@pytest.fixture
def guarded(plane):
    plane.set({}, a_control())
    return Guarded(plane)


def seconds_ago(timestamp: float) -> float:
    return time.time() - timestamp


# ---- the list ----------------------------------------------------------------------------------------------------


def everything(guarded) -> Guarded:
    """A node that has a value for each metric."""
    guarded.bind({VIP: an_entry(), OTHER_VIP: an_entry(Kind.FOREIGN)}, left_ns=HOUR_NS)
    guarded.node.state.attachments = (Attachment(LO, Hook.TC_EGRESS, "tcx", 1),)
    guarded.api.observe("GetStatus", "OK", 0.002)
    guarded.node.cluster = a_cluster(
        renewed_ns=boot_ns(), writes=Count({("heartbeat", "applied"): 1}), vouching=VouchingState(expected=True)
    )
    guarded.node.tenures.follow(guarded.node.state.entries, boot_ns())
    guarded.node.audits.settle(judge(EntryKey(LO, VIP), "lo", Expected(), {}, boot_ns()))
    guarded.node.keepalived = InstanceStates({"VI_1": VrrpState.MASTER, "VI_2": VrrpState.MASTER})
    with guarded.reading_events() as reader:
        guarded.run(an_announcement())
        reader.consume()
    return guarded


def test_every_metric_of_the_list_is_exported_with_its_labels_and_no_other(guarded):
    exported = {}
    for family in everything(guarded).registry.collect():
        for sample in family.samples:
            name = sample.name if family.type != "histogram" else family.name
            exported.setdefault(name, set()).update(set(sample.labels) - {"le"})
    ours = {name: labels for name, labels in exported.items() if not name.startswith("process_")}
    assert ours == {spec.name: set(spec.labels) for spec in SPECS}
    assert {"process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"} <= exported.keys()


def test_instances_of_keepalived_by_state(guarded):
    assert guarded.series("keepalived_instances") == {}
    states = everything(guarded).series("keepalived_instances")
    assert (states[("master",)], states[("backup",)], len(states)) == (2, 0, len(VrrpState))


def test_promtool_has_no_objections(guarded):
    assert run_promtool("check", "metrics", stdin=everything(guarded).text()) == ""


def test_every_reason_is_counted_from_the_start(guarded):
    series = guarded.series("frames_total")
    assert {(verdict, reason) for verdict, reason, _ in series} == {
        (reason.verdict.name.lower(), reason.name.lower()) for reason in Reason
    }
    assert len(series) == 2 * len(Reason)


# ---- values ------------------------------------------------------------------------------------------------------


def test_frames_are_the_kernels_count(guarded):
    guarded.guard({VIP: an_entry(Kind.FOREIGN)})
    before = guarded.frames(Reason.FOREIGN)
    for _ in range(1000):
        guarded.run(an_arp_request())
    assert guarded.frames(Reason.FOREIGN) - before == 1000


def test_observed_frames_are_counted_apart(guarded):
    guarded.guard({VIP: an_entry(Kind.FOREIGN)}, a_control(Mode.OBSERVE))
    before = guarded.frames(Reason.FOREIGN), guarded.frames(Reason.FOREIGN, "observed")
    guarded.run(an_arp_request())
    assert (guarded.frames(Reason.FOREIGN), guarded.frames(Reason.FOREIGN, "observed")) == (before[0], before[1] + 1)


def test_vips_by_kind_and_the_mode_in_force(guarded):
    modes = {VIP: Mode.INHERIT, OTHER_VIP: Mode.ENFORCE, NEIGHBOUR_IP: Mode.OBSERVE}
    guarded.guard({vip: an_entry(Kind.FOREIGN, mode=mode) for vip, mode in modes.items()}, a_control(Mode.OBSERVE))
    series = guarded.series("vips")
    assert (series.pop(("foreign", "observe")), series.pop(("foreign", "enforce"))) == (2, 1)
    assert list(series.values()) == [0] * 2 * (len(VIP_KINDS) - 1)


def test_owner_of_a_vip_is_exported_with_its_service_and_once_for_all_links(guarded):
    guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry(Kind.DELEGATED), NEIGHBOUR_IP: an_entry(Kind.FOREIGN)})
    guarded.node.state.guarded.change({EntryKey(LO + 1, VIP): an_entry()})
    owners = {(str(VIP), "node-1", "", ""): 1, (str(OTHER_VIP), "node-1", "", ""): 1}
    assert guarded.series("vip_owner") == owners

    static = Vip(OTHER_VIP, Owner(OwnerKind.NODE, node="node-1"))
    guarded.node.cluster = a_cluster([an_elected(VIP), static, an_elected(NEIGHBOUR_IP)])
    assert guarded.series("vip_owner") == {
        (str(VIP), "node-1", "web", "shop"): 1,
        (str(OTHER_VIP), "node-1", "", ""): 1,
    }


def test_owner_is_exported_with_the_moment_since_when_it_is(guarded):
    guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry(Kind.DELEGATED), NEIGHBOUR_IP: an_entry(Kind.FOREIGN)})
    assert guarded.series("vip_owner_since_timestamp_seconds") == {}
    guarded.node.tenures.follow(guarded.node.state.entries, boot_ns() - HOUR_NS)
    since = guarded.series("vip_owner_since_timestamp_seconds")
    assert {vip: round(seconds_ago(moment), -1) for (vip,), moment in since.items()} == {
        str(VIP): 3600,
        str(OTHER_VIP): 3600,
    }


def test_answers_of_each_owned_vip_are_the_kernels_count_and_observed_ones_are_none(guarded):
    guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry(mode=Mode.OBSERVE), NEIGHBOUR_IP: an_entry(Kind.FOREIGN)})
    before = guarded.series("vip_requests_answered_total")
    assert before.keys() == {(str(VIP),), (str(OTHER_VIP),)}
    for frame in (an_arp_request(), an_arp_request(), an_announcement(), an_arp_request(tpa=OTHER_VIP)):
        guarded.run(frame)
    after = guarded.series("vip_requests_answered_total")
    assert {vip: after[vip,] - before[vip,] for (vip,) in before} == {str(VIP): 2, str(OTHER_VIP): 0}


@pytest.mark.parametrize("more", [{"fence_ns": 1}, {"epoch": 2}], ids=["past its fence", "of another epoch"])
def test_node_that_may_not_answer_for_its_vips_any_more_is_not_their_owner(guarded, more):
    guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry(unfenced=True, epoch=0)}, a_control(**more))
    assert guarded.series("vip_owner") == {(str(OTHER_VIP), "node-1", "", ""): 1}


def test_owned_vips_are_listed_up_to_a_limit(guarded):
    vips = [IPv4Address("198.18.0.0") + number for number in range(MAX_OWNED + 7)]
    guarded.node.state.guarded = Overlay({EntryKey(LO, vip): an_entry() for vip in vips[:MAX_OWNED]})
    assert (len(guarded.series("vip_owner")), guarded.value("vip_owner_left_out")) == (MAX_OWNED, 0)
    guarded.node.state.guarded = Overlay({EntryKey(LO, vip): an_entry() for vip in vips})
    assert (len(guarded.series("vip_owner")), guarded.value("vip_owner_left_out")) == (MAX_OWNED, 7)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ENFORCE], ids=lambda mode: mode.name.lower())
def test_mode_is_the_kernels(guarded, mode):
    guarded.guard({}, a_control(mode))
    assert guarded.series("mode") == {("observe",): mode is Mode.OBSERVE, ("enforce",): mode is Mode.ENFORCE}


def test_fence_is_what_is_left(guarded):
    fence_ns = boot_ns() + 90 * NS_PER_S
    guarded.guard({VIP: an_entry()}, a_control(fence_ns=fence_ns))
    assert 90 >= guarded.value("fence_seconds") >= (fence_ns - boot_ns()) / NS_PER_S


@pytest.mark.parametrize(
    "fence_ns", [lambda: 0, lambda: boot_ns() - 1, lambda: boot_ns() + 3 * HOUR_NS], ids=["never", "passed", "mistake"]
)
def test_fence_that_the_kernel_does_not_honour_is_0(guarded, fence_ns):
    guarded.guard({VIP: an_entry()}, a_control(fence_ns=fence_ns()))
    before = guarded.frames(Reason.FENCED)
    guarded.run(an_arp_request())
    assert guarded.frames(Reason.FENCED) - before == 1
    assert guarded.value("fence_seconds") == 0


def test_node_whose_vouchers_fence_has_passed_is_no_owner_though_the_api_servers_lies_ahead(guarded):
    guarded.bind({VIP: an_entry()}, left_ns=-1)
    before = guarded.frames(Reason.UNVOUCHED)
    guarded.run(an_arp_request())

    assert guarded.frames(Reason.UNVOUCHED) - before == 1
    assert guarded.series("vip_owner") == {}
    assert guarded.value("voucher_fence_seconds") == 0
    assert guarded.value("fence_seconds") > 3500
    status = get_status(guarded.node, pb.GetStatusRequest())
    assert (status.voucher_fence_left.ToNanoseconds(), status.fence_left.seconds > 3500) == (0, True)


def test_both_fences_of_a_node_that_is_bound_can_be_read(guarded):
    began_ns = boot_ns()
    guarded.bind({VIP: an_entry()}, left_ns=90 * NS_PER_S)

    assert len(guarded.series("vip_owner")) == 1
    measured_s = guarded.value("voucher_fence_seconds")
    told_s = get_status(guarded.node, pb.GetStatusRequest()).voucher_fence_left.ToNanoseconds() / NS_PER_S
    assert 90 >= measured_s >= told_s >= 90 - (boot_ns() - began_ns) / NS_PER_S


def test_node_without_a_voucher_has_no_fence_of_one(guarded):
    guarded.guard({VIP: an_entry()})

    assert guarded.value("voucher_fence_seconds") is None
    assert not get_status(guarded.node, pb.GetStatusRequest()).HasField("voucher_fence_left")


@pytest.mark.parametrize("entry", [an_entry(unfenced=True), an_entry(Kind.FOREIGN), an_entry(Kind.DELEGATED)])
def test_no_fence_where_none_is_needed(guarded, entry):
    guarded.guard({VIP: entry})
    assert guarded.value("fence_seconds") is None


def test_what_the_agent_did_since_it_started(guarded):
    guarded.node.state.ownership_changes = 3
    guarded.node.state.drift = Drift(entries=5, programs=6, control=7)
    guarded.node.state.problems = ("one", "two")
    assert guarded.value("ownership_changes_total") == 3
    assert guarded.series("drift_repaired_total") == {("entry",): 5, ("program",): 6, ("control",): 7}
    assert guarded.value("problems") == 2


def test_configuration_in_force(guarded):
    began = time.time()
    guarded.node.in_force = replace(guarded.node.in_force, generation=4, loaded_ns=boot_ns() - HOUR_NS)
    assert guarded.value("config_generation") == 4
    assert guarded.value("config_problems") == 0
    assert began - 3601 < guarded.value("config_load_timestamp_seconds") < time.time() - 3599
    guarded.node.in_force.problem = "vips[0]: wrong"
    assert guarded.value("config_problems") == 1


def test_timestamps_stand_still(guarded):
    """Also near half a millisecond, where the least difference between two readings of the clocks shows."""
    half_ns = NS_PER_MS // 2 - (time.time_ns() - boot_ns()) % NS_PER_MS
    for moment_ns in range(0, 300_000, 10_000):
        guarded.node.started_ns = half_ns - moment_ns
        assert len({guarded.value("start_time_seconds") for _ in range(20)}) == 1


def test_links_and_what_is_attached_to_them(guarded):
    guarded.node.state.links = (LINK, replace(LINK, ifindex=7, name="eth1", up=False))
    guarded.node.state.attachments = (
        Attachment(LO, Hook.TC_EGRESS, "tcx", 1),
        Attachment(LO, Hook.XDP, "xdp", 2),
        Attachment(7, Hook.TC_INGRESS, "clsact", 3),
    )
    assert guarded.series("link_up") == {("eth0",): 1, ("eth1",): 0}
    assert guarded.series("links") == {
        ("eth0", "tc_egress", "tcx"): 1,
        ("eth0", "xdp", "xdp"): 1,
        ("eth1", "tc_ingress", "clsact"): 1,
    }


def test_labels_are_printable(guarded):
    guarded.node.state.links = (replace(LINK, name="\x1b[31mé\n"),)
    guarded.node.name = "node \ud800"
    assert guarded.series("link_up") == {("\\x1b[31mé\\n",): 1}
    assert guarded.series("build_info") == {(__version__, "node \\ud800"): 1}
    assert "\x1b" not in guarded.text()


def test_room_in_the_map(guarded):
    guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry()})
    assert guarded.value("map_entries") == 2
    assert guarded.value("map_capacity") == read_build().max_entries


def test_events_are_the_kernels_account_and_what_was_received(guarded):
    guarded.guard({VIP: an_entry(Kind.FOREIGN)})
    with guarded.reading_events() as reader:
        before = guarded.series("events_total")
        for _ in range(100):
            guarded.run(an_arp_request())
        reader.consume()
        after = guarded.series("events_total")
    grown = {outcome: after[outcome,] - before[outcome,] for outcome in ("delivered", "limited", "lost", "received")}
    assert grown["delivered"] + grown["limited"] + grown["lost"] == 100
    assert grown["received"] == grown["delivered"] > 0
    assert guarded.value("decisions_remembered") == 1


def test_frames_of_vouching_are_counted_by_what_came_of_them(guarded):
    guarded.plane.set({}, a_vouching_control())
    before = guarded.series("vouching_frames_total")
    for frame in (sealed(a_ping()), sealed(a_ping()), in_frame(b"")):
        guarded.run(frame)
    after = guarded.series("vouching_frames_total")

    grown = {what: count - before[what,] for (what,), count in after.items()}
    assert grown == dict.fromkeys((what.name.lower() for what in Vouched), 0) | {"other_term": 2, "unreadable": 1}


def test_foreign_claims_by_vip_link_and_reason_never_by_mac(guarded):
    began = time.time()
    macs = [MacAddress(bytes([2, 0, 0, 0, 1, number])) for number in range(3)]
    with guarded.reading_events() as reader:
        for mac in macs:
            guarded.guard({})  # a new entry has no events held back
            guarded.guard({VIP: an_entry(), OTHER_VIP: an_entry(Kind.FOREIGN)})
            guarded.run(an_announcement(sha=mac))
        guarded.run(an_announcement(sha=macs[0], vip=OTHER_VIP))
        reader.consume()
    claims = guarded.series("conflicting_claims")
    assert claims == {
        (str(VIP), "eth0", "conflict", "outside"): 3,
        (str(OTHER_VIP), "eth0", "unverified_claim", "outside"): 1,
    }
    times = guarded.series("conflict_last_timestamp_seconds")
    assert times.keys() == claims.keys()
    assert all(began - 1 < last < time.time() + 1 for last in times.values())
    assert str(macs[0]) not in guarded.text()


def test_who_and_since_when(guarded):
    assert guarded.series("build_info") == {(__version__, "node-1"): 1}
    assert seconds_ago(guarded.value("start_time_seconds")) < 60


def test_pinned_objects_without_an_agent_have_metrics_too(guarded):
    guarded.node.started_ns = guarded.node.in_force = None
    for name in ("start_time_seconds", "config_generation", "config_problems", "config_load_timestamp_seconds"):
        assert guarded.value(name) is None
    assert guarded.value("problems") == 0


# ---- ten thousand VIPs -------------------------------------------------------------------------------------------


def test_scrape_of_many_vips_and_claims_is_bounded_and_quick():
    with a_plane("metrics", replace(read_build(), max_entries=MANY)) as plane:
        guarded = Guarded(plane)
        vips = [IPv4Address("198.18.0.0") + number for number in range(MANY)]
        guarded.guard({vip: an_entry(unfenced=True) for vip in vips})
        with guarded.reading_events() as reader:
            for vip in vips[: 2 * MAX_CLAIMS]:  # the kernel reports hundreds in a second
                until(lambda vip=vip: guarded.run(an_announcement(vip=vip)) or reader.consume())
        assert guarded.value("map_entries") == MANY
        assert len(guarded.series("conflicting_claims")) == MAX_CLAIMS
        assert (str(vips[2 * MAX_CLAIMS - 1]), "eth0", "conflict", "outside") in guarded.series("conflicting_claims")
        collecting = min(_seconds(lambda: list(guarded.registry.collect())) for _ in range(9))
        everything = min(_seconds(guarded.text) for _ in range(9))
    print(
        f"{MANY} VIPs, {MAX_CLAIMS} claims: collected in {collecting * 1e3:.1f} ms, {everything * 1e3:.1f} ms as text"
    )
    assert collecting < 0.1


def _seconds(act) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


# ---- the cluster -------------------------------------------------------------------------------------------------


def test_standalone_agent_exports_nothing_of_a_cluster(guarded):
    assert not [name for name in guarded.text().split() if name.startswith(("arpguard_kubernetes", "arpguard_lease"))]
    assert guarded.value("nodes_alive") is None


def test_following_is_counted_by_resource(guarded):
    lost = SourceState(lost="403", lists=1, streams=2, failures=3, unreadable=4)
    guarded.node.cluster = a_cluster(sources={"services": SourceState(lists=1), "nodes": lost}, complete=False)

    assert guarded.value("kubernetes_complete") == 0
    assert guarded.series("kubernetes_source_up") == {("services",): 1, ("nodes",): 0}
    for number, name in enumerate(("lists", "streams", "failures", "unreadable"), 1):
        assert guarded.value(f"kubernetes_{name}_total", resource="nodes") == number


def test_lease_is_told_of_as_it_is(guarded):
    guarded.node.cluster = a_cluster(
        renewed_ns=boot_ns() - 5 * NS_PER_S,
        renewal_lost="timed out",
        yielding=True,
        times=Times(3 * NS_PER_S, NS_PER_S, NS_PER_S, NS_PER_S),
        writes=Count({("heartbeat", "unknown"): 2, ("claim", "applied"): 7}),
        events=Count(written=4, dropped=3),
    )

    assert 5 <= guarded.value("renewal_age_seconds") < 60
    assert (guarded.value("renewal_failing"), guarded.value("yielding")) == (1, 1)
    assert guarded.value("lease_seconds") == 3
    assert guarded.series("lease_writes_total") == {("heartbeat", "unknown"): 2, ("claim", "applied"): 7}
    assert guarded.series("kubernetes_events_total") == {("written",): 4, ("dropped",): 3}


def test_renewal_has_no_age_before_the_first(guarded):
    guarded.node.cluster = a_cluster()

    assert guarded.value("renewal_age_seconds") is None
    assert guarded.value("renewal_failing") == 0


def test_elected_vips_are_counted_once_and_others_not_at_all(guarded):
    first, second, third, static = (IPv4Address(f"192.0.2.{number}") for number in range(101, 105))
    keys = {(link, vip): EntryKey(link, vip) for link in (LO, LO + 1) for vip in (first, second, third, static)}
    entries = {
        keys[LO, first]: an_entry(),
        keys[LO + 1, first]: an_entry(Kind.FOREIGN),
        keys[LO, second]: an_entry(Kind.EXTERNAL),
        keys[LO + 1, second]: an_entry(Kind.EXTERNAL),
        keys[LO, third]: an_entry(Kind.FOREIGN),
        keys[LO, static]: an_entry(),
    }
    guarded.node.state.guarded = Overlay(entries)
    named = Vip(static, Owner(OwnerKind.NODE, "node-1"))
    guarded.node.cluster = a_cluster([*map(an_elected, (first, second, third)), named], nobody=frozenset({third}))

    assert (guarded.value("vips_held"), guarded.value("vips_taken_outside")) == (1, 1)
    assert guarded.value("vips_without_node") == 1


def test_nodes_are_those_that_there_are_and_those_that_are_heard_of(guarded):
    guarded.node.cluster = a_cluster(members=(Member("node-1"), Member("node-2", alive=False)))

    assert (guarded.value("nodes"), guarded.value("nodes_alive")) == (3, 1)


def test_what_is_known_of_the_cluster_is_of_the_moment(guarded):
    guarded.node.cluster = state = a_cluster(members=())
    assert guarded.value("nodes_alive") == 0

    state.members = (Member("node-1"), Member("node-2"))
    assert guarded.value("nodes_alive") == 2


# ---- the audit ---------------------------------------------------------------------------------------------------


def test_audits_are_counted_by_finding_and_their_answers_by_vip(guarded):
    owned, doubled = EntryKey(LO, VIP), EntryKey(LO, OTHER_VIP)
    book, here = guarded.node.audits, Expected(node="node-1", here=True)
    book.settle(judge(owned, "lo", here, {}, boot_ns() - 90 * NS_PER_S))
    book.settle(judge(doubled, "lo", here, {MacAddress.parse("02:00:00:00:00:66"): OUTSIDE}, boot_ns()))

    assert guarded.series("vip_answers") == {(str(OTHER_VIP),): 2, (str(VIP),): 1}
    assert guarded.series("audited_vips") == {("owner",): 1, ("none",): 0, ("another",): 0, ("several",): 1}
    assert guarded.value("audit_age_seconds") >= 90


def test_vip_that_nobody_has_to_answer_for_is_not_among_those_with_no_answer(guarded):
    """The alert VIPAnsweredByNobody fires for each 0, and such a silence is no problem in the status."""
    book = guarded.node.audits
    book.settle(judge(EntryKey(LO, VIP), "eth0", Expected("node-2", may_be_silent=True), {}, boot_ns()))
    book.settle(judge(EntryKey(LO, OTHER_VIP), "eth0", Expected("node-2"), {}, boot_ns()))

    assert guarded.series("vip_answers") == {(str(OTHER_VIP),): 0}
    assert guarded.series("audited_vips") == {("owner",): 1, ("none",): 1, ("another",): 0, ("several",): 0}


def test_without_an_audit_its_age_is_not_said(guarded):
    assert guarded.value("audit_age_seconds") is None
