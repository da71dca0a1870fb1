"""Runs a command of a parser, and turns errors into one line and an exit code."""

import argparse
import errno
import io
import os
import signal
import sys
from typing import Never

from arpguard.cli import exits
from arpguard.cli.exits import AskError
from arpguard.cli.render import WIDEST, clean
from arpguard.errors import ArpguardError, ConfigError


def run(parser: argparse.ArgumentParser, arguments: list[str] | None) -> Never:
    """Parses, runs the command, and leaves by SystemExit. `arguments` None: this process's own, which ends with it."""
    options = parser.parse_args(arguments)
    command = f"{parser.prog} {options.command}"
    if getattr(options, "output", "") == "wide":
        options.output, os.environ["COLUMNS"] = "table", str(WIDEST)
    # Ctrl-C ends every command: a script that starts one in the background, as CI runners do, has SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A reader of printed lines ends what prints them; the agent has sockets, whose peers may go at any time.
    if arguments is None and options.command != "agent":
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no such letters gets question marks

    try:
        if options.command != "agent":
            _need_output()
        code = options.run(options)
    except (ArpguardError, OSError) as error:
        code = _tell(command, error)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT

    raise SystemExit(_written(command, code))


def _need_output() -> None:
    """Python continues without a word where standard output was closed before it started."""
    if not sys.stdout:
        raise OSError(errno.EBADF, "standard output is closed")


def _written(command: str, code: int) -> int:
    """The exit code, once all that was printed is written."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter would try once more, loudly
        return code if code == exits.UNREACHABLE else _tell(command, error)
    return code


def _tell(command: str, error: ArpguardError | OSError) -> int:
    """Says in a line, or one for each problem, what went wrong; gives the exit code."""
    if isinstance(error, ConfigError):
        for problem in error.problems:
            sys.stderr.write(f"{error.source}: {problem}\n")
        return exits.USAGE
    remedy = ": run as root" if isinstance(error, PermissionError) else ""
    sys.stderr.write(f"{command}: {clean(str(error))}{remedy}\n")
    return error.exit_code if isinstance(error, AskError) else exits.UNREACHABLE
