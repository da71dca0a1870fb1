"""Work in a thread apart, so that the event loop, which renews this node's claims, does not wait for it.

The kernel changes network devices, and tells of them, under one lock for the whole machine (the RTNL). A driver that
resets its device may hold it for seconds; meanwhile whoever asks about links or attached programs waits.
"""

import asyncio
import atexit
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from arpguard.errors import DataPlaneError
from arpguard.runtime.waking import is_set_within

# After that the event loop waits, too, so that the node's fence passes. An agent that cannot look at its node learns
# neither that a link is dead nor that an edit gave a VIP to another node: it must not renew its claims for ever.
PATIENCE_S = 3.0

Result = TypeVar("Result")
_pool = ThreadPoolExecutor(1, thread_name_prefix="kernel")
_runner = asyncio.Runner()


async def in_thread(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Returns what `work` returns, and raises what it raises; DataPlaneError when the thread cannot be started.

    There is one thread, for one work after the other, with an event loop of its own. It keeps the capabilities and the
    network namespace of the first caller (capabilities(7), network_namespaces(7)). When the caller is cancelled, the
    loop waits until the work is done: none is left to do when an agent has ended.
    """
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    try:
        done = _pool.submit(_run, work)
    except RuntimeError as error:  # as when too many threads run
        raise DataPlaneError(f"cannot start a thread that asks the kernel ({error})") from error
    done.add_done_callback(lambda _: loop.call_soon_threadsafe(over.set))
    try:
        await is_set_within(over, PATIENCE_S)
    finally:
        wait([done])
    return done.result()


def _run(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    try:
        _runner.get_loop()
    except OSError as error:  # as when too many files are open
        raise DataPlaneError(f"cannot begin to ask the kernel ({error})") from error
    return _runner.run(work())


atexit.register(_runner.close)
