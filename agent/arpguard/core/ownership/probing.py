"""Whether a host outside the cluster has a VIP: one question, one answer, and how long the answer counts."""

from dataclasses import dataclass

from arpguard.addresses import MacAddress
from arpguard.units import NS_PER_S

UNANSWERED_NS = 5 * NS_PER_S  # without a result for so long, a probe is sent again
SILENT_NS = 5 * NS_PER_S  # how long it counts that no host has a VIP
TAKEN_NS = 30 * NS_PER_S  # how long it counts, at most, that a host outside has it
LEAD_NS = 2 * NS_PER_S  # a probe begins at most so long before its result is needed


@dataclass(slots=True)
class Probing:
    """The probing of one VIP. `counts_ns`: how long the answer counts; `taken_by` None: no host has the VIP.

    `said`: this node has written the answer into the claim. `reported`: it has told people of it.
    """

    taken_by: MacAddress | None = None
    told_ns: int | None = None
    counts_ns: int = 0
    asked_ns: int | None = None
    said: bool = False
    reported: bool = False

    def known(self, now_ns: int) -> bool:
        """Whether there is an answer that counts."""
        return self.told_ns is not None and now_ns < self.told_ns + self.counts_ns

    def ask(self, now_ns: int) -> bool:
        """Whether to send a probe now, and not wait for one that is under way."""
        if self.asked_ns is not None and now_ns < self.asked_ns + UNANSWERED_NS:
            return False
        self.asked_ns = now_ns
        return True

    def told(self, taken_by: MacAddress | None, first_ns: int, longest_ns: int, now_ns: int) -> None:
        """Takes the answer. That a host has it counts for `first_ns`, and twice as long each time it is heard again.

        A host that was heard once may be a node whose MAC is not known here yet, and that probes for the VIP itself.
        """
        again_ns = min(2 * self.counts_ns, longest_ns) if taken_by == self.taken_by else first_ns
        self.asked_ns, self.said, self.reported = None, False, False
        self.taken_by, self.told_ns = taken_by, now_ns
        self.counts_ns = again_ns if taken_by else SILENT_NS

    @property
    def next_ns(self) -> int:
        """When to probe again, so that the answer stays known."""
        if self.asked_ns is not None:
            return self.asked_ns + UNANSWERED_NS
        return (self.told_ns or 0) + self.counts_ns
