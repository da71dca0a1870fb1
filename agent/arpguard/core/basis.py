"""What entries depend on: what is asked for, and this node's links and routes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from arpguard.addresses import Address
from arpguard.config.model import AgentConfig
from arpguard.core.choosing import Choice
from arpguard.core.closing import NOTHING, Closing, closed_ranges
from arpguard.core.desired import Primaries, primary_addresses, wanted_entries
from arpguard.model import EntryKey, RangeKey, Route, Standing, Surroundings, Vip, VipEntry


@dataclass(frozen=True, slots=True)
class Asked:
    """What the kernel should have.

    `vips` come from the configuration and the cluster; a VIP that has changed is another object. Until everything that
    can make an address a VIP has been read (`complete`), nothing is removed, neither entries nor programs, and no more
    ranges are closed.
    """

    config: AgentConfig
    generation: int
    vips: Mapping[Address, Vip]
    complete: bool = True
    problems: Sequence[str] = ()
    closing: Closing = NOTHING


@dataclass(frozen=True, slots=True)
class Basis:
    """What a pass starts from: entries are a function of this, and of the nodes that have the elected VIPs.

    `routes`: those that decide on which guarded link a VIP is at home; a node with many Pods has many others.
    """

    asked: Asked
    surroundings: Surroundings
    choice: Choice
    primaries: Primaries
    routes: tuple[Route, ...]

    @classmethod
    def of(cls, asked: Asked, surroundings: Surroundings, choice: Choice) -> "Basis":
        """The parts of the surroundings that matter while these links are guarded."""
        here = (own.address for link in choice.links for own in link.addresses)
        no_primaries = {*asked.vips, *filter(asked.closing.is_closed, here)}
        guarded = {link.ifindex for link in choice.links}
        routes = tuple(route for route in surroundings.routes if route.ifindex in guarded)
        return cls(asked, surroundings, choice, primary_addresses(choice.links, no_primaries), routes)

    @property
    def problems(self) -> list[str]:
        """What is wrong with what is asked for, and with the links."""
        return [*self.asked.problems, *self.asked.closing.problems, *self.choice.problems]

    def differs_in_vips_only(self, other: "Basis") -> bool:
        """Whether VIPs that are the same object in both have equal entries."""
        return (
            self.asked.config is other.asked.config
            and self.asked.complete is other.asked.complete
            and self.choice.links == other.choice.links
            and self.primaries == other.primaries
            and self.routes == other.routes
        )

    def is_like(self, other: "Basis") -> bool:
        """Whether all entries are equal as long as elected VIPs keep their owners."""
        same_vips = self.asked.vips is other.asked.vips or not self.changes(other.asked.vips)
        return same_vips and self.differs_in_vips_only(other)

    def changes(self, after: Mapping[Address, Vip]) -> dict[Address, Vip | None]:
        """The VIPs that `after` has changed (None: removed)."""
        before = self.asked.vips
        changed: dict[Address, Vip | None] = {
            address: vip for address, vip in after.items() if before.get(address) is not vip
        }
        return changed | dict.fromkeys(before.keys() - after.keys())

    def elected(self, addresses: Iterable[Address]) -> dict[Address, Vip | None]:
        """The elected ones among these VIPs."""
        vips = ((address, self.asked.vips.get(address)) for address in addresses)
        return {address: vip for address, vip in vips if vip is not None and vip.elected}

    def entries(
        self, vips: Iterable[Vip], node: str, standings: Mapping[Address, Standing]
    ) -> dict[EntryKey, VipEntry]:
        """The entries of some VIPs."""
        return wanted_entries(vips, self.choice.links, self.routes, self.primaries, node, standings)

    def gone(self, changed: Iterable[Address], wanted: Mapping[EntryKey, VipEntry]) -> list[EntryKey]:
        """The entries that some VIPs no longer need on the guarded links; none until everything has been read."""
        if not self.asked.complete:
            return []
        keys = (EntryKey(link.ifindex, address) for address in changed for link in self.choice.links)
        return [key for key in keys if key not in wanted]

    @property
    def ranges(self) -> dict[RangeKey, VipEntry]:
        """The ranges to close, and the exceptions in them."""
        return closed_ranges(self.asked.closing, self.choice.links, self.primaries)
