"""What the lab says it waits for: what comes, not what is past."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from arpguard_lab import command, progress
from arpguard_lab.bench import Bench, Step, until


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What is shown to people who watch."""
    texts: list[str] = []
    progress.shown_by(texts.append)
    yield texts
    progress.shown_by(lambda _: None)


def an_agent() -> SimpleNamespace:
    return SimpleNamespace(configure=lambda _: None, start=lambda: None, wait_for=lambda: None)


def test_agents_that_start_are_what_is_waited_for(told):
    nodes = [SimpleNamespace(name=f"node-{number}") for number in range(3)]
    Bench(SimpleNamespace(nodes=nodes, agent=lambda _: an_agent()), "flux").guard("mode: enforce")

    assert told == ["starting 3 agents"]


def test_condition_is_told_before_it_is_waited_for(told):
    until(lambda: told, 1.0, "the backup takes the VIP")

    assert told == ["the backup takes the VIP"]


def test_nobody_need_watch():
    assert until(lambda: True, 1.0, "nothing") >= 0


def test_page_passes_on_what_the_scenario_waits_for(monkeypatch, capsys):
    texts: list[str] = []

    @contextmanager
    def waiting(first: str):
        texts.append(first)
        yield texts.append

    def steps() -> Iterator[Step]:
        yield Step("flux", "VIP on lo, no guard", "198.51.100.50", (), (), ok=True)
        progress.waits_for("starting 3 agents")
        yield Step("flux", "VIP on lo, guarded", "198.51.100.50", (), (), ok=True)

    monkeypatch.setattr(command, "_waiting", waiting)
    list(command.Page(kubernetes=False).shown(steps()))
    progress.shown_by(lambda _: None)

    assert texts == [
        "building nodes, a switch and a client",
        "the next step of flux",
        "starting 3 agents",
        "the next step of flux",
    ]
