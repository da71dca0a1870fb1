"""How long the claim protocol's leases last, and how long its requests may take."""

from arpguard.config.model import LeaseConfig
from arpguard.core.ownership.lease import BOUND_NS, Times
from arpguard.units import NS_PER_S

SYNC_NS = 30 * NS_PER_S
REST_NS = 10 * NS_PER_S  # as kubelets renew theirs
# A bound node answers on for 48 s without the API server at least, whenever that goes.
BOUND_MARGIN_NS = 12 * NS_PER_S
_MAX_WRITES_PER_S = 100  # of heartbeats, in the whole cluster; each is sent to all nodes
_MAX_WRITES_PER_S_AT_REST = 10
_MAX_LISTS_PER_S = 3  # of own claims: for each the API server goes through all Leases


def times_of(lease: LeaseConfig, heartbeating: int = 0, *, vouched: bool = False) -> Times:
    """The times of the configuration; longer ones if so many nodes would write more than _MAX_WRITES_PER_S.

    With vouching they list their claims less often, too. `vouched`: this node has a voucher, whatever the configuration
    says.
    """
    renew_ns = max(lease.renew_ns, heartbeating * NS_PER_S // _MAX_WRITES_PER_S)
    has_vouching = vouched or lease.vouching is not None
    bound_ns, bound_margin_ns = (BOUND_NS, BOUND_MARGIN_NS) if has_vouching else (0, 0)
    lists_ns = heartbeating * NS_PER_S // _MAX_LISTS_PER_S if has_vouching else 0

    return Times(
        duration_ns=lease.duration_ns * renew_ns // lease.renew_ns,
        renew_ns=renew_ns,
        margin_ns=lease.margin_ns * renew_ns // lease.renew_ns,
        sync_ns=max(SYNC_NS, lists_ns),
        rest_ns=max(REST_NS, heartbeating * NS_PER_S // _MAX_WRITES_PER_S_AT_REST),
        bound_ns=bound_ns,
        bound_margin_ns=bound_margin_ns,
    )


def timeout_s(times: Times) -> float:
    """For a request: less than the margin, because a later claim is useless, and a late renewal nearly so."""
    return 0.9 * times.margin_ns / NS_PER_S
