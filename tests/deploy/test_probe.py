"""The probes' commands against a real agent, by the environment that stands in for the Pod's socket."""

import signal
import subprocess
import sys

import pytest

from support.kube.manifests import objects_in, one
from support.netns.cable import a_pair, address

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

CONFIG = f"mode: enforce\nmetrics: {{listen: off}}\nvips: [{{address: {address(50)}, owner: {{node: node-1}}}}]\n"


def commands() -> dict[str, list[str]]:
    """The words after the interpreter, by the probe."""
    (container,) = one(objects_in("base/daemonset.yaml"), "DaemonSet")["spec"]["template"]["spec"]["containers"]
    names = ("startupProbe", "livenessProbe", "readinessProbe")
    return {name: container[name]["exec"]["command"][1:] for name in names}


def probe(name: str, api: str, *more: str) -> int:
    words = [sys.executable, *commands()[name], *more]
    done = subprocess.run(words, env={"ARPGUARD_ADDRESS": api, "PYTHONPATH": ":".join(sys.path)}, check=False)
    return done.returncode


def test_probes_tell_a_sound_agent_from_one_that_hangs_and_one_that_is_gone():
    with a_pair("probe") as pair:
        agent = pair.agent(CONFIG)
        assert {probe(name, agent.api) for name in commands()} == {0}
        agent.configure("mode: loud\n")
        agent.wait_for("loud")
        assert {probe(name, agent.api) for name in commands()} == {0}
        assert probe("readinessProbe", agent.api, "config") == 1
        assert probe("livenessProbe", agent.api, "config") == 0
        agent._process.send_signal(signal.SIGSTOP)
        assert probe("livenessProbe", agent.api) == 3
        agent.kill(signal.SIGKILL)
        assert probe("livenessProbe", agent.api) == 3
