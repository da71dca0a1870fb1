"""Doubles of a node's kernel and of its vouchers' processes: a test says what came of their pings."""

import socket

from arpguard.clock import boot_ns
from arpguard.core.vouching.gaps import Gaps
from arpguard.core.vouching.voucher import Exchange, TermReport
from arpguard.runtime.voucher.messages import Adopt, Phase, Priority, Started, TermNews
from arpguard.units import NS_PER_MS, NS_PER_S
from support.kube.agent_side import Cable


class Process:
    """Stands for a voucher's process; every trial goes well, if anything that comes back is heard."""

    def __init__(self, number: int, *, is_heard: bool = True) -> None:
        self.is_heard = is_heard
        self.instance = f"process-{number}"
        self.adopted: dict[int, Adopt] = {}
        self.ended = self.is_ending = False
        self._news: list[object] = [Started(Priority.ORDINARY)]
        self._ours, self._theirs = socket.socketpair()
        self._theirs.send(b"!")

    def fileno(self) -> int:
        return self._ours.fileno()

    def adopt(self, command: Adopt) -> None:
        self.adopted[command.term.number] = command
        if command.term.trial and self.is_heard:
            self.tell(command.term.number, Phase.VOUCHING)
        elif command.term.trial:
            self.say(TermReport(command.term.number, False, None, 200, 0, Gaps(), None, None), Phase.VOUCHING)

    def drop(self, number: int) -> None:
        self.adopted.pop(number, None)

    def tell(self, number: int, phase: Phase) -> None:
        at_ns = boot_ns()
        exchange = Exchange(at_ns, at_ns, at_ns + 3600 * NS_PER_S)  # a pong that is never old
        report = TermReport(number, True, at_ns, 1, 1, Gaps().with_gap(50 * NS_PER_MS), exchange, exchange)
        self.say(report, phase)

    def say(self, report: TermReport, phase: Phase) -> None:
        self._news.append(TermNews(report.number, phase, report))
        self._theirs.send(b"!")

    def news(self) -> list[object]:
        self._ours.recv(100)
        news, self._news = self._news, []
        return news

    def end(self) -> None:
        self.is_ending = True

    def die(self) -> None:
        self.ended = True
        self._theirs.send(b"!")

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def grants(self) -> list[int]:
        """The terms in which it vouches."""
        return [number for number, command in self.adopted.items() if not command.term.trial]


class Voucher(Cable):
    """A node's kernel, and its vouchers' processes, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        self.is_heard = True

    def start_voucher(self, _ethertype: int) -> Process:
        self.processes.append(Process(len(self.processes), is_heard=self.is_heard))
        return self.processes[-1]
