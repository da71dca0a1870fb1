"""What the reconciler's last pass found, for the parts of a member."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from arpguard.addresses import Address
from arpguard.config.model import LeaseConfig
from arpguard.core.sourcing import Collected
from arpguard.model import Surroundings, Vip


@dataclass(slots=True)
class Outlook:
    """VIPs, links and settings. `known` False: some VIPs were not known yet, so nothing is claimed or given up."""

    lease: LeaseConfig
    collected: Collected = field(default_factory=Collected)
    surroundings: Surroundings = field(default_factory=Surroundings)
    known: bool = False

    @property
    def vips(self) -> Mapping[Address, Vip]:
        """All VIPs; none until they are known."""
        return self.collected.vips if self.known else {}

    def vip(self, address: Address) -> Vip | None:
        """The VIP of an address."""
        return self.vips.get(address)

    def interface(self, address: Address) -> str:
        """The interface that a VIP is restricted to; empty: any."""
        found = self.vip(address)
        return found.interface if found else ""

    def source(self, address: Address) -> str:
        """The object that makes an address a VIP."""
        found = self.vip(address)
        return found.source or "configuration" if found else ""

    def lead(self, address: Address) -> Address | None:
        """The lead of an address's group; None if it has no lead."""
        vip = self.collected.vips.get(address)
        return vip.lead if vip is not None else None
