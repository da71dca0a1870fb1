"""A process that a test forks does not hang on what earlier tests left behind."""

import asyncio
import gc
import os
import signal

import grpc

from support.netns.waiting import HUNG_S


def test_child_leaves_servers_of_its_parent_alone():
    """grpc.aio servers in a reference cycle that the parent has not collected yet."""

    async def serve() -> None:
        server = grpc.aio.server()
        await server.start()
        await server.stop(None)
        cycle = [server]
        cycle.append(cycle)

    gc.disable()
    try:
        asyncio.run(serve())
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, HUNG_S)
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gc.enable()
