"""`arpguard lab --kubernetes`: every scenario ends as expected, and the agents' traces break no rule."""

import json
import os
from pathlib import Path

import pytest

from arpguard_lab import runner
from support.lab.run import LIMIT_S, as_expected, kubernetes_run
from traces import check

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

LONG = (
    "load",
    "burst",
    "taken-outside",
    "voucher-dies",
    "ring-of-three",
    "api-away",
    "api-away-60s",
    "api-rolling",
    "vouched-update",
    "upgrade",
)  # a minute and more, or much like another one
LEFT_OUT = runner.left_out(kubernetes=True)
HERE = [name for name, _ in runner.catalogue(kubernetes=True) if name not in LEFT_OUT]
SCENARIOS = HERE if os.environ.get("ARPGUARD_LAB") == "all" else [name for name in HERE if name not in LONG]


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def complete(tmp_path_factory, traces) -> tuple[int, list[dict], dict[str, list]]:
    """Exit code, steps and leftovers of a run of all scenarios."""
    words = ["--traces", str(traces), *(word for name in SCENARIOS for word in ("--scenario", name))]
    with kubernetes_run(tmp_path_factory.mktemp("lab"), *words) as run:
        out, err = run.process.communicate(timeout=LIMIT_S)
        assert err == ""
        return run.process.returncode, json.loads(out), run.leftovers()


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_comes_out_as_expected(complete, scenario, traces):
    steps = [step for step in complete[1] if step["scenario"] == scenario]
    assert steps
    wrong = [step for step in steps if not as_expected(step)]
    assert not wrong, f"{json.dumps(wrong, indent=1)}\nWhat the agents did is in {traces / scenario}."


def test_scenarios_break_no_rule_by_what_all_agents_wrote_down(complete, traces):
    assert check.main([str(traces)]) == 0


@pytest.mark.parametrize(
    ("judged", "gap_ms", "nodes", "right"),
    [
        (True, 3999, ["n1"], True),
        (True, 4000, ["n1"], False),
        (True, 63, ["n2"], False),
        (False, 19_999, ["n1"], True),
        (False, 20_000, ["n1"], False),
        (False, 63, ["n2"], False),
    ],
)
def test_late_step_is_judged_less_strictly_here(judged, gap_ms, nodes, right):
    late = {"ok": False, "judged": judged, "gap_ms": gap_ms, "gap_in_bounds": False, "nodes": nodes, "expected": ["n1"]}
    assert as_expected(late) is right


def test_it_says_so_by_its_exit_code(complete):
    assert complete[0] == (0 if all(step["ok"] or not step["judged"] for step in complete[1]) else 1)


def test_nothing_is_left_behind(complete):
    assert not any(complete[2].values()), complete[2]


def test_every_record_was_complete_and_named_its_figures(complete):
    judged = [step for step in complete[1] if "overlaps" in step]
    assert {step["scenario"] for step in judged} >= {"elect", "kill", "hang", "drain"}
    assert all(step["nothing_missed"] for step in judged)
    # How many depends on the machine: a stream asks for as long as its scenario lasts.
    assert all(step["requests"] and step["answers"] for step in judged)


def test_the_load_of_the_api_does_not_grow_with_the_number_of_vips(complete):
    rest = {step["vips"]: step for step in complete[1] if "claim_writes" in step}
    assert sorted(rest) == ([10, 1000] if "load" in SCENARIOS else [10])
    for step in rest.values():
        assert step["claim_writes"] == 0
        assert step["reads"] <= 3, "a list of own claims in 30 s for each node"
        assert step["writes_per_node_and_100_s"] <= 120
