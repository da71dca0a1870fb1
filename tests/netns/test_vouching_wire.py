"""A voucher's frames on a cable: pings come back through its own programs, and the node answers while it is granted."""

import select
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import pytest

from arpguard.clock import boot_ns
from arpguard.dataplane import loader, syscall
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, write_term
from arpguard.dataplane.vouchsocket import VouchSocket
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook
from arpguard.wire.vouching import VouchFrame, pack, parse
from support.frames.builders import a_control, an_entry
from support.frames.vouch_builders import ETHERTYPE, KEY, OTHER_KEY, TERM, a_grant, a_ping, a_vouching_control
from support.netns.cable import Pair, a_pair, address
from support.netns.foreign import attached
from support.netns.guard import Guard, a_guard
from support.netns.waiting import ANSWER_S, until
from support.netns.wire import Wire, a_wire
from support.programs.prog_run import NO_GRANTS, grants_value

pytestmark = [pytest.mark.tcx, pytest.mark.netns, pytest.mark.bpf]

VIP, MARK = address(50), address(51)
# name -> (the node's hook, whether by TCX, the program at the voucher's end)
DATAPATHS = {
    "tcx": (Hook.TC_INGRESS, True, "ingress_tc"),
    "clsact": (Hook.TC_INGRESS, False, "ingress_tc"),
    "xdp": (Hook.XDP, True, "ingress_xdp"),
}
ATTACH = {
    "ingress_tc": (syscall.ATTACH_TCX_INGRESS, syscall.F_BEFORE),
    "ingress_xdp": (syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE),
}


@dataclass
class Bench:
    """A guarded node, and a voucher whose link has such programs, too, with maps of its own."""

    pair: Pair
    guard: Guard
    socket: VouchSocket

    def begin(self, term=TERM, node_term=TERM) -> None:
        """The node owns the VIP, and has a new term, in which nothing is granted yet."""
        mac = self.pair.node.mac
        entry = an_entry(link_mac=mac, answer_mac=mac, primary=self.pair.node.address)
        self.guard.set({VIP: entry, MARK: replace(entry, unfenced=True)}, a_control())
        self.guard.vouching.write({})
        syscall.map_update(self.guard.grants, bytes(4), bytes(grants_value(NO_GRANTS)))
        write_term(self.guard.control, self.guard.vouching, a_vouching_control(node_term), {self.guard.ifindex: term})

    def exchange(self, frame: VouchFrame, key: bytes = KEY, wait_s: float = ANSWER_S) -> VouchFrame | None:
        """Sends a frame; the pong that comes back, or None when there is none in so long."""
        assert self.socket.send(pack(frame, key))
        if not select.select([self.socket], [], [], wait_s)[0]:
            return None
        payload = self.socket.hear()
        assert payload is not None
        return parse(payload, key)


@pytest.fixture(scope="module", params=DATAPATHS)
def bench(request) -> Iterator[Bench]:
    hook, use_tcx, program = DATAPATHS[request.param]
    with ExitStack() as stack:
        pair = stack.enter_context(a_pair(f"vouch-{request.param}"))
        guard = a_guard(pair, hook, Hook.TC_EGRESS, use_tcx=use_tcx)
        own = loader.load_unpinned(read_build(), [program])
        ControlValue(own.maps["control"]).write(a_vouching_control(None))
        stack.enter_context(attached(pair.client, own.programs[program], *ATTACH[program]))
        opened = pair.client.netns.call(lambda: VouchSocket("eth0", ETHERTYPE, pair.node.mac.octets, TERM.number))
        stack.callback(opened.close)
        yield Bench(pair, guard, opened)


@pytest.fixture
def wire(bench) -> Iterator[Wire]:
    with a_wire(bench.pair.client) as opened:
        yield opened


def test_ping_comes_back_to_the_vouchers_socket(bench):
    bench.begin()
    before_ns = boot_ns()
    pong = bench.exchange(a_ping(number=99))

    assert pong is not None
    assert (pong.number, pong.bound) == (99, False)
    assert before_ns <= pong.stamp_ns <= boot_ns()
    assert pong.right_ns == bench.guard.control.read().fence_ns


def test_forged_ping_does_not(bench):
    bench.begin()

    assert bench.exchange(a_ping(number=5), OTHER_KEY, wait_s=0.3) is None
    assert bench.exchange(a_ping(number=6)).number == 6


def test_grant_binds_the_node_until_its_fence(bench, wire):
    """The window is short: the node falls silent by itself, and answers again at the next grant."""
    bench.begin(replace(TERM, window_ns=NS_PER_S))
    assert wire.who(VIP, MARK) == [bench.pair.node.mac]
    pong = bench.exchange(a_ping())

    bench.socket.send(pack(a_grant(pong.stamp_ns), KEY))
    until(lambda: bench.exchange(a_ping()).bound, what="the node says that it is bound")
    until(lambda: boot_ns() > pong.stamp_ns + NS_PER_S, what="the fence passes")
    assert wire.who(VIP, MARK) == []

    again = bench.exchange(a_ping())
    bench.socket.send(pack(a_grant(again.stamp_ns), KEY))
    assert wire.who(VIP, MARK) == [bench.pair.node.mac] or boot_ns() > again.stamp_ns + NS_PER_S


def test_trial_binds_nothing(bench, wire):
    bench.begin(node_term=None)
    pong = bench.exchange(a_ping())
    bench.socket.send(pack(a_grant(pong.stamp_ns // 2), KEY))

    assert not bench.exchange(a_ping()).bound
    assert wire.who(VIP, MARK) == [bench.pair.node.mac]
