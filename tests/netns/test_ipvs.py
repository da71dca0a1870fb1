"""The incident, with the kernel's own IPVS: a VIP on a NOARP device of three nodes, as kube-proxy binds externalIPs.

kube-proxy itself: `make kernels`.
"""

import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from arpguard.addresses import MacAddress
from arpguard.errors import DataPlaneError
from arpguard_lab.bench import VIP, Bench, owned_by
from arpguard_lab.topology import Host, HostProcess, Lab
from support.netns.cable import a_place
from support.netns.waiting import ANSWER_S, SLOWNESS, START_S, until
from support.required import do_without

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

PORT, NODES = 80, 3
_SAY_WHO = (
    "import socket, sys\n"
    "listener = socket.create_server(('', int(sys.argv[1])))\n"
    "print('ready:', flush=True)\n"
    "while True:\n"
    "    with listener.accept()[0] as connection:\n"
    "        connection.sendall(sys.argv[2].encode())\n"
)


class Backend(HostProcess):
    """Tells which node it is on."""

    def words(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", _SAY_WHO, str(PORT), self.host.name]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Three nodes with the VIP as IPVS has it, and nothing that keeps two of them from answering."""
    if shutil.which("ipvsadm") is None:
        do_without("ipvs", "ipvsadm is not installed")
    with a_place("ipvs") as (folder, pin_root), Lab(NODES, folder, pin_root) as lab:
        bench = Bench(lab, "ipvs")
        for host in lab.nodes:
            serve(bench, host)
        with closing(bench.asker()):
            yield bench


def serve(bench: Bench, host: Host) -> None:
    try:
        host.netns.batch(["link add kube-ipvs0 type dummy"])
        host.netns.run("ipvsadm", "-A", "-t", f"{VIP}:{PORT}", "-s", "rr")
    except DataPlaneError as error:
        do_without("ipvs", f"this kernel has no IPVS: {error}")
    host.netns.batch(["link set kube-ipvs0 arp off", f"addr add {VIP}/32 dev kube-ipvs0"])
    host.netns.run("ipvsadm", "-a", "-t", f"{VIP}:{PORT}", "-r", f"{host.address}:{PORT}", "-m")
    backend = bench.lab.program(Backend(host, bench.lab.folder, "backend"))
    backend.start()
    backend.wait_for(timeout_s=START_S)


def connections(host: Host) -> int:
    """How many a node's IPVS has had, by its CPUs' own counts: the sum that it shows is up to two seconds old."""
    rows = [line.split() for line in host.netns.run("cat", "/proc/net/ip_vs_stats_percpu").splitlines()]
    return sum(int(row[1], 16) for row in rows if row and row[0].isdecimal())


def connect(bench: Bench) -> str:
    """What the client hears at the VIP; it asks who has it first."""
    client = bench.lab.client.netns
    client.run("ip", "neigh", "flush", "all")

    def ask() -> str:
        with socket.create_connection((str(VIP), PORT), ANSWER_S * SLOWNESS) as connection:
            return connection.recv(100).decode()

    with suppress(OSError):
        return client.call(ask)
    return "nobody"


def answer(bench: Bench, macs: list[MacAddress]) -> None:
    """Those and no others answer; late is not wrong."""
    heard = {mac for _ in range(5) for mac in bench.answerers(VIP)}
    until(lambda: heard.update(bench.answerers(VIP)) or heard >= set(macs), what="they answer")
    assert heard == set(macs)


def test_every_node_answers_for_what_ipvs_serves_until_it_is_guarded_and_then_its_owner(bench):
    owner, *others = bench.nodes
    answer(bench, [host.mac for host in bench.nodes])

    agents = [bench.lab.agent(host) for host in bench.nodes]
    for agent in agents:
        agent.configure(owned_by(f"{{node: {owner.name}}}", VIP))
        agent.start()
    for agent in agents:
        agent.wait_for(timeout_s=START_S)
    answer(bench, [owner.mac])

    before = {host: connections(host) for host in bench.nodes}
    assert [connect(bench) for _ in range(3)] == [owner.name] * 3
    assert connections(owner) >= before[owner] + 3
    assert all(connections(host) == before[host] for host in others)

    bench.unguard({agent.host.name: agent for agent in agents})
    answer(bench, [host.mac for host in bench.nodes])
