"""The faults of random rounds without a lab: who is there are names, and nothing is done."""

from unittest.mock import MagicMock

from arpguard_lab.cluster.double import Double
from arpguard_lab.cluster.rounds import Schedule
from arpguard_lab.topology import Host


def a_schedule(seed: int, *, vouching: bool = False) -> Schedule:
    """Of a cluster of which nothing is there but names: nothing is done."""
    bench = MagicMock()
    bench.nodes = [Host(f"node-{number}", MagicMock(), number) for number in (1, 2, 3)]
    bench.server.faults = Double.faults
    bench.server.node_name = lambda host: host.name
    return Schedule(bench, seed, MagicMock(), MagicMock() if vouching else None)


def digest(seed: int, rounds: int, *, vouching: bool = False) -> str:
    schedule = a_schedule(seed, vouching=vouching)
    for _ in range(rounds):
        schedule.draw()
    return schedule.digest
