"""The voucher's process, as the agent sees it: the agent starts it, sends it commands, reads its news, ends it."""

import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from uuid import uuid4

from arpguard.dataplane.syscall import Fd
from arpguard.runtime.voucher.messages import Adopt, Command, Drop, Farewell, News, decode_news, encode

LONGEST_NEWS = 1 << 16
MODULE = "arpguard.runtime.voucher"


class VoucherProcess:
    """A running process. It ends when this process ends, in whatever way: the kernel kills it (PR_SET_PDEATHSIG).

    It has the agent's lock as well, so no other agent starts while this process may still grant (V16).

    `instance` is new with each process: one that is started again knows nothing of what the one before has granted, and
    the agent gives it none of those terms (V10). It raises its priority with CAP_SYS_NICE, if this one has it. Start it
    in a thread that stays: the kernel kills it when that thread ends.

    `lock`: what `bpffs.lock` gave. `control`, `grants`: this node's maps. `prefix`: the start of its command line, for
    tests in namespaces. `trace`: `TraceFile.words` of the file to which it appends, if it is traced.
    """

    def __init__(
        self,
        ethertype: int,
        lock: Fd,
        control: Fd,
        grants: Fd,
        prefix: Sequence[str] = (),
        *,
        trace: Sequence[str] = (),
    ) -> None:
        self.instance = str(uuid4())
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)

        given = (theirs.fileno(), control.number, grants.number)
        words = [*prefix, sys.executable, "-m", MODULE, self.instance, *map(str, (ethertype, *given)), *trace]
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this program
                words, pass_fds=(*given, lock.number), stdin=subprocess.DEVNULL
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def fileno(self) -> int:
        """What to wait for: there is news, or it has ended."""
        return self._channel.fileno()

    def adopt(self, command: Adopt) -> None:
        """Has it vouch in a term. What came of it is news."""
        self._send(command)

    def drop(self, number: int) -> None:
        """Has it end a term, whatever its phase, and forget it."""
        self._send(Drop(number))

    def end(self) -> None:
        """Has it say farewell: it ends when every term has been dropped, after half a second at the latest (V11)."""
        self._send(Farewell())

    def news(self) -> list[News]:
        """What it has told since the last call. When it has ended there is none, and `ended` says so."""
        news: list[News] = []
        with suppress(BlockingIOError, ConnectionError):
            while packet := self._channel.recv(LONGEST_NEWS):
                news.append(decode_news(packet))
        return news

    def close(self) -> None:
        """Ends it at once, if it has not ended, and waits for that."""
        self._channel.close()
        self._process.kill()
        self._process.wait()

    def _send(self, command: Command) -> None:
        """One that takes no commands any more hangs, or has ended: in either case it vouches for nobody."""
        try:
            self._channel.send(encode(command))
        except (BlockingIOError, ConnectionError):
            self._process.kill()
