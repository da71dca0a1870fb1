"""The container's capabilities are enough for the agent, and none is too many: run with exactly those."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from arpguard.errors import DataPlaneError
from arpguard.lab.topology import AgentProcess
from arpguard.wire.ndp import solicited_node
from labtools import Pair, a_pair, a_wire, address, address6, arpguard, groups_of, pid_of, speak_ipv6, until
from manifests import DEPLOY, one

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIP, VIP6 = address(50), address6(0x50)
ITEMS = ", ".join(f"{{address: '{vip}', owner: {{node: node-1}}}}" for vip in (VIP, VIP6))
CONFIG = f"mode: enforce\nmetrics: {{listen: off}}\nvips: [{ITEMS}]\n"
BITS = {"NET_ADMIN": 12, "NET_RAW": 13, "PERFMON": 38, "BPF": 39}  # linux/capability.h
KEPT = sum(1 << BITS[name] for name in ("BPF", "NET_ADMIN", "NET_RAW"))
KEPT_BY_ROOT = KEPT | 1 << 2  # CAP_DAC_READ_SEARCH: files may be another user's


def shipped() -> list[str]:
    """The capabilities of the DaemonSet."""
    objects = list(yaml.safe_load_all((DEPLOY / "base/daemonset.yaml").read_text(encoding="utf-8")))
    (container,) = one(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return container["securityContext"]["capabilities"]["add"]


def start(pair: Pair, capabilities: list[str]) -> AgentProcess:
    """An agent as the container runtime starts it: these capabilities, no way to get more. Waits until it is ready."""
    agent = pair.agent()
    agent.configure(CONFIG)
    only = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    words = ["setpriv", "--bounding-set", only, "--inh-caps", only, "--no-new-privs"]
    words += [sys.executable, "-m", "arpguard", "agent", "--config", str(agent.config), "--node-name", "node-1"]
    with agent.log.open("wb") as log:
        agent._process = subprocess.Popen([*pair.node.netns.prefix(), *words], stdout=log, stderr=log)
    agent.wait_for()
    return agent


def of_all_threads(agent: AgentProcess, *names: str) -> list[int]:
    """Sets of capabilities of every thread, as bit masks."""
    texts = [path.read_text() for path in Path(f"/proc/{pid_of(agent)}/task").glob("*/status")]
    assert len(texts) > 1
    return [int(line.split()[1], 16) for text in texts for line in text.splitlines() if line.startswith(names)]


def test_agent_does_everything_with_the_capabilities_of_the_manifest():
    """Compile, load, pin, attach, announce, listen, run programs on test frames, read events; go on from the pins."""
    with a_pair("caps") as pair:
        speak_ipv6(pair.node)
        for programs in ("compiled", "reopened"):
            agent = start(pair, shipped())
            assert all(each == KEPT for each in of_all_threads(agent, "CapEff", "CapPrm"))
            assert f"programs={programs}" in agent.log.read_text(encoding="utf-8")
            with a_wire(pair.client) as wire:
                assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
            assert solicited_node(VIP6) in groups_of(pair.node.netns)
            assert arpguard("explain", str(VIP), "--address", agent.api).returncode == 0
            assert arpguard("status", "--address", agent.api).returncode == 0
            assert ("announced" in agent.log.read_text(encoding="utf-8")) == (programs == "compiled")
            assert "WARNING" not in agent.log.read_text(encoding="utf-8")
            agent.kill(signal.SIGTERM)


@pytest.mark.parametrize("missing", sorted(BITS))
def test_none_of_them_can_be_left_out(missing):
    with (
        a_pair(f"no-{missing.replace('_', '').lower()}") as pair,
        pytest.raises(DataPlaneError, match=r"refused|could not"),
    ):
        start(pair, [name for name in shipped() if name != missing])


def test_root_gives_up_what_the_agent_does_not_need_and_cannot_get_it_back():
    """Started by hand as root, with everything that root may do."""
    with a_pair("root") as pair:
        agent = pair.agent()
        agent.configure(CONFIG)
        agent.start()
        agent.wait_for()
        assert all(each == KEPT_BY_ROOT for each in of_all_threads(agent, "CapEff", "CapPrm", "CapBnd"))
        assert not any(of_all_threads(agent, "CapInh", "CapAmb"))
        agent.configure(CONFIG.replace("enforce", "observe"))
        until(
            lambda: json.loads(arpguard("status", "-o", "json", "--address", agent.api).stdout)["mode"].endswith(
                "OBSERVE"
            )
        )
        with a_wire(pair.client) as wire:
            assert wire.who(VIP, mark=pair.node.address) == []
