"""All that the server has and knows, in one place: what requests work on, and what tests change."""

import asyncio
from dataclasses import dataclass, field

from arpguard_lab.apiserver.clients import Clients
from arpguard_lab.apiserver.counters import Counters
from arpguard_lab.apiserver.exchanges import Connections
from arpguard_lab.apiserver.execing import Kubelets
from arpguard_lab.apiserver.faults import FaultTable
from arpguard_lab.apiserver.pace import Pace
from arpguard_lab.apiserver.rbac import Rbac
from arpguard_lab.apiserver.registry import Registry
from arpguard_lab.apiserver.resources import Catalogue
from arpguard_lab.apiserver.store import Store


@dataclass(slots=True)
class State:
    """The parts, wired."""

    bookmark_interval_s: float
    bare: bool = False  # no kube-controller-manager runs
    kubelets: Kubelets = field(default_factory=Kubelets)
    store: Store = field(default_factory=Store)
    catalogue: Catalogue = field(default_factory=Catalogue)
    clients: Clients = field(default_factory=Clients)
    faults: FaultTable = field(default_factory=FaultTable)
    pace: Pace = field(default_factory=Pace)
    counters: Counters = field(default_factory=Counters)
    connections: Connections = field(default_factory=Connections)
    zombies: set[asyncio.TimerHandle] = field(default_factory=set)  # writes that are still on their way
    executions: set[asyncio.Task[None]] = field(default_factory=set)  # commands that run in Pods
    registry: Registry = field(init=False)
    rbac: Rbac = field(init=False)

    def __post_init__(self) -> None:
        self.registry = Registry(self.store, self.catalogue, bare=self.bare)
        self.rbac = Rbac(self.store)
