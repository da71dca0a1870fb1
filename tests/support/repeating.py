"""Lets a test keep doing one thing in a thread while it checks another."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], object], every_s: float) -> Iterator[None]:
    """Calls `act` in a thread until the block ends, and waits `every_s` seconds before each call."""
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
