"""E15 of docs/conformance.md: clients that do not believe announcements find the new owner by their own requests."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from arpguard.addresses import MacAddress
from arpguard_lab.topology import AgentProcess, Host, Lab
from support.netns.agents import said
from support.netns.cable import a_place, address
from support.netns.waiting import REPAIR_S, until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

VIP = address(50)
CONFIG = f"mode: enforce\ninterfaces: [eth0]\nvips: [{{{{address: {VIP}, owner: {{{{node: {{owner}}}}}}}}}}]\n"
# The old owner is asked three times in 0.3 s, a second after the first packet to it: by default in 3 s, after 5.
IMPATIENT = ("base_reachable_time_ms=200", "delay_first_probe_time=1", "retrans_time_ms=100")
ASKED_AGAIN_S = 1 + 3 * 0.1  # DELAY, and three unicast probes


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with a_place("clients") as (folder, pin_root), Lab(2, folder, pin_root) as made:
        for host in made.nodes:
            host.bind(VIP, "lo")
        yield made


@pytest.fixture(scope="module")
def agents(lab) -> list[AgentProcess]:
    made = [lab.agent(host) for host in lab.nodes]
    for agent in made:
        agent.configure(CONFIG.format(owner="node-1"))
        agent.start()
    for agent in made:
        agent.wait_for()
    until(lambda: said(made[0], "announced:") >= 3, 5, "the last announcement")
    return made


def learnt(client: Host) -> MacAddress | None:
    """The MAC that the client's kernel has for the VIP."""
    found = re.search(r"lladdr (\S+)", client.netns.run("ip", "neigh", "show", str(VIP), "dev", "eth0"))
    return MacAddress.parse(found[1]) if found else None


@contextmanager
def talking(client: Host) -> Iterator[None]:
    """The client talks to the VIP ten times a second."""
    words = [*client.netns.prefix(), "ping", "-n", "-i", "0.1", str(VIP)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def move(agents: list[AgentProcess], lab: Lab, owner: int) -> None:
    """Makes another node the owner, and waits until it is, and has announced that twice."""
    before = said(agents[owner], "announced:")
    for agent in agents:
        agent.configure(CONFIG.format(owner=lab.nodes[owner].name))
    with a_wire(lab.client) as wire:
        mark = lab.nodes[owner].address
        until(lambda: wire.who(VIP, mark) == [lab.nodes[owner].mac], 3 * REPAIR_S, "the new owner answers, alone")
    until(lambda: said(agents[owner], "announced:") >= before + 2, 5, "the second announcement")


def test_e15_client_that_drops_gratuitous_arp_recovers_by_its_own_request(lab, agents):
    client, (old, new) = lab.client, lab.nodes
    client.netns.run("sysctl", "-qw", "net.ipv4.conf.all.drop_gratuitous_arp=1")
    client.netns.run("sysctl", "-qw", *(f"net.ipv4.neigh.eth0.{setting}" for setting in IMPATIENT))
    with talking(client):
        until(lambda: learnt(client) == old.mac, what="the client knows the owner")
    move(agents, lab, 1)
    known = learnt(client)  # None: the kernel asked once more as neither node answered
    assert known in {old.mac, None}, f"an announcement was believed: {known}"
    with talking(client):
        waited_s = until(lambda: learnt(client) == new.mac, 3 * ASKED_AGAIN_S, "the client found the new owner")
    print(f"recovered {waited_s:.2f} s after it talked to the VIP again")


def test_e15_client_without_an_entry_makes_none_of_an_announcement_and_asks(lab, agents):
    """arp_accept 0: what is not in the cache is not put there by an announcement."""
    client, (new, _) = lab.client, lab.nodes
    client.netns.run("sysctl", "-qw", "net.ipv4.conf.all.drop_gratuitous_arp=0", "net.ipv4.conf.all.arp_accept=0")
    client.netns.run("ip", "neigh", "flush", "dev", "eth0")
    move(agents, lab, 0)
    assert learnt(client) is None
    client.netns.run("ping", "-n", "-c", "1", "-W", "2", str(VIP))
    assert learnt(client) == new.mac
