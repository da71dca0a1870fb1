"""Sees whether the announcer on this node answers, where objects do not settle who announces (`core.speakers`)."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from arpguard.addresses import Address
from arpguard.clock import boot_ns
from arpguard.core.cluster import Key, SpeakerReport
from arpguard.core.speakers import Look, Speakers
from arpguard.core.steering import Steering
from arpguard.runtime.waking import Alarm
from arpguard.verdict import Reason

log = logging.getLogger(__name__)


class Traffic(Protocol):
    """Which frames pass this node's guard, and which part of the agent needs to know."""

    def frames(self, vips: Iterable[Address]) -> Counter[Reason]:
        """How many frames of VIPs were judged for each reason, on all links."""

    def reports_changed(self) -> None:
        """Tells the other nodes that `Witness.reports` has changed."""


class Witness:
    """Watches the Services for which objects name this node, possibly among other nodes."""

    def __init__(self, node: str, steering: Steering, traffic: Traffic) -> None:
        self._node = node
        self._steering = steering
        self._traffic = traffic
        self._speakers = Speakers()
        self._watched: frozenset[Key] = frozenset()
        self._more = Alarm()

    @property
    def reports(self) -> Mapping[Key, SpeakerReport]:
        """What this node's heartbeat tells of its announcer."""
        return self._speakers.reports

    def watch(self, unsettled: frozenset[Key]) -> None:
        """The Services that objects do not settle; what objects say of them may have changed."""
        self._watched = unsettled
        self._more.wake()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            self._more.clear()
            before, now_ns = self.reports, boot_ns()
            looks = self._steering.looks(self._node, self._watched)
            self._speakers.look({key: self._counted(look, vips) for key, look, vips in looks}, now_ns)
            if self.reports != before:
                _log(before, self.reports)
                self._traffic.reports_changed()
            await self._more.sleep_until(self._speakers.next_ns(now_ns))

    def _counted(self, look: Look, vips: Iterable[Address]) -> Look:
        frames = self._traffic.frames(vips)
        return replace(look, requests=frames[Reason.DELEGATED], answers=frames[Reason.EGRESS_DELEGATED])


def _log(before: Mapping[Key, SpeakerReport], now: Mapping[Key, SpeakerReport]) -> None:
    for key, report in now.items():
        if report != before.get(key):
            seen = "answers" if report.answers else "answers no requests; following the previous node"
            log.info("the announcer on this node %s: service=%s", seen, "/".join(key))
