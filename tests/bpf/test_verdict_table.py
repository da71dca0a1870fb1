"""The verdict table (`verdict_cells`), cell by cell, at every hook and in every mode."""

from dataclasses import replace

import pytest

from arpguard.verdict import Hook, Kind, Reason
from support.frames.builders import GUARD, NEIGHBOUR_IP, NOBODY, PRIMARY_IP, VIP, a_control, a_frame, a_packet, an_entry
from support.programs.prog_run import INGRESS, assert_counted, assert_outcome, one_count, passed
from support.programs.verdict_cells import (
    EGRESS_CASES,
    EGRESS_TABLE,
    ENTRIES,
    INGRESS_CASES,
    INGRESS_TABLE,
    MODES,
    WITHOUT_ENTRY,
    cells,
    check_case,
)

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", INGRESS_CASES.values(), ids=INGRESS_CASES)
def test_incoming_frame_is_treated_as_the_table_says(plane, hook, mode, case):
    check_case(plane, hook, case, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", EGRESS_CASES.values(), ids=EGRESS_CASES)
def test_outgoing_frame_is_treated_as_the_table_says(plane, mode, case):
    check_case(plane, Hook.TC_EGRESS, case, mode)


def test_table_has_every_entry():
    for table in (INGRESS_TABLE, EGRESS_TABLE):
        assert {entry for entry, _ in cells(table)} == {*ENTRIES, *WITHOUT_ENTRY}


def test_egress_probe_claims_nothing(plane):
    plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control())
    probe = a_frame(a_packet(sha=GUARD, spa=NOBODY), src=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, probe), passed(probe), probe)


def test_egress_request_for_a_vip_passes(plane):
    plane.set({VIP: an_entry(Kind.FOREIGN)}, a_control())
    request = a_frame(a_packet(sha=GUARD, spa=PRIMARY_IP), src=GUARD)
    assert_outcome(plane.run(Hook.TC_EGRESS, request), passed(request), request)


@pytest.mark.parametrize("hook", [*INGRESS, Hook.TC_EGRESS], ids=lambda hook: hook.name)
def test_vip_of_another_entry_is_not_counted_for(plane, hook):
    other = replace(a_packet(), tpa=NEIGHBOUR_IP)
    plane.set({VIP: an_entry()}, a_control())
    frame = a_frame(other)
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, passed(frame), frame)
    assert_counted(counted, one_count(Reason.NOT_GUARDED))
