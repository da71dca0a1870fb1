"""The guard beside real announcers: what is lost and what is doubled, without it and with it, fault by fault.

    PYTHONPATH=tests python -m neighbours.table [--row TEXT] [--column TEXT] [--write docs/neighbours.md]

Each row is one announcer, each column something that goes wrong. One node announces two addresses, one that the
agents guard and one outside of their `ranges`; a client asks for each every 20 ms. Exits 1 when a cell is wrong.
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Self

from arpguard.addresses import Address, MacAddress
from arpguard.errors import ArpguardError
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard_lab.cluster.accusing import accusations
from arpguard_lab.cluster.bench import Watch
from arpguard_lab.topology import Host
from neighbours.announcers import KeepalivedKind, Kind, KubeVip, MetalLb, MetalLbDelegated, node_of
from neighbours.controlplane import BINARIES, missing
from neighbours.pages import kept_rows, replace_table, surroundings
from neighbours.scene import READY_S, Street, a_street, end_by_signals, pins
from neighbours.versions import METALLB, WHOLE

INTERVAL_S = 0.02
STEADY = 1000
AT_A_MOVE = 5  # requests
TRIES = 3
MORE_LOST, SILENT = "more lost than without the guard", "silent at the end"
_EDIT_NS = 100 * NS_PER_MS
_ADDRESSES = 200  # of the asking client: what a reply answers is told by them, for 2 s
_AT_THE_END_NS = NS_PER_S
_SETTLE_S = 60.0
_MISSING = 5  # requests, 100 ms
_SECOND = 1.0

Act = Callable[[Street, Watch, Host], None]


# ---- what goes wrong ---------------------------------------------------------------------------------------------


def steady(street: Street, watch: Watch, _owner: Host) -> None:
    street.go_on(watch, STEADY * INTERVAL_S)


def ended(street: Street, watch: Watch, owner: Host, number: signal.Signals) -> None:
    """And not started again."""
    street.kind.end(owner, number)
    street.go_on(watch, street.kind.patience_s)


def killed_and_started(street: Street, watch: Watch, owner: Host) -> None:
    street.kind.end(owner, signal.SIGKILL)
    street.go_on(watch, 2 * _SECOND)
    street.kind.start(owner)
    street.go_on(watch, street.kind.patience_s)


def node_dead(street: Street, watch: Watch, owner: Host) -> None:
    """Cut off from both networks, with all that ran there killed."""
    street.lab.pull(owner)
    street.kubelets.alive.discard(node_of(owner))
    street.kind.end(owner, signal.SIGKILL)
    street.agent(owner).kill(signal.SIGKILL)
    street.go_on(watch, street.kind.patience_s + 5 * _SECOND)


def rolling_restart(street: Street, watch: Watch, _owner: Host) -> None:
    for host in street.nodes:
        old = street.kind.programs[host.name]
        street.kind.end(host, signal.SIGTERM)
        while old.pid is not None:
            street.go_on(watch, INTERVAL_S)
        street.kind.replace(host)
        street.go_on(watch, street.kind.patience_s / 2)


def partition(street: Street, watch: Watch, _owner: Host) -> None:
    """Between the nodes; each reaches the API server and the client."""
    street.lab.part(street.nodes)
    street.go_on(watch, street.kind.patience_s)
    street.lab.heal(street.nodes)
    street.go_on(watch, street.kind.patience_s)


def group_away(street: Street, watch: Watch, owner: Host) -> None:
    """The API group answers 503 while the agent of the announcing node starts again."""
    with away(street, street.kind.group):
        agent = street.agent(owner)
        agent.kill(signal.SIGTERM)
        agent.start()
        street.go_on(watch, street.kind.away_s)
    street.go_on(watch, street.kind.patience_s)


@contextlib.contextmanager
def away(street: Street, group: str):
    """An API group whose server cannot be reached: kube-apiserver answers 503 for it."""
    name, version = group.split("/")
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/{version}.{name}"
    api = street.server.api
    managed = "kube-aggregator.kubernetes.io/automanaged"
    before = api.get(path)["metadata"]["labels"][managed]
    nowhere = {"namespace": "default", "name": "nowhere", "port": 443}
    gone = {"service": nowhere, "insecureSkipTLSVerify": True}
    api.patch(path, {"metadata": {"labels": {managed: None}}, "spec": gone})
    try:
        yield
    finally:
        back = {"service": None, "insecureSkipTLSVerify": None}
        api.patch(path, {"metadata": {"labels": {managed: before}}, "spec": back})


@dataclass(frozen=True, slots=True)
class Column:
    """What goes wrong, and how often a VIP has to move for that, at most: away, and back again."""

    act: Act
    moves: int


COLUMNS: dict[str, Column] = {
    "steady": Column(steady, 0),
    "SIGTERM": Column(partial(ended, number=signal.SIGTERM), 1),
    "kill -9": Column(partial(ended, number=signal.SIGKILL), 1),
    "kill and start again": Column(killed_and_started, 2),
    "node dead": Column(node_dead, 1),
    "rolling restart": Column(rolling_restart, 2),
    "partition": Column(partition, 2),
    "API group away, agent restarts": Column(group_away, 0),
}
ROWS: list[Callable[..., Kind]] = [
    *(partial(MetalLb, version=version) for version in METALLB),
    partial(MetalLbDelegated, version=WHOLE[-1]),
    partial(KubeVip, election=False),
    partial(KubeVip, election=True),
    KeepalivedKind,
]


# ---- what is seen ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """Of the requests for one address: `lost` had no answer, `doubled` had those of two nodes.

    `excused` were doubled within 100 ms of an edit of the agents' configuration. `moves`: changes of who announces;
    where two answer, that is the one that began last, as clients see it, and the other one again when it stops.
    """

    asked: int
    lost: int
    doubled: int
    excused: int
    moves: int
    silent_at_the_end: bool

    def __str__(self) -> str:
        text = f"{self.lost} of {self.asked} lost"
        text += f", {self.doubled} doubled" if self.doubled else ""
        return text + (", silent at the end" if self.silent_at_the_end else "")


def seen(watch: Watch, vip: Address, edits_ns: Sequence[int]) -> Seen:
    """Judges one address of a watch that is over."""
    sent = watch.stream.requests(vip)
    answers = _by_request(watch, vip)
    doubled = [number for number, macs in answers.items() if len(macs) > 1]
    excused = [number for number in doubled if any(0 <= sent[number] - edit < _EDIT_NS for edit in edits_ns)]
    moves = sum(before != after for before, after in pairwise(_announcers(answers)))
    until_ns = max(sent.values())
    last = [number for number, sent_ns in sent.items() if sent_ns > until_ns - _AT_THE_END_NS]
    silent = not any(number in answers for number in last)
    lost = sum(number not in answers for number in sent)
    return Seen(len(sent), lost, len(doubled) - len(excused), len(excused), moves, silent)


def _announcers(answers: Mapping[int, set[MacAddress]]) -> Iterator[MacAddress]:
    """Who announced the address when, by what was answered."""
    numbers = sorted(answers)
    periods = [
        (numbers[begin], numbers[end], mac)
        for mac in sorted(set().union(*answers.values()), key=str)
        for begin, end in _periods([index for index, number in enumerate(numbers) if mac in answers[number]])
    ]
    for number in numbers:
        yield max((each for each in periods if each[0] <= number <= each[1]), key=itemgetter(0))[2]


def _periods(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of those that follow each other; a few answers that are missing end nothing."""
    first = None
    for index, after in zip_longest(indexes, indexes[1:]):
        first = index if first is None else first
        if after is None or after - index > _MISSING:
            yield first, index
            first = None


def _by_request(watch: Watch, vip: Address) -> dict[int, set[MacAddress]]:
    """Who answered each request, by the request's number."""
    found: dict[int, set[MacAddress]] = defaultdict(set)
    for said in watch.said:
        number = watch.stream.request_of(said) if said.vip == vip else None
        if number is not None:
            found[number].add(said.mac)
    return found


class StatusEvents:
    """What the announcer writes about who announces: each change that kubectl sees."""

    def __init__(self, street: Street) -> None:
        self._street = street
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        kind, plane = self._street.kind, self._street.kind.plane
        if kind.watched:
            line = f'{{.object.metadata.name}} {{.type}} {kind.line}{{"\\n"}}'
            words = [BINARIES / "kubectl", f"--kubeconfig={plane.admin}", "get", kind.watched, "-A", "--watch-only"]
            words += ["--output-watch-events", f"-o=jsonpath={line}"]
            self._process = subprocess.Popen(
                [*plane.place.prefix(), *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self._thread = threading.Thread(target=self._read, daemon=True)
            self._thread.start()
        return self

    def _read(self) -> None:
        self._lines.extend(self._process.stdout)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._thread.join()

    def count(self) -> int:
        """Renewals, which name the same node again, and the Leases of others left out."""
        named: dict[str, str] = {}
        changes = 0
        for line in self._lines:
            name, _, rest = line.strip().partition(" ")
            if name.startswith(("l2-", "plndr-", "kubevip-")):
                renewed = self._street.kind.group.startswith("coordination") and named.get(name, rest) == rest
                changes += not renewed
                named[name] = rest
        return changes


@dataclass(frozen=True, slots=True)
class Cell:
    """What one fault did to one announcer; `wrong` says what must not be."""

    row: str
    column: str
    bare: Seen | None = None
    guarded: Seen | None = None
    events: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def excess(self) -> int:
        """How much more is lost with the guard."""
        return self.guarded.lost - self.bare.lost if self.guarded and self.bare else 0

    @property
    def only_loses(self) -> bool:
        """Whether nothing else is wrong."""
        return bool(self.wrong) and all(text.endswith(MORE_LOST) for text in self.wrong)

    def __str__(self) -> str:
        if self.bare is None or self.guarded is None:
            return f"**{'; '.join(self.wrong)}**"
        events = f"; {self.events} events" if self.events else ""
        text = f"{self.bare} / {self.guarded}{events}"
        return f"**{text}: {'; '.join(self.wrong)}**" if self.wrong else text


def judge(bare: Seen, guarded: Seen, moves: int, accused: Sequence[str] = ()) -> list[str]:
    """What breaks the bars: never more lost than without the guard, but for a few at a move; nothing doubled.

    `moves`: how often the fault moves a VIP, also where without the guard two nodes answer and so nothing moves; and
    how often the announcer's objects or the edited configuration did. `accused`: what the agents said of hosts that
    answer although they are not the owner; where none did, that is wrong.
    """
    wrong = []
    if guarded.lost > bare.lost + AT_A_MOVE * max(bare.moves, moves):
        wrong.append(f"{guarded.lost - bare.lost} {MORE_LOST}")
    if guarded.doubled:
        wrong.append("two nodes answered")
    if guarded.silent_at_the_end and not bare.silent_at_the_end:
        wrong.append(SILENT)
    if not guarded.doubled + guarded.excused:
        wrong += [f"false alarm: {text}" for text in accused]
    return wrong


# ---- running it --------------------------------------------------------------------------------------------------


def run_row(make: Callable[..., Kind], columns: Iterable[str], folder: Path, pin_root: Path) -> Iterable[Cell]:
    with a_street(folder, pin_root, make) as street:
        for column in columns:
            if street.kind.columns is not None and column not in street.kind.columns:
                continue
            yield run_cell(partial(measure, street, column))


def run_cell(attempt: Callable[[], Cell]) -> Cell:
    """Measured three times when more is lost, of which the middle one counts; what else is wrong counts at once."""
    cells = [attempt()]
    while cells[0].only_loses and len(cells) < TRIES:
        cells.append(attempt())
        if cells[-1].wrong and not cells[-1].only_loses:
            return cells[-1]
    return sorted(cells, key=lambda cell: cell.excess)[len(cells) // 2]


def measure(street: Street, column: str) -> Cell:
    owner = street.settled(_SETTLE_S)
    if owner is None:
        restart(street)
        owner = street.settled(_SETTLE_S)
    cell = Cell(street.kind.name, column, wrong=[f"not one node for both before it: {who(street)}"])
    if owner is not None:
        cell = measure_from(street, column, owner)
    print(f"{cell.row} | {cell.column} | {cell}", flush=True)
    return cell


def measure_from(street: Street, column: str, owner: Host) -> Cell:
    """Does it to the node that announces both addresses."""
    street.edits_ns.clear()
    accused_before = accused_by(street)
    try:
        with StatusEvents(street) as events, street.watch(street.kind.vips, INTERVAL_S / 2, _ADDRESSES) as watch:
            street.go_on(watch, _SECOND)
            COLUMNS[column].act(street, watch, owner)
    finally:
        put_right(street)
    guarded, bare = (seen(watch, vip, street.edits_ns) for vip in street.kind.vips)
    count = events.count()
    moves = max(COLUMNS[column].moves, min(guarded.moves, count + len(street.edits_ns)))
    accused = sorted(accused_by(street) - accused_before)
    return Cell(street.kind.name, column, bare, guarded, count, judge(bare, guarded, moves, accused))


def accused_by(street: Street) -> set[str]:
    """What the agents said so far of hosts that answer although they are not the owner."""
    events = street.server.api.get("/apis/events.k8s.io/v1/events")["items"]
    return accusations(events, map(street.status, street.nodes))


def put_right(street: Street) -> None:
    """All nodes are there again, with their agents and announcers."""
    street.lab.heal(street.nodes)
    for host in street.nodes:
        street.lab.plug_in(host)
        street.kubelets.alive.add(node_of(host))
        if street.agent(host).pid is None:
            street.agent(host).start()
            street.agent(host).wait_for(timeout_s=READY_S)
        if host.name not in street.kind.running:
            street.kind.start(host)


def restart(street: Street) -> None:
    """Begins anew where an announcer has not found back: that is its own fault, and not what the next cell is about."""
    for host in street.nodes:
        street.kind.end(host, signal.SIGKILL)
        for vip in street.kind.vips:
            with contextlib.suppress(ArpguardError):
                host.unbind(vip, "eth0")
    for host in street.nodes:
        street.kind.start(host)


def who(street: Street) -> str:
    found = street.who(*street.kind.vips)
    return "; ".join(f"{vip} {[street.lab.who(mac) for mac in macs]}" for vip, macs in found.items())


# ---- the page ----------------------------------------------------------------------------------------------------


def table(cells: Sequence[Cell], kept: Mapping[str, str]) -> str:
    """A row for each announcer; those that were not measured now stay as they were."""
    measured = {row: [cell for cell in cells if cell.row == row] for row in dict.fromkeys(cell.row for cell in cells)}
    rows = dict(kept) | {row: _row(row, found) for row, found in measured.items()}
    lines = [f"| announcer | {' | '.join(COLUMNS)} | measured |", f"|---|{'---|' * len(COLUMNS)}---|"]
    return "\n".join([*lines, *(rows[row] for row in sorted(rows)), ""])


def _row(row: str, cells: Sequence[Cell]) -> str:
    of = {cell.column: str(cell) for cell in cells}
    return f"| {row} | {' | '.join(of.get(column, '') for column in COLUMNS)} | {surroundings()} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--row", action="append", default=[], help="only rows whose name has this")
    parser.add_argument("--column", action="append", default=[], choices=list(COLUMNS))
    parser.add_argument("--write", type=Path, help="the page whose rows are replaced, if whole")
    parser.add_argument("--keep", type=Path, help="a folder for all logs")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    end_by_signals()
    rows = [make for make in ROWS if not asked.row or any(text.lower() in name_of(make).lower() for text in asked.row)]
    if not rows:
        parser.error(f"--row: no row has {' or '.join(asked.row)}; there are {', '.join(map(name_of, ROWS))}")
    cells: list[Cell] = []
    with tempfile.TemporaryDirectory(prefix="arpguard-neighbours-") as temporary, pins() as pin_root:
        for number, make in enumerate(rows):
            folder = (asked.keep or Path(temporary)) / str(number)
            cells += run_row(make, asked.column or COLUMNS, folder, pin_root)
    if asked.write and not asked.column:
        replace_table(asked.write, "table", table(cells, kept_rows(asked.write, "table")))
    wrong = [cell for cell in cells if cell.wrong]
    print(f"neighbours: {len(cells)} cells, {len(wrong)} wrong")
    return 1 if wrong else 0


def name_of(make: Callable[..., Kind]) -> str:
    if isinstance(make, partial):
        return f"{make.func.__name__} {' '.join(f'{key}={value}' for key, value in make.keywords.items())}"
    return make.__name__


if __name__ == "__main__":
    sys.exit(main())
