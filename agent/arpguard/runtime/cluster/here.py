"""What all parts of a member share."""

from dataclasses import dataclass
from typing import Protocol

from arpguard.addresses import Address, MacAddress
from arpguard.core.claimants import Claimant
from arpguard.core.ownership.records import Claim, Holder
from arpguard.runtime.cluster.objects import Cluster
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.kernel.reconciler import Reconciler


class MemberListener(Protocol):
    """Hears what happens to this node's VIPs."""

    def look(self) -> None:
        """The reconciler has to make a pass."""

    def claim_changed(self, vip: Address, old: Claim | None, new: Claim | None) -> None:
        """A claim was read out of turn: what was known of it, and what it is now; None: there is none."""

    def owned(self, address: Address, holder: Holder) -> None:
        """This node has begun to answer for a VIP."""

    async def who(self, mac: MacAddress) -> Claimant:
        """Whose a MAC address is."""

    def taken_outside(self, address: Address, mac: MacAddress, claimant: Claimant) -> None:
        """A MAC has a VIP that this node could take, and no guarded node has that MAC."""


@dataclass(frozen=True, slots=True)
class Here:
    """This node: its kernel, its view of the cluster, and the listener for its news."""

    node: str
    kernel: Reconciler
    cluster: Cluster
    outlook: Outlook
    listener: MemberListener
