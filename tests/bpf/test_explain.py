"""The twins leave no trace, and judge for the link they are told; test_agrees_with_model compares their decisions."""

import pytest

from arpguard.core.stimulus import Operation, build_stimulus
from arpguard.dataplane.explain import Trial, try_frame
from arpguard.model import EntryKey
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    VIP,
    a_control,
    a_packet,
    an_announcement,
    an_arp_request,
    an_entry,
    the_answer,
)
from support.frames.nd_builders import OTHER_VIP6, VIP6, a_control6, an_entry6, an_na, an_ns
from support.programs.prog_run import INGRESS

ELSEWHERE = 4711  # no such link


@pytest.mark.parametrize("hook", [*INGRESS, Hook.TC_EGRESS], ids=lambda hook: hook.name)
def test_trial_counts_and_reports_nothing(plane, hook):
    of_ipv6 = {VIP6: an_entry6(), OTHER_VIP6: an_entry6(Kind.FOREIGN)}
    plane.set({VIP: an_entry(), NEIGHBOUR_IP: an_entry(Kind.FOREIGN), **of_ipv6}, a_control6())
    before = plane.counts(), plane.event_account()
    arp = (an_arp_request(), an_announcement(), an_arp_request(spa=NEIGHBOUR_IP))
    for frame in (*arp, an_ns(), an_na(), an_ns(target=OTHER_VIP6), bytes(60), bytes(14)):
        for _ in range(50):
            try_frame(plane.programs, hook, 1, frame)

    assert (plane.counts(), plane.event_account()) == before


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_trial_is_for_the_link_it_names(plane, hook):
    """Also for one that no test run could be put on."""
    plane.set({VIP: an_entry()}, a_control())
    plane.table.write({EntryKey(ELSEWHERE, VIP): an_entry(Kind.FOREIGN)})
    request = an_arp_request()

    assert try_frame(plane.programs, hook, 1, request) == Trial(
        True, the_answer(a_packet()), ((Verdict.ANSWER, Reason.ANSWERED),)
    )
    assert try_frame(plane.programs, hook, ELSEWHERE, request) == Trial(
        False, None, ((Verdict.SUPPRESS, Reason.FOREIGN),)
    )
    assert try_frame(plane.programs, hook, ELSEWHERE + 1, request) == Trial(
        False, request, ((Verdict.PASS, Reason.NOT_GUARDED),)
    )


@pytest.mark.parametrize("operation", Operation)
def test_frame_of_each_operation_is_decided_about_whether_there_are_ipv6_vips_or_not(plane, operation):
    """An explanation always has a last decision to show."""
    hook = Hook.TC_EGRESS if operation.outgoing else Hook.TC_INGRESS
    frame = build_stimulus(operation, VIP6, GUARD)
    plane.set({VIP: an_entry()}, a_control(strictest6=Mode.INHERIT))
    without = try_frame(plane.programs, hook, 1, frame)
    plane.set({VIP6: an_entry6()}, a_control6())
    guarded = try_frame(plane.programs, hook, 1, frame)

    assert without == Trial(False, frame, ((Verdict.PASS, Reason.NOT_GUARDED),))
    assert [reason is Reason.NOT_GUARDED for _, reason in guarded.decisions] == [False]


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
def test_trial_tells_both_decisions_sender_first(plane, hook):
    plane.set({VIP: an_entry(), NEIGHBOUR_IP: an_entry(Kind.FOREIGN)}, a_control())
    trial = try_frame(plane.programs, hook, 1, an_arp_request(spa=NEIGHBOUR_IP))

    assert trial.decisions == ((Verdict.REPORT, Reason.UNVERIFIED_CLAIM), (Verdict.ANSWER, Reason.ANSWERED))
