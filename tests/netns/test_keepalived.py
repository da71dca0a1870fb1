"""VIPs that follow the real keepalived of their node: who answers while it is master, backup, at fault, or gone."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from arpguard.addresses import MacAddress
from arpguard_lab import questions
from arpguard_lab.peers.programs import Keepalived, find, holds
from arpguard_lab.topology import AgentProcess, Host
from support.netns.agents import hung, said
from support.netns.announcers import announcers
from support.netns.cable import Pair, a_pair, address
from support.netns.waiting import until
from support.netns.wire import Wire, a_wire

pytestmark = [
    pytest.mark.netns,
    pytest.mark.bpf,
    pytest.mark.skipif(find("keepalived") is None, reason="needs keepalived: apt-get install keepalived"),
]

VIP, NODE_ADDRESS = address(50), address(1)
M = MacAddress.parse("02:00:00:00:00:01")
FOLLOWS = f"mode: enforce\ninterfaces: [eth0]\nvips: [{{address: {VIP}, owner: {{keepalived: lab}}}}]\n"
TAKEOVER_S = 15.0  # keepalived waits for three advertisements, each 0.2 s, and for its first start


class Reloadable(Keepalived):
    """At ordinary priority.

    At a reload, keepalived at a real-time priority (2.2.7) sets RLIMIT_RTTIME to 0. Where it has no CAP_SYS_RESOURCE it
    cannot raise the limit again, and the kernel kills it as soon as it computes for a moment.
    """

    scheduling = ""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair("keepalived") as made:
        yield made


@pytest.fixture
def wire(pair) -> Iterator[Wire]:
    with a_wire(pair.client) as made:
        yield made


@pytest.fixture
def begin(pair) -> Iterator:
    """Starts keepalived on a host."""

    def daemon(host: Host, priority: int = 100, kind: type[Keepalived] = Keepalived, **more) -> Keepalived:
        return kind(host, pair.folder, VIP, priority, vmac=False, **more)

    with announcers(VIP) as start:
        yield lambda *words, **more: start(daemon(*words, **more))


@pytest.fixture
def agent(pair) -> Iterator[AgentProcess]:
    made = pair.agent(FOLLOWS)
    yield made
    made.kill(signal.SIGTERM)
    pair.arpguard("cleanup", "--pin-dir", str(made.pin_dir))
    made.fifo.unlink(missing_ok=True)


def shown(agent: AgentProcess) -> tuple[str, str]:
    """Kind and owner, as `vips` has them."""
    (vip,) = questions.vips(agent, VIP)
    return vip["kind"].removeprefix("KIND_"), vip["owner"]


def problems(agent: AgentProcess) -> str:
    return " ".join(questions.status(agent)["problems"])


def answered(wire: Wire) -> bool:
    heard = wire.exchange([wire.request(VIP), wire.request(VIP, address(0))], NODE_ADDRESS)
    return bool(heard)


def until_shown(agent: AgentProcess, kind: str, state: str) -> None:
    expected = (kind, f"keepalived lab ({state})")
    until(lambda: shown(agent) == expected, TAKEOVER_S, lambda: f"{expected}, not {shown(agent)}: {problems(agent)}")


def track(config: Path, gate: Path) -> None:
    """Has the instance wait for a script that ends well once the gate is there."""
    script = gate.with_name("gate.sh")
    script.write_text(f"#!/bin/sh\nuntil [ -e {gate} ]; do touch {gate.with_name('waits')}; sleep 0.1; done\n")
    script.chmod(0o755)
    text = config.read_text().replace("global_defs {", "global_defs {\n  script_user root\n  enable_script_security")
    tracked = f'vrrp_script gate {{\n  script "{script}"\n  interval 1\n  timeout 60\n}}\nvrrp_instance lab {{'
    config.write_text(text.replace("vrrp_instance lab {", f"{tracked}\n  track_script {{\n    gate\n  }}"))


# ---- failover --------------------------------------------------------------------------------------------------------


def test_the_node_answers_while_its_keepalived_is_master(pair, wire, begin, agent):
    assert "the state of lab is unknown" in problems(agent)
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    assert wire.who(VIP, VIP) == [M]
    until(lambda: "lab" not in problems(agent), what="the problem is gone")

    other = begin(pair.client, priority=110)
    until(other.holds, TAKEOVER_S)
    until_shown(agent, "FOREIGN", "BACKUP")
    pair.node.bind(VIP, "eth0")  # as if keepalived had left it there
    assert not answered(wire)
    pair.node.unbind(VIP, "eth0")

    other.kill(signal.SIGTERM)
    until_shown(agent, "DELEGATED", "MASTER")
    assert wire.who(VIP, VIP) == [M]


def test_the_node_is_silent_while_its_keepalived_is_at_fault(pair, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    pair.client.netns.batch(["link set eth0 down"])
    until_shown(agent, "FOREIGN", "FAULT")
    pair.client.netns.batch(["link set eth0 up"])
    until_shown(agent, "DELEGATED", "MASTER")


def test_the_node_is_silent_when_its_keepalived_stops(pair, wire, begin, agent):
    daemon = begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    daemon.kill(signal.SIGTERM)
    until_shown(agent, "FOREIGN", "unknown")
    until(lambda: "keepalived is not running" in problems(agent), what="the agent reports the problem")


def test_the_node_is_silent_when_its_keepalived_is_killed_and_leaves_the_address(pair, wire, begin, agent):
    daemon = begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    daemon.kill(signal.SIGKILL)
    until(lambda: not answered(wire), what="silence")
    assert holds(pair.node, VIP)
    assert shown(agent) == ("FOREIGN", "keepalived lab (unknown)")

    daemon.start()
    until_shown(agent, "DELEGATED", "MASTER")


def test_a_killed_child_that_keepalived_starts_again_counts_from_its_first_word(pair, begin, agent):
    begin(pair.node, interval_s=0.5)  # it is backup for so long that the agent does not miss it
    until_shown(agent, "DELEGATED", "MASTER")
    before = said(agent, "state=backup")
    os.kill(int((pair.folder / "node-1-keepalived.vrrp_pid").read_text()), signal.SIGKILL)
    until(lambda: said(agent, "state=backup") > before, what="its new child begins as backup")
    until_shown(agent, "DELEGATED", "MASTER")


# ---- what the agent cannot have seen ---------------------------------------------------------------------------------


def test_an_agent_that_starts_again_knows_what_keepalived_said_before(pair, wire, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    agent.kill(signal.SIGKILL)
    assert wire.who(VIP, VIP) == [M]
    agent.start()
    agent.wait_for()
    assert wire.who(VIP, VIP) == [M]
    assert shown(agent) == ("DELEGATED", "keepalived lab (MASTER)")
    assert "state=unknown" not in agent.said()


def test_an_agent_that_starts_again_hears_what_keepalived_said_meanwhile(pair, wire, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    agent.kill(signal.SIGKILL)
    other = begin(pair.client, priority=110)
    until(lambda: other.holds() and not holds(pair.node, VIP), TAKEOVER_S)
    agent.start()
    agent.wait_for()
    assert shown(agent) == ("FOREIGN", "keepalived lab (BACKUP)")


def test_an_agent_that_starts_again_believes_nothing_of_a_keepalived_that_died_meanwhile(pair, wire, begin, agent):
    daemon = begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    agent.kill(signal.SIGKILL)
    daemon.kill(signal.SIGKILL)
    assert holds(pair.node, VIP)
    agent.start()
    agent.wait_for()
    assert not answered(wire)
    assert shown(agent) == ("FOREIGN", "keepalived lab (unknown)")


def test_an_agent_that_stood_still_while_keepalived_was_replaced_hears_the_new_one(pair, begin, agent):
    daemon = begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    with hung(agent):
        daemon.kill(signal.SIGKILL)
        other = begin(pair.client, priority=110)
        until(other.holds, TAKEOVER_S)
        daemon.start()
        daemon.wait_for("Entering BACKUP STATE")
    until_shown(agent, "FOREIGN", "BACKUP")


def test_after_a_reload_keepalived_says_its_state_again(pair, begin, agent):
    daemon = begin(pair.node, kind=Reloadable)
    until_shown(agent, "DELEGATED", "MASTER")
    agent.kill(signal.SIGKILL)  # so that what was said before the reload is lost
    os.kill(daemon.pid, signal.SIGHUP)
    until(lambda: "Reload finished" in daemon.said() or "Reloading" in daemon.said(), what="the reload")
    agent.start()
    agent.wait_for()
    until_shown(agent, "DELEGATED", "MASTER")


def test_one_with_a_script_to_track_counts_from_its_first_word_when_it_starts_again(pair, begin, agent):
    """It says nothing until the script has run, which ends when the test lets it."""
    gate = pair.folder / "gate"
    gate.touch()
    daemon = begin(pair.node)
    track(pair.folder / "node-1-keepalived.conf", gate)
    daemon.kill(signal.SIGKILL)
    daemon.start()
    until_shown(agent, "DELEGATED", "MASTER")

    gate.unlink()
    agent.kill(signal.SIGKILL)  # its file says MASTER
    daemon.kill(signal.SIGKILL)
    daemon.start()
    waits = pair.folder / "waits"
    until(waits.exists, what="the script of the new keepalived")
    agent.start()
    agent.wait_for()
    until(lambda: "keepalived is running but has not reported this instance" in problems(agent))
    for _ in range(10):
        assert shown(agent) == ("FOREIGN", "keepalived lab (unknown)")
        assert "keepalived is running but has not reported this instance" in problems(agent)
        time.sleep(0.1)
    gate.touch()
    until_shown(agent, "DELEGATED", "MASTER")


def test_an_instance_that_a_reload_removes_is_no_longer_followed(pair, begin, agent):
    daemon = begin(pair.node, kind=Reloadable)
    until_shown(agent, "DELEGATED", "MASTER")
    config = pair.folder / "node-1-keepalived.conf"
    text = config.read_text().replace("vrrp_instance lab", "vrrp_instance other")
    config.write_text(text.replace("virtual_router_id 51", "virtual_router_id 53"))
    os.kill(daemon.pid, signal.SIGHUP)
    until_shown(agent, "FOREIGN", "FAULT")  # keepalived's word for it


# ---- what is wrong ---------------------------------------------------------------------------------------------------


def test_lines_that_another_program_takes_are_missed(pair, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    thief = os.open(agent.fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert b"MASTER" in os.read(thief, 65536)
        until_shown(agent, "FOREIGN", "unknown")
        until(lambda: "another program reads" in problems(agent), what="the agent reports the problem")
    finally:
        os.close(thief)


def test_two_masters_are_reported_as_a_split_that_is_not_arpguards_to_decide(pair, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    other = begin(pair.client, router_id=52)  # neither listens to the other
    until(other.holds, TAKEOVER_S)
    pair.arpguard("audit", str(VIP), "--address", agent.api)
    until(lambda: "two routers are MASTER" in problems(agent), what="the split in the status")
    assert f"{pair.client.mac} answers for {VIP} too" in problems(agent)
    assert "arpguard does not choose between them" in problems(agent)


def test_a_fifo_that_others_may_write_to_is_not_believed(pair, begin, agent):
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    agent.kill(signal.SIGTERM)
    Path(agent.fifo).chmod(0o666)
    agent.start()
    agent.wait_for()
    assert shown(agent) == ("FOREIGN", "keepalived lab (unknown)")
    assert "users other than root may write to" in problems(agent)


def test_explain_says_what_keepalived_said(pair, begin, agent):
    def explained() -> str:
        return " ".join(pair.arpguard("explain", str(VIP), "--address", agent.api).stdout.split())

    assert "the state of lab on node-1 is unknown" in explained()
    begin(pair.node)
    until_shown(agent, "DELEGATED", "MASTER")
    assert "keepalived runs on node-1 and says that lab is MASTER" in explained()
