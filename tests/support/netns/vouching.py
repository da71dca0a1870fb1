"""A node that is vouched for, the real programs on it, and a voucher's process at the other end of its cable."""

import itertools
import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace

from arpguard.clock import boot_ns
from arpguard.core.vouching.voucher import AdoptedTerm, TermReport
from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, VouchingTable, read_grants, write_term
from arpguard.model import Grants, LinkTerm, NodeControl
from arpguard.runtime.voucher.messages import Adopt, Phase, Priority, Started, TermNews
from arpguard.runtime.voucher.process import VoucherProcess
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Hook, Mode
from arpguard.wire.vouching import VouchFrame, parse
from support.frames.vouch_builders import ETHERTYPE
from support.netns.cable import Pair
from support.netns.guard import a_guard
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import a_raw_socket
from support.repeating import repeated

MS = NS_PER_MS
D, M = 600 * MS, 200 * MS
EPOCH = 7
_AN_HOUR = 3600 * NS_PER_S
_terms = itertools.count(1)


def a_control(**values: object) -> NodeControl:
    """A control value with a fence that is far ahead."""
    usual = NodeControl(Mode.ENFORCE, generation=1, epoch=EPOCH, fence_ns=boot_ns() + _AN_HOUR, lease_ns=2 * _AN_HOUR)
    return replace(usual, **values)


class VouchedNode:
    """The pair's node with its programs; `name` takes a term, `trial` one in which nothing becomes bound."""

    def __init__(self, pair: Pair) -> None:
        self.hooks = (Hook.TC_INGRESS, Hook.TC_EGRESS)
        self.guard = a_guard(pair, *self.hooks)
        self.mac = pair.node.mac.octets
        maps = loader.open_maps(self.guard.pin_dir)
        self._grants, self._vouching = maps["grants"], VouchingTable(maps["vouching"])
        self.key = os.urandom(16)
        self.number = 0

    def name(self, *, trial: bool = False) -> int:
        """The kernel gets a new term."""
        self.number = int.from_bytes(os.urandom(7), "big") << 8 | next(_terms) % 256
        control = a_control(term=0 if trial else self.number, ethertype=ETHERTYPE)
        terms = {self.guard.ifindex: LinkTerm(self.number, self.key, D - M)}
        write_term(self.guard.control, self._vouching, control, terms)
        return self.number

    @property
    def grants(self) -> Grants:
        return read_grants(self._grants)

    @property
    def is_bound(self) -> bool:
        return self.grants.bound_term == self.number

    def die(self) -> None:
        """Its kernel says nothing any more; the cable stays."""
        self.guard.detach(*self.hooks)


class VoucherNode:
    """The pair's client: a voucher's process on it, and the maps of its own guard."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.lock = bpffs.lock(pair.folder)
        maps = loader.load_unpinned(read_build(), ()).maps
        self._control_fd, self._grants_fd = maps["control"], maps["grants"]
        self.control = ControlValue(self._control_fd)
        self.control.write(a_control())
        self.news: dict[int, TermNews] = {}
        self.priority: Priority | None = None
        self.process = self.start()

    def start(self) -> VoucherProcess:
        prefix = self._pair.client.netns.prefix()
        return VoucherProcess(ETHERTYPE, self.lock, self._control_fd, self._grants_fd, prefix)

    def adopt(self, node: VouchedNode, *, trial: bool = False, ifname: str = "eth0", instance: str = "") -> None:
        term = AdoptedTerm(node.number, instance or self.process.instance, EPOCH, D, trial)
        self.process.adopt(Adopt(term, ifname, node.mac, node.key))

    def hear(self, wait_s: float = 0.0) -> None:
        """Takes the news that has come."""
        select.select([self.process], [], [], wait_s)
        for each in self.process.news():
            if isinstance(each, Started):
                self.priority = each.priority
            else:
                self.news[each.number] = each

    def phase(self, number: int) -> Phase | None:
        self.hear()
        return self.news[number].phase if number in self.news else None

    def report(self, number: int) -> TermReport:
        """The next one: there is one each second."""
        self.news.pop(number, None)
        until(lambda: self.phase(number) is not None, what="news")
        report = self.news[number].report
        assert report is not None
        return report

    def decides(self, number: int, timeout_s: float = ANSWER_S) -> int:
        """Waits for the decision; the boot clock when it was known here."""
        until(lambda: self.phase(number) is Phase.DECIDED, timeout_s, "a decision")
        return boot_ns()


@contextmanager
def chatter(pair: Pair) -> Iterator[None]:
    """The node's host says something all the time that has nothing to do with vouching."""
    talker = a_raw_socket(pair.node.netns)
    frame = b"\xff" * 6 + pair.node.mac.octets + b"\x88\xb6" + bytes(46)
    with closing(talker), repeated(lambda: talker.send(frame), 0.02):
        yield


def heard_frames(listener: socket.socket, key: bytes, seconds: float) -> list[VouchFrame]:
    """The frames under a key that come in for so long."""
    deadline = time.monotonic() + seconds
    found = []
    while select.select([listener], [], [], max(0.0, deadline - time.monotonic()))[0]:
        frame = parse(listener.recv(256)[14:], key)
        found += [frame] if frame is not None else []
    return found


def heard_until(
    listener: socket.socket, key: bytes, is_enough: Callable[[list[VouchFrame]], bool], what: str
) -> list[VouchFrame]:
    """The frames under a key, from those that have come until there are enough."""
    found: list[VouchFrame] = []

    def hear() -> bool:
        found.extend(heard_frames(listener, key, 0))
        return is_enough(found)

    until(hear, what=what)
    return found
