"""A program on a pseudo terminal: what it printed, what is typed, and how it left."""

import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Mapping, Sequence
from fcntl import ioctl

from support.netns.waiting import HUNG_S, until


class Terminal:
    """A pseudo terminal with a program on it, and all that it printed."""

    def __init__(self, words: Sequence[str], columns: int = 80, rows: int = 24, **variables: str) -> None:
        self.leader, self._follower = pty.openpty()
        self._open = [self.leader, self._follower]
        self.resize(columns, rows)
        self.settings = termios.tcgetattr(self.leader)
        self.printed = ""
        # as shells and readline export them
        env: Mapping[str, str] = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **variables}
        self._process = subprocess.Popen(
            words, stdin=self._follower, stdout=self._follower, stderr=self._follower, env=env, process_group=0
        )

    def resize(self, columns: int, rows: int) -> None:
        ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self) -> str:
        while select.select([self.leader], [], [], 0)[0]:
            self.printed += os.read(self.leader, 65536).decode(errors="replace")
        return self.printed

    def type(self, key: bytes) -> None:
        os.write(self.leader, key)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def left(self) -> int:
        until(lambda: (self.read(), self._process.poll() is not None)[1], 20, "it has left")
        self.read()
        return self._process.returncode

    def vanish(self) -> int:
        """The terminal is gone, and no SIGHUP comes; how the program left."""
        self._close()
        return self._process.wait(HUNG_S)

    @property
    def is_as_it_was(self) -> bool:
        """Whether the program has put back everything that it changed."""
        switched = self.printed.index("\x1b[?1049h") < self.printed.index("\x1b[?1049l")
        hidden = self.printed.index("\x1b[?25l") < self.printed.rindex("\x1b[?25h")
        return termios.tcgetattr(self.leader) == self.settings and switched and hidden

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open = []
