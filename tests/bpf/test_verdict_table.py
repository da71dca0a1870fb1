"""The verdict table (`verdict_cells`), row by row, at every hook and in every mode."""

from dataclasses import replace

import pytest

from arpguard.verdict import Hook, Kind, Reason
from support.frames.builders import GUARD, NEIGHBOUR_IP, NOBODY, PRIMARY_IP, VIP, a_control, a_frame, a_packet, an_entry
from support.programs.prog_run import INGRESS, assert_counted, assert_outcome, one_count, passed
from support.programs.verdict_cells import (
    EGRESS_TABLE,
    INGRESS_TABLE,
    MODES,
    ROWS,
    cells,
    check_row,
)

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("hook", INGRESS, ids=lambda hook: hook.name)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("entry", ROWS)
def test_incoming_frames_are_treated_as_the_table_says(plane, hook, mode, entry):
    check_row(plane, hook, entry, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("entry", ROWS)
def test_outgoing_frames_are_treated_as_the_table_says(plane, mode, entry):
    check_row(plane, Hook.TC_EGRESS, entry, mode)


def test_table_has_every_entry():
    for table in (INGRESS_TABLE, EGRESS_TABLE):
        assert {entry for entry, _ in cells(table)} == set(ROWS)


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
