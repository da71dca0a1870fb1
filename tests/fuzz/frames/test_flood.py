"""Mutated frames through the loaded programs: a short run, and faults that it has to find."""

import pytest
from flood import Flood, FloodError

from arpguard.dataplane.build import read_build
from support.chance import SEED
from support.programs.judging import faulty_source
from support.programs.prog_run import a_plane

pytestmark = pytest.mark.bpf

FRAMES, SAMPLES = 500_000, 3000


@pytest.fixture(scope="module")
def plane():
    with a_plane("flood", read_build()) as loaded:
        yield loaded


def test_kernel_and_user_space_and_model_agree_on_every_frame(plane, tmp_path):
    told = Flood(tmp_path, plane, SEED, short=True).run(FRAMES, SAMPLES)
    assert "compared with the model" in told


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "return DECIDE(VERDICT_ANSWER, REASON_ANSWERED);",
            "return DECIDE(VERDICT_PASS, REASON_ANSWERED);",
            "return code",
        ),
        ("return DECIDE(VERDICT_SUPPRESS, REASON_BAD_SENDER);", "return DECIDE(VERDICT_SUPPRESS, 1);", "counts reason"),
    ],
)
def test_difference_is_found(plane, tmp_path, old, new, said):
    source = faulty_source(tmp_path, "decide.h", old, new)
    with pytest.raises(FloodError, match=said):
        Flood(tmp_path, plane, SEED, source, short=True).run(FRAMES, SAMPLES)
