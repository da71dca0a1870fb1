"""Leases last longer where there are so many nodes that their renewals would be too much for the API server."""

import pytest

from arpguard.config.model import LeaseConfig, VouchingConfig
from arpguard.core.leasetimes import SYNC_NS, timeout_s, times_of
from arpguard.core.ownership.lease import Times
from arpguard.units import NS_PER_MS, NS_PER_S


@pytest.mark.parametrize(("nodes", "renew_s"), [(0, 1), (1, 1), (100, 1), (200, 2), (1000, 10)])
def test_lease_is_stretched_so_that_the_cluster_writes_no_more_than_100_a_second(nodes, renew_s):
    times = times_of(LeaseConfig(), nodes)

    assert (times.duration_ns, times.renew_ns, times.margin_ns) == (
        3 * renew_s * NS_PER_S,
        renew_s * NS_PER_S,
        renew_s * NS_PER_S,
    )
    assert nodes * NS_PER_S / times.renew_ns <= 100


def test_lease_that_is_slow_already_is_stretched_less():
    slow = LeaseConfig(6000 * NS_PER_MS, 1500 * NS_PER_MS, 2000 * NS_PER_MS, vouching=None)

    assert times_of(slow, 150) == Times(slow.duration_ns, slow.renew_ns, slow.margin_ns, SYNC_NS, 15 * NS_PER_S)
    assert times_of(slow, 300).duration_ns == 12 * NS_PER_S


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 10), (100, 10), (101, 10.1), (1000, 100)])
def test_at_rest_a_cluster_writes_ten_times_a_second_at_most(nodes, seconds):
    assert times_of(LeaseConfig(), nodes).rest_ns == seconds * NS_PER_S


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 30), (90, 30), (300, 100), (1000, 333)])
def test_with_vouching_a_cluster_lists_its_claims_three_times_a_second_at_most(nodes, seconds):
    assert times_of(LeaseConfig(vouching=VouchingConfig()), nodes).sync_ns // NS_PER_S == seconds
    assert times_of(LeaseConfig(vouching=None), nodes).sync_ns == SYNC_NS


def test_a_request_ends_before_the_margin_does():
    assert timeout_s(times_of(LeaseConfig())) == 0.9
