"""Sends requests for many addresses together, as `arpguard whohas` does for one, and hears the replies.

The sockets stay open, and hear replies to this node alone: what others say to each other costs nothing. Nothing is
entered into this node's neighbour table, because its kernel has not asked.
"""

import asyncio
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket, build_question
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey

_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Question:
    """Who has a VIP on a link? `spa`: the link's own address, from which this node asks."""

    key: EntryKey
    ifname: str
    spa: Address


@dataclass(slots=True)
class Replies:
    """Which hosts answered which requests. `unasked`: requests that did not leave, or whose answers may be lost."""

    macs: dict[EntryKey, set[MacAddress]] = field(default_factory=dict)
    unasked: set[EntryKey] = field(default_factory=set)


class Asker:
    """Sockets by the index and name of their link: one that has gone, or has another name, gets a new one."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[int, str], NeighbourSocket] = {}

    async def ask(self, questions: Iterable[Question], replies: Replies, times: int, wait_s: float) -> None:
        """Sends each request several times, and listens after each; adds to the replies."""
        on_links: dict[tuple[int, str], list[Question]] = {}
        for question in questions:
            on_links.setdefault((question.key.ifindex, question.ifname), []).append(question)
            replies.macs.setdefault(question.key, set())

        for place in on_links:
            self._begin(place)
        for _ in range(times):
            asked_as = {place: self._mac(place) for place in on_links}
            for place, asked in on_links.items():
                replies.unasked.update(question.key for question in asked if not self._send(place, question))
            await asyncio.sleep(wait_s)
            for place, asked in on_links.items():
                self._hear(place, asked, asked_as[place], replies)

    def _begin(self, place: tuple[int, str]) -> None:
        """Has a socket there, and forgets what came before the questions."""
        try:
            asker = self._sockets.get(place)
            if asker is None:
                asker = self._sockets[place] = NeighbourSocket(place[1], replies_only=True)
            for _ in _waiting(asker):
                pass
            asker.take_lost()
        except (OSError, DataPlaneError):
            self._close([place])

    def _mac(self, place: tuple[int, str]) -> MacAddress | None:
        """The MAC that the link has now."""
        asker = self._sockets.get(place)
        try:
            return asker.mac if asker is not None else None
        except OSError:
            return None

    def _send(self, place: tuple[int, str], question: Question) -> bool:
        asker = self._sockets.get(place)
        if asker is None:
            return False
        try:
            asker.send(build_question(asker.mac, question.spa, question.key.vip))
        except OSError:
            return False  # the link is down, or its queue full
        return True

    def _hear(
        self, place: tuple[int, str], asked: Iterable[Question], asked_as: MacAddress | None, replies: Replies
    ) -> None:
        """Takes the replies. If some were dropped, or went to the link's previous MAC, too few answers mean nothing."""
        asker, by_vip = self._sockets.get(place), {question.key.vip: question for question in asked}
        if asker is None:
            return
        try:
            for heard in _waiting(asker):
                question = by_vip.get(heard.packet.spa)
                if question is not None and asker.is_for_me(heard.packet, question.spa):
                    replies.macs[question.key].add(heard.packet.sha)
            if asker.take_lost() or asker.mac != asked_as:
                replies.unasked.update(question.key for question in by_vip.values())
        except OSError:
            self._close([place])
            replies.unasked.update(question.key for question in by_vip.values())

    def keep(self, places: AbstractSet[tuple[int, str]]) -> None:
        """Closes the sockets on all other links."""
        self._close(self._sockets.keys() - places)

    def _close(self, places: Iterable[tuple[int, str]]) -> None:
        for place in list(places):
            asker = self._sockets.pop(place, None)
            if asker is not None:
                asker.close()

    def close(self) -> None:
        """Closes all sockets."""
        self._close(self._sockets)


def _waiting(asker: NeighbourSocket) -> Iterator[HeardFrame]:
    """The frames that wait; a bounded number, in case a host floods the link."""
    for _ in range(_AT_ONCE):
        heard = asker.hear(0)
        if heard is None:
            return
        yield heard
