"""Scenarios in processes of their own: steps come in order, one that dies stops no other, none outlives the lab."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from multiprocessing import current_process
from pathlib import Path

import pytest

from arpguard_lab.bench import Step
from arpguard_lab.sidebyside import Play, side_by_side
from support.netns.waiting import until

TIMEOUT_S = 100
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}


def play(name: str, wait_s: float) -> Iterator[Step]:
    time.sleep(wait_s)
    yield Step(name, type(current_process()).__name__, "", (), ())
    if name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    yield Step(name, "the end", "", (), ())


def play_on() -> Iterator[Step]:
    while True:
        time.sleep(0.1)
        yield Step("", str(os.getpid()), "", (), ())


PLAYS: dict[str, dict[str, Play]] = {
    "end": {name: partial(play, name, wait_s) for name, wait_s in {"slow": 0.5, "dies": 0, "quick": 0}.items()},
    "go on": {"first": play_on, "second": play_on},
}


def show(plays: str, threads: str) -> None:
    """Runs scenarios beside so many other threads."""
    ended = threading.Event()
    for _ in range(int(threads)):
        threading.Thread(target=ended.wait).start()
    for step in side_by_side(PLAYS[plays], 2):
        print(step.scenario, step.step, step.facts.get("error", ""), sep=": ", flush=True)
    ended.set()


@pytest.mark.parametrize(("threads", "process"), [("0", "ForkProcess"), ("1", "SpawnProcess")])
def test_steps_come_in_order_and_one_that_dies_stops_no_other(threads, process):
    words = [sys.executable, __file__, "end", threads]
    done = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    assert done.stdout.splitlines() == [
        f"slow: {process}: ",
        "slow: the end: ",
        f"dies: {process}: ",
        "dies: could not continue: its process was killed by SIGKILL",
        f"quick: {process}: ",
        "quick: the end: ",
    ]
    assert done.stderr == ""


@pytest.mark.parametrize("threads", ["0", "1"])
def test_scenarios_of_a_lab_that_is_killed_end_with_their_next_step(threads):
    words = [sys.executable, __file__, "go on", threads]
    with subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as lab:
        pid = lab.stdout.readline().split(": ")[1]
        lab.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), 60, "the first scenario has ended")


if __name__ == "__main__":
    show(*sys.argv[1:])
