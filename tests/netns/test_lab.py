"""`arpguard lab` runs every scenario even if one fails, and cleans up even if it is interrupted."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from arpguard_lab import runner
from support.lab.run import NODES, NOTHING, LabRun, SmallRun
from support.netns.agents import arpguard
from support.netns.waiting import HUNG_S, until

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

ALL = [name for name, _ in runner.catalogue()]


def _wait_for_guards(run: SmallRun) -> None:
    """Until the agents of the first scenario guard their nodes."""
    until(lambda: len(run.pins()) == 1 and len(list(run.pins()[0].glob("1/node-*/links/*"))) == 2 * NODES, 90)


@pytest.fixture
def begin(tmp_path_factory) -> Iterator:
    """Starts runs of the lab, in a folder whose path is short enough for their sockets."""
    runs: list[SmallRun] = []

    def started(*words: str) -> SmallRun:
        runs.append(SmallRun(tmp_path_factory.mktemp("lab"), *words))
        return runs[-1]

    yield started
    for run in runs:
        run.sweep()


def test_demonstration_shows_each_step_as_it_is_done_and_ends_with_what_it_shows(begin):
    run = begin()
    lines = [run.process.stdout.readline() for _ in range(4)]
    assert lines[3].split("  ")[0] == "VIP on lo, no guard"
    assert run.process.poll() is None, "there is more to come"
    rest, err = run.process.communicate(timeout=HUNG_S)

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
    out, err = run.process.communicate(timeout=HUNG_S)

    assert (run.process.returncode, err) == (1, "")
    assert "could not continue" in out.partition("\nflux: ")[0]
    assert " load " in out
    assert "guard removed again" in out.partition("\nflux: ")[2]


def test_scenario_whose_process_is_killed_is_a_failed_step_and_the_others_run(begin):
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    os.kill(min(run.others("arpguard lab")), signal.SIGKILL)
    out, err = run.process.communicate(timeout=HUNG_S)

    assert (run.process.returncode, err) == (1, "")
    assert "its process was killed by SIGKILL" in out.partition("\nflux: ")[0]
    assert "guard removed again" in out.partition("\nflux: ")[2]
    until(lambda: not run.others(), what="the agents of the killed scenario are gone")


@pytest.mark.parametrize("words", [["--scenario", "flux"], ["--kubernetes"]], ids=["scenario", "kubernetes"])
def test_all_beside_another_choice_exits_2(begin, words):
    run = begin("--all", *words)
    assert "--all: " in run.process.communicate(timeout=HUNG_S)[1]
    assert run.process.returncode == 2


def test_a_tmpdir_too_long_for_sockets_is_left_alone(tmp_path):
    """CI runners nest theirs deeply; a Unix socket's path has at most 107 bytes."""
    folder = tmp_path / ("a" * 60)
    folder.mkdir()
    run = LabRun(folder, "--nodes", str(NODES), "--scenario", "can-reach")
    said = run.process.communicate(timeout=HUNG_S)
    assert run.process.returncode == 0, said


def test_list_names_every_scenario_with_what_it_shows():
    done = arpguard("lab", "--list")
    assert done.returncode == 0
    for name, text in runner.catalogue():
        assert any(line.startswith(name) and text in line for line in done.stdout.splitlines())


def test_an_unknown_scenario_exits_2_and_names_those_that_there_are(begin):
    run = begin("--scenario", "no-such-thing")
    out, err = run.process.communicate(timeout=HUNG_S)
    assert (run.process.returncode, out) == (2, "")
    assert f"no-such-thing: one of {', '.join(ALL)}\n" in err
    assert run.leftovers() == NOTHING


@pytest.mark.parametrize("nodes", ["1", "17"])
def test_a_number_of_nodes_that_makes_no_sense_exits_2(begin, nodes):
    run = begin("--nodes", nodes)
    assert "2 to 16" in run.process.communicate(timeout=HUNG_S)[1]
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
    said = run.process.communicate(timeout=HUNG_S)
    assert run.process.returncode == 128 + number, said
    assert run.leftovers() == NOTHING


def test_scenarios_of_a_lab_that_is_killed_end_and_remove_their_networks(begin):
    """Only its folders are left: the lab itself would have removed them."""
    run = begin("--scenario", "observe", "--scenario", "flux")
    _wait_for_guards(run)
    run.process.kill()
    _, err = run.process.communicate(timeout=HUNG_S)
    until(lambda: not run.namespaces() and not run.others(), 60, "namespaces and processes of its scenarios are gone")
    assert err == ""
