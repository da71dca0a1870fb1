"""The model of what becomes of frames of vouching; tests/bpf compares the rest of it with the programs."""

import pytest

from arpguard.addresses import BROADCAST_MAC
from arpguard.model import EntryKey, Grants
from arpguard.verdict import Reason, Vouched
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.vouching import VouchFrame, VouchType
from reference import Response, Situation, respond_egress, respond_ingress
from support.frames.builders import GUARD, TESTER, VIP, an_announcement, an_arp_request, an_entry
from support.frames.vouch_builders import (
    OTHER_KEY,
    OTHER_TERM,
    TERM,
    a_grant,
    a_ping,
    a_vouching_control,
    in_frame,
    sealed,
)

LINK = 3
NOW = 1_000_000_000_000_000
FENCE = NOW + 7


def a_situation(grants=None, node_term=TERM, term=TERM, **changes) -> Situation:
    control = a_vouching_control(node_term, fence_ns=FENCE, **changes)
    entries = {EntryKey(LINK, VIP): an_entry()}
    return Situation(control, entries, LINK, NOW, term=term, grants=grants or Grants())


def granted(fence_ns: int, term=TERM) -> Grants:
    return Grants(fence_ns, term.number, term.window_ns)


@pytest.mark.parametrize("tags", [(), (VlanTag(0, 3),)], ids=["plain", "tagged"])
@pytest.mark.parametrize("grants", [Grants(), granted(1)], ids=["unbound", "bound"])
def test_ping_is_turned_round(tags, grants):
    ping = sealed(a_ping(), tags=tags, min_len=90)
    pong = VouchFrame(VouchType.PONG, TERM.number, 7, NOW, right_ns=FENCE, bound=bool(grants.bound_term))
    back = sealed(pong, dst=TESTER, src=GUARD, tags=tags, min_len=90)

    response = respond_ingress(ping, a_situation(grants))

    assert response == Response(True, back, (), vouched=Vouched.PING)


def test_ping_on_trial_is_turned_round_unbound():
    response = respond_ingress(sealed(a_ping()), a_situation(granted(1), node_term=None))

    assert (response.answered, response.vouched) == (True, Vouched.PING)
    assert response.frame == sealed(
        VouchFrame(VouchType.PONG, TERM.number, 7, NOW, right_ns=FENCE), dst=TESTER, src=GUARD
    )


@pytest.mark.parametrize(
    ("before", "stamp_ns", "fence_ns"),
    [
        (Grants(), NOW, NOW + TERM.window_ns),
        (granted(NOW - 1), NOW - 2, NOW - 2 + TERM.window_ns),
        (granted(NOW + TERM.window_ns), 1, NOW + TERM.window_ns),
        (granted(NOW + TERM.window_ns + 1), 1, 1 + TERM.window_ns),
        (granted(NOW + 5, OTHER_TERM), 1, 1 + TERM.window_ns),
    ],
    ids=["first", "later", "older", "after_a_mistake", "of_a_new_term"],
)
def test_grant_moves_the_fence_and_goes_no_further(before, stamp_ns, fence_ns):
    after = Grants(fence_ns, TERM.number, TERM.window_ns)

    response = respond_ingress(sealed(a_grant(stamp_ns)), a_situation(before))

    assert response == Response(False, None, (), vouched=Vouched.GRANT, grants=after)


PASSING = {
    "stamp_0": (sealed(a_grant(0)), {}, Vouched.BAD_STAMP),
    "stamp_ahead": (sealed(a_grant(NOW + 1)), {}, Vouched.BAD_STAMP),
    "grant_on_trial": (sealed(a_grant(NOW)), {"node_term": OTHER_TERM}, Vouched.OTHER_TERM),
    "no_term_here": (sealed(a_ping()), {"term": None}, Vouched.OTHER_TERM),
    "another_term_here": (sealed(a_ping()), {"term": OTHER_TERM}, Vouched.OTHER_TERM),
    "forged": (sealed(a_ping(), OTHER_KEY), {}, Vouched.FORGED),
    "pong": (sealed(VouchFrame(VouchType.PONG, 1, 1)), {}, Vouched.PONG),
    "group": (sealed(a_ping(), dst=BROADCAST_MAC), {}, Vouched.UNREADABLE),
    "short": (sealed(a_ping())[:-1], {}, Vouched.UNREADABLE),
    "version": (in_frame(b"\2\1" + bytes(54)), {}, Vouched.UNREADABLE),
    "type": (in_frame(b"\1\4" + bytes(54)), {}, Vouched.UNREADABLE),
}


@pytest.mark.parametrize(("frame", "situation", "what"), PASSING.values(), ids=PASSING)
def test_whatever_is_not_this_nodes_passes(frame, situation, what):
    assert respond_ingress(frame, a_situation(**situation)) == Response(False, frame, (), vouched=what)


def test_other_frames_are_what_they_were():
    two_tags = sealed(a_ping(), tags=(VlanTag(0), VlanTag(0)))
    (judgement,) = respond_ingress(two_tags, a_situation()).judgements

    assert judgement.reason is Reason.NOT_ARP
    assert respond_ingress(sealed(a_ping())[:13], a_situation()).vouched is None
    assert respond_ingress(sealed(a_ping()), a_situation(ethertype=0)).judgements == ()
    assert respond_egress(sealed(a_ping()), a_situation()) == Response(False, sealed(a_ping()), ())


@pytest.mark.parametrize(
    ("fence_ns", "reason", "outgoing"),
    [
        (NOW, Reason.UNVOUCHED, Reason.EGRESS_NOT_OWNER),
        (NOW + 1, Reason.ANSWERED, Reason.EGRESS_OWNER),
        (NOW + TERM.window_ns, Reason.ANSWERED, Reason.EGRESS_OWNER),
        (NOW + TERM.window_ns + 1, Reason.UNVOUCHED, Reason.EGRESS_NOT_OWNER),
    ],
    ids=["passed", "ahead", "furthest", "too_far"],
)
def test_vouchers_fence_is_the_second_one(fence_ns, reason, outgoing):
    situation = a_situation(granted(fence_ns))

    assert [found.reason for found in respond_ingress(an_arp_request(), situation).judgements] == [reason]
    assert [found.reason for found in respond_egress(an_announcement(sha=GUARD), situation).judgements] == [outgoing]
