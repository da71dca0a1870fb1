"""A node with all kinds of VIPs and its agent, and the programs and maps for nodes without one."""

from collections.abc import Iterator

import pytest

from api.apitools import Api, an_api
from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.build import read_build
from arpguard_lab.topology import AgentProcess
from support.netns.cable import Pair, a_pair, a_place, address

OWNED, FOREIGN, EXTERNAL, PINNED, ELECT, DELEGATED, OBSERVED = (address(number) for number in range(50, 57))
PEER_MAC = "02:00:00:00:00:aa"
CONFIG = f"""
mode: enforce
interfaces: [eth0, eth1]
vips:
  - {{address: {OWNED}, owner: {{node: node-1}}}}
  - {{address: {FOREIGN}, owner: {{node: node-2}}}}
  - {{address: {EXTERNAL}, owner: external}}
  - {{address: {PINNED}, owner: {{external: "{PEER_MAC}"}}}}
  - {{address: {ELECT}, owner: elect}}
  - {{address: {DELEGATED}, owner: {{node: node-1, delegated: true}}}}
  - {{address: {OBSERVED}, owner: {{node: node-2}}, mode: observe}}
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """The node has a second cable, to 203.0.113.0/24."""
    with a_pair("api") as made:
        made.node.netns.batch(
            [
                f"link add eth1 address 02:00:00:00:01:01 type veth peer name eth1 netns {made.client.netns.name}",
                "link set eth1 up",
                "addr add 203.0.113.1/24 dev eth1",
            ]
        )
        made.client.netns.batch(["link set eth1 up"])
        yield made


@pytest.fixture(scope="module")
def agent(pair) -> AgentProcess:
    return pair.agent(CONFIG)


@pytest.fixture(scope="module")
def api(agent) -> Iterator[Api]:
    with an_api(agent) as made:
        yield made


@pytest.fixture(scope="session")
def loaded() -> Iterator[loader.Loaded]:
    """Programs and maps that no agent works with; room for 4096 entries."""
    with a_place("api-maps") as (_, pin_root):
        pin_dir = pin_root / "node"
        bpffs.prepare(pin_dir)
        yield loader.load(pin_dir, read_build(4096))
