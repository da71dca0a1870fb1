"""What the kernel says of the processor."""

import platform
from pathlib import Path

import pytest

from arpguard.core.vouching.profiles import is_virtual
from arpguard.dataplane.processor import read_cpuinfo


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flag is x86's")
def test_this_machines_flags_are_in_what_is_read():
    whole = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")

    assert is_virtual(read_cpuinfo()) is (" hypervisor " in f"{whole} ")


def test_of_many_processors_no_more_than_the_first_few_are_read(tmp_path):
    path = tmp_path / "cpuinfo"
    path.write_text("flags : fpu hypervisor\n" * 10_000)

    assert len(read_cpuinfo(path)) == 16 << 10


def test_what_cannot_be_read_says_nothing(tmp_path):
    assert read_cpuinfo(tmp_path / "missing") == ""
