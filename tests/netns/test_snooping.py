"""A switch that snoops forwards questions about an IPv6 VIP to those only who listen to its solicited-node group.

A Linux bridge with a querier does as IGMP and MLD snooping switches do (RFC 4541). The VIP is bound nowhere.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.wire.ndp import NdType, build_solicitation, solicited_node
from arpguard_lab.topology import AgentProcess, Lab
from support.netns.cable import a_place, address6, groups_of, speak_ipv6
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP, CLIENT = address6(0x50), address6(100)
CONFIG = f"mode: enforce\ninterfaces: [eth0]\nvips: [{{address: '{VIP}', owner: {{node: node-1}}}}]\n"
LAST_MEMBER_S = 2.0  # RFC 3810 9.8: Last Listener Query Time, two queries a second apart
PATIENCE_S = 40.0
ASKED_S = 0.5


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_place("snooping") as (folder, pin_root), Lab(1, folder, pin_root) as lab:
        speak_ipv6(lab.nodes[0], lab.client)
        lab.switch.run("sysctl", "-qw", "net.ipv6.conf.br0.disable_ipv6=0")
        querier = "mcast_query_response_interval 100 mcast_querier 1"  # or it would wait for 10 s
        lab.switch.batch([f"link set br0 type bridge {querier} mcast_snooping 1"])
        yield lab


@pytest.fixture
def agent(lab) -> Iterator[AgentProcess]:
    agent = AgentProcess(lab.nodes[0], lab.folder, lab._pin_root / "node-1")
    agent.configure(CONFIG)
    agent.start()
    agent.wait_for()
    until(lambda: is_forwarded(lab), 10, "the switch knows who listens")
    yield agent
    agent.kill(signal.SIGKILL)


@pytest.fixture
def asker(lab) -> Iterator[NeighbourSocket]:
    with closing(lab.client.netns.call(lambda: NeighbourSocket("eth0"))) as asker:
        yield asker


def is_forwarded(lab: Lab) -> bool:
    """Whether the switch has somebody at the node's port who listens to the VIP's group."""
    rows = lab.switch.run("bridge", "mdb", "show").splitlines()
    return any(f"port {lab.nodes[0].port} grp {solicited_node(VIP)} " in f"{row} " for row in rows)


def is_answered(asker: NeighbourSocket) -> bool:
    """Whether a solicitation to the VIP's group is answered."""
    asker.send(build_solicitation(asker.mac, CLIENT, VIP))
    deadline = time.monotonic() + ASKED_S
    while (heard := asker.hear(deadline - time.monotonic())) is not None:
        if heard.packet.op is NdType.ADVERTISEMENT and (heard.packet.spa, heard.packet.tpa) == (VIP, CLIENT):
            return True
    return False


def test_owner_is_asked_and_answers(agent, asker):
    assert all(is_answered(asker) for _ in range(20))


def test_vip_that_is_given_up_is_forwarded_no_more(lab, agent):
    agent.configure(CONFIG.replace("node-1", "node-2"))

    until(lambda: not is_forwarded(lab), 3 * LAST_MEMBER_S)


def test_crashed_agent_is_asked_again_once_it_is_back(agent, asker):
    """Membership ends with the process; the programs would answer, but nobody asks once the switch has forgotten it."""
    agent.kill(signal.SIGKILL)

    agent.start()
    agent.wait_for()

    until(lambda: is_answered(asker), 10, "the new agent listens")


@pytest.fixture
def patient_switch(lab) -> Iterator[None]:
    """It asks who still listens for so long that a restart on a busy machine is quicker."""
    lab.switch.batch(
        [f"link set br0 type bridge mcast_last_member_interval {PATIENCE_S * 50:.0f}"]
    )  # of two, in 1/100 s
    yield
    lab.switch.batch(["link set br0 type bridge mcast_last_member_interval 100"])


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_question_is_lost_by_a_restart_while_the_switch_still_asks_who_listens(
    patient_switch, lab, agent, asker, end
):
    agent.kill(end)
    agent.start()
    answers, listened_s = [], None
    while listened_s is None or time.monotonic() < listened_s + 1.0:
        if listened_s is None and "ready:" in agent.said():
            listened_s = time.monotonic()
        answers.append(is_answered(asker))
        asker.hear(0.01)

    assert answers.count(False) == 0, f"{answers.count(False)} of {len(answers)}"
    assert solicited_node(VIP) in groups_of(lab.nodes[0].netns)
