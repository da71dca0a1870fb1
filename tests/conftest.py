"""Capabilities: a test that needs what this machine lacks is skipped, and says why.

ARPGUARD_REQUIRE=bpf,netns (as in CI) turns such skips into failures.
"""

import functools
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import settings

from arpguard.dataplane import syscall
from arpguard.dataplane.headers import find_headers
from arpguard.errors import ArpguardError

# Tables are as wide as without a terminal; xdist tells its workers of 80 columns.
os.environ.pop("COLUMNS", None)
# How long an example takes says something about the machine, not about the code.
settings.register_profile("arpguard", deadline=None)
settings.load_profile("arpguard")


@functools.cache
def _lacking_netns() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "network namespaces are refused"


@functools.cache
def _lacking_bpf() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    try:
        syscall.program_by_id(0xFFFFFFFF)
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"bpf(2) is refused ({error.strerror})"
    try:
        find_headers()
    except ArpguardError as error:
        return str(error)
    return None if Path("/usr/lib/python3/dist-packages/bcc").is_dir() else "python3-bpfcc is not installed"


_LACKING = {"bpf": _lacking_bpf, "netns": _lacking_netns}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = os.environ.get("ARPGUARD_REQUIRE", "").split(",")
    for item in items:
        for name, lacking in _LACKING.items():
            if item.get_closest_marker(name) is None:
                continue
            reason = lacking()
            if reason is not None and name in required:
                raise pytest.UsageError(f"ARPGUARD_REQUIRE={name}, but {reason}")
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {reason}"))
