"""Runs scenarios side by side, each in a process of its own: they mostly wait."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from signal import Signals

from arpguard.cli import exits
from arpguard_lab.bench import Step, could_not_continue
from arpguard_lab.progress import shown_by, waits_for

Play = Callable[[], Generator[Step, None, None]]

_GONE_S = 60.0  # agents are given time to end


def side_by_side(plays: Mapping[str, Play], at_once: int) -> Generator[Step, None, None]:
    """The steps of all scenarios in the order of `plays` (picklable, by name), each step once it is its turn.

    At most `at_once` run at a time. One whose process ends before its time has a step that says so.
    """
    waiting, scenes = deque(plays.items()), list[_Scene]()
    try:
        for number in range(len(plays)):
            _start_more(waiting, scenes, at_once)
            scene = scenes[number]
            while not scene.is_over:
                yield from scene.told()
                _listen(scenes)
                _start_more(waiting, scenes, at_once)
            yield from scene.told()
    finally:
        _end(scenes)


class _Scene:
    """A scenario in a process of its own, and what that has sent: steps, and in words what it waits for."""

    def __init__(self, name: str, play: Play, running: Iterable["_Scene"]) -> None:
        """Forks, a second faster than starting Python, unless this process has threads: a fork inherits their locks.

        On a terminal the lab has a thread, which shows its progress.
        """
        is_alone = threading.active_count() == 1
        processes = get_context("fork") if is_alone else get_context("spawn")
        self._name = name
        self._sent: deque[Step | str] = deque()
        self.is_over = False

        self.pipe, theirs = processes.Pipe(duplex=False)
        inherited = [self.pipe, *(scene.pipe for scene in running)] if is_alone else []
        self._process = processes.Process(target=_play, args=(theirs, play, inherited), name=name)
        self._process.start()
        theirs.close()

    def take(self) -> None:
        """Waits for what it sends next, or for its end."""
        try:
            self._sent.append(self.pipe.recv())
        except EOFError:
            self._reap()
            if self._process.exitcode:
                self._sent.append(could_not_continue(self._name, f"its process {_how_ended(self._process.exitcode)}"))

    def told(self) -> Iterator[Step]:
        """The steps that it has sent, each once."""
        while self._sent:
            sent = self._sent.popleft()
            if isinstance(sent, Step):
                yield sent
            else:
                waits_for(sent)

    def terminate(self) -> None:
        if not self.is_over:
            self._process.terminate()

    def join(self) -> None:
        if not self.is_over:
            self._reap(_GONE_S)
        self.pipe.close()

    def _reap(self, limit_s: float | None = None) -> None:
        """Waits for the process to end, then kills what it left in its group: agents, if it was killed itself."""
        wait([self._process.sentinel], limit_s)
        if self._process.pid is not None:
            with suppress(ProcessLookupError):  # until it is joined, no other group can have this number
                os.killpg(self._process.pid, Signals.SIGKILL)
        self._process.kill()
        self._process.join()
        self.is_over = True


def _how_ended(exit_code: int) -> str:
    return f"was killed by {Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _start_more(waiting: deque[tuple[str, Play]], scenes: list[_Scene], at_once: int) -> None:
    while waiting and len(_running(scenes)) < at_once:
        scenes.append(_Scene(*waiting.popleft(), _running(scenes)))


def _listen(scenes: list[_Scene]) -> None:
    """Waits until one of those that run sends something, or ends."""
    running = _running(scenes)
    ready = wait([scene.pipe for scene in running])
    for scene in running:
        if scene.pipe in ready:
            scene.take()


def _running(scenes: list[_Scene]) -> list[_Scene]:
    return [scene for scene in scenes if not scene.is_over]


def _end(scenes: list[_Scene]) -> None:
    """Each removes its own lab, all at the same time."""
    for scene in scenes:
        scene.terminate()
    for scene in scenes:
        scene.join()


def _play(pipe: Connection, play: Play, inherited: Sequence[Connection]) -> None:
    """In the child. It has a session of its own: a terminal's Ctrl-C is for the parent, which ends it.

    `inherited`: the parent's ends of pipes. As long as a child has one, nobody notices that the parent is gone.
    """
    os.setsid()
    for theirs in inherited:
        theirs.close()
    exits.leave_on_signals()
    with suppress(BrokenPipeError), closing(play()) as steps:  # the parent may have been killed
        shown_by(pipe.send)
        for step in steps:
            pipe.send(step)
