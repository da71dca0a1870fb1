"""What is shipped is what comes out of the sources: compiled afresh, and compared."""

import json
import shutil

import pytest

from arpguard.dataplane.build import SHIPPED
from support.programs.compiling import BPF, build_of, compiled, compiled_text
from support.programs.judging import first_wrong_cell
from support.programs.prog_run import a_plane

pytestmark = [pytest.mark.bpf, pytest.mark.compiler]


@pytest.fixture(scope="module")
def afresh() -> str:
    return compiled_text(BPF)


def test_compiled_afresh_the_programs_are_those_that_are_shipped(afresh):
    """Byte by byte, if this machine has the compiler that made them; any other's have to do the same."""
    shipped = SHIPPED.read_text(encoding="ascii")
    if json.loads(afresh)["compiler"] == json.loads(shipped)["compiler"]:
        assert afresh == shipped, "run `make programs`"
        return
    with a_plane("afresh", build_of(afresh)) as plane:
        assert first_wrong_cell(plane) is None


def test_sizes_are_in_no_instruction(tmp_path, afresh):
    """On a node maps have other sizes than where the programs were compiled."""
    shutil.copytree(BPF, tmp_path / "bpf")
    main = tmp_path / "bpf/arpguard.c"
    sizes = "#undef MAX_ENTRIES\n#undef RING_BYTES\n#define MAX_ENTRIES 77\n#define RING_BYTES 8192\n"
    main.write_text(sizes + main.read_text())
    other, same = compiled(tmp_path / "bpf"), build_of(afresh)
    assert (other.programs, other.shapes) == (same.programs, same.shapes)


def test_what_does_not_compile_is_said_with_its_line(tmp_path):
    shutil.copytree(BPF, tmp_path / "bpf")
    with (tmp_path / "bpf/decide.h").open("a") as file:
        file.write("#error this is wrong\n")
    with pytest.raises(RuntimeError, match=r"decide\.h.*this is wrong"):
        compiled_text(tmp_path / "bpf")
