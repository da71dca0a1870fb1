"""How long a voucher grants in a term after the node's heartbeat no longer names it, or its own link went down.

A kernel is bound until its agent knows that the API server has the heartbeat without that voucher (V8). The voucher may
know sooner, from a watch: if it stopped then, the node would be silent until the answer has come.

It also continues where the heartbeat still names it but its own link is down: it must not forget a term before it has
decided whether the node died, which then takes 2d (V14).
"""

from arpguard.core.ownership.records import Heartbeat
from arpguard.units import NS_PER_S
from arpguard.wire.vouching import VouchTerm

LINGER_NS = 4 * NS_PER_S  # more than 2d of every profile


class Lingering:
    """The terms that no heartbeat names any more, or whose node is on no link that is up, by number, and since when."""

    def __init__(self) -> None:
        self._unnamed_ns: dict[int, int] = {}

    @property
    def next_ns(self) -> int | None:
        """When the next of them is over."""
        return min((since_ns + LINGER_NS for since_ns in self._unnamed_ns.values()), default=None)

    def named(self, number: int) -> None:
        """A heartbeat names this term, or nobody vouches in it any more."""
        self._unnamed_ns.pop(number, None)

    def is_over(self, number: int, term: VouchTerm, node: Heartbeat | None, now_ns: int) -> bool:
        """Whether to end such a term. `node`: its node's heartbeat, as last seen.

        If that has another epoch, the kernel has forgotten the term before it got that.
        """
        if node is None or node.epoch != term.node_epoch:
            return True
        return now_ns >= self._unnamed_ns.setdefault(number, now_ns) + LINGER_NS
