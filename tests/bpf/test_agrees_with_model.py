"""Random and mutated ARP frames against random maps: the programs do what tests/reference says, to the byte."""

import pytest

from arpguard.verdict import Hook
from support.frames.random_arp import a_stimulus, random_maps
from support.programs.agreement import compare
from support.programs.prog_run import DROP, INGRESS, PASS, SEND_BACK

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("hook", [*INGRESS, Hook.TC_EGRESS], ids=lambda hook: hook.name)
def test_program_does_what_the_model_says(plane, hook):
    actions = compare(plane, hook, random_maps, a_stimulus).actions
    least = sum(actions.values()) // 200  # 1.2 to 2 of a hundred are answered
    wanted = (PASS, DROP) if hook is Hook.TC_EGRESS else (PASS, DROP, SEND_BACK)
    assert all(actions[action] > least for action in wanted), f"the frames do not exercise much: {actions}"
