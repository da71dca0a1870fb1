"""Readers of the API, in a process of their own: `readers.py TARGET METHOD READERS SECONDS REQUEST...`.

Requests are in hex; all of them, one after the other, are one round. Each reader has a connection of its own and asks
again as soon as it has its answer. Answers stay bytes, so that what is measured is the agent's work and not the
reading of messages. Says "asking" once all are connected, and then, as JSON, the milliseconds of every round.
"""

import asyncio
import json
import sys
import time

import grpc

_LEAST = 2  # rounds: for percentiles
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


async def _read(call: grpc.aio.UnaryUnaryMultiCallable, requests: list[bytes], until: float) -> list[float]:
    took = []
    while (began := time.perf_counter()) < until or len(took) < _LEAST:
        for request in requests:
            await call(request)
        took.append(1000 * (time.perf_counter() - began))
    return took


async def _measure(target: str, method: str, readers: int, seconds: float, requests: list[bytes]) -> list[float]:
    channels = [grpc.aio.insecure_channel(target, _OWN_CONNECTION) for _ in range(readers)]
    calls = [channel.unary_unary(method) for channel in channels]
    await asyncio.gather(*(call(requests[0]) for call in calls))
    print("asking", flush=True)
    until = time.perf_counter() + seconds
    rounds = await asyncio.gather(*(_read(call, requests, until) for call in calls))
    for channel in channels:
        await channel.close()
    return [took for each in rounds for took in each]


if __name__ == "__main__":
    _, *words, wanted_readers, wanted_seconds = sys.argv[:5]
    asked = [bytes.fromhex(word) for word in sys.argv[5:]]
    print(json.dumps(asyncio.run(_measure(words[0], words[1], int(wanted_readers), float(wanted_seconds), asked))))
