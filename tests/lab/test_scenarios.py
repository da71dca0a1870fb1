"""`arpguard lab --all`: every scenario ends as expected, and its steps name the nodes that answered."""

import json
from collections.abc import Iterator

import pytest

from arpguard_lab import runner
from arpguard_lab.bench import Step
from arpguard_lab.peers.programs import VMAC
from arpguard_lab.scenarios import SCENARIOS as SCENARIO_TABLE
from support.lab.run import NOTHING, SmallRun

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

SCENARIOS = [name for name, _ in runner.catalogue() if not SCENARIO_TABLE[name].long]
FOLLOWED = "keepalived-followed"
PEERS = [
    name for name in SCENARIOS if name.startswith(("keepalived", "metallb-like", "kube-vip-like")) and name != FOLLOWED
]


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Iterator[tuple[int, list[dict], dict[str, list]]]:
    """Exit code, steps and leftovers of a run of all scenarios."""
    run = SmallRun(tmp_path_factory.mktemp("lab"), "--all", "--json")
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


def test_nothing_is_left_behind(complete):
    assert complete[2] == NOTHING
