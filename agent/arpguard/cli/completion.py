"""`arpguard completion`: what makes a shell complete this command's words."""

import argparse
from collections.abc import Iterator

import shtab

from arpguard.cli import exits

_PATHS = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}  # by metavar


def complete(parser: argparse.ArgumentParser, shell: str) -> int:
    """Prints the script for a shell."""
    for action in _actions(parser):
        if action.metavar in _PATHS:
            action.complete = _PATHS[str(action.metavar)]  # type: ignore[attr-defined] # shtab looks for it there
    print(shtab.complete(parser, shell))
    return exits.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments, those of commands too."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                yield from _actions(command)
