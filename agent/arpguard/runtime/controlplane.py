"""Who says what this node is to guard: the configuration alone, or a cluster (`cluster/kubernetes.py`)."""

import asyncio
from typing import Protocol

from arpguard.config.model import AgentConfig
from arpguard.core.admission import avoided
from arpguard.core.basis import Asked
from arpguard.core.claimants import OUTSIDE, virtual_router
from arpguard.core.closing import closing_of
from arpguard.core.clusterstate import ClusterState
from arpguard.core.decisions import Report
from arpguard.core.sourcing import Sourcing
from arpguard.model import OwnerKind, Surroundings
from arpguard.runtime.cluster.leaving import End
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.kernel.reconciler import some
from arpguard.runtime.settings import Settings


class ControlPlane(Protocol):
    """What passes, and the claims of others, are about."""

    @property
    def state(self) -> ClusterState | None:
        """What is known of the cluster, for those who read; None: there is none."""

    async def ask(self, surroundings: Surroundings) -> Asked:
        """What the kernel is to be made to have."""

    def passed(self) -> None:
        """A pass is through: links may be others."""

    def claimed(self, report: Report) -> None:
        """The kernel reports that somebody claims a VIP."""

    async def run(self) -> None:
        """Goes on until it is cancelled."""

    async def leave(self) -> End:
        """Why the agent ends, when everything is done that has to be done while it still runs."""


class Standalone:
    """The configuration alone: no VIP is elected, and no claim is a node's."""

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
            problems=[*own.problems, *_unfit_vips(config)],
            closing=closing_of(config, surroundings, avoid, ()),
        )

    def passed(self) -> None:
        """Has nobody to tell."""

    def claimed(self, report: Report) -> None:
        """There is nobody to ask who makes it."""
        self._conflicts.tell(report, virtual_router(report.decision.sha) or OUTSIDE)

    async def run(self) -> None:
        """Has nothing to do."""
        await asyncio.Event().wait()

    async def leave(self) -> End:
        """Nobody else knows why."""
        return End.STOPPED


def _unfit_vips(config: AgentConfig) -> list[str]:
    elected = [str(vip.address) for vip in config.vips if vip.owner.kind is OwnerKind.ELECT]
    if not elected:
        return []
    return [f"vips: owner elect needs Kubernetes, nobody answers for {some(elected)}: name a node, or external"]
