"""Asks the wire whether somebody has an address already (RFC 5227 2.1), before this node answers for it."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address
from types import TracebackType
from typing import Self

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.errors import DataPlaneError
from arpguard.model import Link
from arpguard.wire.arp import build_request

# RFC 5227 probes for seconds, since a host that boots may take its time. A takeover cannot wait for as long: what is
# heard later is a conflict, and dealt with as one.
PROBES = 3
INTERVAL_S = 0.06
LISTEN_S = 0.2
HEARD_AT_ONCE = 64
_NOBODY = IPv4Address("0.0.0.0")  # noqa: S104 - the sender of a probe, not a bind


class Prober:
    """Probes. `is_ours` tells the MACs of cluster nodes: those are silenced, or will be."""

    def __init__(self, is_ours: Callable[[MacAddress], bool]) -> None:
        self._is_ours = is_ours
        self._waiting: dict[tuple[str, Address], asyncio.Future[MacAddress]] = {}
        self._sockets: dict[str, NeighbourSocket] = {}

    async def probe(self, link: Link, address: IPv4Address) -> MacAddress | None:
        """The MAC of a stranger that claims the address on a link; None when nobody does.

        Raises DataPlaneError when nothing can be sent or heard there.
        """
        key = link.name, address
        heard = self._waiting.setdefault(key, asyncio.get_running_loop().create_future())
        try:
            ear = self._listening(link.name)
            for _ in range(PROBES):
                if not heard.done():
                    ear.send(build_request(ear.mac, _NOBODY, address))
                    await asyncio.wait([heard], timeout=INTERVAL_S)
            await asyncio.wait([heard], timeout=LISTEN_S - PROBES * INTERVAL_S)
            return heard.result() if heard.done() else None
        except OSError as error:
            raise DataPlaneError(f"{address} cannot be probed for on {link.name} ({error})") from error
        finally:
            self._waiting.pop(key, None)
            self._stop_listening(link.name)

    def claimed(self, ifname: str, address: Address, sha: MacAddress) -> None:
        """Somebody was heard to claim an address; the kernel's reports come here, too."""
        waiting = self._waiting.get((ifname, address))
        if waiting is not None and not waiting.done() and not sha.is_group and not self._is_ours(sha):
            waiting.set_result(sha)

    def _listening(self, ifname: str) -> NeighbourSocket:
        if ifname not in self._sockets:
            ear = self._sockets[ifname] = NeighbourSocket(ifname)
            asyncio.get_running_loop().add_reader(ear.fileno(), self._hear, ifname, ear)
        return self._sockets[ifname]

    def _hear(self, ifname: str, ear: NeighbourSocket) -> None:
        try:
            for _ in range(HEARD_AT_ONCE):  # and not for as long as somebody floods the link
                heard = ear.hear(0)
                if heard is None:
                    break
                self.claimed(ifname, heard.packet.spa, heard.packet.sha)
        except OSError:
            return  # the link went down: nobody is heard

    def _stop_listening(self, ifname: str) -> None:
        """Every frame on the link would wake the agent: only while somebody waits."""
        if not any(name == ifname for name, _ in self._waiting) and ifname in self._sockets:
            ear = self._sockets.pop(ifname)
            asyncio.get_running_loop().remove_reader(ear.fileno())
            ear.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for ifname in list(self._sockets):
            self._waiting.clear()
            self._stop_listening(ifname)
