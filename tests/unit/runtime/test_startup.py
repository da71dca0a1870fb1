"""What an agent imports before it guards: a node that is not guarded yet answers as it likes."""

import subprocess
import sys

import pytest

_HEAVY = ("grpc", "google.protobuf", "prometheus_client", "aiohttp", "kubernetes", "pyroute2.ndb")
_IMPORTS = "import arpguard.cli.agent, arpguard.runtime.wiring"
_FIRST_AGENT_IN_STANDBY = """
import asyncio
from arpguard.runtime import startup

startup.bpffs.lock = lambda _: "the lock"
agent = startup.Startup.__new__(startup.Startup)
agent._pin_dir, agent._stopping = None, asyncio.Event()
assert asyncio.run(agent._wait_for_turn(None)) == "the lock"
"""


@pytest.mark.parametrize("code", [_IMPORTS, _FIRST_AGENT_IN_STANDBY], ids=["alone", "in standby for nobody"])
def test_nothing_that_guarding_does_not_need_is_imported_before_the_node_is_guarded(code):
    found = f"{code}\nimport sys\nprint([name for name in {_HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", found], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
