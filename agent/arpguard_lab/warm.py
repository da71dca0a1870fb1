"""Starts programs of ours warm: forked from a process that has imported all of arpguard (arpguard_lab.forkserver).

Until an agent is ready, most of the CPU that it needs goes into imports, and tests start hundreds of agents. Where
ARPGUARD_LAB_WARM names the socket of such a process, `popen` and `run` ask it to fork. Otherwise, and for all but
`python -m` of a program of ours, alone or in a network namespace, they do what `subprocess` does.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

VARIABLE = "ARPGUARD_LAB_WARM"
_MODULES = ("arpguard", "arpguard_lab.apiserver")


class Forked:
    """A process that was forked for this one, with the methods of `subprocess.Popen` that its users need."""

    def __init__(self, words: Sequence[str], pid: int, descriptor: int, pipe: int) -> None:
        """`descriptor`: a pidfd (pidfd_open(2)). `pipe`: of a socket that gives its exit code once it has ended."""
        self.args = words
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = descriptor
        self._pipe = pipe

    def __del__(self) -> None:
        os.close(self._descriptor)
        os.close(self._pipe)

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, as soon as it has one; subprocess.TimeoutExpired after so many seconds."""
        if self.returncode is None:
            ready = select.poll()
            ready.register(self._pipe, select.POLLIN)
            if not ready.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._pipe, 16) or -signal.SIGKILL)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Sends SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Forked


def popen(
    words: Sequence[str],
    *,
    stdin: int | None = None,
    stdout: IO[bytes],
    stderr: IO[bytes],
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> Process:
    """Starts a program as `subprocess.Popen` does, warm if it can be. Who starts warm has a session of its own."""
    forked = _asked(words, stdin, (stdout, stderr), os.environ if env is None else env)
    return forked or subprocess.Popen(  # noqa: S603 - our own command lines
        words, stdin=stdin, stdout=stdout, stderr=stderr, env=env, start_new_session=start_new_session
    )


def run(
    words: Sequence[str], *, timeout: float | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a program and gives what it wrote; kills it, and raises TimeoutExpired, after so many seconds."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = popen(words, stdout=out, stderr=err, env=env)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(words, code, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _asked(
    words: Sequence[str], stdin: int | None, files: tuple[IO[bytes], IO[bytes]], env: Mapping[str, str]
) -> Forked | None:
    """None where nobody forks, or not this."""
    ours = _ours(words)
    if VARIABLE not in os.environ or ours is None:
        return None

    netns, program = ours
    wanted = [program[0], [sys.executable, "-m", *program], dict(env), os.getcwd(), os.getpriority(0, 0)]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as pipe,
        open(os.devnull, "rb") as null,
        open(netns, "rb") as network,
    ):
        given = [0 if stdin is None else null.fileno(), *(file.fileno() for file in files), network.fileno()]
        try:
            pipe.connect(os.environ[VARIABLE])
            socket.send_fds(pipe, [json.dumps(wanted).encode()], given)
            said, descriptors, *_ = socket.recv_fds(pipe, 16, 1)
        except OSError:  # it has ended, or this process sees other files
            return None
        if not descriptors:
            return None
        return Forked(words, int(said), descriptors[0], pipe.detach())


def _ours(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The network namespace, and a module of ours with its arguments; None for another command line."""
    match list(words):
        case ["nsenter", net, sys.executable, "-m", module, *rest] if net.startswith("--net=") and module in _MODULES:
            return net.removeprefix("--net="), [module, *rest]
        case [sys.executable, "-m", module, *rest] if module in _MODULES:
            return "/proc/thread-self/ns/net", [module, *rest]
    return None
