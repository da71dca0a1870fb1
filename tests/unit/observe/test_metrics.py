"""The list of metrics: names and help by convention. Their values are in tests/bpf/test_metrics.py."""

import re

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest

from arpguard.core.clusterstate import ClusterState
from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.state import VouchedNode, VouchingState
from arpguard.observe.cluster import CLUSTER, look_at_cluster
from arpguard.observe.metrics import SPECS, ApiMetrics, _filled
from arpguard.units import NS_PER_MS, NS_PER_S
from support.kube.cluster_states import a_cluster

each = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


@each
def test_name_is_prefixed_and_says_its_unit(spec):
    assert re.fullmatch(r"arpguard_[a-z]+(_[a-z]+)*", spec.name)
    assert spec.name.endswith("_total") == (spec.kind == "counter")
    assert ("econds" in spec.what) == spec.name.endswith("_seconds")


@each
def test_help_says_what_it_is_and_when_to_worry(spec):
    assert re.fullmatch(r"[A-Z0-9][^.]{20,}(\.[a-z][^.]*)*\. Worry when .{20,}\.", spec.help)


@each
def test_no_label_is_a_neighbours_choice(spec):
    """Of claimants there are a few kinds, whatever MAC addresses are made up."""
    allowed = {
        "claimant",
        "verdict",
        "reason",
        "action",
        "kind",
        "mode",
        "what",
        "outcome",
        "vip",
        "link",
        "hook",
        "how",
        "finding",
        "state",
        "service",
        "namespace",
    }
    assert set(spec.labels) <= allowed | {"claimant", "method", "code", "version", "node", "resource"}


def test_names_are_unique():
    assert len({spec.name for spec in SPECS}) == len(SPECS)


def test_api_counts_calls_by_method_and_code_and_times_them():
    registry = CollectorRegistry()
    api = ApiMetrics(registry)
    for seconds in (0.002, 0.2):
        api.observe("ListVips", "OK", seconds)
    api.observe("ListVips", "INVALID_ARGUMENT", 0.0001)

    def value(name, **labels):
        return registry.get_sample_value(f"arpguard_api_{name}", {"method": "ListVips", **labels})

    assert value("requests_total", code="OK") == 2
    assert value("requests_total", code="INVALID_ARGUMENT") == 1
    assert value("seconds_count") == 3
    assert value("seconds_sum") == pytest.approx(0.2021)
    assert value("seconds_bucket", le="0.0025") == 2


def test_api_counts_readers_and_what_they_lost():
    registry = CollectorRegistry()
    api = ApiMetrics(registry)
    for delta in (1, 1, -1):
        api.watchers_changed(delta)
    api.lost(7)
    assert registry.get_sample_value("arpguard_watchers") == 1
    assert registry.get_sample_value("arpguard_watch_lost_total") == 7


def test_api_has_no_series_about_series():
    registry = CollectorRegistry()
    ApiMetrics(registry).observe("GetStatus", "OK", 0.1)
    assert b"_created" not in generate_latest(registry)


def test_gaps_between_grants_are_a_histogram_and_nothing_of_vouching_is_told_where_it_is_off():
    gaps = Gaps().with_gap(50 * NS_PER_MS).with_gap(90 * NS_PER_MS).with_gap(2 * NS_PER_S)
    vouched = (VouchedNode("n3", NS_PER_S, 0, trial=False), VouchedNode("n4", NS_PER_S, 0, trial=True))
    text = metrics_of(a_cluster(vouching=VouchingState(vouched=vouched, gaps=gaps, unbinds=4)))

    samples = [line for line in metrics_of(a_cluster()).splitlines() if not line.startswith("#")]
    assert not any("vouch" in line for line in samples)
    for line in (
        'arpguard_vouched_gap_seconds_bucket{le="0.055"} 1.0',
        'arpguard_vouched_gap_seconds_bucket{le="0.1"} 2.0',
        'arpguard_vouched_gap_seconds_bucket{le="+Inf"} 3.0',
        "arpguard_vouched_gap_seconds_count 3.0",
        "arpguard_vouched_gap_seconds_sum 2.14",
        'arpguard_vouched_nodes{what="tried"} 1.0',
        'arpguard_vouched_nodes{what="vouched"} 1.0',
        "arpguard_voucher_unbinds_total 4.0",
    ):
        assert f"{line}\n" in text


@pytest.mark.parametrize(
    ("vouching", "value"),
    [
        (VouchingState(), None),
        (VouchingState(expected=True), "0.0"),
        (VouchingState(expected=True, bound=True), "1.0"),
        (VouchingState(bound=True), "1.0"),
    ],
    ids=["nobody could", "not yet", "bound", "the others are gone"],
)
def test_missing_voucher_is_told_only_where_another_node_could_be_one(vouching, value):
    found = [line for line in metrics_of(a_cluster(vouching=vouching)).splitlines() if "voucher_bound " in line]
    assert [line.split()[-1] for line in found if not line.startswith("#")] == ([value] if value else [])


class _Cluster:
    """Collects the metrics of a cluster alone."""

    def __init__(self, state: ClusterState) -> None:
        self.look = look_at_cluster(state, {})

    def collect(self) -> list[Metric]:
        found = (_filled(spec, self.look) for spec in CLUSTER)
        return [metric for metric in found if metric.samples]


def metrics_of(state: ClusterState) -> str:
    registry = CollectorRegistry()
    registry.register(_Cluster(state))
    return generate_latest(registry).decode()
