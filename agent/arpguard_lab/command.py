"""`arpguard lab`, which the command line finds by the name of this module: the problem and the cure."""

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from arpguard.cli import documents, exits, render
from arpguard.cli.arguments import need_root
from arpguard.cli.render import Columns
from arpguard.cli.words import span
from arpguard.errors import ConfigError, Problem
from arpguard_lab import runner
from arpguard_lab.bench import COLUMNS, Step
from arpguard_lab.cluster.rounds import Extent
from arpguard_lab.progress import shown_by

DEMONSTRATION = "flux"
MORAL = "Without the guard all nodes answered for the VIP; with it, one."
_MAX_LAB_NODES = 16
_MAX_ROUNDS = 100_000


def run_lab(options: argparse.Namespace) -> int:
    """`arpguard lab`."""
    if options.list:
        _show_list(options)
        return exits.OK

    _refuse_nonsense(options)
    need_root()
    exits.leave_on_signals()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # connections of the lab's end at any time; a lost reader is an error

    is_document, began_s = options.output != "table", time.monotonic()
    with closing(_run(options)) as steps:  # it removes the lab, also when a signal ends this program
        results = list(steps if is_document else Page(kubernetes=options.kubernetes).shown(steps))

    if is_document:
        print(documents.document([step.as_json() for step in results], options.output))
    else:
        print(f"\n{_sum(results, time.monotonic() - began_s)}")

    return _ending(results)


def _ending(steps: Sequence[Step]) -> int:
    """The exit code; what is not judged is neither right nor wrong."""
    return exits.OK if steps and all(step.ok or not step.judged for step in steps) else exits.NOT_RIGHT


def _show_list(options: argparse.Namespace) -> None:
    rows = runner.catalogue(kubernetes=options.kubernetes)
    if options.output == "table":
        print(render.table(("SCENARIO", "WHAT IT SHOWS, AND EXPECTS"), rows))
    else:
        listed: list[dict[str, object]] = [{"scenario": name, "shows": summary} for name, summary in rows]
        print(documents.document(listed, options.output))


def _refuse_nonsense(options: argparse.Namespace) -> None:
    problems = []
    if not 2 <= options.nodes <= _MAX_LAB_NODES:
        problems.append(Problem("--nodes", f"{options.nodes}: must be 2 to {_MAX_LAB_NODES}"))

    given = {"--rounds": options.rounds, "--for": options.seconds, "--seed": options.seed}
    problems += [
        Problem(option, f"{value:g}: works only with --kubernetes")
        for option, value in given.items()
        if value is not None and not options.kubernetes
    ]

    if options.traces is not None and not options.kubernetes:
        problems.append(Problem("--traces", f"{options.traces}: works only with --kubernetes"))
    if options.all and (options.scenario or options.kubernetes):
        other = (
            "--kubernetes already runs all its scenarios" if options.kubernetes else "--scenario names some scenarios"
        )
        problems.append(Problem("--all", f"{other}: give only one of the two options"))
    if options.vouching and options.rounds is None and options.seconds is None:
        problems.append(Problem("--vouching", "works only with --rounds or --for: each scenario sets vouching itself"))
    if options.rounds is not None and options.seconds is not None:
        problems.append(
            Problem("--for", f"{options.seconds:g}: cannot be combined with --rounds: give only one of the two")
        )
    if options.rounds is not None and options.rounds > _MAX_ROUNDS:
        problems.append(Problem("--rounds", f"{options.rounds}: must be 1 to {_MAX_ROUNDS}"))

    if problems:
        raise ConfigError("arpguard lab", problems)


def _run(options: argparse.Namespace) -> Generator[Step, None, None]:
    names = options.scenario or (None if options.all or options.kubernetes else [DEMONSTRATION])
    if names is None and not options.rounds:
        for name, why in runner.left_out(kubernetes=options.kubernetes).items():
            _tell(f"left out: {name}: {why}")
    if not options.kubernetes:
        return runner.run(names, options.nodes)

    rounds = None
    extent = Extent(options.rounds, options.seconds)
    if extent != Extent():
        seed = random.randrange(1 << 32) if options.seed is None else options.seed  # noqa: S311 - no secret
        rounds = runner.RoundsWanted(extent, seed, _tell if options.output == "table" else _ignore, options.vouching)
        rounds.tell(f"seed {seed}")
    return runner.run_kubernetes(names, options.nodes, rounds, options.traces)


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _ignore(_text: str) -> None:
    pass


def _sum(steps: Sequence[Step], took_s: float) -> str:
    """How it came out, how long it took, and of the demonstration what it shows."""
    late = sum(not step.judged for step in steps)
    failed = sum(not step.ok for step in steps) - late
    if failed or late:
        told = [str(render.bad(f"{failed} not as expected"))] if failed else []
        told += [f"{late} not judged, because this machine was too busy"] if late else []
        return f"{len(steps)} steps, {', '.join(told)}, in {span(took_s)}"
    text = f"{len(steps)} steps, {render.good('all as expected')}, in {span(took_s)}"
    return f"{text}. {MORAL}" if {step.scenario for step in steps} == {DEMONSTRATION} else text


class Page:
    """Prints steps as they are done. On a terminal it says what is waited for meanwhile."""

    def __init__(self, *, kubernetes: bool) -> None:
        self._kubernetes = kubernetes
        self._scenario = ""
        self._columns = Columns(())

    def shown(self, steps: Iterable[Step]) -> Iterator[Step]:
        """The same steps, each once it is printed."""
        with _waiting("building nodes, a switch and a client") as wait_for:
            shown_by(wait_for)
            for step in steps:
                if step.scenario != self._scenario:
                    self._begin(step)
                self._print(step)
                yield step
                wait_for(f"the next step of {step.scenario}")

    def _begin(self, step: Step) -> None:
        self._scenario = step.scenario
        vip = "" if self._kubernetes or not step.vip else f" (VIP {step.vip})"
        head = COLUMNS if self._kubernetes else runner.columns(step.scenario)
        self._columns = Columns((*head, ""))
        of_step, of_hosts = runner.widths(step.scenario, kubernetes=self._kubernetes)
        self._columns.add((" " * of_step, *[" " * of_hosts] * (len(head) - 1), "ok"))
        print(f"\n{step.scenario}: {runner.summary(step.scenario, kubernetes=self._kubernetes)}{vip}")
        print(self._columns.head(), flush=True)

    def _print(self, step: Step) -> None:
        """A remark has lines of its own where it must not be cut: why a step failed, and the figures of a cluster."""
        mark = _mark(step)
        remark, apart = step.remark(), self._kubernetes or not step.ok
        if remark and not apart:
            mark = replace(mark, text=f"{mark.text}  {remark}")
        row = (*step.cells(), mark)
        self._columns.add(row)
        print(self._columns.line(row), flush=True)
        if remark and apart:
            print(render.facts([("", remark)], indent=" "), flush=True)


def _mark(step: Step) -> render.Styled:
    if step.ok:
        return render.good("ok")
    return render.bad("NOT AS EXPECTED") if step.judged else render.Styled("NOT JUDGED")


@contextmanager
def _waiting(text: str) -> Iterator[Callable[[str], None]]:
    """A line that moves, with how long it has been, where somebody looks; takes what is waited for next."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield _ignore
        return
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda what: progress.reset(task, total=None, description=render.clean(what))
