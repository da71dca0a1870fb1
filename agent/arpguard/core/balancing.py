"""Which VIPs to move so that the nodes have about as many each: few VIPs, each moved once, to its first choice.

A VIP moves only to its first choice, and only if that node has at least two VIPs fewer. So every move lessens the
imbalance, none is undone while the members stay the same, and there are no more moves than VIPs. The node with the most
VIPs to move goes first, and the others wait: all see the same holders, and so agree on that node.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from arpguard.addresses import Address

BATCH, BATCH_SHARE = 10, 20  # at most 10 VIPs at a time, or a 20th of those held


def to_move(
    placed: Iterable[tuple[Address, str, str]], me: str, is_ripe: Callable[[Address], bool]
) -> tuple[Address, ...]:
    """The VIPs that this node should give up now. `placed`: VIP, holder, first choice; those that are not ripe wait."""
    placed = tuple(placed)
    counts = Counter(holder for _, holder, _ in placed)
    leaving: defaultdict[str, list[tuple[Address, str]]] = defaultdict(list)

    for address, holder, first in placed:
        if counts[holder] > counts[first] + 1:
            leaving[holder].append((address, first))
    if not leaving or me != max(leaving, key=lambda holder: (len(leaving[holder]), holder)):
        return ()

    room = max(BATCH, counts[me] // BATCH_SHARE)
    moves: list[Address] = []
    for address, first in leaving[me]:
        if len(moves) < room and counts[me] > counts[first] + 1 and is_ripe(address):
            moves.append(address)
            counts[me] -= 1
            counts[first] += 1
    return tuple(moves)
