"""What the compiler gives, written down; that it is what is shipped is in tests/bpf/test_compiled.py."""

import sys

import pytest

from arpguard_build import compiler
from arpguard_build.errors import BuildError
from arpguard_build.headers import HeaderTree

MAP_LOAD = "1811000007000000" + "0000000000000000"  # r1 = the map with descriptor 7
NUMBER = "1801000007000000" + "0000000000000000"  # r1 = 7
EXIT = "9500000000000000"


def test_descriptors_are_taken_out_and_their_places_written_down():
    code = bytearray.fromhex(NUMBER + MAP_LOAD + EXIT + MAP_LOAD)
    found = compiler._program("ingress_xdp", code, {7: "entries"})
    blank = "1811000000000000" + "0000000000000000"
    assert "".join(found["code"]) == NUMBER + blank + EXIT + blank
    assert found["map_loads"] == {"entries": [2, 5]}


@pytest.mark.parametrize(
    ("name", "kind"), [("ingress_tc", "sched_cls"), ("ingress_xdp", "xdp"), ("try_ingress_xdp", "xdp")]
)
def test_name_tells_the_type(name, kind):
    assert compiler._program(name, bytearray.fromhex(EXIT), {})["type"] == kind


def test_without_bcc_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "find_headers", lambda: HeaderTree(None))
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(BuildError, match=r"python3-bpfcc is missing .* apt-get install python3-bpfcc"):
        compiler.compile_programs(tmp_path)
