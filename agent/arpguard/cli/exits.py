"""What the exit code of a command means."""

OK, NOT_RIGHT, USAGE, UNREACHABLE = 0, 1, 2, 3
