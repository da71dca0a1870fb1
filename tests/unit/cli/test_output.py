"""`-o`: the same choice for every command that prints answers, and documents that programs can read."""

import argparse
import json
from collections.abc import Iterator
from ipaddress import ip_address
from types import SimpleNamespace

import pytest
import yaml

from arpguard.addresses import MacAddress
from arpguard.cli import whohas
from arpguard.cli.kubectl.main import build_parser as build_plugin
from arpguard.cli.main import build_parser
from arpguard_lab import command as lab
from arpguard_lab.bench import Step

WITHOUT = {
    *("agent", "early", "cleanup", "uninstall", "completion"),
    *("mode", "bundle"),  # of the plugin: they change the cluster, or write a file
}
SCREENS = {"watch"}  # the plugin's has nothing for programs: `decisions --follow` and `status` do
READ = {"json": json.loads, "yaml": yaml.safe_load}
MACS = [MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")]
STEP = Step("flux", "VIP on lo", "198.51.100.50", ("node-1",), ("node-1",), (str(MACS[0]),), ok=True, facts={"n": 7})


def commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                below = list(commands(command))
                yield from below or [(name, command)]


@pytest.mark.parametrize("build", [build_parser, build_plugin], ids=["arpguard", "kubectl"])
def test_each_command_that_prints_answers_has_the_same_choice(build):
    forms = {
        name: tuple(action.choices)
        for name, parser in commands(build())
        for action in parser._actions
        if action.dest == "output" and action.choices
    }

    assert set(forms.values()) == {("table", "wide", "json", "yaml")}
    assert {name for name, _ in commands(build())} - set(forms) <= WITHOUT | SCREENS
    assert not WITHOUT & set(forms)


# ---- whohas --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _two_answer(monkeypatch) -> None:
    async def way(*_):
        return "eth0", ip_address("192.0.2.1")

    class Asker:
        def __init__(self, *_): ...

        def ask(self, *_, **__):
            return [SimpleNamespace(packet=SimpleNamespace(sha=mac)) for mac in MACS]

        def close(self): ...

    monkeypatch.setattr(whohas, "need_root", lambda: None)
    monkeypatch.setattr(whohas, "_way_to", way)
    monkeypatch.setattr(whohas, "NeighbourSocket", Asker)
    monkeypatch.setattr(whohas, "_names", lambda macs, *_: dict.fromkeys(macs, "node n"))


@pytest.mark.parametrize(
    ("words", "form"), [(["-o", "json"], "json"), (["-o", "yaml"], "yaml"), (["--json"], "json")], ids=str
)
@pytest.mark.usefixtures("_two_answer")
def test_whohas_as_a_document(run, words, form):
    code, out, _ = run("whohas", "192.0.2.50", *words)

    assert code == 1
    assert READ[form](out) == {
        "address": "192.0.2.50",
        "interface": "eth0",
        "requests": 3,
        "answers": [{"mac": str(mac), "replies": 1, "who": "node n"} for mac in MACS],
    }


@pytest.mark.usefixtures("_two_answer")
def test_whohas_as_a_wide_table_is_cut_nowhere(run, monkeypatch):
    name = "node " + "n" * 200
    monkeypatch.setattr(whohas, "_names", lambda macs, *_: dict.fromkeys(macs, name))

    assert name not in run("whohas", "192.0.2.50")[1]
    assert name in run("whohas", "192.0.2.50", "-o", "wide")[1]


# ---- lab -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def _one_step(monkeypatch) -> None:
    monkeypatch.setattr(lab, "need_root", lambda: None)
    monkeypatch.setattr(lab.runner, "run", lambda *_: (step for step in [STEP]))


@pytest.mark.parametrize(
    ("words", "form"), [(["-o", "json"], "json"), (["-o", "yaml"], "yaml"), (["--json"], "json")], ids=str
)
@pytest.mark.usefixtures("_one_step")
def test_lab_as_a_document(run, words, form):
    code, out, _ = run("lab", *words)

    assert code == 0
    assert READ[form](out) == [json.loads(json.dumps(STEP.as_json()))]


@pytest.mark.usefixtures("_one_step")
def test_lab_as_a_wide_table_is_cut_nowhere(run, monkeypatch):
    remark = "why " * 50
    step = Step("flux", "VIP on lo", "198.51.100.50", (), (), ok=True, facts={"why": remark.strip()})
    monkeypatch.setattr(lab.runner, "run", lambda *_: (each for each in [step]))

    assert remark.strip() not in run("lab")[1]
    assert remark.strip() in run("lab", "-o", "wide")[1]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.usefixtures("_one_step")
def test_lab_says_in_full_why_a_step_failed(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    why = "nsenter: cannot execute /usr/sbin/ip: No such file or directory; install iproute2, and try again"
    step = Step("flux", "could not continue", "", (), (), facts={"error": why})
    monkeypatch.setattr(lab.runner, "run", lambda *_: (each for each in [step]))

    lines = run("lab")[1].splitlines()
    assert why in " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= width


@pytest.mark.usefixtures("_one_step")
def test_lab_ends_with_how_long_it_took(run, monkeypatch):
    times = iter([100.0, 111.7])
    monkeypatch.setattr(lab, "time", SimpleNamespace(monotonic=lambda: next(times)))

    assert run("lab")[1].splitlines()[-1] == f"1 steps, all as expected, in 11s. {lab.MORAL}"


def test_table_of_a_scenario_is_straight_from_its_first_line_on(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    texts = ("short", "what the kernel sends from the VIP left behind, followed")
    both = ("node-1", "node-2")
    steps = [
        Step("keepalived-followed", text, "198.51.100.50", hosts, hosts, ok=True)
        for text, hosts in zip(texts, (both[:1], both), strict=True)
    ]
    monkeypatch.setattr(lab, "need_root", lambda: None)
    monkeypatch.setattr(lab.runner, "run", lambda *_: (step for step in steps))
    head, *lines = run("lab", "--scenario", "keepalived-followed")[1].splitlines()[2:5]

    assert {line.index("node-1") for line in lines} == {head.index("WHO")}
    assert {line.rindex("node-1") for line in lines} == {head.index("EXPECTED")}


@pytest.mark.parametrize("form", READ)
def test_lab_lists_its_scenarios_as_a_document(run, form):
    code, out, _ = run("lab", "--list", "-o", form)

    first = READ[form](out)[0]
    assert (code, first["scenario"], set(first)) == (0, "flux", {"scenario", "shows"})
