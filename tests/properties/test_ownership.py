"""At most one answers, however the steps fall; and when all is well again, exactly one does."""

import inspect
import os
import random
import textwrap
from dataclasses import dataclass

import pytest

from arpguard.core.ownership.heartbeat import OwnHeartbeat
from arpguard.core.ownership.machine import Ownership
from arpguard.core.ownership.peers import Peers
from cluster_sim import DoubleAnswerError, Simulation, TroubledSimulation

SEED = int(os.environ.get("ARPGUARD_SEED") or random.SystemRandom().getrandbits(32))
RUNS, STEPS = int(os.environ.get("ARPGUARD_RUNS", "60")), 3000
RATES = (1.0, 1.08, 0.92)  # of the nodes' clocks


def simulate(kind: type[Simulation], seed: int) -> Simulation:
    sim = kind(seed, RATES)
    for node in sim.nodes:
        sim.rewish(node)
    for _ in range(STEPS):
        sim.step()
    return sim


@pytest.mark.parametrize("kind", [Simulation, TroubledSimulation])
@pytest.mark.parametrize("run", range(RUNS // 2))
def test_never_two_answer_and_one_does_in_the_end(run, kind):
    try:
        sim = simulate(kind, SEED + run)
        sim.settle()
    except DoubleAnswerError as error:
        pytest.fail(f"ARPGUARD_SEED={SEED + run}: {error}")
    assert {vip: len(sim.answering(vip)) for vip in sim.vips} == dict.fromkeys(sim.vips, 1), (
        f"ARPGUARD_SEED={SEED + run}"
    )


@dataclass(frozen=True)
class Mutant:
    """A rule of the protocol, broken: `old` in the source of `method` is `new`. One of the seeds tells."""

    name: str
    method: tuple[type, str]
    old: str
    new: str
    seeds: range

    def apply(self, monkeypatch) -> None:
        owner, name = self.method
        source = textwrap.dedent(inspect.getsource(getattr(owner, name)))
        assert source.count(self.old) == 1, f"{self.name}: the source has changed"
        made: dict[str, object] = {}
        exec(source.replace(self.old, self.new), dict(vars(inspect.getmodule(owner))), made)
        monkeypatch.setattr(owner, name, made[name])


PEER = "peer = self._peers.get(node)\n"
MUTANTS = [
    Mutant(
        "fence counted from the response",
        (Ownership, "heartbeat_written"),
        "written(outcome, version, sent_ns, now_ns)",
        "written(outcome, version, now_ns, now_ns)",
        range(52, 53),
    ),
    Mutant(
        "late taken for void without a revocation",
        (Peers, "is_void"),
        PEER,
        PEER + "    if peer is not None and peer.since_ns < seen_ns - self.times.duration_ns: return True\n",
        range(12, 13),
    ),
    Mutant(
        "same epoch kept after a revocation",
        (OwnHeartbeat, "_begin_anew"),
        "self.epoch = self._new_epoch()",
        "self.epoch = self.epoch or self._new_epoch()",
        range(34, 35),
    ),
    Mutant(
        "missing heartbeat taken for void",
        (Peers, "is_void"),
        PEER,
        PEER + "    if peer is None or peer.known is None: return True\n",
        range(29, 30),
    ),
]


def tells(seeds: range) -> bool:
    for seed in seeds:
        try:
            simulate(TroubledSimulation, seed)
        except DoubleAnswerError:
            return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_simulation_tells_a_broken_rule(mutant, monkeypatch):
    assert not tells(mutant.seeds)

    mutant.apply(monkeypatch)

    assert tells(mutant.seeds), f"two never answered with seeds {mutant.seeds}"
