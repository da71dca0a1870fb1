"""The meaning of a command's exit codes, and leaving in good order."""

import signal

from arpguard.errors import ArpguardError

OK, NOT_RIGHT, USAGE, UNREACHABLE = 0, 1, 2, 3


class AskError(ArpguardError):
    """A question that got no answer; `exit_code` tells whose fault that is."""

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def leave_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end the command from within, so that it undoes its changes."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
