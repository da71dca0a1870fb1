"""Work is done in its order, a few at a time, and none of it stops the rest."""

import asyncio

from apiscript import in_loop, until
from arpguard.runtime.pool import Pool


class Jobs:
    """Work that goes on until it is let go; says what was begun, and what came to its end."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.gates: dict[int, asyncio.Event] = {}

    def job(self, number: int):
        self.gates[number] = asyncio.Event()

        async def work() -> None:
            self.begun.append(number)
            await self.gates[number].wait()
            self.done.append(number)

        return work


@in_loop
async def test_no_more_than_the_bound_run_and_the_rest_follows_in_order():
    pool, jobs = Pool(2, [].append), Jobs()
    for number in range(5):
        pool.add(jobs.job(number))

    await until(lambda: jobs.begun == [0, 1])
    jobs.gates[1].set()
    await until(lambda: jobs.begun == [0, 1, 2])
    for gate in jobs.gates.values():
        gate.set()
    await until(lambda: len(jobs.done) == 5)

    assert jobs.begun == [0, 1, 2, 3, 4]
    assert jobs.done[0] == 1


@in_loop
async def test_fault_of_one_is_told_and_does_not_stop_the_others():
    faults = []
    pool, jobs = Pool(1, faults.append), Jobs()

    async def broken() -> None:
        raise RuntimeError("of all things")

    pool.add(broken)
    pool.add(jobs.job(1))
    jobs.gates[1].set()
    await until(lambda: jobs.done == [1])

    assert [str(fault) for fault in faults] == ["of all things"]


@in_loop
async def test_stop_ends_what_runs_and_forgets_what_waits():
    faults = []
    pool, jobs = Pool(1, faults.append), Jobs()
    pool.add(jobs.job(0))
    pool.add(jobs.job(1))
    await until(lambda: jobs.begun == [0])
    (running,) = pool._running

    pool.stop()
    await asyncio.wait([running])

    assert running.cancelled()
    assert (jobs.begun, jobs.done) == ([0], [])
    assert not faults


@in_loop
async def test_work_may_be_added_while_others_run():
    pool, jobs = Pool(1, [].append), Jobs()

    async def adding() -> None:
        pool.add(jobs.job(1))
        jobs.gates[1].set()

    pool.add(adding)
    await until(lambda: jobs.done == [1])
