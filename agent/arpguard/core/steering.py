"""Which node to follow while an announcer's objects change: one at a time, and only nodes that objects have named.

| the objects                                             | followed                                                |
| ------------------------------------------------------- | ------------------------------------------------------- |
| name a node                                             | that node, after a pause if another one was followed    |
| name no node                                            | still the last node                                     |
| name others again and again: `MOST` changes in `WINDOW` | MetalLB's choice among those named within the last STEADY |

Objects name no node while an announcer writes them, and sometimes for hours although it announces
(docs/follow-metallb.md). The node that agents followed last either still announces, or is silent anyway: letting it
through costs nothing, and keeps the VIP.

All agents follow the same node because they hear the same changes in the same order, and decide by those alone, not by
what they followed before. So an agent that starts while objects change agrees with the others after `MOST` changes.
During the pause after each change both nodes are suppressed: the new one is let through only once the old one's agent
knows of it, too.

Of nodes that are named in turn, agents follow the one that MetalLB elects once its speakers reach each other again. So
the VIP stays put when a partition ends, which no object shows for STEADY.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from arpguard.addresses import Address
from arpguard.core.bounding import bounded
from arpguard.core.cluster import Announcement, Key, Service, SpeakerReport
from arpguard.core.following import ON_DEMAND, Followed, Following, Source
from arpguard.core.speakers import Look
from arpguard.units import NS_PER_MS, NS_PER_S

PAUSE_NS = 50 * NS_PER_MS  # how much longer a watch may take on one node than on another, even on a busy machine
MOST = 6  # two are the restart of a speaker: away, and back; three cannot be restarted within WINDOW
WINDOW_NS = 4 * NS_PER_S  # speakers that do not reach each other change objects up to 40 times a second
STEADY_NS = 3 * NS_PER_S
MAX_NAMED = 8
LASTS_NS = 3 * NS_PER_S  # objects that disagree for less are part of a move
MAX_PROBLEMS = 20


@dataclass(slots=True)
class Course:
    """The node that is followed for one address. Times are CLOCK_BOOTTIME nanoseconds.

    `elected_by`: the Service's first address, by which MetalLB elects among nodes.
    `named`: the node that objects named last. `_left`: the nodes that they named before, each with the time at which it
    ceased to be named, the latest last.
    """

    followed: str = ""
    elected_by: str = ""
    named: str = ""
    _moved_ns: int | None = None
    _changes: deque[int] = field(default_factory=lambda: deque(maxlen=MOST))
    _left: dict[str, int] = field(default_factory=dict)

    def hear(self, node: str, now_ns: int, *, at_once: bool = False) -> None:
        """Takes the node that objects name now; empty: none.

        `at_once`: without a pause, for the node that was followed has reported that its announcer does not answer.
        """
        if node and node != self.named:
            if self.named:
                self._changes.append(now_ns)
                self._leave(now_ns)
            self._left.pop(node, None)
            self.named = node
        self._settle(now_ns, at_once=at_once)

    def at(self, now_ns: int) -> str:
        """The node that is followed now; empty: none, or none yet."""
        self._settle(now_ns)
        is_pausing = self._moved_ns is not None and now_ns < self._moved_ns + PAUSE_NS
        return "" if is_pausing else self.followed

    def rivals(self, now_ns: int) -> tuple[str, ...]:
        """The nodes that are named in turn, sorted; none while objects change no more than they should."""
        if len(self._changes) < MOST or self._changes[0] + WINDOW_NS <= now_ns:
            return ()
        lately = (node for node, left_ns in self._left.items() if left_ns + STEADY_NS > now_ns)
        return tuple(sorted((self.named, *lately)))

    def next_ns(self, now_ns: int) -> int | None:
        """When `at` may change by itself."""
        times = [] if self._moved_ns is None else [self._moved_ns + PAUSE_NS]
        if len(self._changes) == MOST:
            times += [self._changes[0] + WINDOW_NS, *(left_ns + STEADY_NS for left_ns in self._left.values())]
        return min((at_ns for at_ns in times if at_ns > now_ns), default=None)

    def _leave(self, now_ns: int) -> None:
        self._left.pop(self.named, None)
        self._left[self.named] = now_ns
        if len(self._left) > MAX_NAMED:
            del self._left[next(iter(self._left))]

    def _settle(self, now_ns: int, *, at_once: bool = False) -> None:
        rivals = self.rivals(now_ns)
        chosen = min(rivals, key=self._rank) if rivals else self.named or self.followed
        if chosen != self.followed:
            self._moved_ns = now_ns if self.followed and not at_once else None
            self.followed = chosen

    def _rank(self, node: str) -> bytes:
        """The lowest of the nodes that are up announces (`ShouldAnnounce` in MetalLB's speaker, 0.14 to 0.16).

        From 0.16.2 on the weights of `preferredNodeSelectors` come before it, which agents may not read.
        """
        return sha256(f"{node}#{self.elected_by}".encode()).digest()


@dataclass(slots=True)
class _Steered:
    """A Service, and the courses of its addresses."""

    service: Service
    courses: dict[Address, Course] = field(default_factory=dict)


class Steering:
    """Follows what `Following` finds, Service by Service and address by address. Synchronous, and without IO.

    `is_known`: whether all objects of a source about Services of a namespace have been read. Until that is so for all
    sources of a Service, it ignores the objects, and keeps the node that was followed.
    `left`: the nodes that the last agent followed.
    """

    def __init__(
        self, following: Following, is_known: Callable[[Source, str], bool], left: Mapping[Address, str] | None = None
    ) -> None:
        self._following = following
        self._is_known = is_known
        self._left = dict(left or {})
        self._steered: dict[Key, _Steered] = {}
        self._restless: dict[tuple[Key, Address], Course] = {}
        self._wrong: dict[str, int] = {}

    def put(self, source: Source, key: Key, said: Announcement | None, now_ns: int) -> frozenset[Key]:
        """Like `Following.put`; takes every single change, so that all agents hear the same."""
        return self._follow(self._following.put(source, key, said), now_ns)

    def hear(self, node: str, reports: Mapping[Key, SpeakerReport], now_ns: int) -> frozenset[Key]:
        """Like `Following.hear`: takes all reports of a node's agent."""
        return self._follow(self._following.hear(node, reports), now_ns)

    def _follow(self, concerned: frozenset[Key], now_ns: int) -> frozenset[Key]:
        for each in concerned & self._steered.keys():
            steered = self._steered[each]
            for address in steered.courses:
                self.node_of(steered.service, address, now_ns)
        return concerned

    def looks(self, node: str, keys: Iterable[Key]) -> Iterator[tuple[Key, Look, tuple[Address, ...]]]:
        """The Services of `keys` for which objects name this node and another one, with the addresses followed to it.

        Requests and answers are not counted here: they are 0 in each `Look`.
        """
        for key in keys:
            named = self._following.named(key)
            if node not in named or not named.keys() - {node}:
                continue
            last = max(named.values())
            others = [self._following.report(key, each) for each in named if each != node]
            reports = [report for report in others if report is not None and report.version >= last]
            courses = self._steered[key].courses if key in self._steered else {}
            here = tuple(address for address, course in courses.items() if course.followed == node)
            silent, answering = (any(report.answers is yes for report in reports) for yes in (False, True))
            yield key, Look(last, bool(here), silent=silent, answering=answering), here

    def node_of(self, service: Service, address: Address, now_ns: int) -> Followed:
        """The node to follow for an address of a Service now, and why."""
        said = self._following.node_of(service, address)
        course = self._course(service, address)
        if self._may_be_heard(said, service, course):
            is_silent = self._following.is_silent((service.namespace, service.name), course.followed)
            course.hear(said.node, now_ns, at_once=is_silent)
        node = course.at(now_ns)
        if course.next_ns(now_ns) is not None:
            self._restless[(service.namespace, service.name), address] = course
        return said if node == said.node else _instead(said, node, course)

    def _may_be_heard(self, said: Followed, service: Service, course: Course) -> bool:
        """Whether to believe the objects: an agent that has just started waits for Events unless objects settle it."""
        sources = self._following.sources_of(service)
        if not (said.settled or course.named):
            sources |= ON_DEMAND
        return all(self._is_known(source, service.namespace) for source in sources)

    def leave(self, keys: Iterable[Key]) -> None:
        """These Services are gone, or no longer follow: forgets them."""
        keys = tuple(keys)
        self._following.leave(keys)
        for key in keys:
            steered = self._steered.pop(key, None)
            for address in steered.courses if steered else ():
                self._restless.pop((key, address), None)

    def next_ns(self, now_ns: int) -> int | None:
        """When the node of some address may change by itself."""
        times = {place: course.next_ns(now_ns) for place, course in self._restless.items()}
        self._restless = {place: self._restless[place] for place, at_ns in times.items() if at_ns is not None}
        return min((at_ns for at_ns in times.values() if at_ns is not None), default=None)

    def problems(self, now_ns: int) -> tuple[str, ...]:
        """What is wrong with objects, and the Services for which they name nodes in turn.

        Objects disagree for a moment during a move, and all the time during a partition, each time in other words.
        """
        self._wrong = {text: self._wrong.get(text, now_ns) for text in self._following.problems}
        lasting = [text for text, since_ns in self._wrong.items() if since_ns + LASTS_NS <= now_ns]
        return tuple(bounded([*self._in_turn(now_ns), *lasting], MAX_PROBLEMS))

    def _in_turn(self, now_ns: int) -> tuple[str, ...]:
        found = ((place[0], course, course.rivals(now_ns)) for place, course in self._restless.items())
        return tuple(dict.fromkeys(_problem(key, course.followed, nodes) for key, course, nodes in found if nodes[1:]))

    def _course(self, service: Service, address: Address) -> Course:
        key = service.namespace, service.name
        steered = self._steered.get(key)
        if steered is None or steered.service.uid != service.uid:
            steered = self._steered[key] = _Steered(service)
        elif steered.service is not service:
            kept = set(service.addresses)
            steered.service = service
            steered.courses = {each: course for each, course in steered.courses.items() if each in kept}
            for kept_course in steered.courses.values():
                kept_course.elected_by = _elected_by(service)
        course = steered.courses.get(address)
        if course is None:
            course = steered.courses[address] = Course(self._left.pop(address, ""), _elected_by(service))
        return course


def _elected_by(service: Service) -> str:
    return str(service.ingress_ips[0]) if service.ingress_ips else ""


def _problem(key: Key, followed: str, nodes: Iterable[str]) -> str:
    return (
        f"service {'/'.join(key)}: its announcer's objects name {' and '.join(nodes)} in turn; the agents "
        f"follow {followed} until only one node has been named for {STEADY_NS // NS_PER_S} s: check whether the "
        "announcer's pods reach each other"
    )


def _instead(said: Followed, node: str, course: Course) -> Followed:
    """The answer if another node is followed than the one that objects name now."""
    if not node:
        wait = (
            f"the VIP moves to {course.followed}, and for {PAUSE_NS // NS_PER_MS} ms all nodes suppress answers for it"
        )
        return replace(said, node="", why=f"{said.why}; {wait}")
    follow = f"follow {node} while objects name several nodes in turn" if said.node else f"still follow {node}"
    return replace(said, node=node, why=f"{said.why}; the agents {follow}")
