"""Commands that the lab runs."""

import pytest

from arpguard.errors import DataPlaneError
from arpguard_lab.netns import command


@pytest.mark.parametrize(
    ("program", "package"),
    [("ip", "iproute2"), ("nsenter", "util-linux"), ("sysctl", "procps"), ("bpftool", "bpftool")],
)
def test_program_that_is_missing_is_named_with_its_package(program, package, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(DataPlaneError, match=f"{program} is missing: apt-get install {package}$"):
        command(program, "-V")
