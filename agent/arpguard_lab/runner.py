"""Runs scenarios, each on a fresh lab, and says step by step who answered on the wire."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arpguard.dataplane import bpffs
from arpguard.errors import ArpguardError, ConfigError, Problem, did_you_mean
from arpguard_lab.bench import Bench, Step, could_not_continue
from arpguard_lab.cluster.bench import OFF, KubeBench
from arpguard_lab.cluster.real import VARIABLE
from arpguard_lab.cluster.refused import OUTSIDER
from arpguard_lab.cluster.rounds import SECOND_CLIENT, Extent, run_rounds
from arpguard_lab.cluster.rounds import SETTINGS as AUDIT
from arpguard_lab.cluster.scenarios import SCENARIOS as KUBE_SCENARIOS
from arpguard_lab.cluster.scenarios import KubeScenario
from arpguard_lab.cluster.scene import a_bench, kubeconfig_given
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.cluster.traces import Traces
from arpguard_lab.cluster.vouched import lease_of
from arpguard_lab.patience import Debt
from arpguard_lab.peers.programs import find
from arpguard_lab.scenarios import SCENARIOS, Scenario
from arpguard_lab.sidebyside import Play, side_by_side
from arpguard_lab.topology import Ethernet, Lab

ROUNDS = "rounds"
ROUNDS_SUMMARY = "random faults of agents, nodes, networks and the API: two nodes never answer for one VIP"

_NODES_AT_ONCE = 12  # in the labs of all scenarios that run side by side, each with an agent
_USUAL_WIDTHS = (46, 8)  # of a scenario with Kubernetes
_PIN_PARENT = Path("/sys/fs/bpf")
_PREFIX = "arpguard-lab-"
_LONGEST_SOCKET = f"/{_PREFIX}12345678/12/node-16.sock"
_MAX_SOCKET_PATH = 107  # bytes, unix(7): sun_path


@dataclass(frozen=True, slots=True)
class RoundsWanted:
    """Rounds of random faults; the same seed gives the same faults. `tell` gets their progress.

    `vouching`: with nodes that vouch for each other.
    """

    extent: Extent
    seed: int
    tell: Callable[[str], None]
    vouching: bool = False


def catalogue(*, kubernetes: bool = False) -> list[tuple[str, str]]:
    """(name, what it shows) of every scenario."""
    return [(name, scenario.summary) for name, scenario in _table(kubernetes=kubernetes).items()]


def summary(name: str, *, kubernetes: bool = False) -> str:
    """What a scenario shows."""
    return ROUNDS_SUMMARY if name == ROUNDS else _table(kubernetes=kubernetes)[name].summary


def left_out(*, kubernetes: bool = False) -> dict[str, str]:
    """The scenarios that cannot be run here, and why."""
    if kubernetes:
        given = kubeconfig_given() is not None
        foreign = f"it writes in other namespaces, so it needs the lab's own API server: unset {VARIABLE}"
        return {name: foreign for name, scenario in KUBE_SCENARIOS.items() if given and scenario.own_server}
    return {
        name: f"{scenario.needs} is missing: apt-get install {scenario.needs}"
        for name, scenario in SCENARIOS.items()
        if scenario.needs and find(scenario.needs) is None
    }


def columns(name: str) -> tuple[str, ...]:
    """What a scenario's table shows."""
    return SCENARIOS[name].columns


def widths(name: str, *, kubernetes: bool = False) -> tuple[int, int]:
    """How wide its steps and its hosts are at most."""
    return _USUAL_WIDTHS if kubernetes else SCENARIOS[name].widths


def run(names: Sequence[str] | None, nodes: int) -> Generator[Step, None, None]:
    """The steps of scenarios (None: of all that can be run here), as they are done.

    ConfigError, at once, for one that is not there, or cannot be run.
    """
    chosen = [name for name in _chosen(names, SCENARIOS, left_out()) if names or not SCENARIOS[name].long]
    return _run(chosen, nodes)


def _run(names: Iterable[str], nodes: int) -> Generator[Step, None, None]:
    with _folders() as (folder, pin_root):
        plays = {name: _apart(name, nodes, folder, pin_root, str(number)) for number, name in enumerate(names, 1)}
        yield from side_by_side(plays, max(1, _NODES_AT_ONCE // nodes))


def _apart(name: str, nodes: int, folder: Path, pin_root: Path, number: str) -> Play:
    """A scenario whose files, pins and namespaces are apart from those of the others."""
    return partial(_by_itself, name, nodes, folder / number, pin_root / number, f"{os.getpid()}-{number}")


def _by_itself(name: str, nodes: int, folder: Path, pin_root: Path, label: str) -> Generator[Step, None, None]:
    """Runs in the scenario's own process."""
    folder.mkdir()
    yield from _guarded(name, partial(_on_a_lab, name, nodes, folder, pin_root, label))


def _on_a_lab(name: str, nodes: int, folder: Path, pin_root: Path, label: str) -> Generator[Step, None, None]:
    scenario = SCENARIOS[name]
    bpffs.prepare(pin_root)
    with Lab(nodes, folder, pin_root, scenario.others, scenario.ethernet, label) as lab:
        yield from scenario.run(Bench(lab, name))


def run_kubernetes(
    names: Sequence[str] | None, nodes: int, rounds: RoundsWanted | None, traces: Path | None = None
) -> Generator[Step, None, None]:
    """The steps of scenarios with an API server (None: of all that can be run here, or only `rounds`), as `run`.

    `traces`: a folder in which each scenario has one for its traces.
    """
    chosen = _chosen(names, KUBE_SCENARIOS, left_out(kubernetes=True)) if names or not rounds else []
    return _run_kubernetes(chosen, nodes, rounds, traces)


def _run_kubernetes(
    names: Iterable[str], nodes: int, rounds: RoundsWanted | None, traces: Path | None
) -> Generator[Step, None, None]:
    play: dict[str, Callable[[KubeBench], Iterator[Step]]] = {name: KUBE_SCENARIOS[name].run for name in names}
    if rounds is not None:
        play[ROUNDS] = lambda bench: run_rounds(
            bench, rounds.extent, rounds.seed, rounds.tell, vouching=rounds.vouching
        )

    leases = {name: scenario.lease for name, scenario in KUBE_SCENARIOS.items()}
    leases[ROUNDS] = lease_of(rounds.seed) if rounds is not None and rounds.vouching else OFF

    others = [OUTSIDER, SECOND_CLIENT] if rounds else [OUTSIDER]
    with (
        _folders() as (folder, pin_root),
        KubeLab(nodes, folder, pin_root, others, Ethernet(ipv6=rounds is not None)) as lab,
    ):
        for name, scenario_run in play.items():
            if traces is not None:
                lab.trace(Traces(traces / name))
            yield from _guarded(name, partial(_on_a_bench, lab, name, scenario_run, leases[name]))


def _on_a_bench(
    lab: KubeLab, name: str, scenario_run: Callable[[KubeBench], Iterator[Step]], lease: str
) -> Generator[Step, None, None]:
    with a_bench(lab, name, AUDIT if name == ROUNDS else "", lease) as bench:
        yield from scenario_run(bench)


def _guarded(name: str, steps: Callable[[], Generator[Step, None, None]]) -> Iterator[Step]:
    """The steps of one scenario; what keeps it from going on is a step that is not right."""
    debt = Debt()
    try:
        with closing(steps()) as played:
            for step in played:
                yield step.on_a_machine_that_owed(debt.share)
    except (ArpguardError, OSError) as error:
        yield could_not_continue(name, str(error))


def _table(*, kubernetes: bool) -> Mapping[str, Scenario | KubeScenario]:
    return KUBE_SCENARIOS if kubernetes else SCENARIOS


def _chosen(names: Sequence[str] | None, table: Iterable[str], lacking: Mapping[str, str]) -> list[str]:
    """Those that were named, once each, or all that can be run; ConfigError for a name that cannot."""
    known = list(table)
    for name in names or ():
        if name not in known:
            remedy = did_you_mean(name, known).removeprefix("; ") or f"one of {', '.join(known)}"
            raise ConfigError("arpguard lab", [Problem("--scenario", f"{name}: {remedy}")])
        if name in lacking:
            raise ConfigError("arpguard lab", [Problem("--scenario", f"{name}: {lacking[name]}")])
    return list(dict.fromkeys(names or [name for name in known if name not in lacking]))


@contextmanager
def _folders() -> Iterator[tuple[Path, Path]]:
    """One for files and one for pins, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_parent()))
    pin_root = _PIN_PARENT / folder.name
    try:
        bpffs.prepare(pin_root)
        yield folder, pin_root
    finally:
        bpffs.remove(pin_root)
        shutil.rmtree(folder)


def _parent() -> str:
    """TMPDIR, or /run where TMPDIR is too long for the agents' sockets."""
    wanted = tempfile.gettempdir()
    return wanted if len(os.fsencode(wanted)) + len(_LONGEST_SOCKET) <= _MAX_SOCKET_PATH else "/run"
