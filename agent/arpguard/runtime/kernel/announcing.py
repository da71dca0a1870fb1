"""Announces the VIPs that this node answers for: on schedule, and in defence against rival claims."""

import logging

from arpguard.addresses import MacAddress
from arpguard.clock import boot_ns
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.tokens import TokenBucket
from arpguard.dataplane.announcementsocket import AnnouncementSocket
from arpguard.model import Decision, EntryKey, Link
from arpguard.runtime.kernel.listening import Listening
from arpguard.runtime.kernel.speaking import Speaking
from arpguard.runtime.waking import Alarm
from arpguard.units import NS_PER_S

log = logging.getLogger(__name__)

BURST, LINE_INTERVAL_NS = 200, NS_PER_S // 10  # of lines in the log


class Announcing:
    """Sends what is due by the schedule; whatever adds to the schedule wakes this."""

    def __init__(
        self, schedule: AnnouncementSchedule, speaking: Speaking, listening: Listening, socket: AnnouncementSocket
    ) -> None:
        self._schedule = schedule
        self._speaking = speaking
        self._listening = listening
        self._socket = socket
        self._due = Alarm()
        self._lines = TokenBucket(BURST, LINE_INTERVAL_NS)
        self._left_out = 0

    def wake(self) -> None:
        """Something may be due."""
        self._due.wake()

    def defend(self, decision: Decision) -> None:
        """A host outside claims a VIP: answers with an announcement if the VIP is this node's."""
        if self._speaking.conflict(decision, boot_ns()):
            self._due.wake()

    async def run(self) -> None:
        """Runs until it is cancelled; checks before each announcement that this node may still answer for the VIP."""
        while True:
            self._due.clear()

            for key in self._schedule.take_due(boot_ns()):
                speaker = self._speaking.announceable(key)
                if speaker is None:
                    continue
                self._listening.hear(key)  # first: whoever hears the announcement may ask at once
                if self._socket.announce(key, *speaker):
                    self._schedule.sent(key, boot_ns())
                    self._log(key, *speaker)

            await self._due.sleep_until(self._schedule.next_ns(boot_ns()))

    def _log(self, key: EntryKey, link: Link, mac: MacAddress) -> None:
        """Does not log every one: a host that forges claims can cause a hundred per second."""
        if not self._lines.take(boot_ns()):
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last line)" if self._left_out else ""
        self._left_out = 0
        log.info("announced: vip=%s interface=%s mac=%s%s", key.vip, link.name, mac, more)
