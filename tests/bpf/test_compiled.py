"""What is shipped is what comes out of the sources: compiled afresh, and compared."""

import json
import shutil

import pytest

from arpguard.dataplane.build import SHIPPED
from support.programs.compiling import BPF, build_of, compiled_text
from support.programs.judging import first_wrong_cell
from support.programs.prog_run import a_plane

pytestmark = [pytest.mark.bpf, pytest.mark.compiler]


def test_compiled_afresh_the_programs_are_those_that_are_shipped(tmp_path):
    """Byte by byte, if this machine has the compiler that made them; any other's have to do the same.

    They are compiled with other sizes of maps, as nodes have them: those are in no instruction. So the digest of the
    sources differs.
    """
    shutil.copytree(BPF, tmp_path / "bpf")
    main = tmp_path / "bpf/arpguard.c"
    sizes = "#undef MAX_ENTRIES\n#undef RING_BYTES\n#define MAX_ENTRIES 77\n#define RING_BYTES 8192\n"
    main.write_text(sizes + main.read_text())
    afresh, shipped = compiled_text(tmp_path / "bpf"), SHIPPED.read_text(encoding="ascii")
    made, kept = json.loads(afresh), json.loads(shipped)
    if made["compiler"] == kept["compiler"]:
        assert afresh.replace(made["source"], kept["source"]) == shipped, "run `make programs`"
        return
    with a_plane("afresh", build_of(afresh)) as plane:
        assert first_wrong_cell(plane) is None


def test_what_does_not_compile_is_said_with_its_line(tmp_path):
    shutil.copytree(BPF, tmp_path / "bpf")
    with (tmp_path / "bpf/decide.h").open("a") as file:
        file.write("#error this is wrong\n")
    with pytest.raises(RuntimeError, match=r"decide\.h.*this is wrong"):
        compiled_text(tmp_path / "bpf")
