"""Claims of nodes: a VIP that moves is never called a split brain, and a second node that speaks always is."""

from bisect import bisect_right
from ipaddress import ip_address

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.core.announcing import ANNOUNCE_COUNT, ANNOUNCE_INTERVAL_NS
from arpguard.core.claimants import Claimant, ClaimantKind
from arpguard.core.conflicts import AGAIN_NS, CHECK_NS, GRACE_NS, KnownOwner, Suspicions
from arpguard.core.decisions import Report
from arpguard.model import Decision, EntryKey
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from support.chance import RUNS

VIP = ip_address("192.0.2.50")
ME, NODES = "n0", ["n0", "n1", "n2"]
LATE_NS = 50 * NS_PER_MS  # what a node sent before it handed over may be heard so much later
START = 1000 * NS_PER_S

quick = settings(max_examples=5 * RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def a_report(at_ns: int, node: str) -> Report:
    mac = MacAddress(bytes((2, 0, 0, 0, 0, NODES.index(node))))
    decision = Decision(
        at_ns,
        EntryKey(2, VIP),
        Verdict.CONFLICT,
        Reason.CONFLICT,
        Hook.TC_INGRESS,
        Mode.ENFORCE,
        Kind.OWNED,
        1,
        VIP,
        VIP,
        mac,
        mac,
        mac,
        BROADCAST_MAC,
    )
    return Report(1, "eth0", decision, 1, at_ns)


class History:
    """Who has the VIP from when on; n0 knows of others only `delay_ns` later, and of itself at once."""

    def __init__(self, holders: list[str], lengths: list[int], delay_ns: int) -> None:
        self.since = [START]
        for length in lengths[: len(holders) - 1]:
            self.since.append(self.since[-1] + length)
        self.holders = holders[: len(self.since)]
        self.delay_ns = delay_ns
        self.seen = []
        for at, holder in zip(self.since, self.holders, strict=True):
            shown = at if holder == ME else at + delay_ns
            self.seen.append(max(shown, self.seen[-1] if self.seen else START))

    def truth(self, now_ns: int) -> str:
        return self.holders[bisect_right(self.since, now_ns) - 1]

    def known(self, now_ns: int) -> KnownOwner:
        at = bisect_right(self.seen, now_ns) - 1
        node = self.holders[at] if at >= 0 else ""
        own_since_ns = self.seen[at] if node == ME else None
        return KnownOwner(node, seen_ns=now_ns - self.delay_ns, own_since_ns=own_since_ns)


def told(history: History, claims: list[tuple[int, str]], lag_ns: int = 0) -> list[tuple[int, str]]:
    """When the agent calls which node a second owner; it reads the reports of these claims `lag_ns` late."""
    suspicions, found = Suspicions(), []
    events = [(at + lag_ns, 1, node) for at, node in claims if node != ME]
    events += [(at, 0, node) for at, node in zip(history.seen, history.holders, strict=True)]
    end = max((at for at, _, _ in events), default=START) + 3 * GRACE_NS
    events += [(at, 2, "") for at in range(START, end, 200 * NS_PER_MS)]
    for at, kind, node in sorted(events):
        if kind == 0:
            suspicions.moved(VIP, at)
        elif kind == 1:
            claimant = Claimant(ClaimantKind.CLUSTER_NODE, node)
            _, report = suspicions.heard(a_report(at - lag_ns, node), claimant, history.known(at), at)
            found += [(at, node)] if report else []
        else:
            due = suspicions.due(lambda _, at=at: history.known(at), lambda _: True, at)
            found += [(at, who.node) for _, who in due]
    return found


LENGTHS = st.lists(st.integers(NS_PER_MS, 20 * NS_PER_S), max_size=6)
HOLDERS = st.lists(st.sampled_from(NODES), min_size=1, max_size=7)
SOON = GRACE_NS - LATE_NS - 200 * NS_PER_MS
DELAYS = st.integers(0, SOON)


@quick
@given(
    HOLDERS,
    LENGTHS,
    DELAYS | st.integers(SOON, 6 * GRACE_NS),  # a watch that has stalled
    st.lists(st.integers(0, 60 * NS_PER_S), max_size=20),
    st.integers(0, LATE_NS),
    st.integers(0, 6 * GRACE_NS),  # an agent that stood still, or is slow
)
def test_vip_that_moves_is_never_called_a_split_brain(holders, lengths, delay_ns, times, late_ns, lag_ns):
    """Each frame is from who has the VIP when it is sent. Whatever the order in which things are heard of."""
    history = History(holders, lengths, delay_ns)
    announced = [since - START + n * ANNOUNCE_INTERVAL_NS for since in history.since for n in range(ANNOUNCE_COUNT)]
    claims = [(START + at + late_ns, history.truth(START + at)) for at in (*times, *announced)]

    assert told(history, claims, lag_ns) == []


@quick
@given(
    HOLDERS, LENGTHS, DELAYS, st.integers(0, 30 * NS_PER_S), st.lists(st.integers(AGAIN_NS, 60 * NS_PER_S), max_size=5)
)
def test_node_that_never_has_the_vip_and_goes_on_claiming_it_is_told_of(holders, lengths, delay_ns, first, pauses):
    history = History([holder for holder in holders if holder != "n2"] or [ME], lengths, delay_ns)
    times = [history.seen[-1] + 1 + first]  # what was heard before the last move may have been part of it
    for pause in [AGAIN_NS, *pauses]:
        times.append(times[-1] + pause)

    found = told(history, [(at, "n2") for at in times])

    assert {node for _, node in found} == {"n2"}
    # Once more if the watch is late.
    assert found[0][0] <= times[1] + 2 * GRACE_NS + CHECK_NS + 200 * NS_PER_MS
