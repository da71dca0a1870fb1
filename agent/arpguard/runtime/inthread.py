"""Work in a thread of its own, so that the event loop, which renews this node's claims, does not wait for it.

The kernel changes network devices, and tells of them, under one lock for the whole machine (the RTNL). A driver that
resets its device may hold it for seconds; meanwhile whoever asks about links or attached programs waits.
"""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
    """Returns what `work` returns, and raises what it raises. A caller that is cancelled waits for its end.

    The thread is new, has an event loop of its own, and ends with the work: a thread keeps the capabilities and the
    network namespace that its maker had (capabilities(7), network_namespaces(7)).
    """
    with ThreadPoolExecutor(1) as pool:
        return await asyncio.get_running_loop().run_in_executor(pool, lambda: asyncio.run(work()))
