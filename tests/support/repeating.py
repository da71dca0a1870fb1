"""Something that goes on beside a test."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], object], every_s: float) -> Iterator[None]:
    """Calls `act` in a thread until the block ends, with so many seconds in between."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(every_s):
            act()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
