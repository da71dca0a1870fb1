"""Whether programs in user space differ from the verdict table or the model: what a fault in their source must do."""

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arpguard.verdict import Hook
from support.frames import random_arp, random_nd
from support.programs.agreement import compare
from support.programs.compiling import BPF
from support.programs.edges import first_wrong_edge
from support.programs.prog_run import INGRESS, Plane
from support.programs.user_space import UserPlane
from support.programs.verdict_cells import EGRESS_CASES, INGRESS_CASES, MODES, check_case

LONGEST_S = 60  # a fault may make a loop endless
HOOKS = (*INGRESS, Hook.TC_EGRESS)


def first_wrong_cell(plane: Plane | UserPlane, hooks: Sequence[Hook] = HOOKS) -> str | None:
    """The cell of the verdict table that is wrong first."""
    for mode in MODES:
        for hook in hooks:
            for name, case in (EGRESS_CASES if hook is Hook.TC_EGRESS else INGRESS_CASES).items():
                try:
                    check_case(plane, hook, case, mode)
                except AssertionError:
                    return f"{name}-{mode}-{hook.name}"
    return None


def first_wrong_batch(plane: Plane | UserPlane, batches: int, hooks: Sequence[Hook] = HOOKS) -> str | None:
    """How the first random frame is treated that is not treated as the model says."""
    for hook in hooks:
        for maps, stimulus in (
            (random_arp.random_maps, random_arp.a_stimulus),
            (random_nd.random_maps, random_nd.stimuli_for(hook)),
        ):
            try:
                compare(plane, hook, maps, stimulus, batches)
            except AssertionError as error:
                return f"{hook.name}: {error}"
    return None


AT_TC = (Hook.TC_INGRESS, Hook.TC_EGRESS)


def first_difference(plane: UserPlane) -> str | None:
    """What is wrong first, the quickest checks before the others; None: nothing."""
    # Some faults show in rare frames only, or at the last hook.
    return first_quick_difference(plane) or first_wrong_batch(plane, 8) or first_wrong_batch(plane, 100)


def first_quick_difference(plane: UserPlane) -> str | None:
    """The same with few frames, random ones at tc only."""
    return first_wrong_batch(plane, 1, AT_TC) or first_wrong_edge(plane) or first_wrong_cell(plane, AT_TC)


def judged(plane: UserPlane, judge: Callable[[UserPlane], str | None] = first_difference) -> str | None:
    """The same in a process of its own, since a fault may also end it, or never end: then these are the difference."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        gc.freeze()  # to close what other tests left to the collector may mean to wait for a thread that is not here
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, LONGEST_S)  # of CPU: a machine that others use is no endless loop
        try:
            said = judge(plane) or ""
        except Exception as error:  # noqa: BLE001 - whatever a fault leads to
            said = repr(error)
        os.write(write, said.encode()[:4096])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(pid, 0)
    return f"ended by signal {status}" if status else said or None


def changed_text(name: str, old: str, new: str) -> str:
    """The text of a file of the programs with a fault put in."""
    text = (BPF / name).read_text()
    assert text.count(old) == 1, f"{name} no longer has {old!r}: change the mutant with it"
    return text.replace(old, new)


def faulty_source(folder: Path, name: str, old: str, new: str) -> Path:
    """A copy of the source, in a new folder `bpf`, with a fault put in."""
    shutil.copytree(BPF, folder / "bpf")
    (folder / "bpf" / name).write_text(changed_text(name, old, new))
    return folder / "bpf"


class Bench:
    """A copy of the source in which one file at a time is another one."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._copy = folder, folder / "bpf"
        shutil.copytree(BPF, self._copy)
        self._number = 0

    @property
    def source(self) -> Path:
        """The copy, with the file that `plane` has put into it."""
        return self._copy

    @contextmanager
    def plane(self, name: str, text: str) -> Iterator[UserPlane]:
        """The programs with another text in the place of a file; RuntimeError where that does not compile."""
        path = self._copy / name
        before = path.read_text()
        path.write_text(text)
        self._number += 1  # a library of the same name would not be loaded again
        try:
            yield UserPlane(self._folder, self.source, f"faulty-{self._number}")
        finally:
            path.write_text(before)
            (self._folder / f"faulty-{self._number}.so").unlink(missing_ok=True)
