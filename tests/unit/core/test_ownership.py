"""The claim protocol on one node, event by event. The cluster as a whole is simulated in `properties/`."""

from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

import pytest

from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.peers import Peers
from arpguard.core.ownership.records import (
    ClearEntry,
    DeleteClaim,
    Holder,
    Kept,
    ListOwnClaims,
    Outcome,
    Probe,
    PublishedLink,
    ReadClaim,
    ReadHeartbeat,
    ReportTaken,
    SetEntry,
    SetFence,
    StartOver,
    Version,
    WriteClaim,
    WriteHeartbeat,
    epoch_number,
)
from arpguard.core.ownership.stages import Confirming, Owned
from arpguard.core.ownership.steps import Steps
from arpguard.core.ownership.waiting import Waiting
from support.protocol.one_node import OTHER, SECOND_STRANGER, STRANGER, TIMES, VIP, Bench, S, an_owner

# ---- when to be woken ----


def test_it_is_woken_at_once_first_and_then_for_every_renewal():
    bench = Bench()
    assert bench.core.next_ns(bench.now) == bench.now

    bench.pass_time(0)
    assert bench.core.next_ns(bench.now) == bench.now + S

    bench.did.clear()
    bench.pass_time(60)
    assert len(bench.renewals()) == 60


def test_it_sleeps_while_an_answer_is_awaited():
    bench = Bench()
    bench.held = (ReadHeartbeat, ListOwnClaims)

    bench.pass_time(0)

    assert len(bench.waiting) == 2
    assert bench.core.next_ns(bench.now) is None


def test_a_read_that_failed_is_due_again_after_a_while():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (ReadClaim,)
    bench.want(VIP)
    bench.pass_time(0.5)

    bench.serve(bench.core.claim_read_failed(VIP, bench.now))

    assert bench.core.next_ns(bench.now) == bench.now + S // 2  # the renewal
    bench.held = (ReadClaim, WriteHeartbeat)
    bench.pass_time(0.6)
    assert bench.core.next_ns(bench.now) == bench.now + S * 4 // 10
    bench.waiting.clear()
    bench.pass_time(0.4)
    assert (ReadClaim(VIP), bench.now) in bench.waiting


def test_it_is_woken_when_the_holder_it_waits_for_is_late():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)
    seen_ns = bench.now
    bench.took()

    bench.pass_time(2.9)
    assert bench.took() == [Probe(VIP)]

    bench.pass_time(0.1)
    assert bench.now == seen_ns + 3 * S
    assert bench.owned == {VIP}


def test_a_server_that_refuses_everything_is_asked_once_in_a_while():
    bench = an_owner()
    bench.refused = (WriteHeartbeat, WriteClaim)

    bench.pass_time(60)

    assert len(bench.renewals()) <= 62


def test_a_claim_that_is_refused_is_tried_less_and_less():
    bench = Bench()
    bench.pass_time(0)
    bench.refused = (WriteClaim,)

    bench.want(VIP)
    bench.pass_time(300)

    assert 13 <= len([effect for effect in bench.took() if isinstance(effect, WriteClaim)]) <= 20


# ---- confirmation ----


def test_a_claim_is_confirmed_by_a_renewal_at_once():
    bench = Bench()
    bench.pass_time(0.3)
    bench.did.clear()

    bench.want(VIP)

    kinds = [type(effect) for effect in bench.did]
    assert kinds == [Probe, WriteClaim, WriteHeartbeat, SetFence, SetEntry]
    assert bench.core.next_ns(bench.now) == bench.now + S


def test_one_renewal_at_a_time_confirms_all_claims_that_were_applied_before_it_was_sent():
    bench = Bench()
    bench.pass_time(0.3)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)
    bench.want(VIP, OTHER)
    assert len(bench.waiting) == 1

    bench.let()
    assert bench.owned == {VIP}
    assert len(bench.waiting) == 1

    bench.let()
    assert bench.owned == {VIP, OTHER}
    assert not bench.waiting


# ---- probing ----


def test_a_vip_that_a_host_outside_has_is_left_to_it_until_that_is_silent():
    bench = Bench()
    bench.pass_time(0)
    bench.outside[VIP] = STRANGER

    bench.want(VIP)
    taken = ReportTaken(VIP, STRANGER)
    assert bench.took() == [Probe(VIP), taken, WriteClaim(VIP, "", "", None, external=str(STRANGER))]
    assert bench.core.holder(VIP, bench.now) == Holder(external=str(STRANGER), known=True, exists=True)

    for wait_s in (1, 2, 4, 8, 16, 30, 30):
        bench.pass_time(wait_s - 0.1)
        assert bench.took() == []
        bench.pass_time(0.1)
        assert bench.took() == [Probe(VIP), taken]

    bench.outside[VIP] = SECOND_STRANGER
    bench.pass_time(30)
    version = bench.store[VIP].version
    _, taken, written = bench.took()
    assert (taken.mac, written.external) == (SECOND_STRANGER, str(SECOND_STRANGER))
    assert version == bench.store[VIP].version

    bench.outside.clear()
    bench.pass_time(1)
    assert [type(effect) for effect in bench.took()] == [Probe, WriteClaim, SetEntry]
    assert bench.store[VIP].external == ""


def test_a_host_outside_is_named_once_although_another_node_names_another():
    bench = Bench()
    bench.pass_time(0)
    bench.outside[VIP] = STRANGER
    bench.want(VIP)
    bench.took()

    for _ in range(3):
        bench.claim(holder="", epoch="", external=str(SECOND_STRANGER))
    assert bench.took() == []

    bench.pass_time(1)
    assert [getattr(effect, "external", None) for effect in bench.took()] == [None, None, str(STRANGER)]


def test_a_stranger_that_was_heard_once_is_asked_for_again_before_long():
    """A node whose new MAC is not known here yet probes for the same VIP: when it dies, nobody else has it."""
    bench = Bench()
    bench.pass_time(0)
    bench.outside[VIP] = STRANGER
    bench.want(VIP)
    bench.heartbeat("c", "c-1", "c/1")
    bench.claim("c", "c-1")
    bench.outside.clear()

    bench.pass_time(2.9)
    assert bench.owned == frozenset()
    bench.pass_time(0.6)

    assert bench.owned == {VIP}


def test_a_host_outside_is_named_although_another_was_named_meanwhile():
    bench = Bench()
    bench.pass_time(0)
    bench.outside[VIP] = STRANGER
    bench.held = (WriteClaim,)
    bench.want(VIP)
    bench.claim(holder="", epoch="", external=str(SECOND_STRANGER))
    bench.held = ()

    bench.let()

    assert bench.store[VIP].external == str(STRANGER)


def test_a_probe_that_is_not_reported_on_is_sent_again():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (Probe,)

    bench.want(VIP)
    bench.pass_time(4.9)
    assert bench.took() == [Probe(VIP)]
    bench.pass_time(0.2)
    assert bench.took() == [Probe(VIP)]

    bench.let()
    assert bench.owned == {VIP}


def test_what_was_handed_over_needs_no_probe():
    bench = Bench()
    bench.pass_time(0)
    bench.claim(holder="", epoch="")

    bench.want(VIP)

    assert [type(effect) for effect in bench.took()] == [WriteClaim, SetEntry]


def test_what_was_released_in_an_epoch_that_is_over_is_probed_for():
    """Whoever released it has not answered for long, perhaps: a host outside may have it since."""
    bench = Bench()
    bench.pass_time(0)
    bench.claim(holder="", epoch="b-1")
    bench.outside[VIP] = STRANGER

    bench.want(VIP)

    assert [type(effect) for effect in bench.took()] == [Probe, ReportTaken, WriteClaim]
    assert (bench.store[VIP].external, bench.owned) == (str(STRANGER), frozenset())


def test_the_vip_of_a_silent_node_is_probed_for_before_its_lease_ends():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)

    bench.pass_time(2.49)
    assert bench.took() == []
    bench.pass_time(0.01)
    assert bench.took() == [Probe(VIP)]

    bench.pass_time(0.5)
    assert [type(effect) for effect in bench.took()] == [WriteClaim, SetEntry]
    assert bench.store["b"].instance == ""


@pytest.mark.parametrize("is_alive", [False, True], ids=["dead", "only late"])
def test_the_host_that_a_probe_finds_is_reported_only_if_the_silent_node_is_dead(is_alive):
    """Before that it may be the owner, which this node merely does not hear, with a MAC that is not known here yet."""
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)
    bench.outside[VIP] = STRANGER

    bench.pass_time(2.5)
    assert bench.took() == [Probe(VIP)]
    if is_alive:
        bench.heartbeat()
    bench.pass_time(0.5)
    assert (ReportTaken(VIP, STRANGER) in bench.took()) is not is_alive


def test_a_node_of_the_cluster_that_answers_a_probe_is_no_host_outside():
    bench = Bench()
    bench.pass_time(0)
    link = PublishedLink("eth0", STRANGER, (IPv4Network("192.0.2.0/24"),))
    bench.heartbeat(links=(link,))
    bench.outside[VIP] = STRANGER

    bench.want(VIP)
    for _ in range(3):
        bench.pass_time(0.9)
        assert bench.took() == [Probe(VIP), ReportTaken(VIP, STRANGER)]
        bench.pass_time(0.1)

    bench.outside.clear()
    bench.pass_time(1)
    assert bench.owned == {VIP}


# ---- lengths of time ----


def test_the_fence_goes_with_what_was_published():
    bench = an_owner()
    bench.serve(bench.core.set_times(Times(6 * S, 2 * S, 2 * S, 30 * S), bench.now))
    assert bench.did == []

    bench.pass_time(1)
    assert bench.renewals()[0].duration_ns == 6 * S
    assert bench.kernel == SetFence(bench.store["a"].epoch, bench.now + 4 * S, 6 * S)


def test_before_a_shorter_lease_is_published_the_fence_is_cut():
    bench = an_owner()
    bench.serve(bench.core.set_times(Times(9 * S, S, 3 * S, 30 * S), bench.now))
    bench.pass_time(1)
    bench.did.clear()
    bench.serve(bench.core.set_times(TIMES, bench.now))
    bench.held = (WriteHeartbeat,)

    bench.pass_time(1)

    assert [type(effect) for effect in bench.did] == [SetFence, WriteHeartbeat]
    assert bench.kernel.fence_ns == bench.now + 2 * S
    assert bench.kernel.lease_ns == bench.renewals()[0].duration_ns == 3 * S


def test_a_shorter_interval_counts_from_now():
    bench = an_owner()
    bench.serve(bench.core.set_times(Times(30 * S, 10 * S, 10 * S, 30 * S), bench.now))
    bench.pass_time(2)
    bench.serve(bench.core.set_times(TIMES, bench.now))

    assert bench.core.next_ns(bench.now) == bench.now + S


# ---- parting ----


def test_the_last_renewal_is_for_longer_and_nothing_comes_after_it():
    bench = an_owner()
    bench.pass_time(0.3)

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))

    assert bench.core.heartbeat.parted
    assert bench.renewals()[0].duration_ns == 30 * S
    assert bench.kernel.fence_ns == bench.now + 20 * S
    assert bench.kernel.lease_ns == 30 * S
    bench.did.clear()
    bench.pass_time(100)
    assert bench.did == []
    assert bench.core.next_ns(bench.now) is None


def test_a_renewal_under_way_is_waited_for_before_the_last_one():
    bench = an_owner()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(1)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    assert len(bench.waiting) == 1

    bench.let()
    assert not bench.core.heartbeat.parted
    assert [effect.duration_ns for effect, _ in bench.waiting] == [30 * S]

    bench.let()
    assert bench.core.heartbeat.parted


def test_a_last_renewal_that_fails_is_the_last_all_the_same():
    bench = an_owner()
    bench.refused = (WriteHeartbeat,)

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))

    assert bench.core.heartbeat.parted
    assert bench.kernel.fence_ns == bench.now + 2 * S


def test_nothing_is_begun_by_who_parts():
    bench = an_owner()
    bench.held = (WriteHeartbeat,)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    bench.took()

    bench.want(OTHER)
    bench.let()
    bench.pass_time(10)

    assert bench.took() == []
    assert bench.owned == {VIP}


def test_what_was_asked_for_before_is_not_asked_for_again_by_who_parts():
    bench = an_owner()
    bench.held = (WriteClaim,)
    bench.want(VIP, OTHER)
    (claim, _) = bench.waiting.pop()
    bench.write(OTHER, claim)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    bench.took()

    bench.serve(bench.core.claim_written(claim, Outcome.UNKNOWN, None, bench.now))

    assert bench.store[OTHER].holder == "a"
    assert bench.took() == []


def test_who_was_revoked_parts_without_a_renewal():
    bench = an_owner()
    bench.store["a"] = replace(bench.store["a"], epoch="tomb", instance="", version=bench.version())
    bench.serve(bench.core.heartbeat_seen("a", bench.store["a"], bench.now))

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))

    assert bench.core.heartbeat.parted
    assert bench.renewals() == []
    assert bench.kernel.fence_ns == 0


def test_who_rests_parts_at_once():
    bench = Bench(takes_part=False)

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))

    assert bench.core.heartbeat.parted
    assert bench.did == []


def test_who_has_parted_waits_for_nobody():
    bench = an_owner()
    bench.heartbeat()
    bench.claim(vip=OTHER)
    bench.want(VIP, OTHER)

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))

    assert bench.core.next_ns(bench.now) is None


# ---- restarting ----


def a_restart(owner, *, wanted=(VIP,), passed=0.0):
    """An agent that finds what the one before it left."""
    kept = Kept(owner.kernel.epoch, tuple(owner.owned), owner.kernel.fence_ns)
    bench = Bench(kept)
    bench.now = owner.now + int(passed * S)
    bench.store, bench.revisions, bench.epochs, bench.kernel = owner.store, owner.revisions, owner.epochs, owner.kernel
    bench.want(*wanted)
    return bench


def test_a_restart_in_time_keeps_exactly_what_the_kernel_has():
    owner = an_owner()
    owner.serve(owner.core.heartbeat.part(30 * S, owner.now))
    owner.claim("a", owner.kernel.epoch, OTHER)

    bench = a_restart(owner, wanted=(VIP, OTHER), passed=10)
    bench.claim("a", owner.kernel.epoch, OTHER)
    bench.pass_time(0)

    assert bench.owned == {VIP, OTHER}
    assert [type(effect) for effect in bench.took()] == [WriteClaim, SetEntry]
    assert bench.kernel == SetFence(owner.kernel.epoch, bench.now + 2 * S, 3 * S)


def test_after_a_restart_the_parting_fence_is_cut_before_the_ordinary_lease_is_published():
    owner = an_owner()
    owner.serve(owner.core.heartbeat.part(30 * S, owner.now))

    bench = a_restart(owner, passed=5)
    bench.held = (ListOwnClaims,)
    bench.pass_time(0)

    assert [type(effect) for effect in bench.did] == [SetFence, WriteHeartbeat]
    assert bench.kernel == SetFence(owner.kernel.epoch, bench.now + 2 * S, 3 * S)


def test_a_kept_vip_that_is_not_wanted_any_more_is_handed_over():
    bench = a_restart(an_owner(), wanted=())

    bench.pass_time(0)

    assert [type(effect) for effect in bench.took()] == [ClearEntry, WriteClaim]
    assert bench.store[VIP].holder == ""


def test_a_restart_that_comes_too_late_keeps_nothing():
    owner = an_owner()
    owner.heartbeat("a", "revoked", "")

    bench = a_restart(owner, passed=10)
    bench.pass_time(0)

    assert bench.did[:2] == [SetFence("epoch-2", 0, 3 * S), ClearEntry(VIP)]
    assert isinstance(bench.did[2], WriteHeartbeat)


# ---- a server that was restored from a backup ----


def goes_back(bench, name):
    """Only this object, to the version before."""
    old = bench.store[name]
    number = int(old.version.resource_version) - 1
    bench.store[name] = replace(old, version=replace(old.version, resource_version=str(number)))


def ends_at_once(bench):
    """The kernel has lost the right to answer before the agent ends; nothing is sent after that."""
    at = bench.did.index(StartOver())
    assert [type(effect) for effect in bench.did[at - 2 : at]] == [SetFence, ClearEntry]
    assert bench.kernel.fence_ns == 0
    bench.did.clear()
    bench.pass_time(100)
    assert bench.did == []


def test_an_agent_whose_heartbeat_is_older_than_what_it_wrote_ends():
    bench = an_owner()
    goes_back(bench, "a")

    bench.pass_time(1)

    ends_at_once(bench)


def test_an_agent_whose_renewal_has_a_lower_version_than_its_watch_has_shown_ends():
    bench = an_owner()
    bench.shown = "1000"

    bench.pass_time(1)

    ends_at_once(bench)


def test_an_agent_whose_list_of_claims_has_an_older_one_than_it_has_seen_ends():
    bench = an_owner()
    goes_back(bench, VIP)

    bench.pass_time(60)

    ends_at_once(bench)


def test_an_agent_that_reads_an_older_claim_than_it_has_seen_ends():
    bench = an_owner()
    goes_back(bench, VIP)

    bench.serve(bench.core.claim_read(VIP, bench.store[VIP], bench.now + 1, bench.now + 2))

    ends_at_once(bench)


def test_a_read_that_was_sent_before_a_newer_version_came_is_only_late():
    bench = an_owner()
    newer = bench.store[VIP]
    goes_back(bench, VIP)

    bench.serve(bench.core.claim_read(VIP, bench.store[VIP], bench.now, bench.now + 2))
    bench.store[VIP] = newer
    bench.pass_time(60)

    assert bench.owned == {VIP}


# ---- taking part ----


def test_who_does_not_take_part_says_seldom_that_it_is_alive():
    bench = Bench(takes_part=False)

    bench.pass_time(100)

    assert [sent.duration_ns for sent in bench.renewals()] == [30 * S] * 11
    assert bench.took() == []
    assert bench.kernel.fence_ns == 0


def test_a_lease_that_is_longer_than_that_of_a_rest_is_renewed_as_seldom():
    times = Times(60 * S, 20 * S, 20 * S, 30 * S).at_rest

    assert (times.duration_ns, times.renew_ns, times.margin_ns) == (60 * S, 20 * S, 20 * S)


def test_who_ends_its_rest_publishes_the_ordinary_lease_and_claims_then():
    bench = Bench(takes_part=False)
    bench.pass_time(25)
    bench.claim(holder="", epoch="")
    bench.did.clear()
    bench.held = (WriteHeartbeat,)

    bench.serve(bench.core.take_part(True, bench.now))
    bench.want(VIP)
    assert [sent.duration_ns for sent in bench.renewals()] == [3 * S]
    assert bench.took() == []

    bench.held = ()
    bench.let()
    assert bench.owned == {VIP}


def test_a_renewal_of_the_rest_that_is_under_way_when_it_ends_is_followed_by_another():
    bench = Bench(takes_part=False)
    bench.pass_time(5)
    bench.held = (WriteHeartbeat,)
    bench.pass_time(5)
    bench.did.clear()

    bench.serve(bench.core.take_part(True, bench.now))
    bench.want(VIP)
    assert bench.did == []

    bench.let()
    assert [sent.duration_ns for sent in bench.renewals()] == [3 * S]
    assert bench.took() == []
    bench.held = ()
    bench.let()
    assert bench.owned == {VIP}


def test_the_ordinary_lease_that_was_published_last_before_a_rest_is_renewed_in_time():
    bench = Bench()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(0)
    bench.serve(bench.core.take_part(False, bench.now))
    bench.held, bench.did = (), []

    bench.let()
    bench.pass_time(1)

    assert [sent.duration_ns for sent in bench.renewals()] == [30 * S]


def test_who_rests_again_before_it_has_published_the_ordinary_lease_claims_nothing():
    bench = Bench(takes_part=False)
    bench.pass_time(5)
    bench.held = (WriteHeartbeat,)
    bench.pass_time(5)
    assert bench.core.heartbeat.lease.resting
    bench.serve(bench.core.take_part(True, bench.now))
    assert not bench.core.heartbeat.lease.resting
    bench.serve(bench.core.take_part(False, bench.now))
    bench.held, bench.did = (), []

    bench.let()

    assert bench.did == []


def test_nothing_is_renewed_once_the_heartbeat_is_about_to_be_deleted():
    bench = Bench()
    bench.held = (WriteHeartbeat,)
    bench.pass_time(0)
    bench.did.clear()

    bench.core.heartbeat.end()
    bench.let()
    bench.serve(bench.core.take_part(True, bench.now))
    bench.pass_time(100)

    assert bench.renewals() == []


def test_who_takes_no_part_any_more_renews_until_all_is_handed_over():
    bench = an_owner()
    bench.serve(bench.core.take_part(False, bench.now))
    bench.pass_time(5)
    assert len(bench.renewals()) == 5

    bench.want()
    bench.did.clear()
    bench.pass_time(100)
    assert [sent.duration_ns for sent in bench.renewals()] == [30 * S] * 10
    assert bench.took() == []
    assert bench.store[VIP].holder == ""


def test_who_takes_part_again_renews_at_once_although_it_was_revoked():
    bench = Bench()
    bench.pass_time(0)
    bench.serve(bench.core.take_part(False, bench.now))
    bench.pass_time(100)
    bench.store["a"] = replace(bench.store["a"], epoch="tomb", instance="", version=bench.version())
    bench.did.clear()

    bench.serve(bench.core.take_part(True, bench.now))
    bench.pass_time(0)
    bench.want(VIP)

    assert bench.owned == {VIP}
    assert bench.store[VIP].epoch == bench.store["a"].epoch == "epoch-2"


# ---- VIPs that are no more ----


def test_an_own_vip_that_is_no_more_is_handed_over_and_its_claim_removed():
    bench = an_owner()
    version = bench.store[VIP].version

    bench.serve(bench.core.forget(VIP, bench.now))

    first, second, third = bench.took()
    assert first == ClearEntry(VIP, drain=True)
    assert second == DeleteClaim(VIP, version)
    assert third.let_go
    assert VIP not in bench.store
    assert not bench.core.claims.active
    assert bench.core.holder(VIP, bench.now) == Holder()


@pytest.mark.parametrize("epoch", ["", "b-0"])
def test_a_free_claim_of_a_vip_that_is_no_more_is_removed(epoch):
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat(epoch="b-0")
    bench.heartbeat()
    bench.claim("b" if epoch else "", epoch)

    bench.serve(bench.core.forget(VIP, bench.now))

    assert [type(effect) for effect in bench.took()] == [DeleteClaim, WriteClaim]
    assert VIP not in bench.store


def test_the_claim_of_another_is_removed_when_that_has_released_it():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.serve(bench.core.forget(VIP, bench.now))
    assert bench.took() == []

    bench.claim("", "")
    assert [type(effect) for effect in bench.took()] == [DeleteClaim, WriteClaim]


def test_a_vip_that_is_back_is_not_removed():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.serve(bench.core.forget(VIP, bench.now))
    bench.want(VIP)

    bench.claim("", "")

    assert bench.owned == {VIP}


# ---- others ----


def test_a_claim_is_taken_as_soon_as_its_holders_new_epoch_is_seen():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)

    bench.heartbeat(epoch="b-2", instance="b/2")

    assert bench.owned == {VIP}


@pytest.mark.parametrize("first", [True, False], ids=["never seen before", "made anew"])
def test_a_heartbeat_that_is_another_object_voids_nothing_for_a_lease(first):
    """A create that was late may have made it: then nobody has waited until the holder was silent."""
    bench = Bench()
    bench.pass_time(0)
    if not first:
        bench.heartbeat()
        del bench.store["b"]
    bench.claim()
    bench.heartbeat(epoch="b-2", instance="b/2")
    bench.want(VIP)
    for _ in range(14):
        bench.pass_time(0.2)
        assert bench.owned == set()
        bench.heartbeat(epoch="b-2", instance="b/2")

    bench.pass_time(0.5)

    assert bench.owned == {VIP}


@pytest.mark.parametrize("holder", ["", "b"])
def test_an_unreadable_claim_is_left_alone(holder):
    bench = Bench()
    bench.pass_time(0)
    bench.claim(holder, "", unreadable="garbage")

    bench.want(VIP)
    bench.pass_time(100)
    bench.serve(bench.core.forget(VIP, bench.now))

    assert bench.took() == []
    assert bench.core.holder(VIP, bench.now).unreadable == "garbage"


def test_no_claim_is_void_by_a_heartbeat_that_cannot_be_read():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat(epoch="")
    bench.claim()

    bench.want(VIP)
    bench.pass_time(2)
    assert bench.took() == []
    assert bench.core.holder(VIP, bench.now).void is False

    bench.pass_time(1)  # it is silent: one that can be read is put in its place
    assert bench.owned == {VIP}


def test_changes_of_the_holder_are_counted():
    bench = an_owner()
    assert bench.store[VIP].transitions == 0
    bench.want()
    assert bench.store[VIP].transitions == 0
    bench.want(VIP)
    assert bench.store[VIP].transitions == 1

    bench.claim("b", "b-0", transitions=7)
    bench.heartbeat(epoch="b-0")
    bench.heartbeat()
    assert bench.store[VIP] == replace(bench.store[VIP], holder="a", transitions=8)


def test_a_claim_that_is_known_to_be_missing_is_not_read():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (ReadClaim,)

    bench.serve(bench.core.claim_seen(VIP, None, bench.now))
    bench.want(VIP, OTHER)

    assert [effect.vip for effect, _ in bench.waiting] == [OTHER]
    assert bench.owned == {VIP}


def test_that_a_claim_was_missing_long_ago_does_not_count():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (ReadClaim,)

    bench.serve(bench.core.claim_seen(VIP, None, bench.now))
    bench.want(OTHER)
    bench.want(VIP, OTHER)

    assert [effect.vip for effect, _ in bench.waiting] == [OTHER, VIP]


def test_what_a_watch_showed_is_not_undone_by_a_late_answer():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteClaim,)
    bench.want(VIP)
    ((claim, _),) = bench.waiting
    outcome, version = bench.write(VIP, claim)
    bench.claim("b", "b-1")

    bench.held = ()
    bench.serve(bench.core.claim_written(claim, outcome, version, bench.now))

    assert bench.owned == set()
    assert bench.core.holder(VIP, bench.now).node == "b"


def test_a_revocation_that_is_refused_is_tried_once_in_a_while():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.refused_names = ("b",)
    bench.want(VIP)
    bench.did.clear()

    bench.pass_time(23)

    assert (
        15 <= len([effect for effect in bench.did if isinstance(effect, WriteHeartbeat) and effect.node == "b"]) <= 21
    )


def test_holders():
    bench = an_owner()
    epoch = bench.store["a"].epoch
    mine = Holder("a", epoch, alive=True, void=False, known=True, exists=True, answers=True)
    assert bench.core.holder(VIP, bench.now) == mine
    assert bench.core.holder(OTHER, bench.now) == Holder()

    bench.claim(vip=OTHER)
    assert bench.core.holder(OTHER, bench.now) == Holder("b", "b-1", alive=False, void=None, known=True, exists=True)
    bench.heartbeat()
    assert bench.core.holder(OTHER, bench.now) == Holder("b", "b-1", alive=True, void=False, known=True, exists=True)
    bench.pass_time(3)
    assert not bench.core.holder(OTHER, bench.now).alive


def test_a_node_that_stood_still_does_not_answer_by_its_claims_once_the_fence_has_passed():
    bench = an_owner()
    fence_ns = bench.now + TIMES.answers_ns
    assert bench.core.holder(VIP, fence_ns - 1).answers
    assert not bench.core.holder(VIP, fence_ns).answers
    assert not bench.core.holder(OTHER, bench.now).answers


def test_a_node_answers_by_its_claims_as_long_as_its_fence_allows_without_an_api_server():
    bench = an_owner()
    fence_ns = bench.now + TIMES.answers_ns
    bench.held = (WriteHeartbeat, ReadHeartbeat)
    bench.pass_time(TIMES.renew_ns / S)
    (renewal, sent_ns), *_ = bench.waiting
    bench.serve(bench.core.heartbeat_written(renewal, Outcome.UNKNOWN, None, "", sent_ns, bench.now))
    holder = bench.core.holder(VIP, bench.now)
    assert (holder.alive, holder.answers) == (False, True)
    assert not bench.core.holder(VIP, fence_ns).answers


def test_a_node_that_hands_a_vip_over_does_not_answer_by_its_claim_any_more():
    bench = an_owner()
    effects = bench.core.want([], bench.now)
    assert any(isinstance(effect, ClearEntry) for effect in effects)
    assert bench.core.holder(VIP, bench.now).node == "a"
    assert not bench.core.holder(VIP, bench.now).answers


def test_a_thousand_vips_are_taken_over_without_looking_at_all_of_them_each_time(monkeypatch):
    looked = Counter()

    step = Steps.step

    def counted(self, state, moment):
        looked[state.vip] += 1
        return step(self, state, moment)

    monkeypatch.setattr(Steps, "step", counted)
    vips = [IPv4Address("10.0.0.0") + number for number in range(1000)]
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    for vip in vips:
        bench.claim(vip=vip)
    bench.want(*vips)
    bench.pass_time(2)
    bench.held = (WriteHeartbeat,)

    bench.pass_time(1.5)
    bench.let()  # it renews
    bench.let()  # b is revoked
    for _ in range(3):
        bench.let()

    assert bench.owned == set(vips)
    assert bench.core.claims.stage(vips[0]) is Owned
    assert max(looked.values()) < 15


# ---- what comes late, twice, or not at all ----


def questions(bench):
    """What is asked and not answered, with what was held back."""
    return [effect for effect, _ in bench.waiting]


def test_a_renewal_that_is_wanted_at_once_is_sent_at_once():
    bench = an_owner()
    bench.pass_time(0.3)

    bench.serve(bench.core.heartbeat.hurry(bench.now))

    assert len(bench.renewals()) == 1
    assert bench.core.next_ns(bench.now) == bench.now + S


def test_parting_twice_is_parting_once():
    bench = an_owner()
    bench.held = (WriteHeartbeat,)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    bench.serve(bench.core.heartbeat.part(60 * S, bench.now))

    bench.let()

    assert bench.core.heartbeat.parted
    assert [renewal.duration_ns for renewal in bench.renewals()] == [30 * S]


def test_a_read_of_the_own_heartbeat_that_failed_is_sent_again_when_a_renewal_would_be_due():
    bench = Bench()
    bench.held = (ReadHeartbeat,)
    bench.pass_time(0)
    bench.waiting.clear()

    bench.serve(bench.core.heartbeat_read_failed("a", bench.now))

    bench.pass_time(0.9)
    assert questions(bench) == []
    bench.pass_time(0.1)
    assert questions(bench) == [ReadHeartbeat("a")]
    assert not bench.core.heartbeat.parted


def test_who_parts_does_not_read_again():
    bench = Bench()
    bench.held = (ReadHeartbeat,)
    bench.pass_time(0)
    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    assert not bench.core.heartbeat.parted

    bench.serve(bench.core.heartbeat_read_failed("a", bench.now))

    assert bench.core.heartbeat.parted
    bench.let()
    assert bench.did == []


def test_a_list_that_failed_is_asked_for_again_when_a_renewal_would_be_due():
    bench = Bench()
    bench.held = (ListOwnClaims,)
    bench.pass_time(0)
    bench.waiting.clear()

    bench.serve(bench.core.own_claims_list_failed(bench.now))

    bench.pass_time(0.9)
    assert questions(bench) == []
    bench.pass_time(0.1)
    assert questions(bench) == [ListOwnClaims()]


def test_what_a_watch_shows_of_the_own_heartbeat_is_no_reason_to_read_it_when_this_node_wrote_it():
    bench = an_owner()
    bench.held = (ReadHeartbeat,)
    own = bench.store["a"]
    before = Version(own.version.uid, "0")

    for shown in (own, replace(own, epoch="epoch-0", version=before), replace(own, version=before)):
        bench.serve(bench.core.heartbeat_seen("a", shown, bench.now))

    bench.pass_time(0)
    assert questions(bench) == []
    bench.serve(bench.core.heartbeat_seen("a", replace(own, epoch="epoch-0", version=bench.version()), bench.now))
    bench.pass_time(0)
    assert questions(bench) == [ReadHeartbeat("a")]


def test_a_watch_does_not_hasten_a_read_that_failed():
    bench = an_owner()
    bench.held = (ReadHeartbeat,)
    bench.serve(bench.core.heartbeat_seen("a", None, bench.now))
    bench.pass_time(0)
    bench.waiting.clear()
    bench.serve(bench.core.heartbeat_read_failed("a", bench.now))

    bench.serve(bench.core.heartbeat_seen("a", None, bench.now))

    bench.pass_time(0.9)
    assert questions(bench) == []
    bench.pass_time(0.1)
    assert questions(bench) == [ReadHeartbeat("a")]


def test_a_renewal_under_way_says_more_of_the_own_heartbeat_than_a_watch():
    bench = an_owner()
    bench.held = (WriteHeartbeat, ReadHeartbeat)
    bench.pass_time(1)

    bench.serve(bench.core.heartbeat_seen("a", None, bench.now))
    bench.let()
    bench.pass_time(0)

    assert questions(bench) == []
    assert bench.core.next_ns(bench.now) == bench.now + S


def another_agent(bench):
    """Another agent renews in this node's name."""
    bench.store["a"] = replace(bench.store["a"], epoch="c-1", instance="a/2", version=bench.version())
    bench.serve(bench.core.heartbeat_seen("a", bench.store["a"], bench.now))
    bench.pass_time(0)


def test_who_finds_another_agent_in_its_name_is_silent_until_that_one_has_been_for_a_lease():
    bench = an_owner()

    another_agent(bench)
    assert bench.core.heartbeat.yielding
    assert (bench.kernel.fence_ns, bench.owned, bench.renewals()) == (0, frozenset(), [])
    bench.pass_time(2)
    another_agent(bench)
    bench.pass_time(2.9)
    assert (bench.core.heartbeat.yielding, bench.renewals()) == (True, [])
    assert len([effect for effect in bench.did if isinstance(effect, SetFence)]) == 1

    bench.pass_time(0.2 + TIMES.renew_ns / S)
    assert not bench.core.heartbeat.yielding
    assert bench.store["a"].instance == "a/1"
    assert bench.kernel.epoch == bench.store["a"].epoch != "epoch-1"


def test_who_finds_another_agent_in_its_name_is_silent_for_as_long_as_that_one_renews():
    bench = an_owner()

    for _ in range(12):
        another_agent(bench)
        bench.pass_time(1)

    assert (bench.core.heartbeat.yielding, bench.owned, bench.renewals()) == (True, frozenset(), [])
    assert bench.kernel.fence_ns == 0


def test_own_heartbeat_that_names_no_agent_any_more_ends_the_epoch():
    """Nobody writes that; whoever edited it may have meant to revoke."""
    bench = an_owner()
    bench.store["a"] = replace(bench.store["a"], instance="", version=bench.version(bench.store["a"].version))

    bench.serve(bench.core.heartbeat_seen("a", bench.store["a"], bench.now))
    bench.pass_time(0)

    first = next(effect for effect in bench.did if isinstance(effect, SetFence))
    assert (first.epoch, first.fence_ns) == ("epoch-2", 0)
    assert (bench.store["a"].epoch, bench.store["a"].instance) == ("epoch-2", "a/1")


def test_who_yields_parts_at_once_and_hears_no_answer_any_more():
    bench = an_owner()
    another_agent(bench)
    bench.held = (ReadHeartbeat,)
    bench.pass_time(1)
    bench.did.clear()

    bench.serve(bench.core.heartbeat.part(30 * S, bench.now))
    assert bench.core.heartbeat.parted
    bench.let()
    bench.pass_time(100)

    assert bench.did == []


def test_one_read_of_a_heartbeat_at_a_time_and_after_one_that_failed_none_for_a_while():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (ReadHeartbeat,)
    bench.claim()
    bench.want(VIP)
    bench.claim()
    assert questions(bench) == [ReadHeartbeat("b")]

    bench.waiting.clear()
    bench.serve(bench.core.heartbeat_read_failed("b", bench.now))
    bench.claim()
    bench.pass_time(0.9)
    assert questions(bench) == []
    bench.pass_time(0.2)
    assert questions(bench) == [ReadHeartbeat("b")]


def test_a_watch_that_is_behind_takes_no_epoch_back():
    bench = Bench()
    bench.heartbeat(epoch="b-1")
    old = bench.store["b"]
    bench.heartbeat(epoch="b-2")
    bench.claim(epoch="b-2")

    bench.serve(bench.core.heartbeat_seen("b", old, bench.now))

    assert bench.core.holder(VIP, bench.now).void is False


def test_after_an_outage_of_this_node_the_others_have_a_whole_lease_to_be_heard():
    bench = Bench()
    bench.pass_time(0)
    bench.heartbeat()
    bench.claim()
    bench.want(VIP)
    bench.refused = (WriteHeartbeat,)
    bench.pass_time(10)
    bench.refused = ()
    bench.did.clear()

    bench.pass_time(1.9)
    assert {effect.node for effect in bench.did if isinstance(effect, WriteHeartbeat)} == {"a"}
    bench.pass_time(3)
    assert bench.owned == {VIP}


def test_answers_that_nobody_waits_for_change_nothing():
    bench = an_owner()

    assert bench.core.claim_read(VIP, bench.store[VIP], bench.now, bench.now) == []
    assert bench.core.claim_read_failed(VIP, bench.now) == []
    assert bench.core.drained(VIP, bench.now) == []
    assert bench.core.probed(OTHER, STRANGER, bench.now) == []

    assert bench.owned == {VIP}
    assert bench.core.holder(OTHER, bench.now) == Holder()


def test_a_claim_that_is_not_on_the_list_is_not_held_any_more_and_read():
    bench = an_owner()
    del bench.store[VIP]  # and no watch has shown it
    bench.held = (ReadClaim,)

    bench.pass_time(30)

    assert bench.owned == frozenset()
    assert ClearEntry(VIP) in bench.did
    assert questions(bench) == [ReadClaim(VIP)]
    bench.let()
    bench.pass_time(2)
    assert bench.owned == {VIP}


def test_a_list_that_was_asked_for_before_the_claim_says_nothing_of_it():
    bench = an_owner()

    assert bench.core.own_claims_listed([], bench.now - 1, bench.now) == []
    assert bench.owned == {VIP}


def test_a_claim_that_is_not_wanted_any_more_before_it_is_confirmed_is_released():
    bench = Bench()
    bench.pass_time(0)
    bench.held = (WriteHeartbeat,)
    bench.want(VIP)
    assert bench.core.claims.stage(VIP) is Confirming

    bench.want()
    bench.let()

    assert bench.store[VIP].holder == ""
    assert SetEntry(VIP, "epoch-1") not in bench.did


def test_a_claim_that_cannot_be_deleted_is_read_and_deleted_later():
    bench = Bench()
    bench.pass_time(0)
    bench.claim(holder="", epoch="")
    bench.refused = (DeleteClaim,)

    bench.serve(bench.core.forget(VIP, bench.now))
    bench.pass_time(60)
    refused = [effect for effect in bench.did if isinstance(effect, DeleteClaim)]
    assert 1 < len(refused) < 10
    bench.refused = ()
    bench.pass_time(30)

    assert VIP not in bench.store


def test_who_waits_until_later_is_not_due_when_it_was_to_be_before():
    waiting = Waiting(Peers(TIMES, str))
    waiting.until(VIP, 5)
    waiting.until(VIP, 9)

    assert (waiting.due(5), waiting.next_ns(), waiting.due(9)) == ([], 9, [VIP])


def test_the_kernel_knows_an_epoch_by_a_number_that_is_not_0():
    assert epoch_number("00000000-0000-0001-8000-000000000000") == 1
    assert epoch_number("00000000-0000-0000-8000-000000000000") == 1
    assert epoch_number("ffffffff-ffff-ffff-8000-000000000000") == 2**64 - 1
    with pytest.raises(ValueError, match="hex"):
        epoch_number("garbage")
