"""Which of its links a node tells the others of, and when."""

import logging
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.members import Member, is_alone, members_of
from arpguard.core.ownership.records import PublishedLink
from arpguard.core.steadiness import Steadiness
from arpguard.model import Link, Vip
from arpguard.runtime.cluster.here import Here

log = logging.getLogger(__name__)

Links: TypeAlias = tuple[PublishedLink, ...]

TELLINGS = 4  # of links, at most, in the time from one renewal to the next


class LinkPublisher:
    """The guarded links that are up and steady. `left`: what an agent before this one told of, guarded still."""

    def __init__(self, here: Here, left: Links) -> None:
        self._here = here
        self._left = self._told = left
        self._told_ns = 0
        self._steadiness = Steadiness()
        self._spared: dict[str, tuple[tuple[Member, ...], Mapping[Address, Vip]]] = {}

    def now(self) -> Links:
        """The links as they are now. Before the first pass none is known but those that were left."""
        links = self._here.kernel.state.links
        if not (self._here.outlook.known or links):
            return self._left
        return _as_told(self._steadiness.steady(links, boot_ns()))

    def to_publish(self) -> Links:
        """The same, for a renewal that tells the others of them."""
        links = self.now()
        if links != self._told:
            named = " ".join(f"{link.name}={link.mac}" for link in links)
            log.info("links that VIPs may be owned on: %s", named or "none")
        self._told = links
        return links

    def is_urgent(self, now_ns: int) -> bool:
        """Whether the others are to hear at once of links that are lost, found or have a new MAC.

        Of many changes they are told only now and then.
        """
        return self.now() != self._told and now_ns >= self._told_ns + self._here.outlook.lease.renew_ns // TELLINGS

    def hurried(self, now_ns: int) -> None:
        """A renewal tells of them at once."""
        self._told_ns = now_ns

    def next_ns(self, now_ns: int) -> int | None:
        """When a link will be believed that is not yet, if nothing changes."""
        return self._steadiness.next_ns(now_ns)

    def believe_in_need(self, others: Mapping[str, Links], alive: frozenset[str]) -> None:
        """A link that was lost again and again is believed earlier where without it nobody could own some VIP.

        `others`: what the other nodes publish. `_spared`: of which links that is not so, as long as members and VIPs
        are the same.
        """
        now_ns, vips, steady = boot_ns(), self._here.outlook.vips, self.now()
        held_back = self._steadiness.held_back(self._here.kernel.state.links, now_ns)
        spared, self._spared = self._spared, {}

        for link in held_back:
            links = {**others, self._here.node: (*steady, *_as_told([link]))}
            asked = members_of(self._here.cluster.nodes, links, alive), vips
            known = spared.get(link.name)
            if known is not None and known[0] == asked[0] and known[1] is vips:
                self._spared[link.name] = known
            elif is_alone(self._here.node, asked[0], vips.values()):
                log.info(
                    "link %s was lost again and again, and is used: VIPs would have no owner without it", link.name
                )
                self._steadiness.believe(link.name, now_ns)
            else:
                self._spared[link.name] = asked


def _as_told(links: Iterable[Link]) -> Links:
    """Links as a heartbeat tells of them."""
    return tuple(PublishedLink(link.name, link.mac, link.subnets) for link in links)
