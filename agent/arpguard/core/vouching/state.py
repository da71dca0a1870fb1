"""The state of vouching on a node, as the API and the metrics report it."""

from dataclasses import dataclass, field

from arpguard.core.vouching.gaps import Gaps


@dataclass(frozen=True, slots=True)
class VouchedNode:
    """A node that this one vouches for, or tries (`trial`), since `since_ns` (boot clock).

    `bound`: its kernel answers only as long as this node's grants arrive. `pings`, `pongs`: how many were sent and came
    back. `gaps`: between grants; in a trial, between pongs.
    """

    node: str
    d_ns: int
    since_ns: int
    trial: bool
    bound: bool = False
    pings: int = 0
    pongs: int = 0
    gaps: Gaps = field(default_factory=Gaps)


@dataclass(frozen=True, slots=True)
class VouchingState:
    """`voucher`: the node that vouches for this one ("": none), since `since_ns` (boot clock); `seeks`: which it seeks.

    `bound`: this node's kernel answers only as long as grants arrive. `expected`: another node might vouch for
    this one, which may own VIPs and enforces. `isolated`: no node that was sought hears this one, although it reaches
    the API server. `vouched`: the nodes that it vouches for. `priority`: how the kernel schedules the voucher's
    process, "" while there is none. Since the agent began: `unbinds`, how often this node left a voucher whose grants
    did not come; `revocations`, how often its epoch ended while it was bound; `decided`, how many nodes its own
    vouchers found dead; `gaps`, those between its grants to others. `problems`: obstacles to vouching, a sentence each.
    `lacks_right`: this agent may not read the Secret, and the configuration does not ask for vouching.
    """

    voucher: str = ""
    d_ns: int = 0
    since_ns: int | None = None
    bound: bool = False
    expected: bool = False
    seeks: str = ""
    isolated: bool = False
    vouched: tuple[VouchedNode, ...] = ()
    priority: str = ""
    unbinds: int = 0
    revocations: int = 0
    decided: int = 0
    gaps: Gaps = field(default_factory=Gaps)
    problems: tuple[str, ...] = ()
    lacks_right: bool = False
