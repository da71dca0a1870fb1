"""How long the claim protocol's leases last, and its requests may take."""

from arpguard.config.model import LeaseConfig
from arpguard.core.electing import REST_NS, lease_times, rest_ns
from arpguard.core.ownership.lease import Times
from arpguard.units import NS_PER_S

SYNC_NS = 30 * NS_PER_S


def times_of(config: LeaseConfig, rest: int = REST_NS) -> Times:
    """The times from the configuration."""
    return Times(config.duration_ns, config.renew_ns, config.margin_ns, SYNC_NS, rest)


def times_for(config: LeaseConfig, nodes: int) -> Times:
    """The times in a cluster with so many live nodes: in a large one they are longer."""
    return times_of(lease_times(config, nodes), rest_ns(nodes))


def timeout_s(times: Times) -> float:
    """For a request: less than the margin, for a claim answered later is useless, and a late renewal nearly so."""
    return 0.9 * times.margin_ns / NS_PER_S
