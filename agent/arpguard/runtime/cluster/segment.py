"""Asks on the segment which other host has a VIP."""

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.choosing import home_link
from arpguard.core.claimants import OUTSIDE, Claimant
from arpguard.core.ownership.machine import Ownership
from arpguard.dataplane.prober import Prober
from arpguard.errors import DataPlaneError
from arpguard.runtime.cluster.here import Here


class Segment:
    """Probes for VIPs, by its `prober`."""

    def __init__(self, here: Here, ownership: Ownership) -> None:
        self._here = here
        self._ownership = ownership
        self._found: dict[Address, Claimant] = {}  # by the last probes
        self.prober = Prober(self._is_guarded)

    async def probe(self, vip: Address) -> MacAddress | None:
        """The MAC of the host that has a VIP; None: no host answers. Raises DataPlaneError when it cannot ask."""
        interface = self._here.outlook.interface(vip)
        links = [link for link in self._here.kernel.state.links if interface in ("", link.name)]
        home = home_link(vip, links, self._here.outlook.surroundings.routes)
        if home is None:
            raise DataPlaneError(f"cannot probe for {vip}: no link is guarded")
        taken_by = await self.prober.probe(home, vip)
        if taken_by is not None:  # now: when a dead node is reported, its MACs are forgotten
            self._found[vip] = await self._here.listener.who(taken_by)
        return taken_by

    def report(self, vip: Address, mac: MacAddress) -> None:
        """Tells that a host answers for a VIP, unless by now it is known as a node whose guard is silent."""
        if not self._is_guarded(vip, mac):
            self._here.listener.taken_outside(vip, mac, self._found.pop(vip, OUTSIDE))

    def _is_guarded(self, vip: Address, mac: MacAddress) -> bool:
        """Whether a MAC is on a guarded link whose node is silent for the VIP, or soon will be: the VIP only moves.

        The lease of a node whose agent is silent has ended, so its guard no longer answers: another program does, or
        the guard is gone. An unfenced VIP may still be answered there, and another node takes it over all the same.
        """
        if mac in (link.mac for link in self._here.kernel.state.links):
            return True
        peers, found = self._ownership.peers, self._here.outlook.vip(vip)
        return peers.guards(mac, boot_ns()) or (found is not None and found.unfenced and peers.has(mac))
