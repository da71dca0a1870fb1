"""The server beside code that has no event loop: in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from arpguard_lab.apiserver.server import ApiServer, Options

T = TypeVar("T")


class Embedded:
    """A running server; `do` has its thread do something with it."""

    def __init__(self, server: ApiServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self._server.url

    def do(self, action: Callable[[ApiServer], T]) -> T:
        """Calls with the server, in its thread, and waits for the result: `do(lambda server: server.expire())`."""

        async def call() -> T:
            return action(self._server)

        return self.run(lambda _server: call())

    def run(self, action: Callable[[ApiServer], Coroutine[Any, Any, T]]) -> T:
        """The same for what has to be awaited: `run(lambda server: server.go_down())`."""
        return asyncio.run_coroutine_threadsafe(action(self._server), self._loop).result()


@contextmanager
def running(options: Options | None = None) -> Iterator[Embedded]:
    """A server for as long as it is needed."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lab-apiserver", daemon=True)
    thread.start()
    embedded = Embedded(ApiServer(options), loop)
    try:
        embedded.run(lambda server: server.start())
        yield embedded
    finally:
        embedded.run(lambda server: server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
