"""Elections that take all their steps at once."""

from itertools import chain


def wishes_of(election, vips, members, holders, now_ns, undecided=frozenset()):
    """What a node wants now: all steps of `sit_down` and `look`."""
    for _ in chain(election.sit_down(vips, members, now_ns), election.look(holders, now_ns, undecided)):
        pass
    return election.wishes
