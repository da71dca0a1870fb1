"""`arpguard lab`: what it shows, and that it leaves nothing behind, however it ends."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from arpguard_lab import runner
from arpguard_lab.bench import Step
from arpguard_lab.peers.programs import VMAC
from arpguard_lab.scenarios import SCENARIOS as SCENARIO_TABLE
from support.lab.run import LabRun
from support.netns.agents import arpguard
from support.netns.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

ALL = [name for name, _ in runner.catalogue()]
SCENARIOS = [name for name in ALL if not SCENARIO_TABLE[name].long]
FOLLOWED = "keepalived-followed"
PEERS = [
    name for name in SCENARIOS if name.startswith(("keepalived", "metallb-like", "kube-vip-like")) and name != FOLLOWED
]
NODES = 2


class Run(LabRun):
    """One run of the lab on a few nodes."""

    def __init__(self, folder: Path, *words: str) -> None:
        super().__init__(folder, "--nodes", str(NODES), *words)
        self._names: set[str] = set()

    def pins(self) -> list[Path]:
        """Known by the name of the folder, as long as that is or was seen."""
        self._names |= {path.name for path in self.folders()}
        return [path for name in self._names if (path := Path("/sys/fs/bpf") / name).exists()]

    def leftovers(self) -> dict[str, list]:
        return {**super().leftovers(), "pins": self.pins()}

    def sweep(self) -> None:
        """Removes what the lab should have removed, so that one failure stays one."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        for pid in self.others():
            os.kill(pid, signal.SIGKILL)
        for name in self.namespaces():
            subprocess.run(["ip", "netns", "del", name], check=True)
        for path in self.pins():
            subprocess.run(["rm", "-r", str(path)], check=True)


def _wait_for_guards(run: Run) -> None:
    """Until the agents of the first scenario guard their nodes."""
    until(lambda: len(run.pins()) == 1 and len(list(run.pins()[0].glob("1/node-*/links/*"))) == 2 * NODES, 90)


NOTHING: dict[str, list] = {"namespaces": [], "folders": [], "pins": [], "processes": []}


@pytest.fixture
def begin(tmp_path_factory) -> Iterator:
    """Starts runs of the lab, in a folder whose path is short enough for their sockets."""
    runs: list[Run] = []

    def started(*words: str) -> Run:
        runs.append(Run(tmp_path_factory.mktemp("lab"), *words))
        return runs[-1]

    yield started
    for run in runs:
        run.sweep()


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Iterator[tuple[int, list[dict], dict[str, list]]]:
    """Exit code, steps and leftovers of a run of all scenarios."""
    run = Run(tmp_path_factory.mktemp("lab"), "--all", "--json")
    try:
        out, err = run.process.communicate(timeout=500)
        assert err == ""
        yield run.process.returncode, json.loads(out), run.leftovers()
    finally:
        run.sweep()


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "doctor"])
def test_table_of_a_scenario_is_straight_from_its_first_line_on(complete, scenario):
    cells = [_step(found).cells() for found in complete[1] if found["scenario"] == scenario]
    of_step, of_hosts = runner.widths(scenario)

    assert max(len(step) for step, *_ in cells) <= of_step
    assert max(len(names) for _, *hosts in cells for names in hosts) <= of_hosts


def _step(found: dict) -> Step:
    hosts = (tuple(found[name]) for name in ("expected", "nodes"))
    return Step(found["scenario"], found["step"], found["vip"], *hosts)


def test_all_scenarios_come_out_as_expected(complete):
    code, steps, _ = complete
    assert [step for step in steps if step["ok"] is not True] == []
    assert code == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_json_states_who_answered_in_each_step(complete, scenario):
    steps = [step for step in complete[1] if step["scenario"] == scenario]
    assert len(steps) >= 2, "without the guard, and with it"
    for step in steps:
        assert step["step"]
        assert step["vip"].startswith(("198.51.100.", "2001:db8:51::"))
        assert step["nodes"] == step["expected"]
        assert len(step["macs"]) == len(step["nodes"])
        assert all(mac.startswith("02:00:00:00:00:") or mac == VMAC for mac in step["macs"])


@pytest.mark.parametrize("scenario", ["flux", "external", "can-reach"])
def test_more_than_one_answers_without_the_guard_and_exactly_one_with_it(complete, scenario):
    guarded = {"guarded" in step["step"]: len(step["macs"]) for step in complete[1] if step["scenario"] == scenario}
    assert guarded[True] == 1
    assert any(
        len(step["macs"]) > 1 for step in complete[1] if step["scenario"] == scenario and "no guard" in step["step"]
    )


@pytest.mark.parametrize("scenario", PEERS)
def test_of_two_announcers_only_the_delegated_one_is_heard(complete, scenario):
    steps = [step for step in complete[1] if step["scenario"] == scenario]
    at = next(number for number, step in enumerate(steps) if "delegated" in step["step"])
    assert any(step["nodes"] == ["node-1", "node-2"] for step in steps[:at]), "without the guard"
    guarded = [step for step in steps[at:] if step["step"] != "guard removed again"]
    assert {tuple(step["nodes"]) for step in guarded} >= {("node-1",), ("node-2",)}
    assert all(len(step["nodes"]) <= 1 for step in guarded)


@pytest.mark.skipif(FOLLOWED not in SCENARIOS, reason="needs keepalived")
def test_a_followed_keepalived_has_one_answer_until_it_is_parted(complete):
    steps = {step["step"]: step for step in complete[1] if step["scenario"] == FOLLOWED}
    parted = [name for name in steps if name.startswith("partitioned")]
    assert [steps[name]["nodes"] for name in parted] == [["node-1", "node-2"]]
    assert all(len(step["nodes"]) <= 1 for name, step in steps.items() if name not in parted)
    assert steps["master killed (-9)"]["nodes"] == ["node-2"]
    assert steps["master killed (-9)"]["left_on_its_link"] is True


def test_demonstration_shows_each_step_as_it_is_done_and_ends_with_what_it_shows(begin):
    run = begin()
    lines = [run.process.stdout.readline() for _ in range(4)]
    assert lines[3].split("  ")[0] == "VIP on lo, no guard"
    assert run.process.poll() is None, "there is more to come"
    rest, err = run.process.communicate(timeout=200)

    assert (run.process.returncode, err) == (0, "")
    assert "VIP on lo, guarded" in rest
    assert rest.endswith("Without the guard all nodes answered for the VIP; with it, one.\n")
    assert len({line.index("ok") for line in [lines[3], *rest.splitlines()] if line.endswith("ok")}) == 1


def test_scenario_that_cannot_go_on_is_a_failed_step_and_the_others_run(begin):
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    for pid in run.others("/1/node-"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    out, err = run.process.communicate(timeout=200)

    assert (run.process.returncode, err) == (1, "")
    assert "could not continue" in out.partition("\nflux: ")[0]
    assert " load " in out
    assert "guard removed again" in out.partition("\nflux: ")[2]


def test_scenario_whose_process_is_killed_is_a_failed_step_and_the_others_run(begin):
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    os.kill(min(run.others("arpguard lab")), signal.SIGKILL)
    out, err = run.process.communicate(timeout=200)

    assert (run.process.returncode, err) == (1, "")
    assert "its process was killed by SIGKILL" in out.partition("\nflux: ")[0]
    assert "guard removed again" in out.partition("\nflux: ")[2]
    until(lambda: not run.others(), what="the agents of the killed scenario are gone")


@pytest.mark.parametrize("words", [["--scenario", "flux"], ["--kubernetes"]], ids=["scenario", "kubernetes"])
def test_all_beside_another_choice_exits_2(begin, words):
    run = begin("--all", *words)
    assert "--all: " in run.process.communicate(timeout=20)[1]
    assert run.process.returncode == 2


def test_nothing_is_left_behind(complete):
    assert complete[2] == NOTHING


def test_a_tmpdir_too_long_for_sockets_is_left_alone(tmp_path):
    """CI runners nest theirs deeply; a Unix socket's path has at most 107 bytes."""
    folder = tmp_path / ("a" * 60)
    folder.mkdir()
    run = LabRun(folder, "--nodes", str(NODES), "--scenario", "can-reach")
    said = run.process.communicate(timeout=200)
    assert run.process.returncode == 0, said


def test_list_names_every_scenario_with_what_it_shows():
    done = arpguard("lab", "--list")
    assert done.returncode == 0
    for name, text in runner.catalogue():
        assert any(line.startswith(name) and text in line for line in done.stdout.splitlines())


def test_an_unknown_scenario_exits_2_and_names_those_that_there_are(begin):
    run = begin("--scenario", "no-such-thing")
    out, err = run.process.communicate(timeout=20)
    assert (run.process.returncode, out) == (2, "")
    assert f"no-such-thing: one of {', '.join(ALL)}\n" in err
    assert run.leftovers() == NOTHING


@pytest.mark.parametrize("nodes", ["1", "17"])
def test_a_number_of_nodes_that_makes_no_sense_exits_2(begin, nodes):
    run = begin("--nodes", nodes)
    assert "2 to 16" in run.process.communicate(timeout=20)[1]
    assert run.process.returncode == 2


@pytest.mark.parametrize(
    ("number", "send"),
    [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill), (signal.SIGHUP, os.killpg)],
    ids=["Ctrl-C", "kill", "terminal closed"],
)
def test_a_lab_that_is_stopped_in_the_middle_leaves_nothing_behind(begin, number, send):
    """A terminal signals the lab's whole process group when the user presses Ctrl-C or closes it."""
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    assert run.others()
    send(run.process.pid, number)
    said = run.process.communicate(timeout=60)
    assert run.process.returncode == 128 + number, said
    assert run.leftovers() == NOTHING


def test_scenarios_of_a_lab_that_is_killed_end_and_remove_their_networks(begin):
    """Only its folders are left: the lab itself would have removed them."""
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    run.process.kill()
    _, err = run.process.communicate(timeout=60)
    until(lambda: not run.namespaces() and not run.others(), 60, "namespaces and processes of its scenarios are gone")
    assert err == ""
