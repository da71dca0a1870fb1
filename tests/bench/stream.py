"""ARP requests as fast as one core makes them, and the answers that came back (BPF_F_TEST_XDP_LIVE_FRAMES).

The test run sends a batch of frames out of the client's link; on the same core the node's side then takes them in
and answers, and the client's side counts the answers, before the next batch is sent. So the time for one request
includes all four. It is the kernel's `duration`: the syscall takes another 20 ms, however few the requests are.

The counter is a native XDP program: with it the client's side polls, which answers that are sent from XDP need to
come through; the node's side polls because of GRO.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bed import REQUEST, VIP, Hosts, pinned_to_a_cpu

from arpguard.dataplane import syscall
from support.programs import raw_bpf

_SETTLE_S = 2.0


@dataclass(frozen=True)
class Flood:
    """What became of a flood of requests."""

    sent: int
    answered: int
    request_ns: int

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answered / self.sent * 1e9 / self.request_ns

    @property
    def lost(self) -> int:
        return self.sent - self.answered


class Stream:
    """The client's half: `flood` sends requests for VIP."""

    def __init__(self, hosts: Hosts, counter: raw_bpf.ReplyCounter) -> None:
        self._hosts = hosts
        self._counter = counter
        self._generator = raw_bpf.generator(REQUEST, hosts.client_ifindex)

    def flood(self, count: int) -> Flood:
        """Sends `count` requests from one core, and waits until no more answers come."""
        before = self._counter.read()
        request_ns = self._hosts.client.call(lambda: self._send(count))
        return Flood(count, self._settled(before + count) - before, request_ns)

    def _send(self, count: int) -> int:
        with pinned_to_a_cpu():
            flags = syscall.TEST_XDP_LIVE_FRAMES
            return syscall.program_test_run(self._generator, REQUEST, repeat=count, flags=flags).duration_ns

    def _settled(self, expected: int) -> int:
        """The counter once it has `expected`, or has not moved for a while."""
        seen, deadline = self._counter.read(), time.monotonic() + _SETTLE_S
        while seen < expected and time.monotonic() < deadline:
            time.sleep(0.1)
            now = self._counter.read()
            if now == seen:
                break
            seen = now
        return seen


@contextmanager
def a_stream(hosts: Hosts) -> Iterator[Stream]:
    """Puts the counter on the client's link, and lets the node's side poll."""
    hosts.node.run("ethtool", "-K", "eth0", "gro", "on")
    counter = raw_bpf.reply_counter(VIP.packed)
    link = hosts.client.call(
        lambda: syscall.link_create(
            counter.program, hosts.client_ifindex, syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE
        )
    )
    with link:
        yield Stream(hosts, counter)
