"""Frames of vouching at both incoming hooks: pings come back, grants bind, and everything else passes as it is."""

from collections import Counter
from dataclasses import replace

import pytest

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.clock import boot_ns
from arpguard.model import Grants
from arpguard.verdict import Hook, Mode, Reason, Verdict, Vouched
from arpguard.wire.ethernet import ETHERTYPE_8021AD, ETHERTYPE_8021Q, VlanTag
from arpguard.wire.vouching import VouchFrame, VouchType, pack
from support.frames.builders import (
    GUARD,
    HOUR_NS,
    TESTER,
    VIP,
    a_packet,
    an_announcement,
    an_arp_request,
    an_entry,
    patched,
    the_answer,
)
from support.frames.nd_builders import VIP6, an_entry6, an_na, an_ns, tlla
from support.frames.vouch_builders import (
    KEY,
    OTHER_KEY,
    OTHER_TERM,
    TERM,
    a_grant,
    a_ping,
    a_vouching_control,
    in_frame,
    read_back,
    resealed,
    sealed,
    some_grants,
)
from support.programs.prog_run import DROPPED, INGRESS, NO_GRANTS, SEND_BACK, Plane, one_count, passed, sent_back

pytestmark = pytest.mark.bpf
at_both_hooks = pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)

TAG = VlanTag(0, pcp=5)
GROUP = MacAddress.parse("01:00:5e:00:00:01")


def ready(plane: Plane, grants=NO_GRANTS, control=None, term=TERM, entries=None) -> None:
    """A node that owns the VIP, and has the term."""
    plane.set(entries or {VIP: an_entry()}, control or a_vouching_control(), term=term, grants=grants)


def sent(plane: Plane, hook: Hook, frame: bytes):
    """The outcome, and what came of the frame."""
    before = plane.vouched()
    outcome, counted = plane.counted(hook, frame)
    assert not counted, "a frame of vouching is no decision"
    return outcome, plane.vouched() - before


# ---- pings -------------------------------------------------------------------------------------------------------

# name -> (how it comes, bytes behind it)
SHAPES = {
    "plain": ({}, b""),
    "padded": ({"min_len": 128}, b""),
    "with_more_behind": ({}, b"\xaa" * 5),
    "priority_tag": ({"tags": (TAG,)}, b""),
    "service_tag": ({"tags": (replace(TAG, tpid=ETHERTYPE_8021AD),)}, b""),
}


@at_both_hooks
@pytest.mark.parametrize(("how", "behind"), SHAPES.values(), ids=SHAPES)
def test_ping_comes_back_as_a_pong(plane, hook, how, behind):
    ready(plane, control=a_vouching_control(fence_ns=123))
    ping = sealed(a_ping(number=2**63 + 5, ending=True), **how) + behind
    before_ns = boot_ns()

    outcome, vouched = sent(plane, hook, ping)

    pong = read_back(outcome.frame)
    assert before_ns <= pong.stamp_ns <= boot_ns()
    assert pong == VouchFrame(VouchType.PONG, TERM.number, 2**63 + 5, pong.stamp_ns, right_ns=123)
    assert outcome == sent_back(sealed(pong, dst=TESTER, src=GUARD, **how) + behind)
    assert vouched == Counter([Vouched.PING])
    assert plane.grants == Grants()
    assert plane.grants.pinged_ns == pong.stamp_ns


@at_both_hooks
def test_stamps_grow(plane, hook):
    ready(plane)
    stamps = [read_back(plane.run(hook, sealed(a_ping(number=number))).frame).stamp_ns for number in range(1, 20)]

    assert stamps == sorted(set(stamps))


# name -> (control.term, grants, whether the pong says bound)
BOUND = {
    "never_granted": (TERM, Grants(), False),
    "granted": (TERM, some_grants(fence_ns=1), True),
    "granted_in_another_term": (TERM, some_grants(fence_ns=1, term=OTHER_TERM), False),
    "on_trial": (None, some_grants(fence_ns=1), False),
    "on_trial_beside_another_term": (OTHER_TERM, some_grants(fence_ns=1, term=OTHER_TERM), False),
    "on_trial_and_never_granted": (None, Grants(), False),
}


@at_both_hooks
@pytest.mark.parametrize(("term", "grants", "bound"), BOUND.values(), ids=BOUND)
def test_pong_says_whether_the_node_is_bound(plane, hook, term, grants, bound):
    ready(plane, grants, a_vouching_control(term))

    assert read_back(plane.run(hook, sealed(a_ping())).frame).bound is bound


PING = pack(a_ping(), KEY)
NOT_OURS = {
    "short": (in_frame(PING[:-1]), Vouched.UNREADABLE),
    "empty": (in_frame(b""), Vouched.UNREADABLE),
    "version_0": (in_frame(resealed(b"\0" + PING[1:])), Vouched.UNREADABLE),
    "version_2": (in_frame(resealed(b"\2" + PING[1:])), Vouched.UNREADABLE),
    "type_0": (in_frame(resealed(b"\1\0" + PING[2:])), Vouched.UNREADABLE),
    "type_4": (in_frame(resealed(b"\1\4" + PING[2:])), Vouched.UNREADABLE),
    "broadcast": (sealed(a_ping(), dst=BROADCAST_MAC), Vouched.UNREADABLE),
    "group": (sealed(a_ping(), dst=GROUP), Vouched.UNREADABLE),
    "short_behind_a_tag": (in_frame(PING[:-1], tags=(TAG,)), Vouched.UNREADABLE),
    "pong": (sealed(VouchFrame(VouchType.PONG, TERM.number, 7, 1)), Vouched.PONG),
    "forged_pong": (in_frame(pack(VouchFrame(VouchType.PONG, 3, 7, 1), OTHER_KEY)), Vouched.PONG),
    "other_term": (sealed(a_ping(term=TERM.number + 1)), Vouched.OTHER_TERM),
    "term_that_differs_above": (sealed(a_ping(term=TERM.number ^ 1 << 63)), Vouched.OTHER_TERM),
    "no_term": (sealed(a_ping(term=0)), Vouched.OTHER_TERM),
    "forged": (sealed(a_ping(), OTHER_KEY), Vouched.FORGED),
    "mac_of_another_number": (in_frame(pack(a_ping(number=8), KEY)[:48] + PING[48:]), Vouched.FORGED),
    "mac_0": (in_frame(PING[:48] + bytes(8)), Vouched.FORGED),
}


@at_both_hooks
@pytest.mark.parametrize(("frame", "what"), NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_not_for_this_kernel_passes(plane, hook, frame, what):
    ready(plane)

    assert sent(plane, hook, frame) == (passed(frame), Counter([what]))
    assert plane.grants == Grants()


# In another VLAN, or behind more tags than one: frames of another type, as ever.
OTHER_FRAMES = {
    "two_tags": ((TAG, TAG), Reason.NOT_ARP),
    "other_vlan": ((VlanTag(7),), Reason.OTHER_VLAN),
    "other_vlan_inside": ((TAG, VlanTag(7, tpid=ETHERTYPE_8021Q)), Reason.OTHER_VLAN),
}


@at_both_hooks
@pytest.mark.parametrize(("tags", "reason"), OTHER_FRAMES.values(), ids=OTHER_FRAMES)
def test_ping_in_other_tags_is_a_frame_of_another_type(plane, hook, tags, reason):
    ready(plane)
    frame = sealed(a_ping(), tags=tags)
    before = plane.vouched()

    assert plane.counted(hook, frame) == (passed(frame), one_count(reason))
    assert plane.vouched() == before


@at_both_hooks
@pytest.mark.parametrize("length", [12 + 4, 12 + 5, 12 + 6])
def test_ping_that_ends_in_its_tag_is_a_frame_of_another_type(plane, hook, length):
    ready(plane)
    frame = sealed(a_ping(), tags=(TAG,))[:length]

    assert plane.run(hook, frame) == passed(frame)


@at_both_hooks
def test_any_changed_bit_is_noticed(plane, hook):
    """Of the frame, that is; its tag and its padding do not matter."""
    ready(plane)
    whole = int.from_bytes(PING, "little")
    frames = [in_frame((whole ^ 1 << bit).to_bytes(56, "little")) for bit in range(8 * 56)]

    assert [bit for bit, frame in enumerate(frames) if plane.run(hook, frame) != passed(frame)] == []


@at_both_hooks
def test_link_without_a_term_answers_no_ping(plane, hook):
    ready(plane, term=None)

    assert sent(plane, hook, sealed(a_ping())) == (passed(sealed(a_ping())), Counter([Vouched.OTHER_TERM]))


@at_both_hooks
def test_term_of_another_link_does_not_matter(plane, hook):
    ready(plane)
    plane.vouching.write({2: TERM})

    assert sent(plane, hook, sealed(a_ping())) == (passed(sealed(a_ping())), Counter([Vouched.OTHER_TERM]))


@at_both_hooks
@pytest.mark.parametrize("ethertype", [0, 0x88B6, 0xB588])
def test_frames_of_another_ethertype_are_not_looked_at(plane, hook, ethertype):
    ready(plane, control=replace(a_vouching_control(), ethertype=ethertype))
    for tags in ((), (TAG,)):
        frame = sealed(a_ping(), tags=tags)
        before = plane.vouched()

        assert plane.run(hook, frame) == passed(frame)
        assert plane.vouched() == before


@at_both_hooks
def test_ethertype_0_is_none(plane, hook):
    ready(plane, control=replace(a_vouching_control(), ethertype=0))
    frame = patched(sealed(a_ping()), 12, bytes(2))

    assert plane.run(hook, frame) == passed(frame)


@at_both_hooks
def test_ethertype_is_the_nodes_to_choose(plane, hook):
    ready(plane, control=replace(a_vouching_control(), ethertype=0x9ABC))
    frame = patched(sealed(a_ping()), 12, b"\x9a\xbc")

    assert plane.run(hook, frame).action == SEND_BACK


def test_frames_of_vouching_leave_as_they_are(plane):
    """A voucher's own, and the pongs that tc sends back by way of egress."""
    ready(plane)
    for frame in (sealed(a_ping()), sealed(a_grant(1)), sealed(VouchFrame(VouchType.PONG, TERM.number, 7, 1))):
        assert sent(plane, Hook.TC_EGRESS, frame) == (passed(frame), Counter())


@at_both_hooks
def test_twins_answer_no_ping_and_take_no_grant(plane, hook):
    ready(plane)
    before = plane.vouched()
    for frame in (sealed(a_ping()), sealed(a_grant(1))):
        trial = plane.trial(hook, frame)

        assert (trial.answered, trial.frame, trial.decisions) == (False, frame, ())
    assert (plane.vouched(), plane.grants) == (before, Grants())


# ---- grants ------------------------------------------------------------------------------------------------------


@at_both_hooks
@pytest.mark.parametrize("tags", [(), (TAG,)], ids=["plain", "tagged"])
def test_grant_moves_the_fence_and_binds(plane, hook, tags):
    ready(plane)
    stamp_ns = boot_ns()

    assert sent(plane, hook, sealed(a_grant(stamp_ns), tags=tags)) == (DROPPED, Counter([Vouched.GRANT]))
    assert plane.grants == Grants(stamp_ns + TERM.window_ns, TERM.number, TERM.window_ns)


@at_both_hooks
def test_pong_and_grant_make_the_node_bound(plane, hook):
    """All of it, as a voucher does it."""
    ready(plane)
    first = read_back(plane.run(hook, sealed(a_ping())).frame)
    assert not first.bound

    plane.run(hook, sealed(a_grant(first.stamp_ns)))
    second = read_back(plane.run(hook, sealed(a_ping(number=8))).frame)

    assert second.bound
    assert plane.grants == Grants(first.stamp_ns + TERM.window_ns, TERM.number, TERM.window_ns)


def ahead(ns):
    return lambda now: now + ns


# name -> (stamp, given the time; what comes of the grant)
REFUSED = {
    "no_stamp": (lambda _: 0, Vouched.BAD_STAMP),
    "from_the_future": (ahead(HOUR_NS), Vouched.BAD_STAMP),
    "largest": (lambda _: 2**64 - 1, Vouched.BAD_STAMP),
}


@at_both_hooks
@pytest.mark.parametrize(("stamp", "what"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("grants", [Grants(), some_grants(fence_ns=77)], ids=["unbound", "bound"])
def test_grant_with_another_stamp_changes_nothing(plane, hook, stamp, what, grants):
    ready(plane, grants)
    frame = sealed(a_grant(stamp(boot_ns())))

    assert sent(plane, hook, frame) == (passed(frame), Counter([what]))
    assert plane.grants == grants


@at_both_hooks
@pytest.mark.parametrize("term", [None, OTHER_TERM], ids=["none", "another"])
@pytest.mark.parametrize("grants", [Grants(), some_grants(77, OTHER_TERM)], ids=["unbound", "bound"])
def test_grant_on_trial_binds_nothing(plane, hook, term, grants):
    """The link has the term, the node has none, or another one."""
    ready(plane, grants, a_vouching_control(term))
    frame = sealed(a_grant(boot_ns()))

    assert sent(plane, hook, frame) == (passed(frame), Counter([Vouched.OTHER_TERM]))
    assert plane.grants == grants


@at_both_hooks
@pytest.mark.parametrize(
    "earlier", [lambda ns: ns, lambda ns: ns - 1, lambda ns: ns // 2], ids=["the same", "just before", "long before"]
)
def test_old_grant_moves_no_fence_back(plane, hook, earlier):
    """Late, doubled or replayed."""
    ready(plane)
    stamp_ns = boot_ns()
    plane.run(hook, sealed(a_grant(stamp_ns)))
    after = plane.grants

    assert sent(plane, hook, sealed(a_grant(earlier(stamp_ns)))) == (DROPPED, Counter([Vouched.GRANT]))
    assert plane.grants == after


@at_both_hooks
def test_grant_of_the_old_term_is_none_of_the_new_one(plane, hook):
    ready(plane)
    old = sealed(a_grant(boot_ns()))
    plane.run(hook, old)
    ready(plane, plane.grants, a_vouching_control(OTHER_TERM), OTHER_TERM)
    before = plane.grants

    assert sent(plane, hook, old) == (passed(old), Counter([Vouched.OTHER_TERM]))
    assert plane.grants == before


@at_both_hooks
def test_term_begins_with_a_fence_of_its_own(plane, hook):
    """That of the term before may lie further ahead than the new one's grants reach, which would count as passed."""
    short = replace(TERM, window_ns=HOUR_NS // 4)
    ready(plane, some_grants(boot_ns() + HOUR_NS, OTHER_TERM), term=short)
    stamp_ns = boot_ns()
    plane.run(hook, sealed(a_grant(stamp_ns)))

    assert plane.grants == Grants(stamp_ns + short.window_ns, TERM.number, short.window_ns)
    assert plane.run(hook, an_arp_request()) == ANSWERED


@at_both_hooks
def test_fence_that_is_a_mistake_is_mended_by_the_next_grant(plane, hook):
    ready(plane, some_grants(2**64 - 1))
    assert plane.run(hook, an_arp_request()) == DROPPED
    stamp_ns = boot_ns()
    plane.run(hook, sealed(a_grant(stamp_ns)))

    assert plane.grants.fence_ns == stamp_ns + TERM.window_ns
    assert plane.run(hook, an_arp_request()) == ANSWERED


# ---- the second fence --------------------------------------------------------------------------------------------

ANSWERED = sent_back(the_answer(a_packet()))
OWNED = {VIP: an_entry(), VIP6: an_entry6()}
QUESTIONS = {"arp": (an_arp_request(), VIP), "nd": (an_ns(), VIP6)}
CLAIMS = {"arp": (an_announcement(sha=GUARD), VIP), "nd": (an_na(src=GUARD, options=(tlla(GUARD),)), VIP6)}

PASSED = {
    "never_set": lambda _: 0,
    "a_nanosecond_ago": lambda now: now - 1,
    "now": lambda now: now,
    "further_than_the_window": ahead(TERM.window_ns + HOUR_NS),
    "largest": lambda _: 2**64 - 1,
}


@at_both_hooks
@pytest.mark.parametrize(("question", "vip"), QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("fence_of", PASSED.values(), ids=PASSED)
def test_bound_node_is_silent_after_its_vouchers_fence(plane, hook, question, vip, fence_of):
    ready(plane, some_grants(fence_of(boot_ns())), a_vouching_control(strictest6=Mode.ENFORCE), entries=OWNED)

    assert plane.counted(hook, question) == (DROPPED, one_count(Reason.UNVOUCHED, vip=vip))
    assert plane.trial(hook, question).decisions == ((Verdict.SUPPRESS, Reason.UNVOUCHED),)


@at_both_hooks
@pytest.mark.parametrize(("question", "vip"), QUESTIONS.values(), ids=QUESTIONS)
def test_bound_node_answers_before_both_fences(plane, hook, question, vip):
    ready(plane, some_grants(boot_ns() + HOUR_NS // 2), a_vouching_control(strictest6=Mode.ENFORCE), entries=OWNED)

    assert plane.counted(hook, question)[1] == one_count(Reason.ANSWERED, vip=vip)
    assert plane.trial(hook, question).answered


@at_both_hooks
def test_api_fence_is_the_first_reason(plane, hook):
    ready(plane, some_grants(0), a_vouching_control(fence_ns=0))

    assert plane.counted(hook, an_arp_request())[1] == one_count(Reason.FENCED, vip=VIP)


# name -> (control.term, grants): what binds nobody
FREE = {
    "no_term": (None, some_grants(0)),
    "no_term_and_none_granted": (None, Grants()),
    "not_granted_yet": (TERM, Grants()),
    "granted_in_another_term": (TERM, some_grants(0, OTHER_TERM)),
}


@at_both_hooks
@pytest.mark.parametrize(("term", "grants"), FREE.values(), ids=FREE)
def test_node_that_is_not_bound_has_the_api_fence_alone(plane, hook, term, grants):
    ready(plane, grants, a_vouching_control(term))

    assert plane.run(hook, an_arp_request()) == ANSWERED


@at_both_hooks
@pytest.mark.parametrize("entry", [an_entry(unfenced=True), an_entry(epoch=0, unfenced=True)], ids=["held", "static"])
def test_hold_does_not_look_at_the_vouchers_fence(plane, hook, entry):
    ready(plane, some_grants(0), entries={VIP: entry})

    assert plane.run(hook, an_arp_request()) == ANSWERED
    claim = an_announcement(sha=GUARD)
    assert plane.run(Hook.TC_EGRESS, claim) == passed(claim)


@pytest.mark.parametrize(("claim", "vip"), CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("fence_of", PASSED.values(), ids=PASSED)
def test_no_claim_leaves_after_the_vouchers_fence(plane, claim, vip, fence_of):
    ready(plane, some_grants(fence_of(boot_ns())), a_vouching_control(strictest6=Mode.ENFORCE), entries=OWNED)

    assert plane.counted(Hook.TC_EGRESS, claim) == (DROPPED, one_count(Reason.EGRESS_NOT_OWNER, vip=vip))


@pytest.mark.parametrize(("claim", "vip"), CLAIMS.values(), ids=CLAIMS)
def test_claim_leaves_before_the_vouchers_fence(plane, claim, vip):
    grants = some_grants(boot_ns() + HOUR_NS // 2)
    ready(plane, grants, a_vouching_control(strictest6=Mode.ENFORCE), entries=OWNED)

    assert plane.counted(Hook.TC_EGRESS, claim) == (passed(claim), one_count(Reason.EGRESS_OWNER, vip=vip))


@at_both_hooks
def test_silent_from_the_fence_on_and_until_the_next_grant(plane, hook):
    seen = plane.run_across(hook, an_arp_request(), lambda fence_ns: ready(plane, some_grants(fence_ns)))

    assert set(seen) == {SEND_BACK, DROPPED.action}
    plane.run(hook, sealed(a_grant(boot_ns())))
    assert plane.run(hook, an_arp_request()) == ANSWERED
