"""What the exit code of a command means, and leaving in good order."""

import signal

OK, NOT_RIGHT, USAGE, UNREACHABLE = 0, 1, 2, 3


def leave_on_signals() -> None:
    """From now on SIGTERM and SIGHUP end the command from within, so that what it changed is put back."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)
