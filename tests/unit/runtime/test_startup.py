"""What an agent imports before it guards: a node that is not guarded yet answers as it likes."""

import subprocess
import sys


def test_nothing_that_only_serves_is_imported_before_the_node_is_guarded():
    code = """
import sys
import arpguard.cli.agent
import arpguard.runtime.wiring
heavy = ["grpc", "google.protobuf", "prometheus_client", "aiohttp", "kubernetes"]
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
