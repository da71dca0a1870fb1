"""The parts of the claim protocol, each by itself, where the whole does not show every detail."""

from dataclasses import replace
from ipaddress import IPv6Address
from itertools import count

import pytest

from arpguard.addresses import MacAddress
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.peers import LONG_OVER_NS, TIDIED_AT_ONCE, Peers
from arpguard.core.ownership.records import (
    Claim,
    ClearEntry,
    DeleteClaim,
    DeleteHeartbeat,
    Heartbeat,
    Kept,
    ListOwnClaims,
    NamedVoucher,
    Outcome,
    Probe,
    PublishedLink,
    ReadClaim,
    ReadHeartbeat,
    SetEntry,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.core.ownership.stages import Claiming, Confirming, Deleting, Draining, Idle, Reading, Releasing
from arpguard.core.ownership.steps import CLAIMED_AGAIN, LastSeen
from arpguard.core.ownership.waiting import Waiting
from arpguard.wire.vouching import VouchTerm, term_number
from support.protocol.one_node import OTHER, STRANGER, TIMES, VIP, Bench, S, an_owner

NOW = 100 * S
FIRST, SECOND, THIRD = (Version("uid-b", number) for number in "123")
BEAT = Heartbeat("b", "b-1", "b/1", 3 * S, FIRST)
CLAIM = Claim(VIP, "b", "b-1", Version("uid-vip", "5"))


def some_peers():
    numbers = count(1)
    return Peers(TIMES, lambda: f"new-{next(numbers)}")


# ---- peers ----


def test_a_missing_heartbeat_that_was_never_seen_is_created_30_s_after_it_was_found_missing():
    """It may have been there until the read: only from then on is it missing."""
    peers = some_peers()
    assert peers.resolve("b", NOW, NOW) == [ReadHeartbeat("b")]
    found_ns = NOW + 5 * S

    peers.read("b", None, found_ns - S, found_ns)
    assert peers.revoke("b", found_ns + 30 * S - 1) == []
    peers.read("b", None, found_ns + S, found_ns + 2 * S)
    assert [effect.node for effect in peers.revoke("b", found_ns + 30 * S)] == ["b"]


def test_a_node_that_was_never_heard_has_not_answered_lately():
    assert not some_peers().answered_lately("n9", 0)


def test_a_heartbeat_is_another_when_its_epoch_is():
    peers = some_peers()
    unreadable = replace(BEAT, epoch="")

    assert not peers.seen("c", None, NOW)
    assert not peers.seen("d", unreadable, NOW)
    assert peers.seen("b", BEAT, NOW)
    assert not peers.seen("b", replace(BEAT, version=SECOND), NOW)
    assert not peers.seen("b", replace(BEAT, epoch="b-0"), NOW)  # it is older
    assert peers.seen("b", replace(BEAT, epoch="b-2", version=THIRD), NOW)
    assert peers.seen("b", None, NOW)


@pytest.mark.parametrize("node", ["never heard of", "missing"])
def test_nothing_is_known_to_be_late_that_was_never_seen(node):
    peers = some_peers()
    peers.seen("missing", None, NOW)

    assert peers.revoke(node, NOW) == []
    assert not peers.is_fading(node, NOW)
    assert peers.next_ns(node, NOW + 100 * S) is None
    assert peers.revoke(node, NOW + 30 * S) == [WriteHeartbeat(node, "new-1", "", None, 3 * S)]


def test_who_is_heard_of_is_for_a_little_less_than_a_lease():
    """A takeover is prepared before it may be done."""
    peers, silent_ns = some_peers(), NOW + 3 * S - S // 2
    peers.seen("b", BEAT, NOW)
    peers.seen("missing", None, NOW)
    peers.seen("revoked", replace(BEAT, node="revoked", instance=""), NOW)

    assert peers.heard(silent_ns - 1) == {"b"}
    assert peers.next_silence_ns(NOW) == silent_ns
    assert peers.heard(silent_ns) == frozenset()
    assert peers.next_silence_ns(silent_ns) is None
    assert peers.alive("b", silent_ns)


def test_a_node_that_left_the_cluster_is_revoked_and_its_heartbeat_is_deleted_ten_minutes_after_its_lease():
    peers, over_ns = some_peers(), NOW + 3 * S + LONG_OVER_NS
    revoked, alive = replace(BEAT, node="revoked", instance=""), replace(BEAT, node="alive")
    peers.seen("b", BEAT, NOW)
    peers.seen("missing", None, NOW)
    peers.seen("revoked", revoked, NOW)
    peers.seen("alive", alive, over_ns - S)

    renewed(peers, over_ns - S)

    assert peers.tidy((), (), over_ns - 1) == []
    assert peers.tidy(("b", "revoked"), (), over_ns) == []
    (revocation,) = peers.tidy((), ("b", "revoked"), over_ns)
    assert (revocation.node, revocation.version, revocation.instance) == ("b", FIRST, "")
    assert peers.tidy((), (), over_ns) == [DeleteHeartbeat("revoked", FIRST)]


def test_a_bound_node_has_not_left_however_long_no_renewal_is_shown():
    peers = some_peers()
    peers.times = replace(TIMES, bound_ns=60 * S)
    for number in range(TIDIED_AT_ONCE):
        peers.seen(f"n{number}", replace(BEAT, node=f"n{number}", bound=True), NOW)
    peers.seen("b", BEAT, NOW)
    renewed(peers, NOW + LONG_OVER_NS)

    assert [effect.node for effect in peers.tidy((), (), NOW + 2 * LONG_OVER_NS)] == ["b"]


def test_links_are_those_of_the_heartbeat_that_was_shown_last():
    peers, links = some_peers(), (PublishedLink("eth0", STRANGER),)
    peers.seen("missing", None, NOW)
    peers.seen("b", BEAT, NOW)
    assert peers.links("b") == ()
    peers.seen("b", replace(BEAT, links=links, version=SECOND), NOW)

    assert peers.links("b") == links
    assert peers.links("missing") == peers.links("never heard of") == ()
    assert [heartbeat.node for heartbeat in peers.heartbeats] == ["b"]
    assert peers.has(STRANGER)


def test_only_a_node_that_was_seen_to_renew_lately_guards_its_links():
    peers, beat = some_peers(), replace(BEAT, links=(PublishedLink("eth0", STRANGER),))
    peers.seen("b", beat, NOW)
    assert not peers.guards(STRANGER, NOW)  # it was found, and may be months old

    peers.seen("b", replace(beat, version=SECOND), NOW + S)
    assert peers.guards(STRANGER, NOW + S)
    assert not peers.guards(MacAddress.parse("02:00:00:00:00:77"), NOW + S)
    assert not peers.guards(STRANGER, NOW + 4 * S)
    peers.seen("b", None, NOW + S)
    peers.seen("b", replace(beat, version=THIRD), NOW + S)
    assert not peers.guards(STRANGER, NOW + S)  # it was made anew


def test_who_was_never_asked_about_is_not_waited_for():
    assert some_peers().next_ns("b", NOW) is None


def test_a_heartbeat_that_was_read_is_not_revoked_by_asking_about_it():
    peers = some_peers()
    peers.seen("b", BEAT, NOW, as_of_ns=NOW + 1)

    assert peers.resolve("b", NOW, NOW + 100 * S) == []


def test_a_heartbeat_that_was_read_at_the_same_moment_is_read_again():
    """Where the clock is coarse, the claim may be from after that: of an epoch that the read did not show."""
    peers = some_peers()
    peers.seen("b", BEAT, NOW, as_of_ns=NOW)

    assert peers.is_void("b", "b-2", NOW, NOW + 100 * S) is None
    assert peers.resolve("b", NOW, NOW + 100 * S) == [ReadHeartbeat("b")]


def a_revocation(peers):
    peers.seen("b", BEAT, NOW)
    renewed(peers, NOW + 3 * S - 1)
    (sent,) = peers.revoke("b", NOW + 3 * S)
    return sent


def renewed(peers, at_ns):
    return peers.silences.renewed(3 * S, at_ns, at_ns)


def test_nobody_is_revoked_before_this_node_has_renewed_while_that_one_should_have():
    peers = some_peers()
    peers.seen("b", BEAT, NOW)
    renewed(peers, NOW + S)
    assert not peers.silences.wants_renewal

    assert peers.revoke("b", NOW + 3 * S) == []
    assert peers.silences.wants_renewal

    assert renewed(peers, NOW + 3 * S) == ["b"]
    assert not peers.silences.wants_renewal
    assert len(peers.revoke("b", NOW + 3 * S)) == 1


def test_an_answer_to_an_old_renewal_says_nothing_of_now():
    peers = some_peers()
    peers.seen("b", BEAT, NOW)
    peers.silences.renewed(3 * S, NOW + S, NOW + 3 * S - 1)
    assert peers.revoke("b", NOW + 3 * S) == []


def test_after_an_outage_a_node_with_a_long_lease_has_the_time_of_a_short_one():
    """It tries to renew again every second, whatever its lease is."""
    peers = some_peers()
    peers.seen("b", replace(BEAT, duration_ns=60 * S), NOW)
    peers.silences.failed()
    renewed(peers, NOW + 60 * S)

    assert peers.alive("b", NOW + 63 * S - 1)
    assert not peers.alive("b", NOW + 63 * S)


@pytest.mark.parametrize("heard_s", [2, 3])
def test_an_outage_is_when_this_node_cannot_renew_and_sees_nobody_else_do_so(heard_s):
    """What comes before it renews again may be from before, and a node that renews seldom sees nothing for long."""
    peers = some_peers()
    peers.seen("b", BEAT, NOW)
    renewed(peers, NOW + 20 * S)
    assert not peers.alive("b", NOW + 20 * S)

    peers.seen("c", replace(BEAT, node="c", version=SECOND), NOW + 21 * S)
    peers.silences.failed()
    peers.seen("c", replace(BEAT, node="c", version=THIRD), NOW + 22 * S)
    peers.silences.failed()
    renewed(peers, NOW + (21 + heard_s) * S)

    assert peers.alive("b", NOW + (21 + heard_s) * S) == (heard_s == 3)


def test_the_silent_are_revoked_once_by_the_version_that_was_seen():
    peers = some_peers()

    assert a_revocation(peers) == WriteHeartbeat("b", "new-1", "", FIRST, 3 * S)
    assert peers.revoke("b", NOW + 4 * S) == []
    assert peers.next_ns("b", NOW) is None


def test_who_was_revoked_is_dead_and_its_claims_are_void():
    peers = some_peers()
    sent = a_revocation(peers)

    assert peers.written(sent, Outcome.APPLIED, SECOND, NOW + 3 * S, NOW + 4 * S) == []

    assert not peers.alive("b", NOW + 4 * S)
    assert peers.is_void("b", "b-1", NOW + 3 * S - 1, NOW + 4 * S) is True
    assert peers.is_void("b", "new-1", NOW + 3 * S - 1, NOW + 4 * S) is False
    assert peers.revoke("b", NOW + 6 * S) == []
    renewed(peers, NOW + 7 * S - 1)
    assert peers.revoke("b", NOW + 7 * S) == [WriteHeartbeat("b", "new-2", "", SECOND, 3 * S)]


@pytest.mark.parametrize(
    ("outcome", "version"),
    [(Outcome.CONFLICT, None), (Outcome.UNKNOWN, SECOND), (Outcome.APPLIED, None)],
    ids=["conflict", "unknown", "no version"],
)
def test_after_a_revocation_that_failed_the_heartbeat_is_read_and_left_alone_for_a_while(outcome, version):
    peers = some_peers()
    sent = a_revocation(peers)

    assert peers.written(sent, outcome, version, NOW + 3 * S, NOW + 3 * S) == [ReadHeartbeat("b")]
    peers.read("b", BEAT, NOW + 3 * S, NOW + 3 * S)

    assert peers.revoke("b", NOW + 4 * S - 1) == []
    assert peers.revoke("b", NOW + 4 * S) == [WriteHeartbeat("b", "new-2", "", FIRST, 3 * S)]


# ---- vouchers ----


def test_voucher_that_is_named_makes_a_term_for_one_node_in_one_epoch():
    named = NamedVoucher("b", "b/1", "b-1", "2f1e0d3c-8b7a-4a6f-9c5d-0e1f2a3b4c5d", 10, 4)

    assert named.to("a", "a-1") == VouchTerm("a", "a-1", "b", "b/1", "b-1", named.term, 10, 4)
    assert named.number == term_number(named.term)


# ---- waiting ----


def test_who_left_waits_for_nothing():
    waiting = Waiting(some_peers())
    waiting.for_node(VIP, "b", NOW)
    waiting.until(VIP, NOW)

    waiting.leave(VIP)

    assert waiting.on("b") == []
    assert (waiting.due(NOW), waiting.next_ns()) == ([], None)


def test_what_is_kept_of_moments_that_changed_is_bounded():
    """White box: twice as many as wait, and 64."""
    waiting = Waiting(some_peers())
    lengths = []
    for moment in range(1000):
        waiting.until(OTHER if moment % 2 else VIP, moment)
        lengths.append(len(waiting._heap))

    assert max(lengths) == 2 * 2 + 64 + 1
    assert set(waiting.due(1000)) == {VIP, OTHER}


# ---- lengths of time ----


def test_the_margin_is_the_same_part_of_another_lease_rounded_up():
    assert Times(3, 1, 1, 30).lasting(10) == Times(10, 1, 4, 30)


# ---- what is known of claims ----


def test_vips_with_a_claim_are_claimed_whosever_it_is():
    one = Ownership("a", "a/1", TIMES, lambda: "a-1")
    one.want([VIP], NOW)
    assert one.claims.claimed == frozenset()

    one.claim_seen(VIP, CLAIM, NOW)
    assert one.claims.claimed == {VIP}
    one.claim_seen(VIP, None, NOW)
    assert one.claims.claimed == frozenset()


def test_the_others_are_known_to_who_asks():
    one = Ownership("a", "a/1", TIMES, lambda: "a-1")
    one.heartbeat_seen("b", BEAT, NOW)

    assert list(one.peers.heartbeats) == [BEAT]


def test_a_holder_is_told_in_full():
    core = Ownership("a", "a/1", TIMES, lambda: "a-1")
    core.heartbeat_seen("b", BEAT, NOW)
    core.claim_seen(VIP, replace(CLAIM, deleting=True, transitions=3), NOW + 1)

    found = core.holder(VIP, NOW + 1)
    assert (found.deleting, found.transitions, found.seen_ns) == (True, 3, NOW + 1)
    assert (found.alive, found.void) == (True, False)


def test_a_claim_of_an_epoch_that_was_is_void_when_the_heartbeat_was_read_since():
    core = Ownership("a", "a/1", TIMES, lambda: "a-1")
    core.claim_seen(VIP, CLAIM, NOW)
    core.heartbeat_seen("b", replace(BEAT, epoch="b-2"), NOW)
    assert core.holder(VIP, NOW).void is None

    core.heartbeat_read("b", replace(BEAT, epoch="b-2"), NOW + 1, NOW + 1)

    assert core.holder(VIP, NOW + 3 * S - 1).void is None  # the object may be one that somebody made just now
    assert core.holder(VIP, NOW + 3 * S).void is True


def test_nothing_is_known_of_a_vip_that_was_never_seen():
    bench = Bench()

    assert bench.core.claims.last_seen(VIP) == LastSeen(known=False)


def test_the_own_claim_is_known_from_the_answer():
    bench = an_owner()
    bench.pass_time(0.5)
    bench.want()
    bench.want(VIP)

    assert bench.core.claims.last_seen(VIP) == LastSeen(known=True, claim=bench.store[VIP], seen_ns=bench.now)
    assert bench.store[VIP].transitions == 1


def test_an_older_version_that_comes_late_is_no_news():
    bench = Bench()
    bench.claim(transitions=1)
    old = bench.store[VIP]
    bench.claim(transitions=2)

    bench.serve(bench.core.claim_seen(VIP, old, bench.now))

    assert bench.core.holder(VIP, bench.now).transitions == 2


def test_a_claim_of_which_nothing_was_known_is_known_when_it_was_read():
    bench = Bench()

    bench.serve(bench.core.claim_read(VIP, CLAIM, bench.now, bench.now))

    assert bench.core.holder(VIP, bench.now).node == "b"


def test_an_own_claim_counts_as_something_held_although_it_is_not_wanted():
    core = Ownership("a", "a/1", TIMES, lambda: "a-2", Kept("a-1", (), 0))
    core.take_part(False, NOW)
    assert not core.claims.active

    core.claim_seen(VIP, replace(CLAIM, holder="a", epoch="a-1"), NOW)

    assert core.claims.active


# ---- what an owner is told ----


@pytest.mark.parametrize(("told", "times"), [("claim_seen", 1), ("claim_read", 2)])
def test_an_own_claim_that_somebody_edited_is_still_held(told, times):
    bench = an_owner()
    edited = replace(bench.store[VIP], transitions=9, version=bench.version(bench.store[VIP].version))

    assert getattr(bench.core, told)(VIP, edited, *[bench.now] * times) == []

    assert bench.owned == {VIP}
    assert bench.core.holder(VIP, bench.now).transitions == 9


def test_a_claim_that_is_another_nodes_is_lost():
    bench = an_owner()

    bench.claim("b", "b-1")

    assert bench.took() == [ClearEntry(VIP)]


def test_what_was_not_answered_for_yet_is_lost_without_a_word_to_the_kernel():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)
    bench.took()

    bench.claim("b", "b-1")

    assert bench.took() == []
    assert bench.core.claims.stage(VIP) is Idle


def test_what_is_confirmed_is_confirmed_whatever_else_is_told():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)

    bench.serve(bench.core.take_part(False, bench.now))
    bench.serve(bench.core.set_times(TIMES, bench.now))
    bench.let()

    assert bench.owned == {VIP}


# ---- what is asked for ----


def test_vips_of_both_families_are_wanted_and_not_in_one_order():
    both = (IPv6Address("2001:db8::1"), VIP)
    bench = Bench()
    bench.pass_time(0)
    bench.held = (ReadClaim,)

    bench.want(*both)
    assert [effect for effect, _ in bench.waiting] == [ReadClaim(VIP), ReadClaim(both[0])]
    bench.let()
    assert bench.owned == set(both)
    bench.want()
    assert [effect.vip for effect in bench.took() if isinstance(effect, ClearEntry)] == [VIP, both[0]]


def test_nothing_is_claimed_while_a_probe_is_under_way():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (Probe,)
    bench.want(VIP)

    for _ in range(3):
        bench.serve(bench.core.claim_seen(VIP, None, bench.now))

    assert bench.took() == [Probe(VIP)]


def test_a_write_that_is_under_way_is_a_stage():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteClaim, DeleteClaim)
    bench.want(VIP)
    assert bench.core.claims.stage(VIP) is Claiming
    bench.let()

    bench.want()
    assert bench.core.claims.stage(VIP) is Releasing
    bench.let()

    bench.serve(bench.core.forget(VIP, bench.now))
    assert bench.core.claims.stage(VIP) is Deleting


def of_a_vip_that_is_no_more(bench):
    bench.serve(bench.core.forget(VIP, bench.now))


def of_a_claim_that_somebody_deletes(bench):
    bench.claim("a", bench.store["a"].epoch, deleting=True)


def of_a_vip_that_is_not_wanted(bench):
    bench.want()


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (of_a_vip_that_is_no_more, "the VIP no longer exists"),
        (of_a_claim_that_somebody_deletes, "marked as deleted"),
        (of_a_vip_that_is_not_wanted, "not wanted"),
        (lambda bench: bench.claim("b", "b-1"), "no longer this node's"),
    ],
)
def test_a_vip_is_given_up_with_the_reason_why(end, why):
    bench = an_owner()

    end(bench)

    assert [effect.why for effect in bench.took() if isinstance(effect, ClearEntry)] == [why]


@pytest.mark.parametrize(
    "end", [of_a_vip_that_is_no_more, of_a_claim_that_somebody_deletes, of_a_vip_that_is_not_wanted]
)
def test_whatever_is_told_while_the_last_frames_are_on_their_way_the_claim_is_kept(end):
    bench = an_owner()
    bench.held = (ClearEntry,)
    end(bench)
    assert bench.core.claims.stage(VIP) is Draining

    bench.claim("a", bench.store["a"].epoch, transitions=9)
    assert bench.took() == [ClearEntry(VIP, drain=True)]
    bench.let()

    assert isinstance(bench.took()[0], WriteClaim | DeleteClaim)


def after_a_release_that_failed(bench):
    bench.refused = (WriteClaim,)
    bench.want()


def after_a_delete_that_failed(bench):
    bench.want()
    bench.refused = (DeleteClaim,)
    bench.serve(bench.core.forget(VIP, bench.now))


def after_a_list_without_it(bench):
    bench.serve(bench.core.own_claims_listed([], bench.now + 1, bench.now + 1))


def after_a_list_without_it_before_it_was_confirmed(bench):
    bench.want()
    bench.held = (WriteHeartbeat, ReadClaim)
    bench.want(VIP)
    bench.serve(bench.core.own_claims_listed([], bench.now + 1, bench.now + 1))


def after_a_read_without_an_answer(bench):
    after_a_release_that_failed(bench)
    bench.serve(bench.core.claim_read_failed(VIP, bench.now))
    bench.pass_time(2)
    assert sum(effect == ReadClaim(VIP) for effect, _ in bench.waiting) == 2


@pytest.mark.parametrize(
    "read",
    [
        after_a_release_that_failed,
        after_a_delete_that_failed,
        after_a_list_without_it,
        after_a_list_without_it_before_it_was_confirmed,
        after_a_read_without_an_answer,
    ],
)
def test_whatever_a_watch_shows_while_a_claim_is_read_nothing_is_written(read):
    bench = an_owner()
    bench.held = (ReadClaim,)
    read(bench)
    assert bench.core.claims.stage(VIP) is Reading
    bench.took()

    bench.claim("", "")

    assert bench.took() == []


def test_a_claim_that_waits_for_a_renewal_when_the_epoch_ends_is_claimed_anew():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)
    assert bench.core.claims.stage(VIP) is Confirming
    bench.took()

    bench.store["a"] = replace(bench.store["a"], epoch="c-1", instance="", version=bench.version())
    bench.let()
    bench.held = ()
    bench.pass_time(0)

    assert [effect.epoch for effect in bench.took() if isinstance(effect, WriteClaim)] == ["epoch-2"]


def test_a_release_says_nothing_but_how_often_the_holder_changed():
    bench = an_owner()
    bench.store[VIP] = replace(bench.store[VIP], transitions=4, version=bench.version(bench.store[VIP].version))
    bench.serve(bench.core.claim_seen(VIP, bench.store[VIP], bench.now))
    version = bench.store[VIP].version

    bench.want()

    assert bench.took()[1] == WriteClaim(VIP, "", "", version, transitions=4)


def test_a_claim_that_is_being_deleted_is_let_go_as_it_is():
    bench = Bench()
    bench.pass_time(0)
    bench.want(VIP)
    bench.want()
    bench.claim("", "", external=str(STRANGER), deleting=True, transitions=4)
    version = bench.store[VIP].version
    bench.took()

    bench.held = (WriteClaim,)
    bench.want(VIP)

    assert bench.took() == [WriteClaim(VIP, "", "", version, let_go=True, external=str(STRANGER), transitions=4)]


def test_to_name_a_host_outside_is_no_change_of_the_holder():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat(epoch="b-0")
    bench.heartbeat()
    bench.claim(epoch="b-0", transitions=7)
    bench.outside[VIP] = STRANGER

    bench.want(VIP)

    assert (bench.store[VIP].external, bench.store[VIP].transitions) == (str(STRANGER), 7)


def test_a_claim_that_its_delete_removed_at_once_is_gone():
    bench = Bench()
    bench.pass_time(0)
    bench.claim("", "")
    bench.held = (DeleteClaim,)
    bench.serve(bench.core.forget(VIP, bench.now))
    ((sent, _),) = bench.waiting

    bench.serve(bench.core.claim_deleted(sent, Outcome.APPLIED, None, bench.now))

    assert not bench.core.holder(VIP, bench.now).exists
    assert bench.core.claims.stage(VIP) is Idle


@pytest.mark.parametrize(("outcome", "version"), [(Outcome.UNKNOWN, THIRD), (Outcome.APPLIED, None)])
def test_a_claim_without_a_clear_yes_is_read(outcome, version):
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteClaim, ReadClaim)
    bench.want(VIP)
    bench.let()
    ((sent, _),) = bench.waiting

    assert bench.core.claim_written(sent, outcome, version, bench.now) == [ReadClaim(VIP)]


def test_a_claim_that_is_refused_is_tried_again_at_once_and_then_ever_later():
    bench = Bench()
    bench.pass_time(0)
    begun = bench.now
    bench.refused = (WriteClaim,)
    moments = []

    bench.want(VIP)
    for _ in range(1000):
        moments += [(bench.now - begun) // S] * sum(isinstance(effect, WriteClaim) for effect in bench.took())
        bench.pass_time(0.1)

    assert moments == [0, 0, 1, 3, 7, 15, 31, 61, 91]


def test_what_went_well_counts_as_no_failure():
    bench = an_owner()
    bench.refused = (WriteClaim,)

    bench.want()

    assert sum(isinstance(effect, WriteClaim) for effect in bench.took()) == 2


# ---- this node's heartbeat ----


def test_to_hurry_does_not_hasten_a_read_that_failed():
    bench = an_owner()
    bench.held = (ReadHeartbeat,)
    bench.serve(bench.core.heartbeat_seen("a", None, bench.now))
    bench.pass_time(0)
    bench.waiting.clear()
    bench.serve(bench.core.heartbeat_read_failed("a", bench.now))

    assert bench.core.heartbeat.hurry(bench.now) == []
    assert bench.core.next_ns(bench.now) == bench.now + S
    assert bench.core.heartbeat.hurry(bench.now + S) == []


def test_who_finds_another_agent_in_its_name_while_it_parts_has_parted():
    bench = an_owner()
    bench.held = (ReadHeartbeat,)
    bench.serve(bench.core.heartbeat_seen("a", None, bench.now))
    bench.pass_time(0)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    assert not bench.core.heartbeat.parted
    bench.store["a"] = replace(bench.store["a"], epoch="c-1", instance="a/2", version=bench.version())

    bench.let()

    assert bench.core.heartbeat.parted is True
    assert bench.kernel.fence_ns == 0


def test_one_list_at_a_time():
    bench = Bench()
    bench.held = (ListOwnClaims,)

    bench.pass_time(100)

    assert [effect for effect, _ in bench.waiting] == [ListOwnClaims()]


def test_a_list_is_due_in_time_however_rare_renewals_are():
    bench = an_owner()
    bench.serve(bench.core.set_times(Times(30 * S, 10 * S, 10 * S, 5 * S), bench.now))

    bench.pass_time(1)

    assert bench.core.next_ns(bench.now) == bench.now + 4 * S


def test_entries_of_no_epoch_are_not_kept():
    core = Ownership("a", "a/1", TIMES, lambda: "a-1", Kept("", (VIP,), 0))

    assert core.claims.all == []


def test_all_that_is_not_on_the_list_is_cleared_and_read():
    bench = an_owner()
    bench.want(VIP, OTHER)
    bench.took()
    bench.held = (ReadClaim,)

    bench.serve(bench.core.own_claims_listed([], bench.now + 1, bench.now + 1))

    assert bench.took() == [ClearEntry(VIP), ClearEntry(OTHER)]
    assert [effect for effect, _ in bench.waiting] == [ReadClaim(VIP), ReadClaim(OTHER)]


def test_all_that_the_list_has_in_an_epoch_before_is_cleared():
    bench = an_owner()
    bench.want(VIP, OTHER)
    bench.took()
    bench.held = (WriteClaim,)
    old = [
        replace(bench.store[vip], epoch="a-0", version=bench.version(bench.store[vip].version)) for vip in (VIP, OTHER)
    ]

    bench.serve(bench.core.own_claims_listed(old, bench.now, bench.now))

    assert [effect for effect in bench.took() if isinstance(effect, ClearEntry)] == [ClearEntry(VIP), ClearEntry(OTHER)]
    assert bench.core.holder(VIP, bench.now).seen_ns == bench.now


def test_a_revocation_that_was_applied_is_acted_on_without_a_read():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)
    bench.held = (ReadHeartbeat,)

    bench.pass_time(3)

    assert bench.owned == {VIP}
    assert bench.waiting == []


def test_a_renewal_that_failed_once_puts_off_no_revocation():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)
    bench.refused_names = ("a",)
    bench.pass_time(1)
    bench.refused_names = ()

    bench.pass_time(2.1)

    assert bench.owned == {VIP}


# ---- why ----


def the_words(bench):
    return [effect.why for effect in bench.took() if isinstance(effect, SetEntry | ClearEntry)]


def test_words_of_the_election_come_with_the_entry():
    bench = Bench()
    bench.pass_time(0)

    bench.serve(bench.core.want([VIP], bench.now, {VIP: "no node has it"}))
    bench.pass_time(2)
    taken = the_words(bench)
    bench.serve(bench.core.want([], bench.now, {VIP: "its Node is not ready"}))

    assert (taken, the_words(bench)) == (["no node has it"], ["its Node is not ready"])


def test_words_do_not_outlive_what_they_are_about():
    """The VIP is claimed again after an epoch has ended, and is not wanted later, for no reason that anybody told."""
    bench = Bench()
    bench.pass_time(0)
    bench.serve(bench.core.want([VIP], bench.now, {VIP: "no node has it"}))
    bench.pass_time(2)
    the_words(bench)

    bench.serve(bench.core.claim_seen(VIP, None, bench.now))
    bench.pass_time(2)
    bench.want()

    assert the_words(bench) == ["no longer this node's", CLAIMED_AGAIN, "not wanted"]


def test_words_name_the_host_outside_that_had_it():
    bench = Bench()
    bench.outside[VIP] = STRANGER
    bench.pass_time(0)
    bench.serve(bench.core.want([VIP], bench.now, {VIP: "no node has it"}))
    bench.pass_time(2)
    del bench.outside[VIP]
    bench.pass_time(60)

    assert the_words(bench) == [f"{STRANGER}, a host outside, no longer has it"]


# ---- claims ----


@pytest.mark.parametrize("moved", [{"holder": "c"}, {"epoch": "b-2"}, {"transitions": 1}], ids=str)
def test_a_claim_to_a_vip_that_moved_has_another_tenure(moved):
    assert replace(CLAIM, **moved).tenure != CLAIM.tenure


def test_what_changes_while_the_same_node_has_the_vip_leaves_the_tenure_as_it_is():
    written = replace(CLAIM, version=Version("uid-vip", "6"), deleting=True, external="x", holder_uid="uid-b")

    assert written.tenure == CLAIM.tenure
