"""The right to answer ends at the fence, which the program compares with the boot clock on every frame."""

import itertools

import pytest

from arpguard.clock import boot_ns
from arpguard.verdict import Hook, Reason
from support.frames.builders import (
    EPOCH,
    GUARD,
    HOUR_NS,
    NEIGHBOUR_IP,
    PRIMARY_IP,
    VIP,
    a_control,
    a_packet,
    an_announcement,
    an_arp_request,
    an_entry,
    the_answer,
)
from support.programs.prog_run import (
    DROPPED,
    INGRESS,
    SEND_BACK,
    assert_counted,
    assert_outcome,
    one_count,
    passed,
    sent_back,
)

pytestmark = pytest.mark.bpf
at_both_hooks = pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)

U64_MAX = 2**64 - 1
LEASE_NS = HOUR_NS
REQUEST = an_arp_request()
ANSWERED = sent_back(the_answer(a_packet()))

# name -> the fence, given the time
EXPIRED = {
    "never_set": lambda _now: 0,
    "smallest": lambda _now: 1,
    "long_ago": lambda now: now - HOUR_NS,
    "a_nanosecond_ago": lambda now: now - 1,
    "exactly_now": lambda now: now,
    "beyond_the_lease": lambda now: now + LEASE_NS + HOUR_NS,
    "a_year_ahead": lambda now: now + 365 * 24 * HOUR_NS,
    "largest": lambda _now: U64_MAX,
    "wrapped_below_zero": lambda now: -now % 2**64,
    "sign_bit": lambda now: 2**63 + now,
}


def control_with_fence(fence_of, lease_ns=LEASE_NS):
    return a_control(fence_ns=fence_of(boot_ns()), lease_ns=lease_ns)


@at_both_hooks
@pytest.mark.parametrize("fence_of", EXPIRED.values(), ids=EXPIRED)
def test_expired_fence_is_silent(plane, hook, fence_of):
    plane.set({VIP: an_entry()}, control_with_fence(fence_of))
    outcome, counted = plane.counted(hook, REQUEST)
    assert_outcome(outcome, DROPPED, REQUEST)
    assert_counted(counted, one_count(Reason.FENCED, vip=VIP))


@pytest.mark.parametrize("fence_of", EXPIRED.values(), ids=EXPIRED)
def test_expired_fence_lets_no_claim_out(plane, fence_of):
    plane.set({VIP: an_entry()}, control_with_fence(fence_of))
    claim = an_announcement(sha=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, claim), DROPPED, claim)


@at_both_hooks
@pytest.mark.parametrize("ahead_ns", [LEASE_NS, LEASE_NS // 2, LEASE_NS // 1000], ids=["whole", "half", "thousandth"])
def test_fence_within_the_lease_answers(plane, hook, ahead_ns):
    plane.set({VIP: an_entry()}, control_with_fence(lambda now: now + ahead_ns))
    assert_outcome(plane.run(hook, REQUEST), ANSWERED, REQUEST)


@at_both_hooks
def test_lease_of_no_length_never_answers(plane, hook):
    plane.set({VIP: an_entry()}, control_with_fence(lambda now: now + HOUR_NS, lease_ns=0))
    assert_outcome(plane.run(hook, REQUEST), DROPPED, REQUEST)


@at_both_hooks
def test_silent_once_fence_has_passed(plane, hook):
    def set_fence(fence_ns: int) -> None:
        plane.set({VIP: an_entry()}, a_control(fence_ns=fence_ns, lease_ns=LEASE_NS))

    seen = plane.run_across(hook, REQUEST, set_fence)

    assert set(seen) == {SEND_BACK, DROPPED.action}
    assert seen == sorted(seen, reverse=True), "answered again after the fence"


@at_both_hooks
@pytest.mark.parametrize("fence_of", EXPIRED.values(), ids=EXPIRED)
def test_held_entry_needs_no_fence(plane, hook, fence_of):
    plane.set({VIP: an_entry(unfenced=True)}, control_with_fence(fence_of))
    assert_outcome(plane.run(hook, REQUEST), ANSWERED, REQUEST)


@pytest.mark.parametrize("fence_of", EXPIRED.values(), ids=EXPIRED)
def test_held_entry_may_claim_without_a_fence(plane, fence_of):
    plane.set({VIP: an_entry(unfenced=True)}, control_with_fence(fence_of))
    claim = an_announcement(sha=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, claim), passed(claim), claim)


@at_both_hooks
@pytest.mark.parametrize(
    ("epoch", "unfenced"),
    [
        *itertools.product([EPOCH - 1, EPOCH + 1, EPOCH + 2**32, U64_MAX], [False, True]),
        (0, False),
    ],
)
def test_entry_of_another_epoch_is_not_owned(plane, hook, epoch, unfenced):
    plane.set({VIP: an_entry(epoch=epoch, unfenced=unfenced)}, a_control())
    outcome, counted = plane.counted(hook, REQUEST)
    assert_outcome(outcome, DROPPED, REQUEST)
    assert_counted(counted, one_count(Reason.STALE_EPOCH, vip=VIP))


@at_both_hooks
@pytest.mark.parametrize("epoch", [0, EPOCH, U64_MAX])
def test_static_entry_is_of_no_epoch(plane, hook, epoch):
    plane.set({VIP: an_entry(epoch=0, unfenced=True)}, a_control(epoch=epoch, fence_ns=0))
    assert_outcome(plane.run(hook, REQUEST), ANSWERED, REQUEST)


@at_both_hooks
def test_new_epoch_of_the_node_voids_its_entries(plane, hook):
    plane.set({VIP: an_entry()}, a_control())
    assert_outcome(plane.run(hook, REQUEST), ANSWERED, REQUEST)
    plane.control.write(a_control(epoch=EPOCH + 1))
    assert_outcome(plane.run(hook, REQUEST), DROPPED, REQUEST)


@at_both_hooks
def test_unwritten_control_touches_nothing(plane, hook):
    plane.set({VIP: an_entry()}, a_control(generation=0))
    outcome, counted = plane.counted(hook, REQUEST)
    assert_outcome(outcome, passed(REQUEST), REQUEST)
    assert_counted(counted, one_count(Reason.UNCONFIGURED))


def test_fenced_owner_asks_with_the_links_address(plane):
    plane.set({VIP: an_entry()}, control_with_fence(lambda now: now))
    request = an_arp_request(src=GUARD, sha=GUARD, spa=VIP, tpa=NEIGHBOUR_IP)
    expected = an_arp_request(src=GUARD, sha=GUARD, spa=PRIMARY_IP, tpa=NEIGHBOUR_IP)
    assert_outcome(plane.run(Hook.TC_EGRESS, request), passed(expected), request)
