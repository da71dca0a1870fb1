"""What `Sourcing` remembers makes it quick, and nothing else: it says what one says that was never asked before."""

import random
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

import pytest

from arpguard.config.model import AgentConfig, ServicesConfig
from arpguard.core.admission import Avoided
from arpguard.core.cluster import EndpointSlice, Node, Service
from arpguard.core.sourcing import Sourcing
from arpguard.model import Owner, OwnerKind, Vip
from support.chance import RUNS, SEED

STEPS = 40
INSIDE = [ip_address(f"{network}{n}") for n in range(1, 6) for network in ("192.0.2.", "2001:db8::")]
ADDRESSES = [*INSIDE, ip_address("203.0.113.1"), ip_address("2001:db8:1::1")]
NETWORKS = ip_network("192.0.2.0/24"), ip_network("2001:db8::/64")
POD_NETWORKS = ip_network("192.0.2.4/31"), ip_network("2001:db8::4/127")
NODES = ["n1", "n2", "n3"]


@dataclass
class World:
    """Inputs, and random changes of them."""

    rng: random.Random
    config: AgentConfig = field(default_factory=AgentConfig)
    services: dict = field(default_factory=dict)
    slices: dict | None = None
    nodes: dict = field(default_factory=dict)
    avoided: Avoided = field(default_factory=Avoided)
    chosen: dict = field(default_factory=dict)

    def change(self) -> None:
        self.rng.choice(
            [self._service] * 6 + [self._slice] * 4 + [self._node, self._config, self._avoid, self._follow]
        )()

    def collect(self, sourcing: Sourcing):
        followed = lambda service, address: self.chosen.get((service.name, address))  # noqa: E731
        return sourcing.collect(self.config, self.services, self.slices, self.nodes, self.avoided, followed)

    def _service(self) -> None:
        key = "shop", f"s{self.rng.randrange(6)}"
        if key in self.services and self.rng.random() < 0.2:
            del self.services[key]
            return
        annotations = {
            "owner": self.rng.choice([None, "elect", "follow", "external", "node/n1", "node/n9", "nonsense"]),
            "mode": self.rng.choice([None, None, None, "enforce", "nonsense"]),
        }
        self.services[key] = Service(
            *key,
            annotations=tuple((f"arpguard.io/{name}", text) for name, text in annotations.items() if text),
            labels=self.rng.choice([(), (("app", "web"),)]),
            external_ips=tuple(self.rng.sample(ADDRESSES, self.rng.randrange(4))),
            local_only=self.rng.random() < 0.5,
            problems=self.rng.choice([(), ("spec: is not an object",)]),
        )

    def _slice(self) -> None:
        roll = self.rng.random()
        if roll < 0.1:
            self.slices = None if self.slices is not None else {}
        if self.slices is None:
            return
        key = "shop", f"slice{self.rng.randrange(8)}"
        if roll < 0.3:
            self.slices.pop(key, None)
            return
        nodes = tuple(sorted(self.rng.sample(NODES, self.rng.randrange(3))))
        self.slices[key] = EndpointSlice(*key, f"s{self.rng.randrange(6)}", nodes, version=self.rng.choice([0, 4, 6]))

    def _node(self) -> None:
        name = self.rng.choice(NODES)
        if self.nodes.pop(name, None) is None or self.rng.random() < 0.7:
            addresses = tuple(self.rng.sample(INSIDE, self.rng.randrange(2)))
            networks = self.rng.choice([(), POD_NETWORKS])
            self.nodes[name] = Node(name, ready=self.rng.random() < 0.5, addresses=addresses, pod_networks=networks)

    def _config(self) -> None:
        self.config = AgentConfig(
            vips=tuple(Vip(each, Owner(OwnerKind.ELECT)) for each in self.rng.sample(INSIDE, 2)),
            ranges=self.rng.choice([(), NETWORKS[:1], NETWORKS, NETWORKS]),
            services=ServicesConfig(selector=self.rng.choice([(), (("app", "web"),)]), hold=self.rng.random() < 0.2),
        )

    def _avoid(self) -> None:
        one = frozenset(self.rng.sample(INSIDE, 1))
        self.avoided = replace(self.avoided, **{self.rng.choice(["gateways", "api_servers", "own"]): one})

    def _follow(self) -> None:
        self.chosen[f"s{self.rng.randrange(6)}", self.rng.choice(ADDRESSES)] = self.rng.choice([*NODES, None])


@pytest.mark.parametrize("run", range(RUNS))
def test_memory_makes_no_difference(run):
    world, sourcing = World(random.Random(SEED + run)), Sourcing()
    for step in range(STEPS):
        for _ in range(world.rng.randrange(1, 4)):
            world.change()

        remembered, fresh = world.collect(sourcing), world.collect(Sourcing())

        assert remembered == fresh, f"ARPGUARD_SEED={SEED + run}, step {step}"
