"""Signals that end the lab, put off while it could lose sight of a process that it is starting."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def put_off() -> Iterator[None]:
    """What SIGINT, SIGTERM and SIGHUP do in Python, they do at the end of the block.

    Unlike a mask, a handler of Python's is not inherited by what is started meanwhile: exec(2) sets it to the default.
    Only the main thread handles signals, so in others there is nothing to put off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in came:
            signal.raise_signal(arrived)
