"""Who has the MACs that answer: a virtual router, a node that the agent knows, or a neighbour."""

import asyncio
from ipaddress import ip_address

import pytest

from arpguard.addresses import MacAddress
from arpguard.cli import whohas
from arpguard.v1 import agent_pb2 as pb

VIP = ip_address("192.0.2.50")
OWN, NODE, ROUTER, NEIGHBOUR, STRANGER = map(
    MacAddress.parse,
    ("02:00:00:00:00:01", "02:00:00:00:00:02", "00:00:5e:00:01:07", "02:00:00:00:00:04", "02:00:00:00:00:99"),
)
STATUS = pb.GetStatusResponse(
    node="node-1",
    links=[pb.Link(name="eth0", mac=str(OWN))],
    kubernetes=pb.Kubernetes(nodes=[pb.ClusterNode(name="node-2", macs=[str(NODE)])]),
)


@pytest.fixture(autouse=True)
def _neighbours(monkeypatch) -> None:
    async def read():
        known = [(VIP, STRANGER), (ip_address("192.0.2.4"), NEIGHBOUR), (ip_address("192.0.2.2"), NODE)]
        await asyncio.sleep(0)
        return known

    monkeypatch.setattr(whohas, "read_neighbours", read)
    monkeypatch.setattr(whohas, "_AGENT_S", 60.0)


def test_each_mac_has_the_best_name_that_is_known(agent):
    agent.prepared.answers["GetStatus"] = STATUS
    names = whohas._names([OWN, NODE, ROUTER, NEIGHBOUR, STRANGER], VIP, agent.target)

    assert names == {
        OWN: "node node-1",
        NODE: "node node-2",
        ROUTER: "VRRP router 7",
        NEIGHBOUR: "also has 192.0.2.4",
        STRANGER: "-",
    }


@pytest.mark.parametrize("target", ["unix:///nowhere/agent.sock", "127.0.0.1:1"], ids=["no socket", "nobody listens"])
def test_without_an_agent_neighbours_are_what_is_known(target):
    assert whohas._names([NODE, ROUTER], VIP, target) == {NODE: "also has 192.0.2.2", ROUTER: "VRRP router 7"}
