"""`arpguard lab`, which the command line finds by the name of this module: the problem and the cure."""

import argparse
import random
import signal
import sys
from collections.abc import Sequence

from arpguard.cli import exits, render
from arpguard.cli.arguments import need_root
from arpguard.errors import ConfigError, Problem
from arpguard_lab import runner
from arpguard_lab.bench import COLUMNS, Step
from arpguard_lab.cluster.rounds import Extent

_MAX_LAB_NODES = 16
_MAX_ROUNDS = 100_000


def run_lab(options: argparse.Namespace) -> int:
    """`arpguard lab`."""
    if options.list:
        rows = runner.catalogue(kubernetes=options.kubernetes)
        print(render.table(("SCENARIO", "WHAT IT SHOWS, AND EXPECTS"), rows))
        return exits.OK

    _refuse_nonsense(options)
    need_root()
    exits.leave_on_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # connections of the lab's end at any time; a lost reader is an error

    results = _run(options)

    if options.json:
        print(render.json_text([step.as_json() for step in results]))
    else:
        failed = sum(not step.ok for step in results)
        verdict = render.bad(f"{failed} not as expected") if failed else render.good("all as expected")
        print(f"\n{len(results)} steps, {verdict}")

    return exits.OK if results and all(step.ok for step in results) else exits.NOT_RIGHT


def _refuse_nonsense(options: argparse.Namespace) -> None:
    problems = []
    if not 2 <= options.nodes <= _MAX_LAB_NODES:
        problems.append(Problem("--nodes", f"{options.nodes}: must be 2 to {_MAX_LAB_NODES}"))

    given = {"--rounds": options.rounds, "--for": options.seconds, "--seed": options.seed}
    problems += [
        Problem(option, f"{value:g}: is for --kubernetes")
        for option, value in given.items()
        if value is not None and not options.kubernetes
    ]

    if options.vouching and options.rounds is None and options.seconds is None:
        problems.append(Problem("--vouching", "is for --rounds and --for: scenarios say it themselves"))
    if options.rounds is not None and options.seconds is not None:
        problems.append(Problem("--for", f"{options.seconds:g}: is another way to say --rounds: give one of them"))
    if options.rounds is not None and options.rounds > _MAX_ROUNDS:
        problems.append(Problem("--rounds", f"{options.rounds}: must be 1 to {_MAX_ROUNDS}"))

    if problems:
        raise ConfigError("arpguard lab", problems)


def _run(options: argparse.Namespace) -> list[Step]:
    if not (options.scenario or options.rounds):
        for name, why in runner.left_out(kubernetes=options.kubernetes).items():
            _tell(f"left out: {name}: {why}")
    if not options.kubernetes:
        return runner.run(options.scenario, options.nodes, None if options.json else _print_scenario)
    rounds = None
    extent = Extent(options.rounds, options.seconds)
    if extent != Extent():
        seed = random.randrange(1 << 32) if options.seed is None else options.seed  # noqa: S311 - no secret
        rounds = runner.RoundsWanted(extent, seed, _ignore if options.json else _tell, options.vouching)
        rounds.tell(f"seed {seed}")
    show = None if options.json else _print_with_figures
    return runner.run_kubernetes(options.scenario, options.nodes, rounds, show)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _ignore(_text: str) -> None:
    pass


def _print_scenario(scenario: str, steps: Sequence[Step]) -> None:
    print(f"\n{scenario}: {runner.summary(scenario)} (VIP {steps[0].vip})")
    rows = [(*step.cells(), _verdict(step)) for step in steps]
    print(render.table((*runner.columns(scenario), ""), rows), flush=True)


def _print_with_figures(scenario: str, steps: Sequence[Step]) -> None:
    """As above, with the figures of each step below the table: there are too many for a line."""
    print(f"\n{scenario}: {runner.summary(scenario, kubernetes=True)}")
    marks = [(render.good("ok") if step.ok else render.bad("NOT AS EXPECTED")) for step in steps]
    rows = [(number, *step.cells(), mark) for number, (step, mark) in enumerate(zip(steps, marks, strict=True), 1)]
    print(render.table(("", *COLUMNS, ""), rows, yielding=COLUMNS[0]))
    figures = [(str(number), step.remark()) for number, step in enumerate(steps, 1) if step.remark()]
    print(render.facts(figures, indent="  "), flush=True)


def _verdict(step: Step) -> render.Styled:
    return render.good(f"ok  {step.remark()}") if step.ok else render.bad(f"NOT AS EXPECTED  {step.remark()}")
