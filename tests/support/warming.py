"""A process that forks agents and commands for tests (arpguard_lab.forkserver), and tests that do without."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from arpguard_lab.warm import VARIABLE

# What these start starts Python: how that begins is what they test. It lasts for the rest of the file.
cold = pytest.mark.usefixtures("without_fork_server")


@contextmanager
def a_fork_server() -> Iterator[int]:
    """Its process number. Within the block this process, and those that it starts, know where it listens."""
    with tempfile.TemporaryDirectory(prefix="arpguard-warm-") as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen(64)
            words = [sys.executable, "-m", "arpguard_lab.forkserver", str(listener.fileno())]
            server = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])

        patch.setenv(VARIABLE, str(path))
        yield server.pid
        server.communicate()
