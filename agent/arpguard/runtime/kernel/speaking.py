"""Which VIPs this node answers for, and which of them it has to announce."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from arpguard.addresses import MacAddress
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.desired import spoken_for
from arpguard.model import Decision, EntryKey, Link, NodeState, VipEntry
from arpguard.overlay import Overlay
from arpguard.runtime.kernel.latest import Latest
from arpguard.verdict import Mode, Reason


class Speaking:
    """VIPs and the MACs to announce them with; puts changes on the announcement schedule."""

    def __init__(self, schedule: AnnouncementSchedule, state: NodeState) -> None:
        self._schedule = schedule
        self._state = state
        self._spoken_for_by = Latest(spoken_for)
        self._spoken_for: Overlay[EntryKey, MacAddress] = Overlay()

    def begin(self, mode: Mode) -> None:
        """Takes what the kernel answered for before this agent started: that needs no announcement."""
        self._spoken_for = Overlay(spoken_for(self._state.entries, mode))

    def follow(self, mode: Mode, now_ns: int) -> None:
        """Entries have changed, or the node's mode has."""
        before, after = self._spoken_for.whole, self._spoken_for_by(self._state.entries, mode)
        if before is not after:
            self._spoken_for = Overlay(after)
            self._announce(before, after, now_ns)

    def change(self, writes: Mapping[EntryKey, VipEntry], gone: Iterable[EntryKey], mode: Mode, now_ns: int) -> None:
        """A few entries have changed or gone."""
        known = ((key, self._spoken_for.get(key)) for key in (*writes, *gone))
        before, after = {key: mac for key, mac in known if mac is not None}, spoken_for(writes, mode)
        if before != after:
            self._spoken_for.change(after, before.keys() - after.keys())
            self._announce(before, after, now_ns)

    def risen(self, ifindexes: AbstractSet[int], now_ns: int) -> None:
        """Links have come up: switches behind them may have forgotten where the VIPs are."""
        for key in self._spoken_for.whole if ifindexes else ():
            if key.ifindex in ifindexes:
                self._schedule.link_up(key, now_ns)

    def conflict(self, decision: Decision, now_ns: int) -> bool:
        """A rival claim came in; returns whether to defend the VIP with an announcement (RFC 5227 2.4)."""
        mine = self._spoken_for.get(decision.key) is not None and decision.mode is Mode.ENFORCE
        return decision.reason is Reason.CONFLICT and mine and self._schedule.conflict(decision.key, now_ns)

    def announceable(self, key: EntryKey) -> tuple[Link, MacAddress] | None:
        """The link and MAC to announce a VIP with; None when this node may not answer for it now."""
        mac = self._spoken_for.get(key)
        link = next((link for link in self._state.links if link.ifindex == key.ifindex), None)
        return (link, mac) if mac is not None and link is not None and link.up else None

    def _announce(
        self, before: Mapping[EntryKey, MacAddress], after: Mapping[EntryKey, MacAddress], now_ns: int
    ) -> None:
        for key, mac in after.items():
            if before.get(key) != mac:
                self._schedule.take_over(key, now_ns)
        lost = before.keys() - after.keys()
        for key in lost:
            self._schedule.give_up(key)
        self._state.ownership_changes += len(lost) + len(after.keys() - before.keys())
