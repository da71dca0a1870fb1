"""The claim protocol of a node with a voucher, and of one that vouches, event by event."""

from collections import Counter
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from arpguard.core.ownership.lease import BOUND_NS
from arpguard.core.ownership.naming import LOOK_NS, SPARE_NS, UNBOUND_NS
from arpguard.core.ownership.records import (
    NO_TERM,
    ClearTerm,
    DeleteClaim,
    Kept,
    KernelTerm,
    NamedVoucher,
    Outcome,
    Probe,
    PublishedVouching,
    ReadHeartbeat,
    ReadTerm,
    SetFence,
    SetTerm,
    StartOver,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.ownership.revoking import BACKUP_NS
from arpguard.core.ownership.sweeping import SWEEPS_IN_BOUND_LEASE, SWEPT, following
from arpguard.units import NS_PER_MS
from arpguard.wire.vouching import VouchTerm
from support.protocol.one_node import TIMES, VIP, VOUCHED, Bench, S

D_NS, M_NS = 1000 * NS_PER_MS, 400 * NS_PER_MS
B = NamedVoucher("b", "b/1", "b-1", "", D_NS, M_NS)
C = NamedVoucher("c", "c/1", "c-1", "", D_NS, M_NS)
TERM = str(UUID(int=77))
OWN_EPOCH = str(UUID(int=1 << 64))


def a_bench(**changes) -> Bench:
    """A node that renewed just now, in the first of the epochs that are UUIDs."""
    numbers = count(1)
    bench = Bench(times=VOUCHED, new_epoch=lambda: str(UUID(int=next(numbers) << 64)), **changes)
    bench.pass_time(0)
    bench.did.clear()
    return bench


def named(bench: Bench) -> NamedVoucher | None:
    return bench.store["a"].voucher


def a_named(voucher: NamedVoucher = B) -> Bench:
    bench = a_bench()
    bench.serve(bench.core.heartbeat.name(voucher, bench.now))
    bench.did.clear()
    return bench


def a_bound(fence_s: float = 1000) -> Bench:
    """It has a voucher that grants for long."""
    bench = a_named()
    bench.is_granted(bench.now + int(fence_s * S))
    bench.pass_time(LOOK_NS / S)
    assert bench.store["a"].bound
    bench.did.clear()
    return bench


def kinds(bench: Bench) -> list[type]:
    return [type(effect) for effect in bench.did]


# ---- naming (V1, V2) ----


def test_a_voucher_is_named_at_once_and_the_kernel_hears_of_it_after_that():
    bench = a_bench()

    bench.serve(bench.core.heartbeat.name(replace(B, term="whatever"), bench.now))

    voucher = named(bench)
    assert replace(voucher, term="") == B
    assert kinds(bench) == [WriteHeartbeat, SetTerm]
    assert bench.did[1].term == VouchTerm("a", OWN_EPOCH, "b", "b/1", "b-1", voucher.term, D_NS, M_NS)
    assert not bench.store["a"].bound
    assert bench.store["a"].duration_ns == 3 * S


def test_a_voucher_that_stays_keeps_its_term_and_another_one_has_another():
    bench = a_named()
    first = named(bench)
    bench.pass_time(3)
    bench.serve(bench.core.heartbeat.name(B, bench.now))
    assert named(bench) == first

    bench.serve(bench.core.heartbeat.name(C, bench.now))
    second = named(bench)
    bench.serve(bench.core.heartbeat.name(B, bench.now))

    assert len({first.term, second.term, named(bench).term}) == 3


def test_no_term_is_sent_again_when_nobody_knows_what_came_of_it():
    bench = a_bench()
    bench.held = (WriteHeartbeat,)
    bench.serve(bench.core.heartbeat.name(B, bench.now))
    ((first, _),) = bench.waiting
    bench.waiting.clear()
    bench.held = ()

    bench.serve(bench.core.heartbeat_written(first, Outcome.UNKNOWN, None, "", bench.now, bench.now))
    bench.pass_time(1)

    assert replace(named(bench), term="") == B
    assert named(bench).term != first.voucher.term


def test_a_heartbeat_that_is_created_names_nobody():
    bench = Bench(times=VOUCHED)
    bench.held = (WriteHeartbeat,)
    bench.serve(bench.core.heartbeat.name(B, bench.now))
    bench.pass_time(0)

    ((created, _),) = bench.waiting
    assert (created.version, created.voucher) == (None, None)


def test_nothing_is_told_to_the_kernel_for_a_conflict():
    bench = a_bench()
    bench.refused = (WriteHeartbeat,)

    bench.serve(bench.core.heartbeat.name(B, bench.now))

    assert SetTerm not in kinds(bench)


def test_whom_to_name_is_known_while_a_renewal_is_under_way():
    bench = a_bench()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(1)
    bench.serve(bench.core.heartbeat.name(B, bench.now))
    assert len(bench.waiting) == 1

    bench.held = ()
    bench.let()

    assert replace(named(bench), term="") == B


# ---- bound (V15) ----


def test_a_bound_node_says_so_and_has_the_long_lease():
    bench = a_named()
    bench.is_granted(bench.now + 1000 * S)

    bench.pass_time(0)

    assert bench.store["a"].bound
    assert bench.store["a"].duration_ns == 60 * S
    assert kinds(bench) == [WriteHeartbeat, SetFence]
    assert bench.kernel.fence_ns == bench.now + 50 * S
    bench.did.clear()
    bench.pass_time(60)
    assert len(bench.renewals()) == 6


def test_a_lease_that_is_longer_anyway_stays():
    assert replace(VOUCHED, duration_ns=61 * S).at_bound.duration_ns == 61 * S


def test_a_look_that_was_under_way_when_the_term_changed_says_nothing():
    bench = a_bound()
    bench.held = (ReadTerm,)
    before = bench.term
    bench.serve(bench.core.heartbeat.name(C, bench.now))

    bench.serve(bench.core.heartbeat.term_read(before, bench.now))
    assert not bench.store["a"].bound

    bench.serve(bench.core.heartbeat.name(None, bench.now))
    bench.serve(bench.core.heartbeat.term_read(before, bench.now + 100 * S))
    assert named(bench) is None


def test_a_bound_node_answers_by_its_claims_until_the_vouchers_fence_passes():
    bench = a_bound(fence_s=0.7)
    bench.serve(bench.core.want([VIP], bench.now))
    fence_ns = bench.term.fence_ns
    assert bench.core.holder(VIP, fence_ns - 1).answers
    assert not bench.core.holder(VIP, fence_ns).answers


def test_a_node_that_is_bound_no_more_says_so_under_a_short_fence():
    """Something has taken it away from the kernel."""
    bench = a_bound(fence_s=2)
    bench.term = KernelTerm(bench.term.number)

    bench.pass_time(2)

    assert kinds(bench)[:2] == [SetFence, WriteHeartbeat]
    assert bench.did[0].fence_ns <= bench.now + 2 * S
    assert not bench.store["a"].bound


# ---- un-binding (V8) ----


def test_a_node_un_binds_when_little_is_left_of_its_vouchers_fence():
    bench = a_bound(fence_s=2)
    fence_ns = bench.term.fence_ns

    bench.pass_time(2)

    assert named(bench) is None
    assert kinds(bench)[:3] == [SetFence, WriteHeartbeat, ClearTerm]
    sent = bench.did[1]
    assert not sent.bound
    assert sent.duration_ns == 3 * S
    assert bench.core.heartbeat.naming.unbinds == 1
    assert bench.did[0].fence_ns == fence_ns - SPARE_NS + 2 * S
    bench.pass_time(5)
    assert named(bench) is None  # until somebody says so again

    bench.serve(bench.core.heartbeat.name(B, bench.now))
    assert named(bench) is not None


@pytest.mark.parametrize(
    ("pinged", "late_s", "unheard"),
    [(True, 0, True), (False, 0, False), (True, 1, False)],
    ids=["pinged without grants", "not pinged", "the API server answered late"],
)
def test_a_node_notes_whether_its_voucher_pinged_it_and_did_not_hear_it(pinged, late_s, unheard):
    bench = a_bound(fence_s=2)
    bench.term = replace(bench.term, unheard=pinged)
    bench.held = (WriteHeartbeat,)
    bench.pass_time(2 + late_s)
    bench.held = ()
    bench.let()

    naming = bench.core.heartbeat.naming
    assert (naming.unbinds, naming.unheard) == (1, unheard)


def test_a_node_that_stood_still_until_its_vouchers_fence_does_not_count_as_unheard():
    """The pings that waited meanwhile come before the first grant."""
    bench = a_bound(fence_s=2)
    bench.term = replace(bench.term, unheard=True)
    bench.now += 3 * S

    bench.pass_time(0)

    naming = bench.core.heartbeat.naming
    assert (naming.unbinds, naming.unheard) == (1, False)


def test_a_node_that_has_another_voucher_to_name_does_so_at_once():
    bench = a_bound(fence_s=2)
    bench.held = (WriteHeartbeat,)
    bench.pass_time(2 - LOOK_NS / S)
    bench.serve(bench.core.heartbeat.name(C, bench.now))
    bench.held = ()
    bench.let()

    assert replace(named(bench), term="") == C


def test_a_voucher_that_grants_again_is_kept():
    """The node could not reach the server meanwhile."""
    bench = a_bound(fence_s=2)
    before = named(bench)
    bench.refused = (WriteHeartbeat,)
    bench.held = (ReadHeartbeat,)
    bench.pass_time(2)
    bench.is_granted(bench.now + 1000 * S)
    bench.pass_time(1)
    bench.refused, bench.held = (), ()

    bench.let()

    assert named(bench) == before
    assert bench.term.bound
    assert bench.core.heartbeat.naming.unbinds == 0


def test_a_voucher_that_never_grants_is_not_named_for_ever():
    bench = a_named()

    bench.pass_time(UNBOUND_NS / S - 1)
    assert named(bench) is not None
    bench.pass_time(1)

    assert named(bench) is None
    assert bench.core.heartbeat.naming.unbinds == 1


# ---- a voucher that does not renew (V19) ----

BEHIND_S = 25


def a_bound_to_one_that_is_bound() -> Bench:
    """It will be granted for long, and its voucher has renewed just now."""
    bench = a_bound()
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    return bench


def test_a_node_leaves_a_voucher_that_has_not_renewed_for_two_and_a_half_intervals():
    bench = a_bound_to_one_that_is_bound()

    bench.pass_time(BEHIND_S - 0.01)
    assert named(bench) is not None
    bench.pass_time(0.02)

    assert named(bench) is None
    assert bench.term == NO_TERM
    assert bench.core.heartbeat.naming.unbinds == 1
    assert revocations(bench) == []


def test_a_read_that_shows_an_older_heartbeat_of_another_node_ends_the_agent():
    """Only a server that was restored from a backup answers so."""
    bench = a_bound_to_one_that_is_bound()
    bench.pass_time(1)
    bench.store["b"] = replace(bench.store["b"], version=replace(bench.store["b"].version, resource_version="1"))

    asked = [at for at in reads(bench) if at < 60]

    assert len(asked) == 1
    assert bench.did[-1] == StartOver()
    assert bench.kernel.fence_ns == 0
    assert bench.term == NO_TERM


def test_a_node_that_cannot_renew_either_keeps_its_voucher():
    bench = a_bound_to_one_that_is_bound()
    bench.refused = (WriteHeartbeat,)

    bench.pass_time(BEHIND_S + 20)
    bench.refused = ()
    bench.pass_time(1)
    assert named(bench) is not None

    bench.heartbeat(**of_b(replace(C, term=TERM)))
    bench.pass_time(5)
    assert named(bench) is not None
    assert bench.core.heartbeat.naming.unbinds == 0


def test_a_voucher_that_renews_before_it_is_left_is_kept():
    bench = a_bound_to_one_that_is_bound()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(BEHIND_S + 1)
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    bench.held = ()

    bench.let()
    bench.pass_time(1)

    assert named(bench) is not None


def test_a_voucher_that_is_not_bound_is_left_to_its_grants():
    """It publishes a short lease, so they end long before."""
    bench = a_bound()
    bench.heartbeat(duration=3 * S)
    bench.pass_time(60)
    assert named(bench) is not None


# ---- another epoch, another agent (V9, V10) ----


def test_a_node_that_begins_anew_has_no_fence_before_it_has_no_voucher():
    bench = a_bound()
    bench.held = (WriteHeartbeat,)
    bench.store["a"] = replace(bench.store["a"], epoch="x", instance="", version=bench.version())

    bench.pass_time(20)
    bench.did.clear()
    bench.held = ()
    bench.let()
    bench.pass_time(0)

    assert kinds(bench)[:2] == [SetFence, ClearTerm]
    assert bench.did[0].fence_ns == 0
    assert named(bench) is None
    assert bench.core.heartbeat.naming.revocations == 1


def restarted(bench: Bench, term: KernelTerm) -> Bench:
    """Another agent on that node, which finds this in the kernel."""
    kept = Kept(bench.store["a"].epoch, (), bench.kernel.fence_ns, term)
    after = Bench(kept, times=VOUCHED, new_epoch=lambda: str(UUID(int=99 << 64)))
    after.now, after.store, after.revisions = bench.now, bench.store, bench.revisions
    return after


def test_an_agent_that_starts_keeps_the_voucher_and_the_term_that_it_finds():
    bench = a_bound()
    before = named(bench)
    after = restarted(bench, bench.term)

    after.pass_time(0)

    assert named(after) == before
    assert after.store["a"].bound
    assert not {SetTerm, ClearTerm} & set(kinds(after))


def test_an_agent_that_starts_has_the_kernel_follow_the_heartbeat():
    """The one before it ended between an answer and what the kernel was to hear of it."""
    bench = a_bound()
    after = restarted(bench, KernelTerm(7, bound=True, fence_ns=bench.now + S))
    after.pass_time(0)
    assert [type(effect) for effect in after.did if isinstance(effect, SetTerm | ClearTerm)] == [SetTerm]

    bench = a_bench()
    after = restarted(bench, KernelTerm(7, bound=True, fence_ns=bench.now + S))
    after.pass_time(0)
    assert ClearTerm() in after.did


def test_an_agent_that_is_told_whom_to_name_before_it_starts_does_so():
    bench = a_bound()
    after = restarted(bench, bench.term)
    after.serve(after.core.heartbeat.name(None, after.now))

    after.pass_time(0)

    assert named(after) is None
    assert ClearTerm() in after.did


def test_an_agent_of_a_node_without_vouchers_takes_back_what_it_finds():
    """Of its kernel it knows nothing: that may have no such term."""
    bench = a_bound()
    after = Bench(Kept(OWN_EPOCH, (), 0))
    after.now, after.store, after.revisions = bench.now, bench.store, bench.revisions

    after.pass_time(0)

    assert named(after) is None
    assert not {SetTerm, ClearTerm} & set(kinds(after))


def test_an_agent_that_starts_gives_a_voucher_time_to_grant():
    bench = a_named()
    after = restarted(bench, bench.term)

    after.pass_time(UNBOUND_NS / S - 1)
    assert named(after) is not None
    after.pass_time(2)
    assert named(after) is None


# ---- parting (V11) ----


def test_a_node_parts_without_a_voucher():
    bench = a_bound()

    bench.serve(bench.core.heartbeat.part(7 * S, bench.now))

    assert kinds(bench) == [SetFence, WriteHeartbeat, ClearTerm, WriteHeartbeat, SetFence]
    first, last = (effect for effect in bench.did if isinstance(effect, WriteHeartbeat))
    assert (first.voucher, first.duration_ns) == (None, 3 * S)
    assert (last.voucher, last.duration_ns) == (None, 7 * S)
    assert bench.core.heartbeat.parted
    assert bench.core.heartbeat.name(B, bench.now) == []


def test_a_node_that_cannot_un_bind_does_not_part():
    bench = a_bound()
    bench.refused = (WriteHeartbeat,)

    bench.serve(bench.core.heartbeat.part(7 * S, bench.now))

    assert bench.core.heartbeat.parted
    assert len(bench.renewals()) == 1
    assert bench.term.bound


@pytest.mark.parametrize("has_voucher", [False, True])
def test_a_node_at_rest_parts_if_it_has_a_voucher(has_voucher):
    bench = a_bench(takes_part=False)
    if has_voucher:
        bench.serve(bench.core.heartbeat.name(B, bench.now))
    bench.did.clear()

    bench.serve(bench.core.heartbeat.part(7 * S, bench.now))

    assert len(bench.renewals()) == 2 * has_voucher
    assert named(bench) is None


# ---- as a voucher (V7, V16) ----


def of_b(voucher: NamedVoucher | None, **more) -> dict:
    return {"voucher": voucher, "bound": voucher is not None, "duration": 60 * S, **more}


ME = NamedVoucher("a", "a/1", OWN_EPOCH, TERM, D_NS, M_NS)


def revocations(bench: Bench, node: str = "b") -> list[WriteHeartbeat]:
    return [effect for effect in bench.did if isinstance(effect, WriteHeartbeat) and effect.node == node]


def test_a_node_vouches_in_the_terms_that_name_it_in_this_instance_and_epoch():
    bench = a_bench()
    for node, voucher in (
        ("b", ME),
        ("c", replace(ME, instance="a/0")),
        ("d", replace(ME, epoch="x")),
        ("e", replace(ME, node="b")),
        ("f", None),
    ):
        bench.heartbeat(node, f"{node}-1", f"{node}/1", voucher=voucher)

    assert bench.core.revocations.vouches_for(OWN_EPOCH) == [ME.to("b", "b-1")]


def test_who_is_decided_to_be_dead_is_revoked_at_once():
    bench = a_bench()
    bench.heartbeat(**of_b(ME))
    version = bench.store["b"].version

    bench.serve(bench.core.revocations.decided("b", TERM, bench.now))

    (sent,) = revocations(bench)
    assert (sent.version, sent.instance, sent.voucher) == (version, "", None)
    bench.pass_time(100)
    assert len(revocations(bench)) == 1


@pytest.mark.parametrize(
    "voucher",
    [None, replace(ME, term=str(UUID(int=78))), replace(ME, instance="a/0"), replace(ME, node="c")],
    ids=["none", "another term", "another instance", "another node"],
)
def test_who_names_another_than_was_decided_is_not_revoked(voucher):
    bench = a_bench()
    bench.heartbeat(**of_b(voucher))

    bench.serve(bench.core.revocations.decided("b", TERM, bench.now))
    bench.heartbeat(**of_b(ME))  # that is no version that it may replace either
    bench.pass_time(10)

    assert revocations(bench) == []


def test_of_a_node_that_is_not_known_nothing_is_decided():
    bench = a_bench()
    bench.serve(bench.core.revocations.decided("b", TERM, bench.now))
    assert bench.did == []


def test_a_revocation_that_failed_is_tried_again_as_long_as_it_may():
    bench = a_bench()
    bench.heartbeat(**of_b(ME))
    bench.refused_names = ("b",)

    bench.serve(bench.core.revocations.decided("b", TERM, bench.now))
    bench.pass_time(2.5)
    assert len(revocations(bench)) == 3

    bench.heartbeat(**of_b(None))
    bench.refused_names = ()
    bench.pass_time(10)
    assert len(revocations(bench)) == 3


# ---- renewals that nobody is shown ----


def test_a_bound_node_that_says_nothing_new_renews_quietly():
    bench = a_bound()
    bench.pass_time(40)
    assert [renewal.quiet for renewal in bench.renewals()] == [True] * len(bench.renewals()) != []


def test_a_node_that_is_not_bound_never_does():
    bench = a_named()
    bench.pass_time(5)
    assert not any(renewal.quiet for renewal in bench.renewals())


@pytest.mark.parametrize("outcome", [Outcome.UNKNOWN, Outcome.CONFLICT, Outcome.REFUSED])
def test_after_a_renewal_of_which_nobody_knows_what_came_the_next_one_is_shown(outcome):
    bench = a_bound()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(11)
    ((sent, sent_ns),) = bench.waiting
    assert sent.quiet

    bench.waiting, bench.held = [], ()
    bench.did.clear()
    bench.serve(bench.core.heartbeat_written(sent, outcome, None, "", sent_ns, bench.now))
    bench.pass_time(30)

    assert [renewal.quiet for renewal in bench.renewals()][:2] == [False, True]


@pytest.mark.parametrize("resting", [False, True])
def test_a_bound_node_renews_six_times_in_its_lease_however_often_it_decides(resting):
    bench = a_bound()
    bench.serve(bench.core.take_part(not resting, bench.now))
    for _ in range(600):
        bench.pass_time(0.1)
        bench.serve(bench.core.set_times(VOUCHED, bench.now))
    assert 5 <= len(bench.renewals()) <= 7


def test_a_node_that_un_binds_renews_at_its_ordinary_pace_again():
    bench = a_bound()
    bench.serve(bench.core.heartbeat.name(None, bench.now))
    bench.did.clear()
    bench.pass_time(10)
    assert len(bench.renewals()) == 10


def test_another_lease_is_shown():
    bench = a_bound()
    bench.pass_time(20)
    bench.did.clear()
    bench.core.set_times(replace(VOUCHED, bound_ns=90 * S), bench.now)
    bench.pass_time(40)
    assert [renewal.quiet for renewal in bench.renewals()][:2] == [False, True]


def reads(bench: Bench, node: str = "b") -> list[float]:
    """When it read a heartbeat, in seconds, while 100 s pass."""
    found, began_ns, serve = [], bench.now, bench.serve

    def noting(effects):
        found.extend((bench.now - began_ns) / S for each in effects if each == ReadHeartbeat(node))
        serve(effects)

    bench.serve = noting
    bench.pass_time(100)
    return found


def test_a_bound_node_is_alive_until_reads_show_that_it_has_not_renewed_for_its_lease():
    bench = a_bench()
    bench.heartbeat(**of_b(replace(C, term=TERM)))

    half, end = [at for at in reads(bench) if at < 70]

    assert 30 < half < 30 + 60 / SWEEPS_IN_BOUND_LEASE + 1
    assert 60 < end < 60 + 60 / SWEEPS_IN_BOUND_LEASE + 1
    (sent,) = revocations(bench)
    assert (sent.version.uid, sent.early) == (bench.store["b"].version.uid, False)
    assert not bench.core.peers.alive("b", bench.now)


def test_a_bound_node_that_renews_unseen_is_alive():
    bench = a_bench()
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    for _ in range(30):
        bench.pass_time(10)
        bench.store["b"] = replace(bench.store["b"], version=bench.version(bench.store["b"].version))
        assert bench.core.peers.alive("b", bench.now)
        assert "b" in bench.core.peers.heard(bench.now)
    assert revocations(bench) == []


def test_where_vouching_is_off_all_renewals_are_shown_and_nothing_more_is_read():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    bench.heartbeat("c", "c-1", "c/1", duration=60 * S)

    assert reads(bench) == []
    assert len(revocations(bench, "c")) == 1, "c vouched for b, and was silent"
    assert not bench.core.peers.alive("b", bench.now)


def test_a_bound_node_that_has_died_where_vouching_is_off_here_is_revoked_without_a_read():
    """By the chain: nobody here may vouch."""
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat("b", "b-1", "b/1", duration=60 * S)
    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, voucher=OTHER_B, bound=True)
    bench.pass_time(0.1)
    bench.heartbeat("b", "b-2", "", duration=60 * S)

    assert reads(bench, "d") == []
    (sent,) = revocations(bench, "d")
    assert not sent.early


def test_a_heartbeat_that_was_deleted_unseen_is_made_again():
    bench = a_bench()
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    del bench.store["b"]
    bench.pass_time(50)
    (sent,) = revocations(bench)
    assert (sent.version, sent.duration_ns) == (None, 60 * S)


def test_a_heartbeat_that_was_made_again_is_not_made_a_third_time():
    """That of a node which left the cluster can be deleted for good."""
    bench = a_bench()
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    del bench.store["b"]
    bench.pass_time(50)

    del bench.store["b"]
    bench.serve(bench.core.heartbeat_seen("b", None, bench.now))
    bench.pass_time(200)
    assert len(revocations(bench)) == 1


def test_a_heartbeat_that_was_seen_to_be_deleted_is_left_to_who_needs_it():
    bench = a_bench()
    bench.heartbeat(**of_b(replace(C, term=TERM)))
    bench.pass_time(10)
    bench.serve(bench.core.heartbeat_seen("b", None, bench.now))
    bench.pass_time(100)
    assert revocations(bench) == []


def test_a_node_looks_after_the_next_ones_on_the_ring():
    names = [f"node-{number}" for number in range(50)]
    found = {name: following(name, [other for other in names if other != name]) for name in names}
    looked_after = Counter(name for those in found.values() for name in those)
    assert set(looked_after.values()) == {SWEPT}
    assert set(looked_after) == set(names)
    assert all(following(name, found[name]) == found[name] for name in names)


# ---- the chain (V17) ----

OTHER_B = replace(B, term=TERM)


def chained(**voucher) -> Bench:
    """Node d is bound to b; then b has another heartbeat."""
    bench = a_bench()
    bench.heartbeat("b", "b-1", "b/1", duration=60 * S)
    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, voucher=OTHER_B, bound=True)
    bench.pass_time(0.1)
    bench.heartbeat(**{"node": "b", "epoch": "b-2", "instance": "", "duration": 60 * S, **voucher})
    return bench


def test_a_node_whose_voucher_is_over_is_revoked_after_a_while_and_d():
    bench = chained()

    bench.pass_time((BACKUP_NS + D_NS) / S - 0.01)
    assert revocations(bench, "d") == []
    bench.pass_time(0.02)

    assert len(revocations(bench, "d")) == 1
    bench.pass_time(20)
    assert len(revocations(bench, "d")) == 1


def test_a_voucher_in_another_instance_is_over():
    bench = chained(epoch="b-1", instance="b/2")
    bench.pass_time(3)
    assert len(revocations(bench, "d")) == 1


def test_whoever_ended_the_voucher_does_so_after_d():
    bench = a_bench()
    bench.heartbeat("b", "b-1", "b/1", duration=60 * S, voucher=ME, bound=True)
    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, voucher=OTHER_B, bound=True)
    bench.now += 1
    bench.serve(bench.core.revocations.decided("b", TERM, bench.now))
    assert len(revocations(bench, "b")) == 1

    bench.pass_time(D_NS / S - 0.01)
    assert revocations(bench, "d") == []
    bench.pass_time(0.02)
    assert len(revocations(bench, "d")) == 1
    assert all(revocation.early for revocation in (*revocations(bench, "b"), *revocations(bench, "d")))


@pytest.mark.parametrize(
    "change",
    [
        {"voucher": replace(C, term=TERM), "bound": True},
        {"voucher": None},
        {"voucher": OTHER_B, "bound": False},
    ],
    ids=["another voucher", "none", "not bound"],
)
def test_a_node_that_un_bound_in_time_is_not_revoked(change):
    bench = chained()
    bench.pass_time(1.5)

    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, **change)
    bench.pass_time(20)

    assert revocations(bench, "d") == []


def test_a_voucher_that_is_back_as_it_was_named_is_not_over():
    """The watch had shown an older state of it."""
    bench = chained()
    bench.heartbeat("b", "b-1", "b/1", duration=60 * S)
    bench.pass_time(20)
    assert revocations(bench, "d") == []


def test_a_voucher_that_was_named_when_it_was_over_has_to_be_read_first():
    bench = a_bench()
    bench.heartbeat("b", "b-2", "b/2", duration=60 * S)
    bench.held = (ReadHeartbeat,)
    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, voucher=OTHER_B, bound=True)
    bench.pass_time(20)
    assert revocations(bench, "d") == []
    assert [effect for effect, _ in bench.waiting] == [ReadHeartbeat("b")]

    bench.serve(bench.core.heartbeat_read_failed("b", bench.now))
    bench.waiting.clear()
    bench.held = ()
    bench.pass_time(60 + D_NS / S - 20.1)
    assert revocations(bench, "d") == []  # the epoch that is named was not seen in this object
    bench.pass_time(0.2)
    assert len(revocations(bench, "d")) == 1


@pytest.mark.parametrize("known", [False, True])
def test_a_voucher_of_which_nothing_can_be_read_is_not_over(known):
    bench = a_bench()
    if known:
        bench.heartbeat("b", "", "b/1", duration=1000 * S)
    bench.heartbeat("d", "d-1", "d/1", duration=1000 * S, voucher=OTHER_B, bound=True)
    bench.pass_time(100)
    assert revocations(bench, "d") == []


def test_a_voucher_that_is_silent_for_its_lease_is_revoked_and_its_node_after_it():
    bench = a_bench()
    bench.heartbeat("b", "b-1", "b/1")
    bench.heartbeat("d", "d-1", "d/1", duration=60 * S, voucher=OTHER_B, bound=True)

    bench.pass_time(3.1)
    assert len(revocations(bench, "b")) == 1
    bench.pass_time(D_NS / S)

    assert len(revocations(bench, "d")) == 1


def test_nothing_is_revoked_while_the_agent_parts():
    bench = chained()
    bench.refused = (WriteHeartbeat,)
    bench.serve(bench.core.heartbeat.part(7 * S, bench.now))
    bench.pass_time(20)
    bench.serve(bench.core.tick(bench.now))
    assert revocations(bench, "d") == []


# ---- what a voucher tells of the VIPs ----


@pytest.mark.parametrize(
    ("bound", "lived_s", "early", "waited_s", "probes"),
    [
        (True, 1, True, 0.1, False),
        (True, 1, True, 5, True),
        (True, 1, False, 0.1, True),
        (True, 60, False, 0.1, True),
        (True, 60, True, 0.1, False),
        (False, 1, True, 0.1, True),
    ],
    ids=["early", "early, and long ago", "seen late", "after its lease", "early, and not seen to renew", "not bound"],
)
def test_nobody_is_looked_for_who_has_a_vip_that_a_node_has_answered_for_until_now(
    bound, lived_s, early, waited_s, probes
):
    bench = a_bench()
    bench.heartbeat(duration=60 * S, voucher=replace(C, term=TERM), bound=bound)
    bench.claim()
    bench.pass_time(lived_s)
    bench.heartbeat(epoch="b-2", instance="", early=early)
    bench.pass_time(waited_s)
    bench.did.clear()

    bench.want(VIP)

    assert (Probe(VIP) in bench.did) == probes
    assert bench.store[VIP].holder == "a"


# ---- silence ----


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.UNKNOWN])
@pytest.mark.parametrize("a_node", [a_bound, a_bench], ids=["bound", "not bound"])
def test_one_renewal_that_fails_does_not_forget_how_long_others_were_silent(a_node, outcome):
    bench = a_node()
    bench.pass_time(4)
    bench.heartbeat()
    bench.pass_time(2.5)
    (sent,) = [effect for effect in bench.core.heartbeat.hurry(bench.now) if isinstance(effect, WriteHeartbeat)]

    bench.serve(bench.core.heartbeat_written(sent, outcome, None, "", bench.now, bench.now))
    bench.pass_time(0.6)

    assert not bench.core.peers.alive("b", bench.now)


# ---- heartbeats that are missing (V18) ----


def waits_for_b(bench: Bench, **claim) -> None:
    bench.claim(**claim)
    bench.pass_time(0.01)
    bench.want(VIP)


def test_a_missing_heartbeat_is_created_at_once_for_the_longest_lease_and_voids_after_that():
    bench = a_bench()
    waits_for_b(bench)

    bench.pass_time(0)
    (created,) = revocations(bench)
    assert (created.version, created.duration_ns) == (None, 60 * S)

    bench.pass_time(59)
    assert not any(isinstance(effect, WriteClaim) for effect in bench.did)
    bench.pass_time(2)
    assert bench.store[VIP].holder == "a"


def test_a_claim_of_that_very_heartbeat_is_void_as_soon_as_its_epoch_is_another():
    bench = a_bench()
    bench.heartbeat(epoch="b-2", instance="")
    waits_for_b(bench, holder_uid=bench.store["b"].version.uid)
    bench.pass_time(0)
    assert bench.store[VIP].holder == "a"
    assert bench.store[VIP].holder_uid == bench.store["a"].version.uid


def test_the_longest_lease_that_was_seen_counts_also_for_who_has_no_voucher():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat("c", "c-1", "c/1", duration=90 * S, voucher=OTHER_B, bound=True)
    bench.heartbeat(epoch="b-2", instance="")
    waits_for_b(bench)

    bench.pass_time(89)
    assert bench.store[VIP].holder == "b"
    bench.pass_time(2)
    assert bench.store[VIP].holder == "a"


@pytest.mark.parametrize(("uid", "vouching"), [("uid", None), ("", PublishedVouching())], ids=["claim", "heartbeat"])
def test_who_has_no_voucher_sees_that_others_have_one(uid, vouching):
    """As when vouching is switched off node by node: a bound node may answer for all of D_v."""
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat("c", "c-1", "c/1", vouching=vouching)
    bench.claim(holder_uid=uid)
    bench.pass_time(0.01)
    bench.want(VIP)

    bench.pass_time(31)
    (created,) = revocations(bench)
    assert created.duration_ns == BOUND_NS
    bench.pass_time(70)
    assert bench.store[VIP].holder == "b"
    bench.pass_time(5)
    assert bench.store[VIP].holder == "a"


@pytest.mark.parametrize("times", [TIMES, VOUCHED], ids=["without vouching", "with"])
@pytest.mark.parametrize("lease_s", [7, 120])
def test_a_deleted_heartbeat_voids_nothing_before_its_node_is_silent(times, lease_s):
    """It may have published more than D_v: by a longer D, or a longer parting lease."""
    bench = Bench(times=times)
    bench.pass_time(0)
    bench.heartbeat(duration=lease_s * S)
    waits_for_b(bench, holder_uid=bench.store["b"].version.uid)
    seen_ns = bench.now

    del bench.store["b"]
    bench.serve(bench.core.heartbeat_seen("b", None, bench.now))
    while VIP not in bench.owned and bench.now < seen_ns + 300 * S:
        bench.pass_time(1)

    answers_ns = lease_s * S * 2 // 3
    assert seen_ns + answers_ns <= bench.now < seen_ns + 300 * S


def test_a_heartbeat_that_is_made_again_publishes_the_longest_lease_that_was_seen():
    """For those who have not seen it."""
    bench = a_bench()
    bench.heartbeat(duration=120 * S)
    bench.claim()
    del bench.store["b"]
    bench.serve(bench.core.heartbeat_seen("b", None, bench.now))

    bench.want(VIP)
    bench.pass_time(0)

    assert [created.duration_ns for created in revocations(bench)] == [120 * S]


def test_what_was_claimed_in_an_epoch_that_is_over_is_released():
    bench = a_bench()
    bench.claim(holder="a", epoch="a-0")

    assert [(write.holder, write.epoch) for write in bench.did if isinstance(write, WriteClaim)] == [("", "a-0")]
    assert bench.store[VIP].holder == ""


def test_what_is_claimed_in_this_epoch_is_released_without_one():
    bench = a_bench()
    bench.claim(holder="a", epoch=bench.store["a"].epoch)

    assert [(write.holder, write.epoch) for write in bench.did if isinstance(write, WriteClaim)] == [("", "")]


def test_what_was_claimed_in_an_epoch_that_is_over_is_taken_again_by_who_is_to_have_it():
    bench = a_bench()
    bench.serve(bench.core.want([VIP], bench.now))
    bench.did.clear()
    bench.claim(holder="a", epoch="a-0")

    assert [write.holder for write in bench.did if isinstance(write, WriteClaim)] == ["a"]


def test_claims_say_nothing_more_where_no_node_has_a_voucher():
    bench = Bench()
    bench.pass_time(0)
    bench.want(VIP)
    assert bench.store[VIP].holder_uid == ""
    assert not any(isinstance(effect, DeleteClaim) for effect in bench.did)
