"""From boot to the agent: what `arpguard early` closes, and how the agent takes it over.

A boot is a namespace without a guard and without addresses. The VIPs come to `lo`, as kube-proxy has them somewhere, so
that the kernel would answer for each.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard.dataplane import bpffs
from arpguard.verdict import Hook
from arpguard_lab.topology import NETWORK
from support.netns.agents import RoomyAgent
from support.netns.cable import Pair, a_pair, address
from support.netns.guard import a_guard
from support.netns.waiting import START_S, until
from support.netns.wire import a_wire, stream

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

M = MacAddress.parse("02:00:00:00:00:01")
OWN, OWNED, NEW = address(1), address(50), address(51)
CONFIG = f"""
mode: enforce
interfaces: [eth0]
ranges: [{NETWORK}.0/24, {{network: {NETWORK}.254/32, unknown: pass}}]
unknown: suppress
vips: [{{address: {OWNED}, owner: {{node: node-1}}}}]
"""
WITHOUT_GATEWAY = ["route del default"]  # whose range is not closed
HAS_RUN = "nothing to do: an agent has guarded this node since boot"
NETWORK_UP = [f"addr add {OWN}/24 dev eth0", *(f"addr add {vip}/32 dev lo" for vip in (OWNED, NEW))]


class EarlyAgent(RoomyAgent):
    """An agent that keeps the file."""

    @property
    def file(self) -> Path:
        return self.config.with_name("early.yaml")

    def words(self) -> list[str]:
        return [*super().words(), "--early-file", str(self.file)]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("early") as made:
        made.node.netns.batch(WITHOUT_GATEWAY)
        yield made


@pytest.fixture
def agent(pair) -> EarlyAgent:
    made = EarlyAgent(pair.node, pair.folder, pair.pin_root / "node-1")
    pair.agents.append(made)
    made.configure(CONFIG)
    return made


def start(agent: EarlyAgent) -> None:
    agent.start()
    agent.wait_for(timeout_s=START_S)


def kept(agent: EarlyAgent) -> dict:
    until(agent.file.exists, what="the agent keeps the file")
    return json.loads(agent.file.read_text(encoding="utf-8"))


def boot(pair: Pair, agent: EarlyAgent) -> None:
    """The agent has run before; the node has neither a guard nor an address now."""
    start(agent)
    kept(agent)
    agent.kill(signal.SIGTERM)
    done = pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir))
    assert (done.returncode, done.stderr) == (0, "")
    pair.node.netns.run("ip", "addr", "flush", "dev", "eth0")


def early(pair: Pair, agent: EarlyAgent, *words: str) -> str:
    done = pair.arpguard("early", str(agent.file), *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_agent_keeps_what_it_has_closed_and_this_nodes_own_addresses_as_exceptions(pair, agent):
    start(agent)
    assert kept(agent) == {
        "mode": "enforce",
        "interfaces": ["eth0"],
        "ranges": [
            {"network": f"{NETWORK}.0/24", "unknown": "suppress"},
            {"network": f"{NETWORK}.254/32", "unknown": "pass"},
            {"network": f"{OWN}/32", "unknown": "pass"},
        ],
        "bpf": {"pin_dir": str(agent.pin_dir), "max_entries": 1024},
    }
    checked = pair.arpguard("config", "check", str(agent.file))
    assert checked.returncode == 0, checked.stderr


def clean_up(pair: Pair, agent: EarlyAgent) -> str:
    done = pair.arpguard("cleanup", "--pin-dir", str(agent.pin_dir), "--early-file", str(agent.file))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_cleanup_removes_the_file_with_the_guard_and_where_there_is_only_the_file(pair, agent):
    start(agent)
    text = json.dumps(kept(agent))
    agent.kill(signal.SIGTERM)
    for content in (text, "not a configuration"):
        agent.file.write_text(content, encoding="utf-8")
        assert f"removed {agent.file}: `arpguard early` closes no ranges at the next boot\n" in clean_up(pair, agent)
        assert not agent.file.exists()
    assert clean_up(pair, agent) == f"nothing is pinned under {agent.pin_dir}\n"


def test_cleanup_leaves_the_file_of_an_agent_with_other_pins(pair, agent):
    text = json.dumps({"bpf": {"pin_dir": str(pair.pin_root / "other")}})
    agent.file.write_text(text, encoding="utf-8")
    clean_up(pair, agent)
    assert agent.file.read_text(encoding="utf-8") == text


def test_the_file_goes_when_nothing_is_closed_any_more(pair, agent):
    start(agent)
    kept(agent)
    agent.configure(CONFIG.replace("unknown: suppress", "unknown: pass"))
    until(lambda: not agent.file.exists(), what="the file is gone")


def test_no_vip_is_answered_for_between_boot_and_agent_and_then_its_owners_alone(pair, agent):
    boot(pair, agent)
    assert early(pair, agent) == f"closed on eth0: {NETWORK}.0/24"
    pair.node.netns.batch(NETWORK_UP)
    with a_wire(pair.client) as wire:
        assert wire.who(OWN, OWN) == [M], "the node's own address is an exception"
        assert [wire.who(vip, OWN) for vip in (OWNED, NEW)] == [[], []]
        seen = stream(pair.client, NEW, lambda: start(agent))
        assert seen.lost == seen.sent > 0
        assert [wire.who(vip, OWN) for vip in (OWNED, NEW)] == [[M], []]


def test_without_it_the_kernel_answers_for_every_vip_that_is_bound(pair, agent):
    """What the tests above are about."""
    boot(pair, agent)
    pair.node.netns.batch(NETWORK_UP)
    with a_wire(pair.client) as wire:
        assert [wire.who(vip, OWN) for vip in (OWNED, NEW)] == [[M], [M]]


def test_where_an_agent_runs_or_has_run_nothing_is_changed(pair, agent):
    start(agent)
    kept(agent)
    assert early(pair, agent) == f"nothing to do: an agent is running on this node (it uses {agent.pin_dir})"
    agent.kill(signal.SIGTERM)
    assert early(pair, agent).startswith(f"{HAS_RUN} (the guard's programs ")
    pair.node.netns.batch([f"addr add {vip}/32 dev lo" for vip in (OWNED, NEW)])
    with a_wire(pair.client) as wire:
        assert [wire.who(vip, OWN) for vip in (OWNED, NEW)] == [[M], []]


def with_other_size(agent: EarlyAgent) -> None:
    agent.file.write_text(agent.file.read_text(encoding="utf-8").replace("1024", "2048"), encoding="utf-8")


def without_its_maps(agent: EarlyAgent) -> None:
    for folder in agent.pin_dir.glob("maps-*"):
        bpffs.remove(folder)


@pytest.fixture
def guard(pair, agent) -> EarlyAgent:
    """Of an agent that is gone. Its VIP, another node's, is in no closed range: only this guard is silent about it."""
    agent.configure(CONFIG.replace("node-1", "node-2").replace(f"{NETWORK}.0/24, {{", f"{NETWORK}.64/28, {{"))
    start(agent)
    kept(agent)
    agent.kill(signal.SIGKILL)
    pair.node.netns.batch([f"addr add {OWNED}/32 dev lo"])
    return agent


@pytest.mark.parametrize("damage", [with_other_size, without_its_maps])
def test_the_guard_of_an_agent_that_is_gone_stays_whatever_became_of_its_maps(pair, guard, damage):
    with a_wire(pair.client) as wire:
        assert wire.who(OWNED, OWN) == []
        damage(guard)
        assert early(pair, guard).startswith(f"{HAS_RUN} (the guard's programs ")
        assert wire.who(OWNED, OWN) == []


def test_maps_of_another_size_are_left_alone_also_where_no_link_is_guarded(pair, guard):
    with_other_size(guard)
    its_maps = list(guard.pin_dir.glob("maps-*"))
    bpffs.remove(guard.pin_dir / "links")
    pair.node.netns.batch(["link del eth0"])
    assert early(pair, guard) == f"{HAS_RUN} (maps of another size or layout are pinned under {guard.pin_dir})"
    assert list(guard.pin_dir.glob("maps-*")) == its_maps


def test_a_guard_of_tc_filters_stays(pair, agent):
    """As on kernels before 6.6: nothing is pinned for them."""
    boot(pair, agent)
    a_guard(pair, Hook.TC_INGRESS, Hook.TC_EGRESS, use_tcx=False)
    assert early(pair, agent) == f"{HAS_RUN} (the guard's tc filters are attached)"
    assert not list(agent.pin_dir.glob("*-*"))


def test_tc_filters_on_a_link_that_the_agent_does_not_guard_go_once_it_guards_others(pair, agent):
    """As `arpguard early` leaves them on the NIC of a bridge, on kernels before 6.6."""
    pair.node.netns.batch(["link add nic0 type veth peer name nic1"])
    left = a_guard(pair, use_tcx=False)
    left.ifindex = pair.ifindex("nic0")
    left.attach(Hook.TC_INGRESS, Hook.TC_EGRESS)
    assert all("arpguard_" in filters for filters in filters_of(pair, "nic0"))
    start(agent)
    until(lambda: filters_of(pair, "nic0") == ["", ""], what="the filters are gone")


def filters_of(pair: Pair, device: str) -> list[str]:
    return [pair.node.netns.run("tc", "filter", "show", "dev", device, way) for way in ("ingress", "egress")]


def test_a_link_that_comes_late_is_waited_for(pair, agent):
    boot(pair, agent)
    agent.file.write_text(agent.file.read_text(encoding="utf-8").replace('"eth0"', '"eth0", "late0"'), encoding="utf-8")
    words = [*pair.node.netns.prefix(), sys.executable, "-m", "arpguard", "early", str(agent.file), "--wait", "600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as waiting:
        until(lambda: list(agent.pin_dir.glob("maps-*/*")), START_S, "it has loaded its programs")
        pair.node.netns.batch(["link add late0 type veth peer name other0", "link set late0 up"])
        assert waiting.communicate(timeout=START_S)[0] == f"closed on eth0, late0: {NETWORK}.0/24\n"


def test_a_link_that_does_not_come_is_said_and_the_others_are_closed(pair, agent):
    boot(pair, agent)
    agent.file.write_text(agent.file.read_text(encoding="utf-8").replace('"eth0"', '"eth0", "eth7"'), encoding="utf-8")
    done = pair.arpguard("early", str(agent.file), "--wait", "0.1")
    assert (done.returncode, done.stdout) == (0, f"closed on eth0: {NETWORK}.0/24\n")
    assert "eth7: there is no such interface" in done.stderr


def test_where_no_link_comes_it_fails(pair, agent):
    boot(pair, agent)
    agent.file.write_text(agent.file.read_text(encoding="utf-8").replace('"eth0"', '"eth7"'), encoding="utf-8")
    done = pair.arpguard("early", str(agent.file), "--wait", "0.1")
    assert done.returncode == 3
    assert "arpguard early: interfaces: eth7: there is no such interface" in done.stderr
