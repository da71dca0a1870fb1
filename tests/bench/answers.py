"""Answers per second over veth, by the guard at tc and at XDP, against the kernel's own ARP in the same rounds.

See stream.py for how: one core makes the requests, answers them and counts the answers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from statistics import median

from bed import VIP, Bed, a_bed
from report import Row, Section
from stream import Flood, Stream, a_stream

from arpguard.verdict import Hook

TITLE = "answers: ARP answers per second and core over veth, requests and counting included"
GOALS = {"tc": 1.3, "XDP native": 4.0}


@contextmanager
def _kernel(bed: Bed) -> Iterator[None]:
    bed.node.batch([f"addr add {VIP}/32 dev lo"])
    try:
        yield
    finally:
        bed.node.batch([f"addr del {VIP}/32 dev lo"])


def _guard(hook: Hook) -> Callable[[Bed], AbstractContextManager[None]]:
    @contextmanager
    def attached(bed: Bed) -> Iterator[None]:
        bed.attach(hook)
        try:
            yield
        finally:
            bed.detach(hook)

    return attached


RESPONDERS = {"kernel ARP, VIP on lo": _kernel, "tc": _guard(Hook.TC_INGRESS), "XDP native": _guard(Hook.XDP)}


def measure(*, quick: bool) -> Section:
    """The section."""
    count, rounds = (200_000, 3) if quick else (1_000_000, 5)
    floods: dict[str, list[Flood]] = defaultdict(list)
    with a_bed("answers") as bed, a_stream(bed) as stream:
        for _ in range(rounds):
            for name, responder in RESPONDERS.items():
                floods[name].append(_flood(bed, stream, responder, count))
    return _section(floods)


def _flood(bed: Bed, stream: Stream, responder: Callable[[Bed], AbstractContextManager[None]], count: int) -> Flood:
    with responder(bed):
        stream.flood(1000)
        return stream.flood(count)


def _section(floods: dict[str, list[Flood]]) -> Section:
    section = Section(TITLE)
    for name, done in floods.items():
        sent, lost = sum(flood.sent for flood in done), sum(flood.lost for flood in done)
        note = f"{100 * (sent - lost) / sent:.4g} % of {sent:,} answered"
        section.add(Row(name, [flood.rate for flood in done], "/s", note=note + (f", {lost:,} lost" if lost else "")))
    baseline, *others = floods
    for name in others:
        ratios = [flood.rate / base.rate for flood, base in zip(floods[name], floods[baseline], strict=True)]
        goal = GOALS[name]
        section.add(Row(f"{name} / kernel", ratios, "times", f"{goal} or more", median(ratios) >= goal))
    return section
