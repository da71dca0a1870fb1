"""Where a member takes part: what all of its parts have to do with."""

from dataclasses import dataclass
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.core.ownership.records import Holder
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.kernel.reconciler import Reconciler


class MemberListener(Protocol):
    """Who is told of what happens."""

    def look(self) -> None:
        """A pass of the reconciler is needed."""

    def owned(self, address: Address, holder: Holder) -> None:
        """This node has begun to answer for a VIP."""

    async def taken_outside(self, address: Address, mac: MacAddress) -> None:
        """A VIP is taken by a MAC that is no guarded node's."""


@dataclass(frozen=True, slots=True)
class Here:
    """This node: its kernel, what it sees of the cluster, and who is told of what happens."""

    node: str
    kernel: Reconciler
    cluster: Cluster
    outlook: Outlook
    listener: MemberListener
