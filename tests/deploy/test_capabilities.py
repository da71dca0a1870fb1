"""The container's privileges are enough for the agent, and none is too many: run in a container with exactly those."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arpguard.cli import exits
from arpguard.core.checkup import node as checkup
from arpguard.dataplane.privileges import KEPT, NEEDED, Capability
from arpguard.wire.ndp import solicited_node
from arpguard_lab.topology import AgentProcess
from deploy.containers import Container, runtime_default, shipped
from support.kube.manifests import DEPLOY
from support.netns.agents import arpguard, pid_of
from support.netns.cable import Pair, a_pair, address, address6, groups_of, speak_ipv6
from support.netns.waiting import until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIP, VIP6 = address(50), address6(0x50)
ITEMS = ", ".join(f"{{address: '{vip}', owner: {{node: node-1}}}}" for vip in (VIP, VIP6))
CONFIG = f"mode: enforce\nmetrics: {{listen: off}}\nvips: [{ITEMS}]\n"
KEPT_BY_ROOT = sum(1 << each for each in KEPT)
KEPT_IN_CONTAINER = KEPT_BY_ROOT & ~(1 << Capability.DAC_READ_SEARCH | 1 << Capability.SYS_PTRACE)
START_S = 30.0
FILTERED = "2"  # proc(5), Seccomp: by a filter


def a_container(pair: Pair, **changes) -> Container:
    container = Container(pair.node, pair.folder, pair.pin_root / pair.node.name, **changes)
    pair.agents.append(container)
    container.configure(CONFIG)
    return container


def of_all_threads(pid: int, *names: str) -> list[str]:
    """Rows of /proc/PID/status of every thread."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    assert len(texts) > 1
    return [line.split()[1] for text in texts for line in text.splitlines() if line.partition(":")[0] in names]


def sets_of(pid: int, *names: str) -> set[int]:
    return {int(each, 16) for each in of_all_threads(pid, *names)}


def guards(pair: Pair, agent: AgentProcess) -> None:
    """It answers, listens, runs programs on test frames, reads maps and events."""
    with a_wire(pair.client) as wire:
        assert wire.who(VIP, mark=pair.node.address) == [pair.node.mac]
    assert solicited_node(VIP6) in groups_of(pair.node.netns)
    for words in (["explain", str(VIP)], ["status"], ["vips"], ["conflicts"]):
        assert arpguard(*words, "--address", agent.api).returncode == exits.OK


def test_agent_does_everything_with_the_privileges_of_the_manifest():
    """Load, pin, attach, announce, listen; go on from the pins; all behind the runtime's seccomp profile."""
    with a_pair("caps") as pair:
        speak_ipv6(pair.node)
        for programs in ("loaded", "reopened"):
            agent = a_container(pair, seccomp=runtime_default(knows_cap_bpf=True))
            agent.start()
            agent.wait_for()
            assert f"programs={programs}" in agent.said()
            if programs == "loaded":
                until(lambda: agent.said().count("announced") == 2, START_S, "announced")  # noqa: B023 - called here
            assert sets_of(agent.inside, "CapEff", "CapPrm") == {KEPT_IN_CONTAINER}
            assert set(of_all_threads(agent.inside, "Seccomp")) == {FILTERED}
            assert set(of_all_threads(agent.inside, "NoNewPrivs")) == {"1"}
            guards(pair, agent)
            assert "WARNING" not in agent.said()
            agent.kill(signal.SIGTERM)
            assert "stopped: the guard stays in place" in agent.said()
        doctor = agent.execute("doctor", "--config", str(agent.config), "-o", "json")
        verdicts = {each["check"]: each["verdict"] for each in json.loads(doctor.stdout)["checks"]}
        unread = [each["findings"] for each in json.loads(doctor.stdout)["checks"] if each["verdict"] == "unknown"]
        assert "permitted" not in json.dumps(unread)
        assert "root" not in json.dumps(unread)
        assert verdicts["capabilities"] == "ok"
        cleanup = agent.execute("cleanup", "--config", str(agent.config))
        assert cleanup.returncode == exits.OK, cleanup.stderr
        assert not agent.pin_dir.exists() or not list(agent.pin_dir.iterdir())


def test_profile_that_does_not_know_the_capability_is_named_as_the_cause():
    """As CRI-O's before 1.31 and containerd's before 1.7."""
    with a_pair("profile") as pair:
        agent = a_container(pair, seccomp=runtime_default(knows_cap_bpf=False))
        agent.start()
        assert agent._process.wait(60) == exits.UNREACHABLE
        assert "seccomp" in agent.said()
        assert "Traceback" not in agent.said()


def test_manifest_has_what_the_code_needs_and_no_more():
    assert sorted(shipped()) == sorted([*(each.name for each in NEEDED), Capability.SYS_NICE.name])
    assert tuple(sorted(f"CAP_{each.name}" for each in NEEDED)) == checkup.NEEDED, "the doctor's list"


@pytest.mark.parametrize("missing", sorted(each.name for each in NEEDED))
def test_agent_names_the_capability_that_is_missing(missing):
    with a_pair(f"no-{missing.replace('_', '').lower()}") as pair:
        agent = a_container(pair, capabilities=[name for name in shipped() if name != missing])
        agent.start()
        assert agent._process.wait(60) == exits.UNREACHABLE
        assert re.findall(r"CAP_\w+", agent.said()) == [f"CAP_{missing}"]
        assert not list(agent.pin_dir.rglob("*")), "nothing was begun"


STEPS = """
import asyncio, sys
from contextlib import closing, suppress
from pathlib import Path
from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.announcementsocket import AnnouncementSocket
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.build import read_build
from arpguard.errors import ArpguardError
from arpguard.verdict import Hook
import socket
done = []
try:
    pins = Path(sys.argv[1])
    bpffs.prepare(pins)
    with closing(AnnouncementSocket()):
        done.append("raw socket")
    loaded = loader.load(pins, read_build())
    done.append("programs")
    attacher = Attacher(pins, loaded.programs)
    asyncio.run(attacher.ensure(socket.if_nametoindex("eth0"), Hook.TC_INGRESS))
    done.append("attached")
except (ArpguardError, OSError) as error:
    print(error, file=sys.stderr)
print(",".join(done))
"""
REACHED = {
    None: "raw socket,programs,attached",
    "BPF": "raw socket",
    "PERFMON": "raw socket",
    "NET_ADMIN": "raw socket",
    "NET_RAW": "",
}


@pytest.mark.parametrize("missing", REACHED)
def test_kernel_refuses_what_each_of_them_is_for(missing):
    """Whatever the agent says of its capabilities: its parts, without its question."""
    only = ",".join(["-all", *(f"+{name.lower()}" for name in shipped() if name != missing)])
    with a_pair("step") as pair:
        words = ["setpriv", "--bounding-set", only, "--inh-caps", only, sys.executable, "-c", STEPS]
        words = [*pair.node.netns.prefix(), *words, str(pair.pin_root / "step")]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == REACHED[missing], done.stderr


def test_root_gives_up_what_the_agent_does_not_need_and_cannot_get_it_back():
    """Started by hand as root, with everything that root may do."""
    with a_pair("root") as pair:
        agent = pair.agent()
        agent.configure(CONFIG)
        agent.start()
        agent.wait_for()
        assert sets_of(pid_of(agent), "CapEff", "CapPrm", "CapBnd") == {KEPT_BY_ROOT}
        assert sets_of(pid_of(agent), "CapInh", "CapAmb") == {0}
        assert set(of_all_threads(pid_of(agent), "NoNewPrivs")) == {"1"}
        assert "programs=loaded" in agent.said()
        assert not [
            text for each in Path(f"/proc/{pid_of(agent)}/task").glob("*/children") if (text := each.read_text())
        ]
        agent.configure(CONFIG.replace("enforce", "observe"))
        until(
            lambda: json.loads(arpguard("status", "-o", "json", "--address", agent.api).stdout)["mode"].endswith(
                "OBSERVE"
            ),
            START_S,
            "the new mode",
        )
        with a_wire(pair.client) as wire:
            assert wire.who(VIP, mark=pair.node.address) == []


def test_unit_of_systemd_leaves_what_the_agent_needs():
    unit = (DEPLOY / "standalone/arpguard.service").read_text(encoding="utf-8")
    (left,) = re.findall("^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)
    mounts, reads = Capability.SYS_ADMIN, Capability.DAC_READ_SEARCH
    assert left.split() == sorted(f"CAP_{each.name}" for each in (*NEEDED, mounts, reads))
    assert "NoNewPrivileges=yes" in unit


def test_unit_for_boots_leaves_what_closing_needs_and_is_before_every_network():
    unit = (DEPLOY / "standalone/arpguard-early.service").read_text(encoding="utf-8")
    (left,) = re.findall("^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE)
    assert left.split() == sorted(f"CAP_{each.name}" for each in (*NEEDED, Capability.SYS_ADMIN))
    assert re.search("^Before=.*\\bnetwork-pre.target\\b", unit, re.MULTILINE)
    assert "DefaultDependencies=no" in unit
