"""Faults put into a copy of the programs: each one must be noticed, by the verdict table or by random frames."""

import shutil

import pytest

from agreement import compare
from arpguard.dataplane.source import Source, find_source
from arpguard.verdict import Hook
from ndstimuli import random_maps, stimuli_for
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
    "owner_is_taken_for_a_stranger": ("decide.h", "return f->sha == owner ?", "return 0 ?"),
    "stranger_is_taken_for_the_owner": ("decide.h", "return f->sha == owner ?", "return 1 ?"),
    "claims_are_not_disarmed": ("decide.h", "return f->op == OP_REQUEST && f->spa[3] == f->tpa[3] &&", "return 0 &&"),
    "every_claim_is_disarmed": ("decide.h", "return f->op == OP_REQUEST && f->spa[3] == f->tpa[3] &&", "return"),
    "replies_leave": ("decide.h", "return f->op == OP_REPLY ||", "return"),
    "announcements_leave": ("decide.h", "|| f->spa[3] == f->tpa[3]", ""),
    "no_address_is_written": ("decide.h", "if (addr_is_zero(e->primary))", "if (0)"),
    "answer_has_the_askers_mac": ("arp.h", "mac_store(r + 11, mac)", "mac_store(r + 11, tha)"),
    "unicast_is_not_answered": ("decide.h", "else if (f->eth_dst != own &&", "else if (1 ||"),
    "entry_has_no_mode": ("arpguard.c", "return e->mode ? e->mode :", "return"),
    "observed_is_counted_as_enforced": ("arpguard.c", "c->frames[observed]", "c->frames[0]"),
    "node_does_not_count": ("arpguard.c", "t->frames[observed][reason]++", "(void)observed"),
}


# The same, of what only neighbour discovery has.
ND_MUTANTS = {
    "hop_limit_is_not_read": ("ndp.h", "m->ip[1] >> 24 != ND_HOP_LIMIT", "0"),
    "code_is_not_read": ("ndp.h", "|| (__u8)(m->body[0] >> 8)", ""),
    "payload_may_be_cut_off": ("ndp.h", "|| m->length > m->there", ""),
    "multicast_target_is_believed": ("ndp.h", "|| ipv6_is_multicast(target)", ""),
    "dad_may_come_to_any_group": ("ndp.h", "dad && !is_solicited_node(dst)", "0"),
    "dad_may_have_an_address": ("ndp.h", "|| (dad && o->link_layer)", ""),
    "solicited_to_a_group_is_believed": ("ndp.h", "&& m->body[1] & ND_SOLICITED", "&& 0"),
    "checksum_is_not_verified": ("ndp.h", "? REASON_ND_CHECKSUM :", "? REASON_UNSET :"),
    "checksum_without_pseudo_header": ("ndp.h", "pseudo_sum(m->ip + 2, dst, m->length) + o->sum", "o->sum"),
    "long_option_is_not_summed": ("ndp.h", "o->sum += (__u64)unit[0] + unit[1];", "if (!left) o->sum += unit[0];"),
    "option_may_have_no_length": ("ndp.h", "if (!left || left", "left += !left; if (left"),
    "option_may_run_over_the_end": ("ndp.h", "|| left > units - i", ""),
    "rest_after_the_options_is_ignored": ("ndp.h", "|| length % 8", ""),
    "last_address_counts": ("ndp.h", "&& !o->link_layer)", ")"),
    "longer_address_is_one": ("ndp.h", "|| o->link_layer > 1", ""),
    "option_of_the_other_kind_counts": ("ndp.h", "(__u8)unit[0] == wanted", "(__u8)(unit[0] - 1) < 2"),
    "long_message_is_answered": ("ndp.h", "return REASON_NOT_STRICT;", "return REASON_UNSET;"),
    "extensions_are_answered": ("ndp.h", "if (m->extensions)", "if (0)"),
    "any_destination_is_answered": ("ndp.h", "return ((dst[3] ^ target[3]) & BE32(0x00ffffff)) != 0;", "return 0;"),
    "all_nodes_is_not_answered": ("ndp.h", "return dst[0] != BE32(0xff020000) ||", "return 1 ||"),
    "group_without_address_is_answered": ("ndp.h", "if (!o->link_layer && !addr_is_zero(f->spa))", "if (0)"),
    "answer_is_not_solicited": ("ndp.h", "flags |= ND_SOLICITED", "flags |= 0"),
    "answer_to_dad_goes_nowhere": ("ndp.h", "if (!addr_is_zero(f->spa)) {", "if (1) {"),
    "answer_has_no_checksum_of_its_mac": ("ndp.h", "(mac & 0xffffffff) + (mac >> 32)", "0"),
    "sixth_version_is_any": ("frame.h", "(word & 0xf0) != 0x60", "0"),
    "routing_header_is_not_walked": ("frame.h", "next == NEXT_ROUTING ||", ""),
    "fragment_header_has_a_length": ("frame.h", "if (next != NEXT_FRAGMENT)", "if (1)"),
    "later_fragment_is_read": ("frame.h", "word & FRAGMENT_OFFSET", "0"),
    "first_fragment_is_read": ("frame.h", "word & FRAGMENT_MORE", "0"),
    "padding_of_a_fragment_is_read": ("frame.h", "end = p->end;", "end = NO_END - 1;"),
    "jumbogram_has_no_end": ("frame.h", "return v->length;", "return p->ip + IPV6_HEADER_LEN;"),
    "eight_extensions_are_too_many": ("frame.h", "#define MAX_EXTENSIONS 8", "#define MAX_EXTENSIONS 7"),
    "nine_extensions_are_walked": ("frame.h", "#define MAX_EXTENSIONS 8", "#define MAX_EXTENSIONS 9"),
    "nothing_is_too_deep": ("frame.h", "return REASON_UNWALKABLE;\n\tif (next !=", "return NO_CONCERN;\n\tif (next !="),
    "depth_is_any_families": ("arpguard.c", "at->control->strictest6 :", "at->control->strictest :"),
    "v4_mapped_is_looked_up": ("facts.h", "a[2] == V4_MAPPED ||", ""),
    "invalid_claim_is_believed": ("decide.h", "if (f->flaw && f->flaw != REASON_NOT_STRICT)", "if (0)"),
    "long_claim_is_not_judged": ("decide.h", "if (f->flaw && f->flaw != REASON_NOT_STRICT)", "if (f->flaw)"),
    "advertisements_leave": ("decide.h", "return f->op == OP_ADVERTISE;", "return 0;"),
    "advertisement_is_a_question": ("decide.h", "return f->op == OP_SOLICIT;", "return 1;"),
    "checksum_is_not_updated": ("tc.h", "bpf_l4_csum_replace(skb, body + 2, 0, changed, BPF_F_PSEUDO_HDR)", "0"),
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


def compare_at_tc(plane: Plane) -> None:
    for hook in (Hook.TC_INGRESS, Hook.TC_EGRESS):
        compare(plane, hook, random_maps, stimuli_for(hook))


@pytest.mark.parametrize(("file", "old", "new"), ND_MUTANTS.values(), ids=ND_MUTANTS)
def test_mutant_of_neighbour_discovery_is_noticed(a_mutant, file, old, new):
    with (
        a_plane("mutant", a_mutant(file, old, new)) as plane,
        pytest.raises(AssertionError, match=r"stimulus|counters"),
    ):
        compare_at_tc(plane)


def test_program_without_a_fault_has_no_wrong_cell(plane):
    assert first_wrong_cell(plane) is None
