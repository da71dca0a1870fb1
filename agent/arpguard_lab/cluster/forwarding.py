"""A door from the lab's second network to an API server that is somewhere else: bytes in, bytes out.

The listening socket is made in a namespace of the lab; the connections to the server are made from where this
program runs. What goes wrong for whom depends on the address that a connection comes from.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from arpguard_lab.netns import Netns

T = TypeVar("T")

_CHUNK = 1 << 16
_BACKLOG = 64


class Forwarder:
    """Forwards until it is stopped; `cut` and `stalled` hold addresses that have trouble."""

    def __init__(self, netns: Netns, listen: tuple[str, int], server: tuple[str, int]) -> None:
        self._netns = netns
        self._listen = listen
        self._to = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lab-forwarder", daemon=True)
        self._listener: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._cut: set[str] = set()
        self._flowing: dict[str, asyncio.Event] = {}

    def start(self) -> None:
        """Listens."""
        self._thread.start()
        self.come_back()

    def stop(self) -> None:
        """Ends every connection; does nothing if the forwarder was never started."""
        if self._thread.is_alive():
            self.go_down()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def come_back(self) -> None:
        """Listens again."""
        opened = self._netns.call(self._open)
        self._run(self._serve(opened))

    def go_down(self) -> None:
        """Refuses connections, and resets those that there are."""
        self._run(self._close())

    def cut(self, address: str) -> None:
        """Resets the connections from an address, and all that it makes, until `mend`."""
        self._run(self._do_cut(address))

    def stall(self, address: str) -> None:
        """Lets nothing through from or to an address, until `mend`; connections stay."""
        self._run(self._set_flowing(address, flowing=False))

    def mend(self, address: str) -> None:
        """The end of `cut` and `stall`."""
        self._cut.discard(address)
        self._run(self._set_flowing(address, flowing=True))

    def _open(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(self._listen)
        opened.listen(_BACKLOG)
        return opened

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _serve(self, opened: socket.socket) -> None:
        self._listener = await asyncio.start_server(self._accept, sock=opened)

    async def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._end(list(self._tasks))

    async def _do_cut(self, address: str) -> None:
        self._cut.add(address)
        await self._end([task for task, peer in self._tasks.items() if peer == address])

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set_flowing(self, address: str, *, flowing: bool) -> None:
        event = self._event(address)
        if flowing:
            event.set()
        else:
            event.clear()

    def _event(self, address: str) -> asyncio.Event:
        if address not in self._flowing:
            self._flowing[address] = asyncio.Event()
            self._flowing[address].set()
        return self._flowing[address]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername")[0])
        if peer in self._cut:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._connect(peer, reader, writer))
        self._tasks[task] = peer
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _connect(self, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(self._pump(peer, reader, far_writer), self._pump(peer, far_reader, writer))
        except OSError:
            pass
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    async def _pump(self, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = self._event(peer)
        while data := await reader.read(_CHUNK):
            await flowing.wait()
            writer.write(data)
            await writer.drain()
        with suppress(OSError):
            writer.write_eof()
