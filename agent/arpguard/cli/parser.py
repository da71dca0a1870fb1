"""argparse, with errors of two lines: what is wrong, with the nearest word that is right, and where to read on."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from arpguard.cli import exits
from arpguard.errors import did_you_mean


class Parser(argparse.ArgumentParser):
    """Parses like argparse. Commands' parsers are of this class, too, and name their own `--help`."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with `exits.USAGE`; takes a message of argparse's."""
        sys.stderr.write(f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")
        raise SystemExit(exits.USAGE)

    def parse_known_args(  # type: ignore[override] # argparse's stub has an overload for each kind of namespace
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The options. Nothing is left unknown: a command's parser knows its own options, its parent does not."""
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            word = unknown[0]
            kind = "option" if word.startswith("-") else "argument"
            hint = did_you_mean(word.partition("=")[0], self._option_string_actions) if kind == "option" else ""
            self.error(f"unknown {kind} {word!r}{hint}")

        return known, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raises ArgumentError, for argparse to catch, unless the value is one of the action's choices."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        hint = did_you_mean(str(value), choices) or f" (choose from {', '.join(choices)})"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")
