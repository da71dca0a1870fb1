"""Faults put into a copy of the programs: each one must be noticed by the verdict table."""

import shutil

import pytest

from arpguard.dataplane.source import Source, find_source
from arpguard.verdict import Hook
from prog_run import INGRESS, Plane, a_plane
from verdict_cells import EGRESS_CASES, INGRESS_CASES, MODES, check_case

pytestmark = pytest.mark.bpf

# name -> (file, old text, new text)
MUTANTS = {
    "epoch_is_not_compared": ("decide.h", "return e->epoch != c->epoch;", "return 0;"),
    "fence_is_not_compared": ("decide.h", "if (now_ns >= c->fence_ns || ", "if (0 && "),
    "hold_needs_a_fence": ("decide.h", "if (e->flags & ENTRY_HOLD)\n\t\treturn", "if (0)\n\t\treturn"),
    "delegated_is_suppressed": (
        "decide.h",
        "return DECIDE(VERDICT_PASS, REASON_DELEGATED)",
        "return DECIDE(VERDICT_SUPPRESS, REASON_DELEGATED)",
    ),
    "not_owner_passes": ("decide.h", "DECIDE(VERDICT_SUPPRESS, not_owner", "DECIDE(VERDICT_PASS, not_owner"),
    "owner_is_taken_for_a_stranger": ("decide.h", "return mac_equal(f->sha, &owner) ?", "return 0 ?"),
    "stranger_is_taken_for_the_owner": ("decide.h", "return mac_equal(f->sha, &owner) ?", "return 1 ?"),
    "claims_are_not_disarmed": ("decide.h", "return f->op == OP_REQUEST && f->spa == f->tpa &&", "return 0 &&"),
    "every_claim_is_disarmed": ("decide.h", "return f->op == OP_REQUEST && f->spa == f->tpa &&", "return"),
    "replies_leave": ("decide.h", "if (f->op == OP_REPLY ||", "if ("),
    "announcements_leave": ("decide.h", "|| f->spa == f->tpa", ""),
    "no_address_is_written": ("decide.h", "if (!e->primary[3])", "if (0)"),
    "answer_has_the_askers_mac": ("arp.h", "= r->w[13] = mac->w[2]", "= r->w[13] = tha->w[2]"),
    "unicast_is_not_answered": ("decide.h", "else if (!mac_equal(f->eth_dst, &own) &&", "else if (1 ||"),
    "entry_has_no_mode": ("arpguard.c", "return e->mode ? e->mode :", "return"),
    "observed_is_counted_as_enforced": ("arpguard.c", "c->frames[observed]", "c->frames[0]"),
    "node_does_not_count": ("arpguard.c", "t->frames[observed][reason]++", "(void)observed"),
}


@pytest.fixture
def a_mutant(tmp_path):
    def make(name: str, old: str, new: str) -> Source:
        folder = tmp_path / "bpf"
        shutil.copytree(find_source().folder, folder)
        path = folder / name
        text = path.read_text()
        assert text.count(old) == 1, f"{name} no longer has {old!r}: change the mutant with it"
        path.write_text(text.replace(old, new))
        return Source(folder)

    return make


def first_wrong_cell(plane: Plane) -> str | None:
    stimuli = [(hook, name, case) for hook in INGRESS for name, case in INGRESS_CASES.items()]
    stimuli += [(Hook.TC_EGRESS, name, case) for name, case in EGRESS_CASES.items()]
    for mode in MODES:
        for hook, name, case in stimuli:
            try:
                check_case(plane, hook, case, mode)
            except AssertionError:
                return f"{name}-{mode}-{hook.name}"
    return None


@pytest.mark.parametrize(("file", "old", "new"), MUTANTS.values(), ids=MUTANTS)
def test_mutant_is_noticed(a_mutant, file, old, new):
    with a_plane("mutant", a_mutant(file, old, new)) as plane:
        assert first_wrong_cell(plane) is not None


def test_program_without_a_fault_has_no_wrong_cell(plane):
    assert first_wrong_cell(plane) is None
