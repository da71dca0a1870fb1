"""Random and mutated IPv6 frames against random maps: the programs do what tests/reference says, to the byte."""

import pytest

from arpguard.verdict import Hook, Reason
from arpguard.wire.ndp import Flaw, NdType, NoMessage
from support.frames.random_nd import random_maps, stimuli_for
from support.programs.agreement import BATCHES, FRAMES_PER_BATCH, compare
from support.programs.prog_run import DROP, INGRESS, PASS, SEND_BACK

pytestmark = pytest.mark.bpf

ODDITIES: tuple[object, ...] = (
    *("plain", "tag", "fragments", "padding", "cut", "payload length", "flipped"),
    *("flipped, and mended", "option length", "no whole units"),
    *("hop-by-hop", "router alert", "jumbo", "destination", "unknown option", "routing", "atomic fragment"),
    *("later fragment", "long", "DAD", "two VIPs", "v4-mapped"),
    *((NdType.SOLICITATION, flaw) for flaw in (None, *Flaw) if flaw is not Flaw.SOLICITED_TO_GROUP),
    *((NdType.ADVERTISEMENT, flaw) for flaw in (None, *Flaw) if not flaw or not flaw.name.startswith("DAD")),
    *((number, "extension headers") for number in range(9)),
    *NoMessage,
)
INGRESS_REASONS = {
    reason
    for reason in Reason
    if not reason.name.startswith("EGRESS") and reason not in (Reason.NOT_ARP, Reason.UNCONFIGURED)
}
EGRESS_REASONS = {reason for reason in Reason if reason.name.startswith("EGRESS")} | {
    Reason.NOT_GUARDED,
    Reason.OTHER_VLAN,
    Reason.UNWALKABLE,
    Reason.NOT_ND,
}


@pytest.mark.parametrize("hook", [*INGRESS, Hook.TC_EGRESS], ids=lambda hook: hook.name)
def test_program_does_what_the_model_says(plane, hook):
    outgoing = hook is Hook.TC_EGRESS
    stimuli = stimuli_for(hook)
    tallies = compare(plane, hook, random_maps, stimuli)
    number = BATCHES * FRAMES_PER_BATCH
    wanted = (PASS, DROP) if outgoing else (PASS, DROP, SEND_BACK)
    assert all(tallies.actions[action] > number // 50 for action in wanted), tallies.actions
    rare = {reason.name: tallies.reasons[reason] for reason in (EGRESS_REASONS if outgoing else INGRESS_REASONS)}
    assert min(rare.values()) > number // 20_000, rare
    seldom = {oddity: stimuli.oddities[oddity] for oddity in ODDITIES}
    assert min(seldom.values()) > number // 20_000, seldom
