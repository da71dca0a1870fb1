"""`arpguard lab`: the problem and the cure."""

import argparse
from collections.abc import Sequence

from arpguard.cli import exits, render
from arpguard.cli.arguments import need_root
from arpguard.errors import ConfigError, Problem
from arpguard.lab import runner

_MAX_LAB_NODES = 16


def run_lab(options: argparse.Namespace) -> int:
    """`arpguard lab`."""
    if options.list:
        print(render.table(("SCENARIO", "WHAT IT SHOWS, AND EXPECTS"), runner.catalogue()))
        return exits.OK
    if not 2 <= options.nodes <= _MAX_LAB_NODES:
        raise ConfigError("arpguard lab", [Problem("--nodes", str(options.nodes), f"must be 2 to {_MAX_LAB_NODES}")])
    need_root()
    exits.leave_on_signals()
    show = None if options.json else _print_scenario
    results = runner.run(options.scenario, options.nodes, show)
    if options.json:
        print(render.json_text([step.as_json() for step in results]))
    else:
        failed = sum(not step.ok for step in results)
        verdict = render.bad(f"{failed} not as expected") if failed else render.good("all as expected")
        print(f"\n{len(results)} steps, {verdict}")
    return exits.OK if results and all(step.ok for step in results) else exits.NOT_RIGHT


def _print_scenario(scenario: str, steps: Sequence[runner.Step]) -> None:
    print(f"\n{scenario}: {runner.summary(scenario)} (VIP {steps[0].vip})")
    rows = [(*step.cells(), _verdict(step)) for step in steps]
    print(render.table((*runner.COLUMNS, ""), rows), flush=True)


def _verdict(step: runner.Step) -> render.Styled:
    return render.good(f"ok  {step.remark()}") if step.ok else render.bad(f"NOT AS EXPECTED  {step.remark()}")
