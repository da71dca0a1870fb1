"""What to report about offers and Nodes: problems for the log and notices for Events, each in limited number."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from arpguard.core.bids import Bid
from arpguard.core.bounding import bounded
from arpguard.core.cluster import Node
from arpguard.core.offers import ACTION, Offer
from arpguard.core.reporting import Notice, Subject
from arpguard.model import SERVICE_SOURCE

_Alike: TypeAlias = tuple[Subject, str, bool]  # alike: of one Service, with one reason, and this node's own or not

MAX_PROBLEMS = 20
MAX_ALIKE = 4  # at most so many addresses of a Service with the same problem are reported one by one
MAX_OF_NODES = 4
MAX_NOTICES = 4096


class Telling:
    """All that is reported about some offers. If many addresses of a Service have one problem, a few stand for all.

    `besides`: more problems. `notices` are the same on every node, `own_notices` are this node's.
    """

    def __init__(self, offers: Iterable[Offer], besides: Iterable[str] = ()) -> None:
        self._problems: list[str] = []
        self._notices: dict[bool, list[Notice]] = {False: [], True: []}  # own ones: True
        self._alike: Counter[_Alike] = Counter()
        unranged = 0
        for offer in offers:
            self._problems += offer.problems
            self._notices[False] += offer.notices
            for bid in offer.bids:
                self._hear(bid)
                unranged += not bid.admitted and bid.complaint is None

        for kind, count in self._alike.items():
            if count > MAX_ALIKE:
                self._tell_of_rest(kind, count - MAX_ALIKE)
        self._problems += besides
        first = f"the agents guard none of the {unranged} addresses of Services, because `ranges` is empty"
        self.problems = tuple(bounded([first, *self._problems] if unranged else self._problems, MAX_PROBLEMS))
        self.notices, self.own_notices = (tuple(self._notices[own][:MAX_NOTICES]) for own in (False, True))

    def _hear(self, bid: Bid) -> None:
        found = bid.complaint
        if found is None:
            return
        problem = f"{bid.name}: {found.why}"
        if bid.subject is None:
            self._problems.append(problem)
            return

        kind = bid.subject, found.reason, found.own
        self._alike[kind] += 1
        if self._alike[kind] <= MAX_ALIKE:
            self._tell(kind, problem, found.why)

    def _tell_of_rest(self, kind: _Alike, count: int) -> None:
        """Reports the rest of a kind. The Event has no count: it would become another Event with each change."""
        subject, reason, _own = kind
        name = f"{SERVICE_SOURCE}{subject.namespace}/{subject.name}"
        problem = f"{name}: {count} more of its addresses have this problem: {reason}"
        self._tell(
            kind,
            problem,
            "more addresses of this Service have this problem: `arpguard explain ADDRESS` says why for each",
        )

    def _tell(self, kind: _Alike, problem: str, note: str) -> None:
        subject, reason, own = kind
        self._problems.append(problem)
        self._notices[own].append(Notice(subject, reason, ACTION, note))


def problems_of(nodes: Mapping[str, Node]) -> list[str]:
    """What could not be understood in the Nodes. An address that could not be read can become a VIP."""
    wrong = sorted(name for name, node in nodes.items() if node.problems)
    found = [f"node {name}: {problem}" for name in wrong for problem in nodes[name].problems]
    return bounded(found, MAX_OF_NODES, "problems of Nodes")
