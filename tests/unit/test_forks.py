"""What a test forks: it is not held up by what the tests before it have left."""

import asyncio
import gc
import os
import signal

import grpc

HUNG_S = 60


def test_child_leaves_servers_of_its_parent_alone():
    """Of grpc.aio, in a cycle that was not collected yet."""

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
            signal.alarm(HUNG_S)
            gc.collect()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gc.enable()
