"""Work is done in its order, a few at a time, and none of it stops the rest."""

import asyncio

from arpguard.clock import boot_ns
from arpguard.core.pacing import Pacing
from arpguard.runtime.cluster.pool import PacedPool, TaskPool
from arpguard.units import NS_PER_MS
from support.kube.scripted_server import in_loop, until


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
    pool, jobs = TaskPool(2, [].append), Jobs()
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
    pool, jobs = TaskPool(1, faults.append), Jobs()

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
    pool, jobs = TaskPool(1, faults.append), Jobs()
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
    pool, jobs = TaskPool(1, [].append), Jobs()

    async def adding() -> None:
        pool.add(jobs.job(1))
        jobs.gates[1].set()

    pool.add(adding)
    await until(lambda: jobs.done == [1])


@in_loop
async def test_a_paced_pool_does_as_much_at_once_as_the_pace_allows():
    pacing, jobs = Pacing(window=1.0), Jobs()
    pool = PacedPool(pacing, [].append)
    for number in range(3):
        pool.add(jobs.job(number))
    await until(lambda: jobs.begun == [0])

    pacing.window = 2.0
    jobs.gates[0].set()
    await until(lambda: jobs.begun == [0, 1, 2])
    pool.stop()


@in_loop
async def test_a_paced_pool_goes_on_when_the_server_is_to_be_asked_again():
    pacing, jobs = Pacing(), Jobs()
    pool = PacedPool(pacing, [].append)
    began_ns = boot_ns()
    pacing.refused(began_ns, began_ns, 50 * NS_PER_MS)
    for number in range(2):
        pool.add(jobs.job(number))
    assert jobs.begun == []

    await until(lambda: jobs.begun == [0, 1])
    assert boot_ns() >= began_ns + 50 * NS_PER_MS
    pool.stop()


@in_loop
async def test_a_paced_pool_that_was_stopped_begins_nothing_any_more():
    pacing, jobs = Pacing(), Jobs()
    pool = PacedPool(pacing, [].append)
    pacing.refused(boot_ns(), boot_ns(), 10 * NS_PER_MS)
    pool.add(jobs.job(0))
    pool.stop()

    await asyncio.sleep(0.05)
    assert jobs.begun == []
