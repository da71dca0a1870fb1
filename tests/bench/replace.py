"""Replacing the programs while requests pour in: how many of them went unanswered.

Two builds share the pinned maps, as when the agent is upgraded; each replacement is a bpf_link LINK_UPDATE from one
to the other. The control, which detaches and attaches instead, shows that a gap would be seen.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bed import Bed, Plane, a_bed
from report import Row, Section
from stream import Flood, Stream, a_stream

from arpguard.dataplane.build import read_build
from arpguard.verdict import Hook
from support.programs.compiling import another_build

TITLE = "replace: requests lost while programs are replaced, over veth"
HOOKS = {"tc": Hook.TC_INGRESS, "XDP native": Hook.XDP}


@dataclass(frozen=True)
class Trial:
    """A flood, and how many replacements fell into it."""

    flood: Flood
    replacements: int


def measure(*, quick: bool) -> Section:
    """The section."""
    count, trials = (300_000, 1) if quick else (2_000_000, 3)
    section = Section(TITLE)
    with ExitStack() as stack:
        bed = stack.enter_context(a_bed("replace"))
        other = Plane(bed.pin_dir, another_build(read_build()), bed.node_ifindex)
        stream = stack.enter_context(a_stream(bed))
        for name, hook in HOOKS.items():
            swap, gap = _swapper(bed, other, hook), _gapper(bed, hook)
            section.add(_row(f"{name}, LINK_UPDATE", [_trial(bed, stream, hook, swap, count) for _ in range(trials)]))
            control = [_trial(bed, stream, hook, gap, count) for _ in range(trials)]
            section.add(_row(f"{name}, control: detach and attach", control, control=True))
    return section


def _swapper(bed: Bed, other: Plane, hook: Hook) -> Callable[[], None]:
    """Attaches the other of the two builds each time."""
    attachers = [bed.attacher(other), bed.attacher()]
    attached = [0]

    def swap() -> None:
        attachers.append(attachers.pop(0))
        attached.append(asyncio.run(attachers[-1].ensure(bed.node_ifindex, hook)).program_id)
        if attached.pop(0) == attached[0]:
            raise RuntimeError("the program was not replaced")

    return swap


def _gapper(bed: Bed, hook: Hook) -> Callable[[], None]:
    def gap() -> None:
        bed.detach(hook)
        bed.attach(hook)

    return gap


def _trial(bed: Bed, stream: Stream, hook: Hook, step: Callable[[], None], count: int) -> Trial:
    """Takes `step` again and again for as long as the flood lasts."""
    floods: list[Flood] = []
    bed.attach(hook)
    try:
        stream.flood(1000)
        worker = threading.Thread(target=lambda: floods.append(stream.flood(count)))
        worker.start()
        done = bed.node.call(lambda: _repeat(step, worker))
        worker.join()
    finally:
        bed.detach(hook)
    return Trial(floods[0], done)


def _repeat(step: Callable[[], None], worker: threading.Thread) -> int:
    done = 0
    while worker.is_alive():
        step()
        done += 1
    return done


def _row(name: str, trials: list[Trial], *, control: bool = False) -> Row:
    lost = [trial.flood.lost for trial in trials]
    sent, replacements = sum(trial.flood.sent for trial in trials), sum(trial.replacements for trial in trials)
    note = f"of {sent:,} requests, {replacements:,} replacements"
    return Row(name, lost, "lost", "" if control else "0", None if control else not any(lost), note)
