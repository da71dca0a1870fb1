"""Whether an announcer that speaks where another node is followed speaks alone: then it is let through there.

An announcer begins to speak before its objects say so, sometimes by seconds (docs/follow.md). Its own frames come in
time: the program at egress suppresses and reports them. So the agent asks the wire, and only for that VIP:

| since the announcer spoke              | then                                                          |
| -------------------------------------- | ------------------------------------------------------------- |
| somebody answers, or speaks for the VIP | it stays suppressed; asked again when it speaks again         |
| nobody answers                         | asked again after a time that depends on the node's rank      |
| nobody answers twice in a row          | let through, and asked again as long as that lasts            |
| objects name another node than before  | they are followed                                             |

Two nodes whose announcers speak at once are both suppressed, so neither is heard by the other's agent. The rank keeps
them apart: whoever asks for the second time later hears the one that was let through meanwhile. Where both were, in
spite of that, all but the first by rank ask again at once. Needs no API server. Synchronous, and without IO.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.model import Decision
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Reason
from arpguard.wire.arp import ArpOp
from arpguard.wire.ndp import NdType

Place: TypeAlias = tuple[tuple[str, str], Address]  # a Service's namespace and name, and one of its addresses

EVERY_NS = NS_PER_S  # how often a VIP is asked for at most; one that is let through, always
RANK_NS = 250 * NS_PER_MS  # longer than a question takes
RANKS = 3  # further ones wait no longer
ASKED_AT_ONCE = 64
ENOUGH = 2  # questions in a row that nobody answers
_ABOUT_SPEAKERS = frozenset(
    (Reason.EGRESS_NOT_OWNER, Reason.DELEGATED_CLAIM, Reason.UNVERIFIED_CLAIM, Reason.UNCLAIMED_CLAIM)
)


def is_of_speaker(decision: Decision) -> bool:
    """Whether a report is of a frame that only tells who has a VIP: one that was suppressed here, or came in.

    A reply or an announcement (RFC 826, RFC 5227 2.3; RFC 4861 7.2.6). Requests that carry a VIP tell nothing.
    """
    is_request = decision.op == ArpOp.REQUEST and decision.spa == decision.tpa
    tells = is_request or decision.op in (ArpOp.REPLY, NdType.ADVERTISEMENT)
    return tells and decision.reason in _ABOUT_SPEAKERS


@dataclass(slots=True)
class _Speaker:
    """An announcer of this node that spoke for a VIP. Times are CLOCK_BOOTTIME nanoseconds.

    `due_ns`: when to ask; None while a question is out, or there is nothing to ask. `unanswered`: questions in a row.
    """

    rank: int
    began_ns: int
    due_ns: int | None
    is_asking: bool = False
    unanswered: int = 0

    @property
    def is_alone(self) -> bool:
        return self.unanswered >= ENOUGH

    def rest(self) -> None:
        self.due_ns, self.is_asking, self.unanswered = None, False, 0

    def pause_ns(self) -> int:
        """From a question that nobody answered to the next one."""
        if self.unanswered < ENOUGH:
            return min(self.rank, RANKS) * RANK_NS
        return 0 if self.unanswered == ENOUGH and self.rank else EVERY_NS


@dataclass(slots=True)
class Speaking:
    """The announcers of this node that spoke where another node is followed."""

    _speakers: dict[Place, _Speaker] = field(default_factory=dict)
    _asking: set[Place] = field(default_factory=set)
    _news: list[tuple[Place, str]] = field(default_factory=list)

    def is_alone(self, place: Place) -> bool:
        """Whether the announcer speaks alone, and is let through."""
        speaker = self._speakers.get(place)
        return speaker is not None and speaker.is_alone

    def own_spoke(self, place: Place, rank: int, now_ns: int) -> None:
        """A frame of this node's announcer was suppressed. `rank`: this node's among those that may speak, from 0."""
        speaker = self._speakers.get(place)
        if speaker is None:
            self._speakers[place] = _Speaker(rank, now_ns, now_ns)
        elif speaker.due_ns is None and not speaker.is_asking:
            speaker.rank, speaker.due_ns = rank, max(now_ns, speaker.began_ns + EVERY_NS)

    def other_spoke(self, place: Place) -> None:
        """Another host was heard to claim the VIP."""
        self._end(place, "another host claims the VIP")

    def named(self, place: Place, node: str) -> None:
        """Objects name a node that they did not name before."""
        self._end(place, f"objects name {node}")

    def forget(self, place: Place) -> None:
        """The address is the Service's no longer."""
        self._end(place, "the Service does not have it any more")
        self._speakers.pop(place, None)

    def take_due(self, now_ns: int) -> list[Place]:
        """What to ask the wire for now; each is to be followed by `asked`."""
        due = [place for place in self._waiting() if self._due_ns(place) <= now_ns]
        due = due[: ASKED_AT_ONCE - len(self._asking)]
        for place in due:
            speaker = self._speakers[place]
            if not speaker.unanswered:
                speaker.began_ns = now_ns
            speaker.due_ns, speaker.is_asking = None, True
        self._asking.update(due)
        return due

    def asked(self, place: Place, now_ns: int, *, answered: bool) -> None:
        """Whether any other host answered for the VIP. Whoever cannot ask says that somebody did."""
        self._asking.discard(place)
        speaker = self._speakers.get(place)
        if speaker is None or not speaker.is_asking:
            return  # what it was about is over
        if answered:
            self._end(place, "another host answers for the VIP")
            return
        speaker.is_asking = False
        speaker.unanswered += 1
        speaker.due_ns = now_ns + speaker.pause_ns()
        if speaker.unanswered == ENOUGH:
            self._news.append((place, ""))

    def next_ns(self) -> int | None:
        """When something is to be asked; None: not before something happens."""
        if len(self._asking) >= ASKED_AT_ONCE:
            return None
        return min(map(self._due_ns, self._waiting()), default=None)

    def take_news(self) -> list[tuple[Place, str]]:
        """What began (empty text), and what ended and why, since the last look."""
        news, self._news = self._news, []
        return news

    def _waiting(self) -> list[Place]:
        waits = (place for place, speaker in self._speakers.items() if speaker.due_ns is not None)
        return [place for place in waits if place not in self._asking]

    def _due_ns(self, place: Place) -> int:
        return self._speakers[place].due_ns or 0

    def _end(self, place: Place, why: str) -> None:
        speaker = self._speakers.get(place)
        if speaker is None:
            return
        if speaker.is_alone:
            self._news.append((place, why))
        speaker.rest()
