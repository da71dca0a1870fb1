"""A signal ends the lab, which still knows of the process or the namespace that it was making when that arrived."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from arpguard.cli import exits
from arpguard_lab import topology
from arpguard_lab.interrupts import put_off
from arpguard_lab.topology import HostProcess, Lab

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Sleeping(HostProcess):
    def words(self) -> list[str]:
        return ["sleep", "600"]


HERE = SimpleNamespace(name="node-1", netns=SimpleNamespace(prefix=list))


@pytest.fixture(autouse=True)
def handlers():
    """Those of the lab, and afterwards the ones of before."""
    before = {number: signal.getsignal(number) for number in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exits.leave_on_signals()
    yield {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_process_that_is_being_started_is_known_when_the_signal_is_handled(number, tmp_path, monkeypatch):
    start, process = subprocess.Popen, Sleeping(HERE, tmp_path, "sleep")

    def interrupted(*words, **options):
        started = start(*words, **options)
        os.kill(os.getpid(), number)
        return started

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        process.start()

    assert process.pid is not None
    process.kill(signal.SIGKILL)


@pytest.mark.parametrize("number", ENDING, ids=lambda number: number.name)
def test_namespace_that_is_being_made_is_removed(number, tmp_path, monkeypatch):
    there = []

    class Interrupted:
        def __init__(self, name: str) -> None:
            self.name = name
            there.append(name)
            os.kill(os.getpid(), number)

        def remove(self) -> None:
            there.remove(self.name)

    monkeypatch.setattr(topology, "Netns", Interrupted)
    with pytest.raises((SystemExit, KeyboardInterrupt)), Lab(1, tmp_path, tmp_path):
        pass

    assert there == []


def test_handlers_are_as_before(handlers):
    with put_off():
        assert {number: signal.getsignal(number) for number in ENDING} != handlers

    assert {number: signal.getsignal(number) for number in ENDING} == handlers


def test_signal_that_is_ignored_stays_so():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with put_off():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_nothing_is_put_off_where_signals_are_not_handled(handlers):
    def in_a_thread() -> bool:
        with put_off():
            return {number: signal.getsignal(number) for number in ENDING} == handlers

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_a_thread).result()
