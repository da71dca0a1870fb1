"""Asks the segment whether another host has an address, before this node answers for it.

For IPv4 as RFC 5227 2.1 has it, for IPv6 as duplicate address detection does (RFC 4862 5.4).
"""

import asyncio
import secrets
from collections.abc import Callable

from arpguard.addresses import NOBODY, Address, MacAddress
from arpguard.core.desired import membership_of
from arpguard.dataplane.groups import Groups
from arpguard.dataplane.neighboursocket import HeardFrame, NeighbourSocket, build_question
from arpguard.errors import DataPlaneError
from arpguard.model import EntryKey, Link

# Both RFCs probe for seconds, since a host that boots may take its time. A takeover cannot wait for as long: what is
# heard later is a conflict, and dealt with as one.
PROBES = 3
INTERVAL_S = 0.06
LISTEN_S = 0.2
HEARD_AT_ONCE = 64
_NONCE_LEN = 6  # RFC 7527 4.1: what fills the option


class Prober:
    """Probes. `is_ours` tells the MACs of nodes that are guarded: those are silent about an address, or will be."""

    def __init__(self, is_ours: Callable[[Address, MacAddress], bool]) -> None:
        self._is_ours = is_ours
        self._nonce = secrets.token_bytes(_NONCE_LEN)
        self._waiting: dict[tuple[str, Address], asyncio.Future[MacAddress]] = {}
        self._sockets: dict[str, NeighbourSocket] = {}
        self._groups = Groups()

    async def probe(self, link: Link, address: Address) -> MacAddress | None:
        """The MAC of a stranger that claims the address on a link, or probes for it too; None when no host does.

        Raises DataPlaneError when nothing can be sent or heard there.
        """
        key = link.name, address
        heard = self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
        try:
            ear = self._listening(link, address)
            question = build_question(ear.mac, NOBODY[address.version], address, self._nonce)

            for _ in range(PROBES):
                if not heard.done():
                    ear.send(question)
                    await asyncio.wait([heard], timeout=INTERVAL_S)
            await asyncio.wait([heard], timeout=LISTEN_S - PROBES * INTERVAL_S)
            return heard.result() if heard.done() else None
        except OSError as error:
            raise DataPlaneError(f"cannot probe for {address} on {link.name} ({error})") from error
        finally:
            self._waiting.pop(key, None)
            self._stop_listening(link, address)

    def claimed(self, ifname: str, address: Address, sha: MacAddress) -> None:
        """A host was heard to claim an address; the kernel's reports come here, too."""
        waiting = self._waiting.get((ifname, address))
        if waiting is not None and not waiting.done() and not sha.is_group and not self._is_ours(address, sha):
            waiting.set_result(sha)

    def _listening(self, link: Link, address: Address) -> NeighbourSocket:
        """The group of the address comes first (RFC 4862 5.4.2): others that probe for it are heard there only."""
        group = membership_of(EntryKey(link.ifindex, address))
        if group is not None:
            self._groups.join(group)
        if link.name not in self._sockets:
            ear = self._sockets[link.name] = NeighbourSocket(link.name)
            asyncio.get_running_loop().add_reader(ear.fileno(), self._hear, link.name, ear)
        return self._sockets[link.name]

    def _hear(self, ifname: str, ear: NeighbourSocket) -> None:
        try:
            for _ in range(HEARD_AT_ONCE):  # and not for as long as a host floods the link
                heard = ear.hear(0)
                if heard is None:
                    break
                self._take(ifname, heard)
        except OSError:
            return  # the link went down: no host can be heard

    def _take(self, ifname: str, heard: HeardFrame) -> None:
        """A host that probes for an address is about to claim it (RFC 5227 2.1.1, RFC 4862 5.4.3), but not our echo."""
        if heard.nonce == self._nonce:
            return
        packet = heard.packet
        self.claimed(ifname, packet.tpa if packet.is_probe else packet.spa, packet.sha)

    def _stop_listening(self, link: Link, address: Address) -> None:
        """Stops listening when no probe waits: every frame on the link would wake the agent."""
        group = membership_of(EntryKey(link.ifindex, address))
        on_link = [waiting for name, waiting in self._waiting if name == link.name]
        if group is not None and group not in {membership_of(EntryKey(link.ifindex, other)) for other in on_link}:
            self._groups.leave(group)
        if not on_link and link.name in self._sockets:
            self._close(link.name)

    def _close(self, ifname: str) -> None:
        ear = self._sockets.pop(ifname)
        asyncio.get_running_loop().remove_reader(ear.fileno())
        ear.close()

    def close(self) -> None:
        """Ends all probes."""
        self._waiting.clear()
        for ifname in list(self._sockets):
            self._close(ifname)
        self._groups.close()
