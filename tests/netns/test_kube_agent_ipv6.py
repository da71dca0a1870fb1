"""A real agent that follows an API server, and a Service with addresses of both families, on the wire."""

import signal
from collections.abc import Iterator
from contextlib import closing
from ipaddress import ip_address

import pytest

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.records import Claim
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.kube import claims, projections
from arpguard.wire.facts import Facts
from arpguard.wire.ndp import NdType, solicited_node
from arpguard_lab.apiserver.embedded import Embedded
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.topology import CONFIGMAP, KubeAgent
from support.kube.node_api import a_server, ask
from support.netns.cable import Pair, a_pair, address, address6, groups_of, speak_ipv6
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

HOME, NODE = "arpguard", "node-1"
VIP, VIP6 = address(50), address6(0x50)
CLIENT, CLIENT6, ALL_NODES = address(100), address6(100), ip_address("ff02::1")
CONFIG = "mode: enforce\ninterfaces: [eth0]\nranges: [198.51.100.0/24, '2001:db8:51::/64']\nmetrics: {listen: 'off'}\n"
START_S = 15.0


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("kube-agent6") as made:
        speak_ipv6(made.node, made.client)
        yield made


@pytest.fixture
def server(pair) -> Iterator[Embedded]:
    made = [
        objects.namespace(HOME),
        objects.config_map(HOME, CONFIGMAP, CONFIG),
        objects.node(NODE, pair.node.address),
        objects.service(HOME, "web", [VIP, VIP6]),
    ]
    with a_server(pair.node.netns, made) as server:
        yield server


@pytest.fixture
def agent(pair, server) -> Iterator[KubeAgent]:
    agent = KubeAgent(pair.node, pair.folder, pair.pin_root / NODE)
    agent.namespace = HOME
    server.do(lambda it: it.write_kubeconfig(agent.kubeconfig, NODE))
    agent.configure(CONFIG)
    yield agent
    agent.kill(signal.SIGKILL)
    agent.remove_guard()


@pytest.fixture
def ear(pair) -> Iterator[NeighbourSocket]:
    with closing(pair.client.netns.call(lambda: NeighbourSocket("eth0"))) as ear:
        yield ear


def start(agent: KubeAgent) -> None:
    agent.start()
    agent.wait_for()
    for vip in (VIP, VIP6):
        agent.wait_for(f"owned: vip={vip}", START_S)


def owners(ear: NeighbourSocket) -> dict[Address, set[MacAddress]]:
    """Who answers for each of the two."""
    asked: dict[Address, Address] = {VIP: CLIENT, VIP6: CLIENT6}
    return {vip: {each.packet.sha for each in ear.ask(vip, spa, count=1, wait_s=0.1)} for vip, spa in asked.items()}


def get(pair: Pair, server: Embedded, path: str) -> dict:
    return ask(pair.node.netns, server, "GET", path).body


def claim(pair: Pair, server: Embedded, vip: Address) -> Claim:
    """The claim on a VIP, by its Lease."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/{claims.lease_name(vip)}"
    return claims.claim_of(projections.lease(get(pair, server, path)))


def notes(pair: Pair, server: Embedded, reason: str) -> list[str]:
    """What Events with a reason say."""
    items = get(pair, server, f"/apis/events.k8s.io/v1/namespaces/{HOME}/events")["items"]
    return [item["note"] for item in items if item["reason"] == reason]


def test_service_of_both_families_is_elected_and_answered(pair, server, agent, ear):
    start(agent)

    assert owners(ear) == {VIP: {pair.node.mac}, VIP6: {pair.node.mac}}
    assert [claim(pair, server, vip).holder for vip in (VIP, VIP6)] == [NODE] * 2
    until(lambda: groups_of(pair.node.netns).get(solicited_node(VIP6)) == 1, what="it listens where it is asked")


def test_vip_is_probed_for_before_anything_else_is_said_of_it(pair, server, agent, ear):
    """RFC 4862 5.4: nothing is announced, and nothing answered, for an address that may be somebody's."""
    start(agent)
    heard: list[Facts] = []

    def announced() -> bool:
        while (each := ear.hear(0)) is not None:
            heard.append(each.packet)
        return any(packet.tpa == ALL_NODES for packet in heard)

    until(announced)
    about = [packet for packet in heard if VIP6 in (packet.spa, packet.tpa)]

    assert [packet.is_probe for packet in about[:4]] == [True, True, True, False]
    assert (about[3].op, about[3].spa, about[3].tpa) == (NdType.ADVERTISEMENT, VIP6, ALL_NODES)


def test_address_that_a_host_outside_has_is_not_taken_and_the_other_is(pair, server, agent, ear):
    pair.client.bind(VIP6, "eth0")
    agent.start()
    agent.wait_for()
    agent.wait_for(f"owned: vip={VIP}", START_S)

    until(lambda: claim(pair, server, VIP6).external == str(pair.client.mac), START_S)

    assert owners(ear) == {VIP: {pair.node.mac}, VIP6: set()}  # the client does not hear itself
    assert solicited_node(VIP6) not in groups_of(pair.node.netns)
    until(lambda: notes(pair, server, "VIPTakenOutside"), START_S)
    assert notes(pair, server, "VIPTakenOutside")[0].startswith(
        f"{VIP6} is in use outside the cluster by {pair.client.mac}"
    )
