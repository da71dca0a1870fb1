"""libFuzzer on the programs in user space: a short run, and faults that it has to find."""

import pytest
from guided import Guided, GuidedError, Reader, lacking, replay

from support.chance import SEED
from support.programs.compiling import BPF
from support.programs.judging import faulty_source
from support.programs.user_space import UserPlane
from support.required import do_without

RUNS = 40_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("guided")
    reason = lacking(found)
    if reason is not None:
        do_without("libfuzzer", reason)
    return found


def test_no_input_breaks_a_rule_and_the_model_agrees_on_those_that_were_kept(folder):
    guided = Guided(folder, SEED, short=True)
    guided.run(f"-runs={RUNS}")
    user_plane = UserPlane(folder, BPF)
    reader = Reader(user_plane)
    found = guided.found()
    assert sum(replay(data, reader, user_plane, None) for data in found) > len(found) // 2


def test_byte_too_far_is_found(folder, tmp_path):
    source = faulty_source(tmp_path, "frame.h", "if (body + ARP_BODY_LEN > end)", "if (body + 4 > end)")
    with pytest.raises(GuidedError, match="heap-buffer-overflow"):
        Guided(tmp_path, SEED, source, short=True).run(f"-runs={RUNS}")
