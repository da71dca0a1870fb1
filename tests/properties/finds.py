"""What Hypothesis finds when a rule is broken, shrunk: the shortest stories in which it matters that the rule is kept.

Each is a story of `machine`, in the words of that; `begins` has the first node answer, and the others wait.
"""

from properties.machine import Cluster


def answer_that_is_late(cluster: Cluster) -> None:
    """A renewal is answered after two seconds, and no other after it; the owner sees nothing of what others do."""
    cluster.begins()
    cluster.goes_on(2500, [(0, "deaf")])
    cluster.goes_on(6000, [(0, "stalled"), (0, "blind")])


def owner_that_stands_still(cluster: Cluster) -> None:
    cluster.begins()
    cluster.goes_on(6000, [(0, "paused")])


def owner_with_a_slow_clock(cluster: Cluster) -> None:
    """It stands still, and the other's clock is fast."""
    cluster.begins(rates=(0.81, 1.19))
    cluster.goes_on(6000, [(0, "paused")])


def owner_that_has_parted(cluster: Cluster) -> None:
    cluster.begins()
    cluster.parts(0)
    cluster.goes_on(6000, [(0, "blind")])


def owner_that_is_back_from_parting(cluster: Cluster) -> None:
    """Its first renewal publishes an ordinary lease; the kernel still has the long fence."""
    cluster.begins()
    cluster.parts(0)
    cluster.goes_on(1)
    cluster.restarts(0)
    cluster.goes_on(1)


def owner_that_is_cut_off(cluster: Cluster) -> None:
    cluster.begins()
    cluster.goes_on(1900, [(0, "cut_off")])
    cluster.goes_on(1900, [(0, "cut_off")])


def nobody_sees_anything(cluster: Cluster) -> None:
    cluster.begins()
    cluster.goes_on(6000, [(0, "blind"), (1, "blind")])


def heartbeat_that_is_missing(cluster: Cluster) -> None:
    """Of an owner that stands still just then."""
    cluster.begins()
    cluster.heartbeat_is_deleted(0)
    cluster.goes_on(1000, [(0, "paused")])


def owner_that_begins_anew(cluster: Cluster) -> None:
    """While it hands over, its heartbeat is deleted, and made again; it hears of nothing."""
    cluster.begins()
    cluster.wants(0, ())
    cluster.heartbeat_is_deleted(0)
    cluster.goes_on(1, [(0, "deaf")])
    cluster.goes_on(6000)


def owner_that_hands_over(cluster: Cluster) -> None:
    cluster.begins()
    cluster.wants(0, ())
    cluster.goes_on(1)


FINDS = {
    "fence counted from the response": answer_that_is_late,
    "revoked too early": owner_that_stands_still,
    "revoked a little too early": owner_with_a_slow_clock,
    "published lease ignored": owner_that_has_parted,
    "a shorter lease published under a longer fence": owner_that_is_back_from_parting,
    "unknown renewal counted": owner_that_is_cut_off,
    "late taken for void without a revocation": nobody_sees_anything,
    "missing heartbeat taken for void": heartbeat_that_is_missing,
    "answered on the strength of a read": owner_that_begins_anew,
    "released before it is cleared": owner_that_hands_over,
    "released before it is drained": owner_that_hands_over,
}
