"""Where VIPs and their owners come from: the configuration alone, or a cluster (`cluster/kubernetes.py`)."""

from enum import Enum
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.core.admission import avoided
from arpguard.core.auditing import Audited
from arpguard.core.basis import Asked
from arpguard.core.cautions import needs_cluster
from arpguard.core.claimants import OUTSIDE, Claimant, virtual_router
from arpguard.core.closing import closing_of
from arpguard.core.clusterstate import ClusterState
from arpguard.core.conflicts import KnownOwner
from arpguard.core.decisions import Report
from arpguard.core.sourcing import Sourcing
from arpguard.model import Decision, Surroundings
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.settings import Settings
from arpguard.verdict import Reason
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType


class End(Enum):
    """Why the agent stops."""

    REMOVED = "the agent's DaemonSet is gone"
    NAMESPACE_GOES = "the agent's namespace is being deleted"
    RIGHTS_GONE = "the agent's rights and ConfigMap are gone, as after an uninstall"
    REPLACED = "the agent's Pod is being replaced"
    STOPPED = "shutdown requested"

    @property
    def removes_guard(self) -> bool:
        """Whether arpguard is removed, not this agent alone."""
        return self in (End.REMOVED, End.NAMESPACE_GOES, End.RIGHTS_GONE)


class ControlPlane(Protocol):
    """Tells passes what to do, and judges rival claims."""

    @property
    def state(self) -> ClusterState | None:
        """What the agent knows of the cluster, for readers; None without one."""

    async def ask(self, surroundings: Surroundings) -> Asked:
        """What the kernel should have."""

    def passed(self) -> None:
        """A pass is done: links may have changed."""

    def claimed(self, report: Report) -> None:
        """The kernel reports that another host claims a VIP."""

    def owner_of(self, vip: Address) -> KnownOwner:
        """Who has a VIP."""

    async def who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC address is."""

    def answered_by_others(self, audited: Audited) -> None:
        """An audit found that others than the owner answer for a VIP."""

    async def run(self) -> None:
        """Runs until it is cancelled, or has nothing left to do."""

    async def leave(self) -> End:
        """Does everything that has to be done while the agent still runs; returns why it stops."""


class Standalone:
    """The configuration alone: it elects no VIP, and knows no other node."""

    state = None

    def __init__(self, settings: Settings, conflicts: Conflicts) -> None:
        self._settings = settings
        self._conflicts = conflicts
        self._sourcing = Sourcing()

    async def ask(self, surroundings: Surroundings) -> Asked:
        """The VIPs of the configuration."""
        config, avoid = self._settings.config, avoided(surroundings)
        own = self._sourcing.collect(config, {}, None, {}, avoid)
        return Asked(
            config,
            self._settings.in_force.generation,
            own.vips,
            problems=[*own.problems, *map(str, needs_cluster(config))],
            closing=closing_of(config, surroundings, avoid, ()),
        )

    def passed(self) -> None:
        """Tells nobody."""

    def claimed(self, report: Report) -> None:
        """Takes the sender for a host outside, or a virtual router.

        A reply to this node alone that may be the owner's is what a question brings about, of `arpguard whohas` or of
        the kernel: only the audit can tell whether another host answers, too.
        """
        if not _answers_this_node(report.decision):
            self._conflicts.tell(report, _unknown(report.decision.sha))

    def owner_of(self, vip: Address) -> KnownOwner:
        """The node that the configuration names."""
        _, found = self._settings.in_force.find(vip)
        return KnownOwner(found.owner.node if found else "")

    async def who(self, mac: MacAddress) -> Claimant:
        """A virtual router, or a host outside."""
        return _unknown(mac)

    def answered_by_others(self, audited: Audited) -> None:
        """The problems say so."""

    async def run(self) -> None:
        """Has nothing to do."""

    async def leave(self) -> End:
        """Has nothing to do, and no way to ask why."""
        return End.STOPPED


def _answers_this_node(decision: Decision) -> bool:
    is_reply = decision.op in (ArpOp.REPLY, NdType.ADVERTISEMENT) and not decision.eth_dst.is_group
    return is_reply and decision.reason is Reason.UNVERIFIED_CLAIM


def _unknown(mac: MacAddress) -> Claimant:
    return virtual_router(mac) or OUTSIDE
