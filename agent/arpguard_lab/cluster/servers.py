"""What the lab needs of an API server, its own or a given one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from arpguard_lab.cluster.kubeapi import KubeApi
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.oracle import LeaseWrite
from arpguard_lab.topology import Host


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that the API server does to one client; see arpguard_lab.apiserver.faults."""

    name: str
    value: object = True


class ApiUnderTest(ABC):
    """An API server that the nodes reach at topology.API_ADDRESS.

    `home` is the namespace of the agents and of all that the lab makes. `faults` are those that it can do to a
    single client. `is_double`: it counts requests and keeps a journal.
    """

    is_double = False
    faults: Sequence[Fault] = ()

    def __init__(self, lab: KubeLab, home: str) -> None:
        self.lab = lab
        self.home = home
        self.api: KubeApi

    @abstractmethod
    def start(self) -> None:
        """Brings it up with an empty namespace, and a kubeconfig for each agent of the lab."""

    @abstractmethod
    def stop(self) -> None:
        """Takes all away that `start` and the lab made."""

    @abstractmethod
    def node_name(self, host: Host) -> str:
        """The name of a node in the API."""

    @abstractmethod
    def go_down(self) -> None:
        """From now on connections are refused, and those that there were are reset."""

    @abstractmethod
    def come_back(self) -> None:
        """Brings the server back after `go_down`."""

    @abstractmethod
    def trouble(self, host: Host, fault: Fault | None) -> None:
        """Does something to the requests of one node's agent, or (None) no more."""

    def pace(self, writes_per_s: float) -> bool:  # noqa: ARG002 - only the double can
        """From now on so many writes in a second (0: as many as it can); whether it can be limited so."""
        return False

    def writes(self) -> dict[str, int]:
        """How many writes each node's agent has sent so far, answered or not; empty where nobody counts."""
        return {}

    def claim_writes(self) -> int:
        """How many writes of claims there were so far."""
        return 0

    def reads(self) -> int:
        """How many reads agents have sent so far, watches not counted."""
        return 0

    def secret_reads(self) -> int:
        """How often agents have asked for a Secret so far."""
        return 0

    def journal(self) -> list[LeaseWrite]:
        """The writes of Leases since the last time; empty where nobody keeps a journal."""
        return []
