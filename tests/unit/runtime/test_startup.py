"""What is imported before a node is guarded, from the command line on: until then it answers as it likes."""

import subprocess
import sys

import pytest

_HEAVY = ("grpc", "google.protobuf", "prometheus_client", "aiohttp", "kubernetes", "pyroute2.ndb")
_AGENT = "import arpguard.cli.main, arpguard.cli.agent, arpguard.runtime.wiring"
_EARLY = "import arpguard.cli.main, arpguard.cli.early"
_NOT_EARLY = (
    "arpguard.api",
    "arpguard.kube",
    "arpguard.observe",
    "arpguard.runtime.startup",
    "arpguard.runtime.wiring",
)
_FIRST_AGENT_IN_STANDBY = """
import asyncio
from arpguard.runtime import startup

startup.bpffs.lock = lambda _: "the lock"
agent = startup.Startup.__new__(startup.Startup)
agent._pin_dir, agent._stopping = None, asyncio.Event()
assert asyncio.run(agent._wait_for_turn(None)) == "the lock"
"""


def imported(code: str, names: tuple[str, ...]) -> str:
    """Which of these modules a process has after the code."""
    found = f"{code}\nimport sys\nprint([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", found], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("code", [_AGENT, _FIRST_AGENT_IN_STANDBY], ids=["alone", "in standby for nobody"])
def test_nothing_that_guarding_does_not_need_is_imported_before_the_node_is_guarded(code):
    assert imported(code, _HEAVY) == "[]"


def test_what_closes_ranges_at_boot_imports_no_library_of_the_agents_and_none_of_its_parts_but_the_guard():
    assert imported(_EARLY, (*_HEAVY, *_NOT_EARLY)) == "[]"
