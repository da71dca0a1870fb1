"""The loop of the voucher's process: one thread, which pings, grants and decides, and takes commands from the agent.

The process sends the agent the current state of each term, not every event, so a slow agent reads the latest state.
"""

import select
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from arpguard.clock import boot_ns
from arpguard.core.vouching.tracing import TracedVoucher
from arpguard.core.vouching.voucher import (
    REPORT_NS,
    Decided,
    EpochOver,
    OwnRight,
    Pong,
    SeenBound,
    SendGrant,
    SendPing,
    TermReport,
    Voucher,
    VoucherEffect,
)
from arpguard.dataplane.vouchsocket import VouchSocket
from arpguard.errors import DataPlaneError
from arpguard.runtime.tracefile import BufferedTrace
from arpguard.runtime.voucher.messages import (
    Adopt,
    Command,
    Drop,
    Phase,
    Priority,
    Started,
    TermNews,
    decode_command,
    encode,
)
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.vouching import VouchFrame, VouchType, pack, parse

FAREWELL_NS = 500 * NS_PER_MS  # V11
# Of a term in one turn. A flood by a host that knows the term costs 13 % of a core: each takes 50 us.
PONGS_AT_ONCE = 8
CROWDED_S = 0.003
LONGEST_COMMAND = 4096

ReadRight: TypeAlias = Callable[[], OwnRight | None]


@dataclass(slots=True)
class _Line:
    """What belongs to a term besides what the voucher knows.

    `last`: the report on one that is over. `news`: the agent has not had the newest yet.
    """

    phase: Phase
    socket: VouchSocket | None = None
    key: bytes = b""
    last: TermReport | None = None
    news: bool = True


class Loop:
    """`channel`: to the agent, of packets. `read_right`: of this node, at the moment of the call.

    `trace`: takes the lines of the voucher, and writes them before a grant is sent, and before the loop waits.
    """

    def __init__(
        self,
        instance: str,
        ethertype: int,
        channel: socket.socket,
        read_right: ReadRight,
        trace: BufferedTrace | None = None,
    ) -> None:
        self._traced = TracedVoucher(instance, trace.tell) if trace else None
        self._trace = trace
        self._voucher = self._traced or Voucher(instance)
        self._ethertype = ethertype
        self._channel = channel
        self._channel.setblocking(False)
        self._read_right = read_right

        self._lines: dict[int, _Line] = {}
        self._poll = select.epoll()
        self._poll.register(channel.fileno(), select.EPOLLIN)

        self._gone = False
        self._until_ns: int | None = None
        self._news_ns = 0

    def run(self, priority: Priority) -> None:
        """Returns when the agent has gone, or after a farewell: after either it sends nothing more."""
        self._channel.send(encode(Started(priority)))
        crowded = False

        while True:
            if crowded:  # whoever floods the link does not get this core
                time.sleep(CROWDED_S)
            self._poll.poll(0 if crowded else self._wait_s())
            self._obey()
            if self._is_over():
                return

            heard = [self._hear(number, line) for number, line in self._open_lines()]
            crowded = not all(heard)
            self._do(self._voucher.tick(boot_ns()))
            self._tell()
            self._write_trace()

    def _write_trace(self) -> None:
        if self._trace is not None:
            self._trace.flush()

    def close(self) -> None:
        """Closes every socket."""
        for _, line in self._open_lines():
            _close(line)
        self._poll.close()
        self._channel.close()

    def _is_over(self) -> bool:
        farewell = self._until_ns is not None and (self._voucher.idle or boot_ns() >= self._until_ns)
        return self._gone or farewell

    def _wait_s(self) -> float:
        now_ns = boot_ns()
        moments = (self._voucher.next_ns(now_ns), self._until_ns, self._news_ns if self._lines else None)
        next_ns = min((moment for moment in moments if moment is not None), default=None)
        return -1 if next_ns is None else max(0, next_ns - now_ns) / NS_PER_S

    def _open_lines(self) -> list[tuple[int, _Line]]:
        return [(number, line) for number, line in self._lines.items() if line.socket is not None]

    # ---- the agent ----

    def _obey(self) -> None:
        while not self._gone:
            try:
                packet = self._channel.recv(LONGEST_COMMAND)
            except BlockingIOError:
                return
            except ConnectionError:
                packet = b""
            if packet:
                self._obey_one(decode_command(packet))
            else:
                self._gone = True

    def _obey_one(self, command: Command) -> None:
        if isinstance(command, Adopt):
            self._adopt(command)
        elif isinstance(command, Drop):
            self._voucher.drop(command.number)
            _close(self._lines.pop(command.number, None))
        else:
            self._voucher.end()
            self._until_ns = self._until_ns or boot_ns() + FAREWELL_NS

    def _adopt(self, command: Adopt) -> None:
        number = command.term.number
        if number in self._lines:
            return
        try:
            opened = VouchSocket(command.ifname, self._ethertype, command.mac, number)
        except DataPlaneError:
            self._lines[number] = _Line(Phase.NO_LINK)
            return
        if not self._voucher.adopt(command.term, boot_ns()):
            opened.close()
            self._lines[number] = _Line(Phase.REFUSED)
            return

        self._lines[number] = _Line(Phase.VOUCHING, opened, command.key)
        self._poll.register(opened.fileno(), select.EPOLLIN)

    def _tell(self) -> None:
        """An agent that does not read gets the newest when it reads again."""
        now_ns = boot_ns()
        if now_ns >= self._news_ns:
            self._news_ns = now_ns + REPORT_NS
            for line in self._lines.values():
                line.news = True

        new = [(number, line) for number, line in self._lines.items() if line.news]
        reports = {report.number: report for report in self._voucher.reports()} if new else {}
        for number, line in new:
            line.news = not self._send(TermNews(number, line.phase, reports.get(number, line.last)))

    def _send(self, news: TermNews) -> bool:
        try:
            self._channel.send(encode(news))
        except BlockingIOError:
            return False
        except ConnectionError:
            self._gone = True
        return True

    # ---- the nodes ----

    def _hear(self, number: int, line: _Line) -> bool:
        """Reads what has come in a term; whether that was all."""
        now_ns = boot_ns()
        for _ in range(PONGS_AT_ONCE):
            if line.socket is None:
                return True
            try:
                payload = line.socket.hear()
            except OSError:  # the link went down; what was said so is read
                continue
            if payload is None:
                self._do(self._voucher.emptied(number, line.socket.frames_heard, now_ns))
                return True
            self._take(number, payload, line.key)
        return False

    def _take(self, number: int, payload: bytes, key: bytes) -> None:
        """A pong: this node's right is read after it came, and the clock after that (V5, V16)."""
        frame = parse(payload, key)
        if frame is None or frame.type is not VouchType.PONG or frame.term != number:
            return
        pong = Pong(frame.number, frame.stamp_ns, frame.bound)
        if self._traced is not None:
            self._traced.heard_ns = boot_ns()
        right = self._read_right()
        self._do(self._voucher.pong(number, pong, right, boot_ns()))

    def _do(self, effects: Iterable[VoucherEffect]) -> None:
        for effect in effects:
            line = self._lines[effect.term]
            match effect:
                case SendPing(term, number, ending):
                    _send_frame(line, VouchFrame(VouchType.PING, term, number, ending=ending))
                case SendGrant(term, number, stamp_ns):
                    self._write_trace()  # before: if this process is killed now, no kernel has more than the trace
                    _send_frame(line, VouchFrame(VouchType.GRANT, term, number, stamp_ns))
                case SeenBound():
                    line.news = True
                case Decided(_, report):
                    _finish(line, Phase.DECIDED, report)
                case EpochOver(_, report):
                    _finish(line, Phase.EPOCH_OVER, report)


def _send_frame(line: _Line, frame: VouchFrame) -> None:
    """What does not leave is a frame that was lost."""
    if line.socket is not None:
        line.socket.send(pack(frame, line.key))


def _finish(line: _Line, phase: Phase, report: TermReport) -> None:
    line.phase, line.last, line.news = phase, report, True
    _close(line)


def _close(line: _Line | None) -> None:
    if line is not None and line.socket is not None:
        line.socket.close()  # which takes it out of epoll, too
        line.socket = None
