"""Faults put into a copy of the programs: each one must be noticed, by the verdict table or by random frames.

They are judged in user space, and two of them in the kernel, too, where a build takes seconds. `make test-long` judges
one of three; `make mutate` judges all (ARPGUARD_EVERY=1), and puts in many more, and not by hand.
"""

import gc
import os

import pytest

from support.programs.compiling import BPF, compiled
from support.programs.judging import (
    AT_TC,
    Bench,
    changed_text,
    faulty_source,
    first_quick_difference,
    first_wrong_batch,
    first_wrong_cell,
    judged,
)
from support.programs.prog_run import a_plane

# name -> (file, old text, new text)
MUTANTS = {
    "epoch_is_not_compared": ("decide.h", "return e->epoch != c->epoch;", "return 0;"),
    "fence_is_not_compared": ("decide.h", "if (has_passed(c->fence_ns, ", "if (0 && has_passed(c->fence_ns, "),
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
    "unknown_passes": ("decide.h", "DECIDE(VERDICT_SUPPRESS, REASON_UNKNOWN)", "DECIDE(VERDICT_PASS, REASON_UNKNOWN)"),
    "guests_are_not_asked": (
        "decide.h",
        "if (!mac_is_group(f->eth_dst) && f->eth_dst != mac_load(range",
        "if (0 && mac_load(range",
    ),
    "guests_may_not_speak": ("decide.h", "if (e->kind == KIND_CLOSED && f->sha !=", "if (0 && f->sha !="),
    "exceptions_are_closed": ("arpguard.c", "return e && e->kind == KIND_CLOSED ? e : 0;", "return e;"),
    "nothing_is_ever_closed": ("arpguard.c", "if (!at->control->closed)", "if (1)"),
    "nothing_is_hidden": ("tc.h", "return bpf_skb_change_type(skb, PACKET_OTHERHOST) ?", "return 0 ?"),
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
    "option_may_have_no_length": ("ndp.h", "if_none(size) | ", ""),
    "option_may_run_over_the_end": ("ndp.h", " | if_none(units - i - size + 1)", ""),
    "rest_after_the_options_is_ignored": ("ndp.h", " | length % 8", ""),
    "last_address_counts": ("ndp.h", " & if_none(o->link_layer)", ""),
    "address_behind_a_bad_option_counts": ("ndp.h", "begins & ~bad &", "begins &"),
    "option_begins_in_another": ("ndp.h", "begins = if_none(left);", "begins = ~0ull;"),
    "longer_address_is_one": ("ndp.h", "|| o->link_layer > 1", ""),
    "option_of_the_other_kind_counts": ("ndp.h", "(__u8)unit[0] ^ wanted", "(__u8)(unit[0] - 1) > 1"),
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
    "highest_bit_of_a_sum_is_taken_for_an_error": (
        "tc.h",
        "if (bpf_l4_csum_replace(skb",
        "if ((int)changed < 0 || bpf_l4_csum_replace(skb",
    ),
    "checksum_is_not_updated": ("tc.h", "bpf_l4_csum_replace(skb, body + 2, 0, changed, BPF_F_PSEUDO_HDR)", "0"),
}


# The same, of vouching.
VOUCH_MUTANTS = {
    "vouchers_fence_is_not_compared": ("decide.h", "if (is_bound(c, g) && has_passed(", "if (0 && has_passed("),
    "node_is_bound_to_any_term": ("vouch.h", "return c->term && g->bound_term == c->term;", "return c->term != 0;"),
    "node_is_bound_without_a_term": ("vouch.h", "return c->term && g->bound", "return g->bound"),
    "mac_is_not_compared": ("vouch.h", "if (f->mac != vouch_mac(f, v->key))", "if (0)"),
    "term_is_not_compared": ("vouch.h", "if (!v || f->term != v->term)", "if (!v)"),
    "version_is_not_read": ("vouch.h", "if ((__u8)f->head != VOUCH_VERSION)", "if (0)"),
    "pongs_are_answered": ("vouch.h", "if (type == VOUCH_PONG)", "if (0)"),
    "grants_are_answered": (
        "vouch.h",
        "return type == VOUCH_PING ? VOUCHED_PING : VOUCHED_GRANT;",
        "return VOUCHED_PING;",
    ),
    "trial_binds": ("vouch.h", "if (c->term != v->term)\n\t\treturn VOUCHED_OTHER_TERM;", ""),
    "trial_is_bound": ("vouch.h", "c->term == v->term && is_bound(c, g)", "g->bound_term"),
    "stamp_0_is_taken": ("vouch.h", "if (!f->stamp_ns || f->stamp_ns > now_ns)", "if (f->stamp_ns > now_ns)"),
    "stamp_of_the_future_is_taken": ("vouch.h", "|| f->stamp_ns > now_ns)", ")"),
    "fence_counts_from_receipt": ("vouch.h", "f->stamp_ns + v->window_ns;", "now_ns + v->window_ns;"),
    "fence_moves_back": ("vouch.h", "if (g->bound_term == v->term && g->fence_ns > fence_ns", "if (0 && g->fence_ns"),
    "fence_of_the_old_term_stays": ("vouch.h", "if (g->bound_term == v->term && g->fence_ns >", "if (g->fence_ns >"),
    "mistake_stays": ("vouch.h", "&& g->fence_ns <= now_ns + v->window_ns)", ")"),
    "grant_does_not_bind": ("vouch.h", "in_order->bound_term = v->term;", ""),
    "pong_has_no_stamp": ("vouch.h", "f->stamp_ns = now_ns;", ""),
    "pong_does_not_tell_the_right": ("vouch.h", "f->right_ns = c->fence_ns;", ""),
    "ping_of_a_group_is_answered": ("tc.h", "|| mac_is_group(mac_load(data)))", ")"),
    "pong_goes_to_the_node": ("tc.h", "mac_store(macs, mac_load(data + 6));", "mac_store(macs, mac_load(data));"),
    "pong_has_something_reserved": ("vouch.h", "f->reserved = 0;", "f->reserved = 1;"),
    "ethertype_0_is_one": ("arpguard.c", "return *c && (*c)->ethertype ? payload_of", "return *c ? payload_of"),
    "grant_goes_on": (
        "arpguard.c",
        "return what == VOUCHED_GRANT ? TC_ACT_SHOT : TC_ACT_UNSPEC;",
        "return TC_ACT_UNSPEC;",
    ),
    "nothing_is_counted": ("arpguard.c", "t->vouched[what]++", "(void)what"),
    "twins_answer": ("arpguard.c", "if (hook == HOOK_TC_INGRESS && !explain) {", "if (hook == HOOK_TC_INGRESS) {"),
}


ALL = {**MUTANTS, **ND_MUTANTS, **VOUCH_MUTANTS}
EVERY = int(os.environ.get("ARPGUARD_EVERY", "3"))
SOME = dict(list(ALL.items())[::EVERY])
IN_THE_KERNEL = ("checksum_is_not_updated", "fence_is_not_compared")[::EVERY]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize(("file", "old", "new"), ALL.values(), ids=ALL)
def test_mutant_changes_a_line_that_is_there(file, old, new):
    assert changed_text(file, old, new)


@pytest.mark.parametrize(("file", "old", "new"), SOME.values(), ids=SOME)
def test_mutant_is_noticed(bench, file, old, new):
    with bench.plane(file, changed_text(file, old, new)) as faulty:
        assert judged(faulty) is not None


def test_program_without_a_fault_is_not_noticed(bench):
    """Many more frames are in tests/fuzz/frames/test_flood.py."""
    unchanged = (BPF / "decide.h").read_text()
    with bench.plane("decide.h", unchanged) as faultless:
        assert judged(faultless, first_quick_difference) is None


class _Waiting:
    """Waits for ever when it is collected, as what others left may do in a process that was forked."""

    def __init__(self) -> None:
        self._itself, self._pid = self, os.getpid()

    def __del__(self) -> None:
        while os.getpid() != self._pid:
            pass


def test_what_is_left_of_other_tests_is_not_taken_for_a_fault(bench):
    _Waiting()
    with bench.plane("decide.h", (BPF / "decide.h").read_text()) as faultless:
        assert judged(faultless, lambda _: gc.collect() and None) is None


@pytest.mark.bpf
@pytest.mark.compiler
@pytest.mark.parametrize(("file", "old", "new"), [ALL[name] for name in IN_THE_KERNEL], ids=IN_THE_KERNEL)
def test_mutant_is_noticed_in_the_kernel(tmp_path, file, old, new):
    with a_plane("mutant", compiled(faulty_source(tmp_path, file, old, new))) as plane:
        assert (first_wrong_cell(plane, AT_TC) or first_wrong_batch(plane, 20, AT_TC)) is not None
