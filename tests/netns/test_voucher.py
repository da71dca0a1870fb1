"""The voucher's process on one host, and the real programs of the node that it vouches for on another."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from arpguard.clock import boot_ns
from arpguard.core.vouching.voucher import AdoptedTerm, OwnRight
from arpguard.dataplane import bpffs
from arpguard.dataplane.privileges import Capability
from arpguard.errors import LockedError
from arpguard.runtime.voucher.loop import FAREWELL_NS, Loop
from arpguard.runtime.voucher.messages import Adopt, Phase, Priority, encode
from arpguard.units import NS_PER_S
from arpguard.wire.vouching import VouchFrame, VouchType, pack
from support.frames.vouch_builders import ETHERTYPE
from support.netns.cable import Pair, a_pair
from support.netns.vouching import (
    EPOCH,
    MS,
    D,
    M,
    VouchedNode,
    VoucherNode,
    a_control,
    chatter,
    heard_frames,
    heard_until,
)
from support.netns.waiting import until
from support.netns.wire import a_raw_socket
from support.repeating import repeated

pytestmark = [pytest.mark.netns, pytest.mark.bpf]

FORGED_KEY = bytes(16)
EVERYTHING = 0x0003  # ETH_P_ALL: also what the programs take, and what they send


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair("voucher") as made:
        yield made


@pytest.fixture
def node(pair: Pair) -> VouchedNode:
    return VouchedNode(pair)


@pytest.fixture
def voucher(pair: Pair) -> Iterator[VoucherNode]:
    made = VoucherNode(pair)
    try:
        yield made
    finally:
        made.process.close()


def count(frames: list[VouchFrame], kind: VouchType) -> int:
    return sum(frame.type is kind for frame in frames)


def bind(voucher: VoucherNode, node: VouchedNode) -> int:
    """The node names the voucher, and is bound, which the voucher knows."""
    number = node.name()
    voucher.adopt(node)
    until(lambda: voucher.phase(number) is not None and voucher.report(number).bound, what="bound")
    assert node.is_bound
    return number


def header(pair: Pair, source: bytes) -> bytes:
    """Of frames to the voucher's node."""
    return pair.client.mac.octets + source + ETHERTYPE.to_bytes(2, "big")


@contextmanager
def sending(pair: Pair, frames: list[bytes], pause_s: float) -> Iterator[None]:
    """Frames from the node's host, all the time."""
    sender = a_raw_socket(pair.node.netns)
    sender.setblocking(False)

    def send() -> None:
        for frame in frames:
            with suppress(BlockingIOError):
                sender.send(frame)

    with closing(sender), repeated(send, pause_s):
        yield


# ---- a node that lives ----


def test_a_voucher_binds_a_node_and_moves_its_fence_on(pair, node, voucher):
    number = bind(voucher, node)
    before = node.grants
    assert before.window_ns == D - M

    until(lambda: node.grants.fence_ns >= before.fence_ns + NS_PER_S)
    report = voucher.report(number)
    assert report.pongs == pytest.approx(report.pings, abs=3)
    assert report.gaps.total >= 10
    assert not report.clocks_differ(per_mille=1)
    assert voucher.phase(number) is Phase.VOUCHING


def test_a_trial_binds_nothing(pair, node, voucher):
    number = node.name(trial=True)
    voucher.adopt(node, trial=True)
    until(lambda: voucher.phase(number) is not None and voucher.report(number).pongs >= 10, what="pongs")

    listener = a_raw_socket(pair.node.netns, EVERYTHING)
    frames = heard_until(listener, node.key, lambda heard: count(heard, VouchType.PONG) >= 5, "pongs on the wire")
    listener.close()
    assert {frame.type for frame in frames} == {VouchType.PING, VouchType.PONG}
    assert node.grants.fence_ns == 0
    assert not voucher.report(number).bound


def test_a_term_that_the_node_does_not_have_stays_without_a_pong(pair, node, voucher):
    number = bind(voucher, node)
    other = replace_number(node, number ^ 0xFF)
    voucher.adopt(other)
    until(lambda: voucher.phase(other.number) is not None and voucher.report(other.number).pings >= 5)

    assert voucher.report(other.number).pongs == 0
    assert voucher.phase(number) is Phase.VOUCHING
    voucher.process.drop(other.number)
    until(lambda: node.grants.fence_ns > boot_ns() + (D - M) // 2)


def replace_number(node: VouchedNode, number: int) -> VouchedNode:
    """The same node, for which the voucher hears a wrong term number."""
    other = object.__new__(VouchedNode)
    other.__dict__ = {**node.__dict__, "number": number}
    return other


# ---- a node that dies ----


def test_a_dead_node_is_decided_when_d_has_passed_and_not_before(pair, node, voucher):
    number = bind(voucher, node)
    with chatter(pair):
        node.die()
        decided_ns = voucher.decides(number)

    assert decided_ns >= node.grants.fence_ns + M, "the node may still have answered"
    listener = a_raw_socket(pair.node.netns, EVERYTHING)
    assert heard_frames(listener, node.key, 0.3) == []
    listener.close()
    report = voucher.news[number].report
    assert report.bound
    assert report.granted_ns + D <= decided_ns

    voucher.process.drop(number)
    voucher.news.clear()
    voucher.adopt(node)
    until(lambda: voucher.phase(number) is Phase.REFUSED, what="a term is adopted once")


@pytest.mark.parametrize("own_link", ["up", "down"])
def test_while_nothing_is_heard_on_the_link_a_node_is_dead_after_2d(pair, node, voucher, own_link):
    """V14: it may be this node's own link that is dead."""
    number = bind(voucher, node)
    if own_link == "up":
        node.die()
    else:
        pair.client.netns.run("ip", "link", "set", "eth0", "down")

    decided_ns = voucher.decides(number)
    assert voucher.report(number).granted_ns + 2 * D <= decided_ns


def test_a_voucher_that_got_no_cpu_holds_it_against_nobody(pair, node, voucher):
    number = bind(voucher, node)
    with chatter(pair):
        os.kill(voucher.process.pid, signal.SIGSTOP)
        until(lambda: boot_ns() > node.grants.fence_ns + 2 * D)
        os.kill(voucher.process.pid, signal.SIGCONT)
        until(lambda: node.grants.fence_ns > boot_ns(), what="grants again")

    until(lambda: voucher.report(number).gaps.longest_ns >= 2 * D, what="the gap")
    assert voucher.phase(number) is Phase.VOUCHING


# ---- who disturbs it ----


def test_forged_pongs_change_nothing(pair, node, voucher):
    number = bind(voucher, node)
    listener = a_raw_socket(pair.client.netns, ETHERTYPE)
    heard = heard_until(listener, node.key, lambda heard: count(heard, VouchType.PONG) > 0, "a pong")
    listener.close()
    replayed = next(frame for frame in heard if frame.type is VouchType.PONG)

    future = VouchFrame(VouchType.PONG, number, boot_ns(), boot_ns() + NS_PER_S)
    bodies = [
        pack(replayed, node.key),
        pack(future, FORGED_KEY),
        pack(replace(replayed, term=1), node.key),
        b"",
        b"\1\2",
    ]
    frames = [header(pair, source) + body for source in (node.mac, b"\2\2\2\2\2\2") for body in bodies]
    with sending(pair, frames, 0.01):
        began_ns, fence_ns = boot_ns(), node.grants.fence_ns
        until(lambda: boot_ns() > began_ns + NS_PER_S)
        until(lambda: node.grants.fence_ns > fence_ns + NS_PER_S // 2, what="grants")
        report = voucher.report(number)
    assert report.pongs <= report.pings
    assert voucher.phase(number) is Phase.VOUCHING

    with chatter(pair), sending(pair, frames, 0.01):
        node.die()
        assert voucher.decides(number) >= node.grants.fence_ns + M


# ---- its own node ----


def test_no_grant_is_beyond_the_own_fence(pair, node, voucher):
    bind(voucher, node)
    own_ns = boot_ns() + 300 * MS
    voucher.control.write(a_control(fence_ns=own_ns))
    until(lambda: boot_ns() > own_ns + D)
    assert node.grants.fence_ns <= own_ns + D - M

    voucher.control.write(a_control())
    until(lambda: node.grants.fence_ns > boot_ns(), what="grants again")


def test_a_fence_that_cannot_be_is_none(pair, node, voucher):
    bind(voucher, node)
    voucher.control.write(a_control(lease_ns=NS_PER_S))
    at_ns = boot_ns()
    until(lambda: boot_ns() > at_ns + D)
    assert node.grants.fence_ns <= at_ns + D - M + 20 * MS


def test_a_new_epoch_takes_up_no_term_of_the_old_one(pair, node, voucher):
    number = bind(voucher, node)
    voucher.control.write(a_control(epoch=EPOCH + 1))
    until(lambda: voucher.phase(number) is Phase.EPOCH_OVER)
    fence_ns = node.grants.fence_ns

    voucher.control.write(a_control())
    voucher.process.drop(number)
    voucher.adopt(node)
    until(lambda: voucher.phase(number) is Phase.REFUSED)
    assert node.grants.fence_ns == fence_ns


# ---- its life ----


def test_a_voucher_that_starts_again_vouches_in_no_term_of_before(pair, node, voucher):
    number = bind(voucher, node)
    old = voucher.process
    os.kill(old.pid, signal.SIGKILL)
    until(lambda: old.ended)
    assert old.news() == []
    old.drop(number)  # that it has ended is no error
    fence_ns = node.grants.fence_ns

    voucher.news.clear()
    voucher.process = voucher.start()
    voucher.adopt(node, instance=old.instance)
    until(lambda: voucher.phase(number) is Phase.REFUSED)
    assert node.grants.fence_ns == fence_ns
    assert voucher.process.instance != old.instance
    old.close()


def test_one_that_ends_says_so_and_waits_half_a_second(pair, node, voucher):
    number = bind(voucher, node)
    listener = a_raw_socket(pair.node.netns, EVERYTHING)
    said_ns = boot_ns()
    voucher.process.end()
    frames = heard_until(listener, node.key, lambda _: voucher.process.ended, "its end")
    assert boot_ns() - said_ns >= FAREWELL_NS
    listener.close()

    pings = [frame.ending for frame in frames if frame.type is VouchType.PING]
    assert sum(pings) >= 2
    assert pings == sorted(pings), "once it says so, it says so in each"
    assert any(frame.type is VouchType.GRANT for frame in frames)
    assert voucher.news[number].phase is Phase.VOUCHING


def test_a_link_that_is_not_there_is_told(pair, node, voucher):
    number = node.name()
    voucher.adopt(node, ifname="eth9")
    until(lambda: voucher.phase(number) is Phase.NO_LINK)


AGENT = """
import sys, time
from pathlib import Path
from arpguard.dataplane import bpffs, loader
from arpguard.dataplane.build import read_build
from arpguard.runtime.voucher.process import VoucherProcess
maps = loader.load_unpinned(read_build(), ()).maps
lock = bpffs.lock(Path(sys.argv[1]))
process = VoucherProcess(0x88B5, lock, maps["control"], maps["grants"])
while not process.news(): time.sleep(0.01)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("hangs", [False, True], ids=["that runs", "that gets no CPU"])
def test_when_the_agent_is_gone_the_voucher_goes_and_the_next_agent_may_start(tmp_path, hangs):
    words = [sys.executable, "-c", AGENT, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as agent:
        pid = int(agent.stdout.readline())
        voucher = os.pidfd_open(pid)
        try:
            if hangs:
                signal.pidfd_send_signal(voucher, signal.SIGSTOP)
            agent.kill()
            agent.wait()
            until(lambda: select.select([voucher], [], [], 0)[0], what="its end")
            bpffs.lock(tmp_path).close()
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(voucher, signal.SIGKILL)
            os.close(voucher)


def test_no_agent_starts_while_a_voucher_may_still_grant(pair, node, voucher):
    """V16: it has the agent's lock, and keeps it when the agent has closed its own."""
    bind(voucher, node)
    voucher.lock.close()
    with pytest.raises(LockedError):
        bpffs.lock(pair.folder)

    voucher.process.close()
    bpffs.lock(pair.folder).close()


class LastWords:
    """The voucher's end of a channel whose agent says one thing, and dies when the voucher has a pong to read."""

    def __init__(self, command: Adopt, pongs: socket.socket, key: bytes) -> None:
        self._agent, self._ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._agent.send(encode(command))
        self._pongs, self._key = pongs, key
        self.fileno, self.send, self.setblocking = self._ours.fileno, self._ours.send, self._ours.setblocking

    def recv(self, size: int) -> bytes:
        if any(frame.type is VouchType.PONG for frame in heard_frames(self._pongs, self._key, 0.1)):
            self._agent.close()
        return self._ours.recv(size)

    def close(self) -> None:
        self._agent.close()
        self._ours.close()


def test_a_pong_that_waits_when_the_agent_is_gone_gets_no_grant(pair, node):
    """V16: whoever wakes late finds both, the pong and the end of the channel."""
    node.name()
    term = AdoptedTerm(node.number, "instance", EPOCH, D)
    pongs = a_raw_socket(pair.client.netns, ETHERTYPE)
    channel = LastWords(Adopt(term, "eth0", node.mac, node.key), pongs, node.key)

    def run() -> None:
        loop = Loop("instance", ETHERTYPE, channel, lambda: OwnRight(EPOCH, boot_ns() + NS_PER_S))
        try:
            loop.run(Priority.ORDINARY)
        finally:
            loop.close()

    pair.client.netns.call(run)
    pongs.close()
    assert not node.is_bound


def test_it_runs_before_others_and_may_do_little(voucher):
    until(lambda: voucher.hear() or voucher.priority is not None)
    pid = voucher.process.pid
    real_time, nice = os.sched_getscheduler(pid) == os.SCHED_RR, os.getpriority(os.PRIO_PROCESS, pid)
    expected = {Priority.REAL_TIME: (True, 0), Priority.NICE: (False, -20), Priority.ORDINARY: (False, 0)}
    assert (real_time, nice) == expected[voucher.priority]

    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    assert int(re.search(r"CapEff:\s+(\w+)", status)[1], 16) == 1 << Capability.BPF | 1 << Capability.NET_RAW


SPINS = """
from arpguard.runtime.voucher.__main__ import raise_priority
print(raise_priority().name, flush=True)
while True: pass
"""


def test_one_that_spins_is_ended_where_it_would_keep_a_cpu_from_others():
    with subprocess.Popen([sys.executable, "-c", SPINS], stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline().strip() != Priority.REAL_TIME.name:
                pytest.skip("SCHED_RR is refused here: no CAP_SYS_NICE, or a cgroup without real time")
            until(lambda: process.poll() is not None, what="its end")
        finally:
            process.kill()
    assert process.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
