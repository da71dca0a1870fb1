"""`arpguard lab --kubernetes` with random faults: they break no promise, and no rule by what all agents wrote down."""

import json
import re
import signal
from pathlib import Path

import pytest

from support.chance import SEED
from support.lab.run import LIMIT_S, LabRun, kubernetes_run
from support.lab.schedules import digest
from support.netns.waiting import HUNG_S, until
from traces import check

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

CHAOS_S = 30  # in 20, vouching meets no node that is bound yet


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "vouching"])
def vouching(request) -> bool:
    return request.param


@pytest.fixture(scope="module")
def traces(tmp_path_factory, vouching) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def chaos(tmp_path_factory, vouching, traces) -> dict:
    """The last step of random rounds, which is about all of them. Of times nothing is asked: others use the machine."""
    print(f"ARPGUARD_SEED={SEED} repeats the faults")
    words = ["--for", str(CHAOS_S), "--seed", str(SEED), "--traces", str(traces)]
    words += ["--vouching"] if vouching else []
    with kubernetes_run(tmp_path_factory.mktemp("chaos"), *words) as run:
        out, err = run.process.communicate(timeout=LIMIT_S)
    assert err == ""
    step = json.loads(out)[-1]
    print(json.dumps(step, indent=1))
    assert step["played_to_the_end"], step
    assert step["nothing_missed"]
    assert not any(run.leftovers().values())
    return step


@pytest.mark.parametrize("promise", ["p1", "p2", "p3", "p4", "p5", "p6"])
def test_random_faults_break_no_promise(chaos, promise):
    assert chaos[f"{promise}_violations"] == 0, json.dumps(chaos, indent=1)


def test_random_faults_break_no_rule_by_what_all_agents_wrote_down(chaos, traces):
    assert check.main([str(traces)]) == 0


def test_random_faults_kill_no_agent(chaos):
    assert chaos["agents_died"] == 0, chaos["deaths"]


def test_random_faults_are_those_of_the_seed(chaos, vouching):
    assert chaos["rounds"] > 0
    assert f"(schedule {digest(SEED, chaos['rounds'], vouching=vouching)})" in chaos["step"]


def test_random_faults_with_vouching_meet_nodes_that_are_vouched_for(chaos, vouching):
    assert not vouching or chaos["bound_percent"] > 0


def test_rounds_that_are_broken_off_say_what_was_found_until_then(tmp_path_factory):
    run = LabRun(tmp_path_factory.mktemp("end"), "--kubernetes", "--rounds", "1000", "--seed", "4")
    told = iter(run.process.stderr.readline, "")
    assert any(line.startswith("round 1 (1000 rounds in all)") for line in told), "it ended before the first round did"
    run.process.send_signal(signal.SIGINT)
    out, err = run.process.communicate(timeout=HUNG_S)
    assert run.process.returncode == 1
    assert re.search("stopped in round [12]: a signal", err)
    assert re.search(r"[12] rounds, seed 4 \(schedule ", out)
    assert "failed: played_to_the_end" in out
    assert "p1_violations=0 p2_violations=0" in " ".join(out.split())
    until(lambda: not any(run.leftovers().values()), 10, "what ran ends by itself")
