"""Commands that are imported when they are run: what one needs, the others do not wait for, nor keep in memory."""

import argparse
from collections.abc import Callable
from importlib import import_module


def lazily(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """The command `name` of a module beside this one."""

    def run(options: argparse.Namespace) -> int:
        command: Callable[[argparse.Namespace], int] = getattr(import_module(f"arpguard.cli.{module}"), name)
        return command(options)

    return run
