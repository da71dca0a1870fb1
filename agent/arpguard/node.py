"""This node for those who only read: the API, the metrics, and commands that work without an agent.

The kernel's maps are read through their handles whenever somebody asks; the rest is what the agent knows.
"""

from dataclasses import dataclass, field
from typing import Protocol

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.config.model import AgentConfig
from arpguard.core.auditing import AuditBook, Audited
from arpguard.core.clusterstate import ClusterState
from arpguard.core.decisions import ConflictLog, DecisionLog
from arpguard.core.keepalived import InstanceStates
from arpguard.core.tenures import Tenures
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable, read_grants, read_totals
from arpguard.dataplane.syscall import Fd
from arpguard.model import EventAccount, Grants, NodeControl, NodeState, Surroundings, Tally, Vip
from arpguard.verdict import Mode, Vouched


@dataclass(slots=True)
class ConfigInForce:
    """The configuration that is in force, and what is wrong with a later one. `loaded_ns` is CLOCK_BOOTTIME."""

    source: str
    config: AgentConfig
    generation: int = 1
    loaded_ns: int = field(default_factory=boot_ns)
    problem: str = ""
    _found: tuple[AgentConfig, dict[Address, int]] | None = None

    def find(self, address: Address) -> tuple[int, Vip | None]:
        """The item of `vips:` about an address, with its index; (0, None) when there is none."""
        if self._found is None or self._found[0] is not self.config:
            self._found = self.config, {vip.address: index for index, vip in enumerate(self.config.vips)}
        index = self._found[1].get(address)
        return (0, None) if index is None else (index, self.config.vips[index])


class Busy(Exception):  # noqa: N818 - nothing is wrong
    """So many addresses already wait for an audit that another one would take too long."""


class Auditor(Protocol):
    """Sends requests for a VIP and sees which hosts answer."""

    async def ask(self, address: Address) -> list[Audited]:
        """Asks now; Busy if too many wait already."""


@dataclass(slots=True)
class ThisNode:
    """Who this node is, its kernel objects, and what the agent knows.

    `started_ns` (CLOCK_BOOTTIME) and `in_force` are None when the pinned objects are read instead of asking an agent;
    `cluster` is also None standalone.
    """

    name: str
    table: EntryTable
    ranges: RangeTable
    control: ControlValue
    totals: Fd
    grants: Fd
    programs: dict[str, Fd]
    state: NodeState
    surroundings: Surroundings
    decisions: DecisionLog
    conflicts: ConflictLog
    started_ns: int | None = None
    in_force: ConfigInForce | None = None
    cluster: ClusterState | None = None
    audits: AuditBook = field(default_factory=AuditBook)
    keepalived: InstanceStates = field(default_factory=InstanceStates)
    tenures: Tenures = field(default_factory=Tenures)
    waits: bool = False  # whether passes change nothing in the kernel yet

    def read_control(self) -> NodeControl:
        """What the kernel has now; observe, before the agent has written anything."""
        return self.control.read() or NodeControl(mode=Mode.OBSERVE, generation=0)

    def read_totals(self) -> tuple[Tally, EventAccount, dict[Vouched, int]]:
        """All decisions on this node so far, and the kernel's accounts of events and of frames of vouching."""
        return read_totals(self.totals)

    def read_grants(self) -> Grants:
        """What the kernel has of this node's voucher."""
        return read_grants(self.grants)

    def link_name(self, ifindex: int) -> str:
        """The name of a guarded link; "#7" for one that is guarded no longer."""
        return next((link.name for link in self.state.links if link.ifindex == ifindex), f"#{ifindex}")
