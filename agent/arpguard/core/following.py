"""On which node another program announces a Service's addresses, from the objects that it writes (docs/follow.md).

Here: which announcers may have a Service, which of their objects have to be watched, and what these say together.
Not here: how the objects are read, and whether the node that they name exists.

A Service's own annotations are one source; the others are `Source`, each of one kind of object. Agents read an
announcer's objects in order of trust: first those that vanish with it, or that it writes before it moves. They ignore
an object that names no node. If two name different nodes, they follow the first, and report a problem.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from heapq import nlargest
from ipaddress import ip_address
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard.core.bounding import bounded, some
from arpguard.core.cluster import (
    KUBE_VIP_HOST,
    KUBE_VIP_LEASE,
    OPENELB_BRAND,
    OPENELB_NEXT_HOP,
    PURELB_BRAND,
    PURELB_IPV4,
    PURELB_IPV6,
    Announcement,
    Key,
    Service,
    SpeakerReport,
)
from arpguard.names import is_subdomain

_MAX_SHOWN = 80
MAX_HEARD = 32  # objects, entries and problems for an address; even two nodes for one address are a fault


class Source(Enum):
    """A kind of object that names an announcing node."""

    METALLB = "MetalLB's ServiceL2Status"
    METALLB_EVENT = "MetalLB's Event"
    CILIUM = "Cilium's Lease"
    KUBE_VIP_SERVICES = "kube-vip's Lease for a Service"
    KUBE_VIP = "kube-vip's Lease for all Services"
    OPENELB = "OpenELB's Lease"


# What a Service is looked up by: the object's `about`, without what is the same for all objects of a source.
Ref: TypeAlias = tuple[Source, str, str]
ON_DEMAND = frozenset((Source.METALLB_EVENT,))  # watched only if nothing else says for sure who announces
_OF_ONE_NAMESPACE = frozenset((Source.CILIUM,))
_OF_ONE_OBJECT = frozenset((Source.KUBE_VIP, Source.OPENELB))


@dataclass(frozen=True, slots=True)
class Followed:
    """The node that announces an address; empty if no object names one. `why` names the object that decided, in words.

    `settled`: that object is enough. A disputed object is not, nor is an Event, which the server deletes after an hour.
    """

    node: str = ""
    why: str = "no announcer names a node"
    problems: tuple[str, ...] = ()
    settled: bool = False


@dataclass(frozen=True, slots=True)
class _Statement:
    """One object or annotation that names a node."""

    node: str
    where: str
    settled: bool


@dataclass(frozen=True, slots=True)
class _Announcer:
    """A program that announces.

    `classes`: the loadBalancerClasses that only it serves; `may_have` decides about Services with none of those.
    `brand`: an annotation without which it never announces; a Service that has it belongs to no other announcer.
    `refs`: the objects about a Service; with `first_only`, only the first one that names a node counts.
    `marked`: the nodes that the Service's own annotations name, each with the annotation. `doubts`: why these
    annotations may name the wrong node for an address, or none.
    """

    name: str
    classes: frozenset[str]
    may_have: Callable[[Service], bool]
    refs: Callable[[Service], tuple[Ref, ...]]
    marked: Callable[[Service, Address], Iterator[tuple[str, str]]] = lambda _service, _address: iter(())
    doubts: Callable[[Service, Address], str] = lambda _service, _address: ""
    first_only: bool = False
    brand: tuple[str, str] | None = None


@dataclass(slots=True)
class _Asked:
    """A Service that was asked about: what its answers depend on, and the answers that still apply."""

    service: Service
    refs: tuple[Ref, ...]
    answers: dict[Address, Followed] = field(default_factory=dict)


class Following:
    """What objects of other announcers say, by Service. Synchronous, without IO.

    It caches for speed; its answers depend only on the objects that exist, and on the Service.
    """

    def __init__(self) -> None:
        self._asked: dict[Key, _Asked] = {}
        self._concerned: dict[Ref, dict[Key, None]] = {}
        self._needed: Counter[Source] = Counter()
        self._placed: dict[Source, dict[Key, Ref]] = {source: {} for source in Source}
        self._said: dict[Ref, dict[Key, Announcement]] = {}
        self._outdated: dict[Ref, str] = {}
        self._reports: dict[Key, dict[str, SpeakerReport]] = {}

    @property
    def sources(self) -> frozenset[Source]:
        """The sources to watch for the Services that were asked about, and not left since.

        Until each of them has been listed, or found unreadable, an empty answer means nothing (K-5).
        """
        return frozenset(+self._needed) - ON_DEMAND

    def sources_of(self, service: Service) -> frozenset[Source]:
        """The sources to watch for a Service."""
        return frozenset(ref[0] for ref in _refs_of(service)) - ON_DEMAND

    @property
    def unsettled(self) -> frozenset[Key]:
        """The Services for which an Event might say more than the objects do."""
        return frozenset(key for key, asked in self._asked.items() if _is_unsettled(asked))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the answers that still apply, each problem once, by Service; only the first ones."""
        found = (
            f"service {namespace}/{name}: {problem}"
            for (namespace, name), asked in self._asked.items()
            for answer in asked.answers.values()
            for problem in answer.problems
        )
        return tuple(dict.fromkeys(found))

    def lacking(self, readable: Collection[Source]) -> frozenset[Source]:
        """The sources of Services that have no readable source, and no node by any other."""
        return frozenset(
            ref[0]
            for asked in self._asked.values()
            if not any(answer.node for answer in asked.answers.values())
            if not any(ref[0] in readable for ref in asked.refs)
            for ref in asked.refs
        )

    def put(self, source: Source, key: Key, said: Announcement | None) -> frozenset[Key]:
        """Takes an object that is new or has changed; None: it is gone. Returns the Services whose answers may change.

        An Event stays known: servers drop it after an hour, though what it says is still true.
        """
        if source in ON_DEMAND and not self._is_news(source, said):
            return frozenset()
        if source is Source.METALLB and said is not None and said.node and not said.disputed:
            self._outdate((Source.METALLB_EVENT, *said.about), said.version)
        touched = {ref for ref in (self._take(source, key), self._place(source, key, said)) if ref is not None}
        keys = frozenset(each for ref in touched for each in self._concerned.get(ref, ()))
        for each in keys:
            self._asked[each].answers.clear()
        return keys

    def hear(self, node: str, reports: Mapping[Key, SpeakerReport]) -> frozenset[Key]:
        """Takes all that a node's agent reports of its announcer now. Returns the Services whose answers may change."""
        before = {key for key, of_nodes in self._reports.items() if node in of_nodes}
        changed = frozenset(key for key in before | reports.keys() if self.report(key, node) != reports.get(key))
        for key in changed:
            self._reports.setdefault(key, {}).pop(node, None)
            if key in reports:
                self._reports[key][node] = reports[key]
            if not self._reports[key]:
                del self._reports[key]
            if key in self._asked:
                self._asked[key].answers.clear()
        return changed & self._asked.keys()

    def report(self, key: Key, node: str) -> SpeakerReport | None:
        """What a node's agent reports of its announcer."""
        return self._reports.get(key, {}).get(node)

    def is_silent(self, key: Key, node: str) -> bool:
        """Whether a node's agent reports that its announcer does not answer, and objects say nothing newer."""
        report = self.report(key, node)
        return report is not None and not report.answers and report.version >= self.named(key).get(node, "")

    def named(self, key: Key) -> dict[str, str]:
        """The nodes that MetalLB names, the latest first, each with the version of what names it.

        That is its Event, which its speaker writes when it begins to announce; else the object, which is written again
        and again. Nothing tells since when a node has been in an object's status: its version is empty.
        """
        service = self._asked[key].service
        found = {
            source: [said for said in self._said.get((source, *key), {}).values() if said.uid in ("", service.uid)]
            for source in (Source.METALLB_EVENT, Source.METALLB)
        }
        versions = {said.node: said.made for said in found[Source.METALLB_EVENT]}
        for said in found[Source.METALLB]:
            versions.setdefault(said.node, said.version)
        for said in found[Source.METALLB]:
            versions.setdefault(said.also, "")
        nodes = sorted(filter(is_subdomain, versions), key=lambda node: versions[node], reverse=True)
        return {node: versions[node] for node in nodes}

    def _is_news(self, source: Source, said: Announcement | None) -> bool:
        """Whether an Event is its speaker's latest about a Service; if so, forgets the one before it."""
        if said is None or not said.node:
            return False
        ref = _ref_of(source, said)
        before = {key: each for key, each in self._said.get(ref, {}).items() if each.node == said.node}
        if said.made <= max([self._outdated.get(ref, ""), *(each.made for each in before.values())]):
            return False
        for key in before:
            self._take(source, key)
        return True

    def _outdate(self, ref: Ref, version: str) -> None:
        """Drops Events that are older than an undisputed object: they never count again.

        Speakers drop Events when there are many, so the last Event may be from a speaker that is long dead.
        """
        if ref in self._concerned:
            self._outdated[ref] = max(version, self._outdated.get(ref, ""))
        for key in [key for key, said in self._said.get(ref, {}).items() if said.made <= version]:
            self._take(ref[0], key)

    def _drop(self, ref: Ref) -> None:
        for key in tuple(self._said.get(ref, ())):
            self._take(ref[0], key)

    def forget(self, source: Source) -> frozenset[Key]:
        """Forgets all objects of a source. Returns the Services whose answers may change."""
        return frozenset().union(*[self.put(source, key, None) for key in tuple(self._placed[source])])

    def leave(self, keys: Iterable[Key]) -> None:
        """These Services are gone, or no longer follow: forgets them."""
        for key in keys:
            self._leave(key)
            self._drop(event := (Source.METALLB_EVENT, *key))
            self._outdated.pop(event, None)

    def node_of(self, service: Service, address: Address) -> Followed:
        """Where an address of a Service is announced, as far as is known now."""
        key = (service.namespace, service.name)
        asked = self._asked.get(key)
        if asked is None or asked.service is not service:
            asked = self._ask(key, service)
        answer = asked.answers.get(address)
        if answer is None:
            answer = asked.answers[address] = self._find(service, address)
        return answer

    def _ask(self, key: Key, service: Service) -> _Asked:
        self._leave(key)
        asked = self._asked[key] = _Asked(service, _refs_of(service))
        for ref in asked.refs:
            self._concerned.setdefault(ref, {})[key] = None
            self._needed[ref[0]] += 1
        return asked

    def _leave(self, key: Key) -> None:
        asked = self._asked.pop(key, None)
        for ref in asked.refs if asked else ():
            self._needed[ref[0]] -= 1
            self._concerned[ref].pop(key)
            if not self._concerned[ref]:
                del self._concerned[ref]

    def _take(self, source: Source, key: Key) -> Ref | None:
        ref = self._placed[source].pop(key, None)
        if ref is not None:
            self._said[ref].pop(key)
            if not self._said[ref]:
                del self._said[ref]
        return ref

    def _place(self, source: Source, key: Key, said: Announcement | None) -> Ref | None:
        if said is None:
            return None
        ref = _ref_of(source, said)
        self._placed[source][key] = ref
        self._said.setdefault(ref, {})[key] = said
        return ref

    def _find(self, service: Service, address: Address) -> Followed:
        problems: list[str] = []
        statements = [
            statement
            for announcer in _announcers_of(service)
            for statement in (
                *self._heard(announcer, service, problems),
                *_marked(announcer, service, address, problems),
            )
        ]

        if not statements:
            return Followed(why=_nobody(service), problems=tuple(bounded(problems, MAX_HEARD)))

        first, *rest = statements
        if not first.settled:
            first = self._as_reported((service.namespace, service.name), first)
        problems += [
            f"{first.where} names the node {first.node}, and {other.where} names {other.node}; {first.node} takes "
            "precedence: check the announcer on both nodes"
            for other in rest
            if other.node != first.node and other.where != first.where
        ]

        shown = tuple(bounded(problems, MAX_HEARD))
        return Followed(first.node, first.where, shown, first.settled)

    def _heard(self, announcer: _Announcer, service: Service, problems: list[str]) -> Iterator[_Statement]:
        """What objects say, at most a few. While MetalLB moves a Service there are two; the newer one comes first."""
        for ref in sorted(announcer.refs(service), key=self._is_overtaken):
            about = ((key, said) for key, said in self._said.get(ref, {}).items() if said.uid in ("", service.uid))
            most = 1 if ref[0] in ON_DEMAND else MAX_HEARD
            found = nlargest(most, about, key=lambda item: (item[1].made, item[0]))
            named = False

            for key, said in found:
                where = f"{ref[0].value} {'/'.join(key)}"
                problems += [f"{where}: {problem}" for problem in said.problems]
                settled = ref[0] not in ON_DEMAND and not said.disputed
                statement = _statement(said.node, where, problems, settled=settled)
                if statement is not None:
                    named = True
                    yield statement

            if named and announcer.first_only:
                return

    def _as_reported(self, key: Key, first: _Statement) -> _Statement:
        """Chooses among the nodes that objects name by what their agents report, where no object settles it.

        Best is a node whose announcer answers, worst one whose announcer does not; those without a report are between.
        Of equals it takes the node of the first statement, and then the one that was named last.
        """
        named = self.named(key) if key in self._reports else {}
        if first.node not in named:
            return first
        last = max(named.values())

        def rank(node: str) -> tuple[int, bool]:
            report = self.report(key, node)
            if report is not None and report.version >= (last if report.answers else named[node]):
                return 0 if report.answers else 2, node != first.node
            return 1, node != first.node

        node = min(named, key=rank)
        if node == first.node:
            return first
        where = (
            f"{first.where} names {first.node}, but the agent on {first.node} reports no answer from the announcer "
            f"there, so the agents still follow {node}, which was named before"
        )
        return replace(first, node=node, where=where)

    def _is_overtaken(self, ref: Ref) -> bool:
        """Whether another speaker began to announce after the last Event of the one that an object names.

        A speaker that may not write the status keeps setting its label, even when it no longer announces. Where it has
        no Event, its label is as old as the object's last version, or older; an object that is not disputed settles it.
        """
        objects = self._said.get(ref, {}).values()
        disputed = [said for said in objects if said.disputed]
        events = self._said.get((Source.METALLB_EVENT, *ref[1:]), {}).values() if disputed else ()
        began = {said.node: said.made for said in events}
        last = max(began.values(), default="")
        is_settled = len(disputed) < len(objects)
        return any(began.get(said.node, last if is_settled else said.version) < last for said in disputed)


def _is_unsettled(asked: _Asked) -> bool:
    can_be_told = any(ref[0] in ON_DEMAND for ref in asked.refs)
    return can_be_told and not any(answer.settled for answer in asked.answers.values())


def _announcers_of(service: Service) -> tuple[_Announcer, ...]:
    """The announcers that may have a Service: by its class, which they all respect, by brand, or by annotations."""
    if service.load_balancer_class in _BY_CLASS:
        return (_BY_CLASS[service.load_balancer_class],)
    marks = dict(service.marks)
    possible = [each for each in _ANNOUNCERS if each.may_have(service)]
    branded = tuple(each for each in possible if each.brand and marks.get(each.brand[0]) == each.brand[1])
    return branded or tuple(each for each in possible if not each.brand)


def _refs_of(service: Service) -> tuple[Ref, ...]:
    return tuple(ref for announcer in _announcers_of(service) for ref in announcer.refs(service))


def _ref_of(source: Source, said: Announcement) -> Ref:
    namespace, name = said.about
    if source in _OF_ONE_OBJECT:
        return source, "", ""
    return source, "" if source in _OF_ONE_NAMESPACE else namespace, name


def _statement(node: str, where: str, problems: list[str], *, settled: bool = True) -> _Statement | None:
    """A statement, if the text can be a Node's name: anybody who can write a Service writes its annotations, too."""
    if is_subdomain(node):
        return _Statement(node, where, settled)
    if node:
        problems.append(f"{where} has an invalid node name: {node[:_MAX_SHOWN]!r}")
    return None


def _marked(announcer: _Announcer, service: Service, address: Address, problems: list[str]) -> Iterator[_Statement]:
    for node, where in announcer.marked(service, address):
        statement = _statement(node, where, problems)
        if statement is not None:
            yield statement
    if doubt := announcer.doubts(service, address):
        problems.append(doubt)


def _mark(service: Service, name: str) -> str:
    return next((text for key, text in service.marks if key == name), "")


def _annotation(service: Service, name: str) -> str:
    return f"annotation {name} of Service {service.namespace}/{service.name}"


def _nobody(service: Service) -> str:
    names = " or ".join(announcer.name for announcer in _announcers_of(service))
    return f"no object of {names} names a node" if names else "no announcer that arpguard knows would take this Service"


# The announcers. Where each fact is from: tests/kube/recorded/README.md.


def _metallb_refs(service: Service) -> tuple[Ref, ...]:
    """MetalLB's objects; if there are none, or one is disputed, the last Event of a speaker that began to announce."""
    about = service.namespace, service.name
    return (Source.METALLB, *about), (Source.METALLB_EVENT, *about)


def _cilium_refs(service: Service) -> tuple[Ref, ...]:
    """By the whole name, never by its parts: a-b/c and a/b-c have the same Lease in Cilium too."""
    return ((Source.CILIUM, "", f"cilium-l2announce-{service.namespace}-{service.name}"),)


def _kube_vip_refs(service: Service) -> tuple[Ref, ...]:
    """The Service's own Lease if kube-vip elects for each Service, else the common one."""
    namespace, slash, name = _mark(service, KUBE_VIP_LEASE).partition("/")
    if not slash:
        namespace, name = service.namespace, namespace or f"kubevip-{service.name}"
    return (Source.KUBE_VIP_SERVICES, namespace, name), (Source.KUBE_VIP, "", "")


def _kube_vip_marks(service: Service, _address: Address) -> Iterator[tuple[str, str]]:
    host = _mark(service, KUBE_VIP_HOST)
    if host:
        yield host, _annotation(service, KUBE_VIP_HOST)


def _purelb_marks(service: Service, address: Address) -> Iterator[tuple[str, str]]:
    """Entries are "node,interface,address", of old "node,interface"; of several for an address the last is the newest.

    An interface may have commas in its name. An entry without any names an interface that every node has.
    """
    name = _purelb_mark(address)
    for node, announced in _purelb_entries(_mark(service, name)):
        if announced in ("", str(address)):
            yield node, _annotation(service, name)


def _purelb_doubts(service: Service, address: Address) -> str:
    """PureLB 0.15 and 0.16 add an entry unless the text has it somewhere already, and remove none.

    So a node that had the address before is not named again, and `...50` hides an entry for `...5`.
    """
    name = _purelb_mark(address)
    nodes = list(dict.fromkeys(node for node, _ in _purelb_marks(service, address)))
    if len(nodes) == 1 or not _purelb_entries(_mark(service, name)):
        return ""
    named = f"names {some([node[:_MAX_SHOWN] for node in nodes])}" if nodes else "names no node"
    return (
        f"{_annotation(service, name)} {named} for {address}, but in PureLB 0.15 and 0.16 it does not say which node "
        "announces the address: upgrade PureLB, or use `owner: elect` and turn PureLB's announcer off"
    )


def _purelb_mark(address: Address) -> str:
    return PURELB_IPV4 if address.version == 4 else PURELB_IPV6


@lru_cache(maxsize=64)  # it is asked for each of a Service's addresses, which may be a thousand
def _purelb_entries(text: str) -> tuple[tuple[str, str], ...]:
    """Nodes, and what each announces: an address, or all (""). The newest come first, and only so many."""
    return tuple(filter(None, map(_purelb_entry, reversed(text.rsplit(maxsplit=MAX_HEARD)[-MAX_HEARD:]))))


def _purelb_entry(entry: str) -> tuple[str, str] | None:
    node, comma, rest = entry.partition(",")
    _, more, last = rest.rpartition(",")
    try:
        return (node, str(ip_address(last)) if more else "") if comma else None
    except ValueError:
        return None


def _openelb_refs(service: Service) -> tuple[Ref, ...]:
    """Up to 0.5 the leader answers for all, with the MAC of the node in the annotation; since 0.6 nothing names it."""
    return ((Source.OPENELB, "", ""),) if _mark(service, OPENELB_NEXT_HOP) else ()


def _is_without_class(service: Service) -> bool:
    return service.load_balancer_class is None


def _always(_service: Service) -> bool:
    return True


def _is_kube_vips(service: Service) -> bool:
    return bool(_mark(service, KUBE_VIP_HOST))  # its class may be any, too


_ANNOUNCERS = (
    # Its class is what its operator says.
    _Announcer("MetalLB", frozenset(), _always, _metallb_refs, first_only=True),
    _Announcer("Cilium", frozenset(("io.cilium/l2-announcer",)), _is_without_class, _cilium_refs),
    _Announcer(
        "kube-vip",
        frozenset(("kube-vip.io/kube-vip-class",)),
        _is_kube_vips,
        _kube_vip_refs,
        _kube_vip_marks,
        first_only=True,
    ),
    _Announcer(
        "PureLB",
        frozenset(("purelb.io/purelb", "purelb.io/purelbv2")),
        _is_without_class,
        lambda _service: (),
        _purelb_marks,
        _purelb_doubts,
        brand=(PURELB_BRAND, "PureLB"),
    ),
    _Announcer("OpenELB", frozenset(), _always, _openelb_refs, brand=(OPENELB_BRAND, "openelb")),
)
_BY_CLASS: dict[str | None, _Announcer] = {name: announcer for announcer in _ANNOUNCERS for name in announcer.classes}
