"""Which node has each elected VIP; keeps this node's kernel up to date with that."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping

from arpguard.addresses import ZERO_MAC, Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.desired import NOBODY
from arpguard.core.ownership.machine import Ownership
from arpguard.model import Standing
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.kernel.reconciler import SmallPass
from arpguard.verdict import Kind


class Holders:
    """Who has each VIP by its claim, kept from one decision to the next: there may be thousands.

    `known` has the node by VIP: empty where the claim is released or void; a VIP that was never held is not in it.
    """

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self.known: dict[Address, str] = {}
        self._stale: set[Address] = set()

    def of(self, vip: Address) -> str:
        """The node that has a VIP; empty when none has."""
        return self.known.get(vip, "")

    def held_by(self, nodes: Collection[str]) -> list[Address]:
        """The VIPs that one of these nodes has."""
        return [vip for vip, holder in self.known.items() if holder in nodes]

    def changed(self, vips: Iterable[Address]) -> None:
        """Notes that other nodes may have these VIPs now."""
        self._stale.update(vips)

    def look(self, now_ns: int) -> Iterator[None]:
        """Brings `known` up to date, in steps; what changes meanwhile is left to the next look."""
        stale, self._stale = self._stale, set()
        for vip in stale:
            holder = self.now(vip, now_ns)
            if holder is None:
                self.known.pop(vip, None)
            else:
                self.known[vip] = holder
            yield

    def now(self, vip: Address, now_ns: int) -> str | None:
        """The node that has a VIP, also if that has changed since the last look; None: it was never held."""
        holder = self._ownership.holder(vip, now_ns)
        if not (holder.known and holder.exists):
            return None
        return holder.node if holder.void is False else ""

    def alive(self, alive: Collection[str]) -> dict[Address, str]:
        """All of them; also empty where the holder is not among the nodes that are alive."""
        return self.known | {vip: "" for vip, holder in self.known.items() if holder and holder not in alive}


class Standings:
    """Tells the kernel how elected VIPs stand. `kept`: those that it answers for already, with their epochs."""

    def __init__(self, here: Here, ownership: Ownership, kept: Mapping[Address, int]) -> None:
        self._here = here
        self._ownership = ownership
        self._owned = dict(kept)
        self._owned_ns = dict.fromkeys(kept, boot_ns())
        self._unrefreshed: set[Address] = set()
        self.holders = Holders(ownership)

    @property
    def owned(self) -> Collection[Address]:
        """The VIPs that the kernel answers for."""
        return self._owned.keys()

    def owned_since_ns(self, vip: Address) -> int | None:
        """Since when (boot clock) it answers for a VIP; None when it does not."""
        return self._owned_ns.get(vip)

    def own(self, vip: Address, epoch: int) -> None:
        """The kernel is to answer for a VIP in an epoch (its number); it does when this returns."""
        self._owned[vip] = epoch
        self._owned_ns[vip] = boot_ns()
        self.refresh([vip])
        self._here.listener.owned(vip, self._ownership.holder(vip, boot_ns()))

    def disown(self, vip: Address) -> None:
        """The kernel is to answer for a VIP no longer; it does not when this returns."""
        self._owned.pop(vip, None)
        self._owned_ns.pop(vip, None)
        self.refresh([vip])

    def changed(self, vip: Address) -> None:
        """Claims of other nodes often change together: the agent writes their entries in one go."""
        self.holders.changed([vip])
        if not self._unrefreshed:
            asyncio.get_running_loop().call_soon(self._refresh_changed)
        self._unrefreshed.add(vip)

    def _refresh_changed(self) -> None:
        changed, self._unrefreshed = self._unrefreshed, set()
        self.refresh(changed)

    def refresh(self, vips: Iterable[Address]) -> None:
        """Tells the kernel how VIPs stand now."""
        standings = {vip: self._standing(vip) for vip in vips}
        if standings and self._here.kernel.take_standings(standings, boot_ns()) is SmallPass.NEEDS_WHOLE:
            self._here.listener.look()

    def _standing(self, vip: Address) -> Standing:
        if vip in self._owned:
            return Standing(Kind.OWNED, self._owned[vip])
        holder = self._ownership.holder(vip, boot_ns())
        if holder.external:
            return Standing(Kind.EXTERNAL, mac=MacAddress.parse(holder.external))
        if holder.node in ("", self._here.node) or holder.void is True:
            return NOBODY
        return Standing(Kind.FOREIGN, mac=self._mac_of(holder.node, vip))

    def _mac_of(self, node: str, vip: Address) -> MacAddress:
        """The MAC that a node answers for a VIP with; zero where that is not known for sure."""
        interface = self._here.outlook.interface(vip)
        on_it = (link for link in self._ownership.peers.links(node) if interface in ("", link.name))
        found = [link.mac for link in on_it if any(vip in network for network in link.networks)]
        return found[0] if len(found) == 1 else ZERO_MAC
