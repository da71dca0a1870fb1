"""What a node publishes in its heartbeat besides its lease, and when."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.members import Member, is_alone, members_of
from arpguard.core.ownership.records import Published, PublishedLink, PublishedVouching
from arpguard.core.steadiness import Steadiness
from arpguard.model import Link, Vip
from arpguard.runtime.cluster.here import Here
from arpguard.units import NS_PER_MS

log = logging.getLogger(__name__)

Links: TypeAlias = tuple[PublishedLink, ...]

TELLINGS = 4  # at most so many times between two regular renewals
TOGETHER_NS = 300 * NS_PER_MS  # changes that come within it share a renewal


class LinkPublisher:
    """The guarded links that are up and steady. `left`: those that the last agent published, if still guarded.

    `told`: what the last renewal publishes, sent or on its way. `vouching`: as in Published. `deaf`: a link over which
    nothing comes in, or "" (core/vouching/hearing).
    """

    def __init__(self, here: Here, left: Links) -> None:
        self._here = here
        self._left = left
        self.told = Published(left)
        self._told_ns = 0
        self._steadiness = Steadiness()
        self.vouching: PublishedVouching | None = None
        self.deaf = ""
        self._needed = ""
        self._spared: dict[str, tuple[tuple[Member, ...], Mapping[Address, Vip]]] = {}

    def now(self) -> Links:
        """The links as they are now; before the first pass, those that were left."""
        links = self._here.kernel.state.links
        if not (self._here.outlook.known or links):
            return self._left
        return _as_told(self._steadiness.steady(self._heard(links), boot_ns()))

    def _heard(self, links: Iterable[Link]) -> list[Link]:
        """A deaf link counts as one that is down, unless no other link can serve."""
        return [replace(link, up=False) if link.name == self.deaf != self._needed else link for link in links]

    def to_publish(self) -> Published:
        """The same, and whether the announcer answers, for a renewal that publishes them."""
        published = self._published()
        if published.links != self.told.links:
            named = " ".join(f"{link.name}={link.mac}" for link in published.links)
            log.info("links on which this node may own VIPs: %s", named or "none")
        self.told = published
        return published

    def _published(self) -> Published:
        return Published(self.now(), tuple(self._here.cluster.announcers.reports.items()), self.vouching)

    @property
    def is_told(self) -> bool:
        """Whether a renewal has published all of it."""
        return self._published() == self.told

    def is_urgent(self, now_ns: int) -> bool:
        """Whether to publish at once that a link was lost or found, or has a new MAC, or what the announcer does.

        Frequent changes are published only now and then.
        """
        return not self.is_told and now_ns >= self._may_tell_ns

    @property
    def _may_tell_ns(self) -> int:
        return self._told_ns + self._here.outlook.lease.renew_ns // TELLINGS

    def hurried(self, now_ns: int) -> None:
        """Notes that a renewal publishes them immediately."""
        self._told_ns = now_ns

    def next_ns(self, now_ns: int) -> int | None:
        """When the next link will be trusted again, if nothing changes."""
        return self._steadiness.next_ns(now_ns)

    def tells_ns(self, now_ns: int) -> int | None:
        """When to publish what has changed; None: nothing has."""
        return None if self.is_told else max(now_ns + TOGETHER_NS, self._may_tell_ns)

    def believe_in_need(self, others: Mapping[str, Links], alive: frozenset[str]) -> None:
        """Trusts a flapping or deaf link if without it no node could own some VIP.

        `others`: what the other nodes publish. `_spared`: the links that are not needed like that while members and
        VIPs stay the same.
        """
        self._needed = self._needed if self._needed == self.deaf else ""
        now_ns, vips, steady = boot_ns(), self._here.outlook.vips, self.now()
        links = self._here.kernel.state.links
        held_back = self._steadiness.held_back(self._heard(links), now_ns)
        held_back += tuple(link for link in links if link.up and link.name == self.deaf != self._needed)
        spared, self._spared = self._spared, {}

        for link in held_back:
            published = {**others, self._here.node: (*steady, *_as_told([link]))}
            asked = members_of(self._here.cluster.nodes, published, alive), vips
            known = spared.get(link.name)
            if known is not None and known[0] == asked[0] and known[1] is vips:
                self._spared[link.name] = known
            elif is_alone(self._here.node, asked[0], vips.values()):
                log.info(
                    "link %s flaps or receives nothing; using it anyway, because VIPs would otherwise have no owner",
                    link.name,
                )
                if link.name == self.deaf:
                    self._needed = link.name
                    self._steadiness.steady(self._heard(links), now_ns)
                self._steadiness.believe(link.name, now_ns)
            else:
                self._spared[link.name] = asked


def _as_told(links: Iterable[Link]) -> Links:
    """Links as a heartbeat publishes them."""
    return tuple(PublishedLink(link.name, link.mac, link.subnets) for link in links)
