"""The reference model says what the verdict table says (`verdict_cells`), cell by cell, in every mode."""

import pytest

from arpguard.clock import boot_ns
from arpguard.model import EntryKey, RangeKey
from arpguard.verdict import Hook, Reason
from reference import Judgement, Response, Situation, respond_egress, respond_ingress
from support.programs.prog_run import DROPPED, Outcome, hidden, passed, sent_back
from support.programs.verdict_cells import (
    EGRESS_CASES,
    GRANTS,
    INGRESS_CASES,
    MODES,
    enforced_outcome,
    situation,
    what_is_counted,
)

LINK = 3


def outcome_of(response: Response, frame: bytes) -> Outcome:
    if response.hidden:
        return hidden(frame)
    if response.frame is None:
        return DROPPED
    return sent_back(response.frame) if response.answered else passed(response.frame)


def answered(respond, case, mode) -> tuple[Outcome, tuple[Judgement, ...]]:
    entries, ranges, control, _ = situation(case, mode)
    keyed = {EntryKey(LINK, vip): entry for vip, entry in entries.items()}
    around = {RangeKey(LINK, network): entry for network, entry in ranges.items()}
    response = respond(case.form.frame, Situation(control, keyed, LINK, boot_ns(), around, grants=GRANTS))
    return outcome_of(response, case.form.frame), response.judgements


def expected(case, mode) -> tuple[Outcome, tuple[Judgement, ...]]:
    *_, observed = situation(case, mode)
    reason = Reason[case.cell[1:]]
    judgement = Judgement(case.form.vip if what_is_counted(case) else None, reason.verdict, reason)
    return passed(case.form.frame) if observed else enforced_outcome(case, Hook.TC_INGRESS), (judgement,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("respond", "cases"),
    [(respond_ingress, INGRESS_CASES), (respond_egress, EGRESS_CASES)],
    ids=["incoming", "outgoing"],
)
def test_model_says_what_the_table_says(respond, cases, mode):
    wrong = [name for name, case in cases.items() if answered(respond, case, mode) != expected(case, mode)]

    assert wrong == []
