"""A capture through the real programs: test runs of their twins over maps of this process's own.

Nothing is attached or pinned: programs and maps go with the process.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from arpguard.core.replay import OWN_LINK, About, Passed, ReplayScene, Seen, attributed, look_at
from arpguard.core.sightings import Ledger, Sighting, read_message
from arpguard.dataplane import loader
from arpguard.dataplane.build import TWIN_AT, read_build
from arpguard.dataplane.explain import Trial, try_frame
from arpguard.dataplane.maps import ControlValue, EntryTable
from arpguard.dataplane.syscall import Fd
from arpguard.model import Datapath
from arpguard.verdict import Hook, Verdict
from arpguard.wire.capture import Captured

_SPEAKING = frozenset({Verdict.PASS, Verdict.REPORT})


@dataclass(frozen=True, slots=True)
class Judged:
    """A frame with what the guard does with it."""

    captured: Captured
    seen: Seen
    trial: Trial
    decisions: tuple[About, ...]
    concerned: bool


class Replay:
    """The programs with the scene's entries in their maps."""

    def __init__(self, scene: ReplayScene) -> None:
        """Loads the twins of the programs; raises DataPlaneError."""
        self._ingress = Hook.XDP if scene.config.datapath is Datapath.XDP else Hook.TC_INGRESS
        entries = scene.entries()
        twins = TWIN_AT[self._ingress], TWIN_AT[Hook.TC_EGRESS]
        loaded = loader.load_unpinned(read_build(max(1, len(entries))), twins)
        EntryTable(loaded.maps["entries"], loaded.maps["counters"]).write(entries)
        ControlValue(loaded.maps["control"]).write(scene.control(entries))
        self._programs: dict[str, Fd] = loaded.programs
        self._scene, self._links = scene, scene.links()
        self.ledger = Ledger(scene.vips)

    def run(self, frames: Iterable[Captured]) -> Iterator[Judged]:
        """Judges frames one by one, and accounts for all in the ledger."""
        for captured in frames:
            self.ledger.take(captured.time_ns, captured.link)
            seen = look_at(captured, self._scene)
            found = self._judge(captured, seen) if isinstance(seen, Seen) else seen
            if isinstance(found, Judged):
                yield found
                continue
            self.ledger.passed_by(found, captured.linktype)

    def _judge(self, captured: Captured, seen: Seen) -> Judged | Passed:
        trial = self._try(seen, OWN_LINK, outgoing=seen.outgoing)
        if not trial.decisions:  # behind extension headers there may be anything
            return Passed.OTHER
        ledger, message = self.ledger, read_message(seen.frame)
        ledger.judge(seen.protocol, seen.link)
        claimed, asked = (message.claimed, message.asked) if message else (None, None)
        decisions = attributed(trial.decisions, claimed, asked, ledger.vips)
        if message is not None:
            sighting = ledger.note(message, captured.time_ns)
            if sighting is not None:
                self._judge_at_its_sender(seen, trial, sighting)
        return Judged(captured, seen, trial, decisions, ledger.decide(decisions))

    def _try(self, seen: Seen, ifindex: int, *, outgoing: bool) -> Trial:
        return try_frame(self._programs, Hook.TC_EGRESS if outgoing else self._ingress, ifindex, seen.frame)

    def _judge_at_its_sender(self, seen: Seen, trial: Trial, sighting: Sighting) -> None:
        """A claim of a node whose MAC is given meets that node's guard first, on its way out."""
        ifindex = self._links.get(seen.source)
        if not seen.outgoing and ifindex is None:
            return
        found = trial if seen.outgoing or ifindex is None else self._try(seen, ifindex, outgoing=True)
        speaks = not found.decisions or found.decisions[0][0] in _SPEAKING
        sighting.kept += speaks
        sighting.silenced += not speaks
