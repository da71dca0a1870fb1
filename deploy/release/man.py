"""Writes the manual pages from the parsers of both programs: `man.py FOLDER VERSION SECONDS`.

A page for each command, as roff for man(7); SECONDS since 1970 are the pages' date.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arpguard.cli.kubectl.main import build_parser as build_plugin
from arpguard.cli.main import build_parser

_WIDE = 10_000  # columns: man breaks the lines
PROGRAMS = {"arpguard": build_parser, "kubectl-arpguard": build_plugin}
_FILES = {
    "arpguard": (
        ("/etc/arpguard/config.yaml", "what this node may answer for: the configuration"),
        ("/run/arpguard/agent.sock", "the socket on which the running agent answers gRPC calls"),
        ("/sys/fs/bpf/arpguard", "the guard: pinned programs, maps and links"),
    ),
    "kubectl-arpguard": (("~/.kube/config", "how to reach the API server, unless $KUBECONFIG names other files"),),
}


@dataclass(frozen=True)
class Command:
    """A command of a program: its parser, its words joined by hyphens, and its help in a line."""

    program: str
    parser: argparse.ArgumentParser
    name: str
    summary: str

    def below(self) -> "Iterator[Command]":
        """The commands of this one."""
        for action in self.parser._actions:  # noqa: SLF001 - argparse has no public list of them
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
                said = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - as above
                for word, parser in action.choices.items():
                    yield Command(self.program, parser, f"{self.name}-{word}", said[word])


def commands(program: str) -> Iterator[Command]:
    """All of one of PROGRAMS, the program first."""
    parser = PROGRAMS[program]()
    waiting = [Command(program, parser, program, (parser.description or "").rstrip("."))]
    while waiting:
        command = waiting.pop(0)
        yield command
        waiting += command.below()


def page(command: Command, others: list[str], version: str, date: str) -> str:
    """The manual page of a command."""
    below = list(command.below())
    sections = {
        "NAME": f"{_roff(command.name)} \\- {_roff(command.summary)}\n",
        "SYNOPSIS": _synopsis(command),
        "DESCRIPTION": _paragraph(command.parser.description or command.summary),
        "ARGUMENTS": "".join(_entries(command.parser, options=False)),
        "OPTIONS": "".join(_entries(command.parser, options=True)),
        "COMMANDS": "".join(f".TP\n.BR {_roff(each.name)} (1)\n{_paragraph(each.summary)}" for each in below),
        "EXIT STATUS": _exit_status(command.program),
        "FILES": "".join(f".TP\n.I {_roff(path)}\n{_paragraph(what)}" for path, what in _FILES[command.program]),
        "SEE ALSO": ",\n".join(f".BR {_roff(name)} (1)" for name in others if name != command.name) + "\n",
    }
    head = f'.TH {_roff(command.name.upper())} 1 {date} "arpguard {version}" "User Commands"\n.nh\n'
    body = "".join(f".SH {title}\n{text}" for title, text in sections.items() if text)
    return head + re.sub(r",\n(?=\.BR)", " ,\n", body)


def _synopsis(command: Command) -> str:
    formatter = argparse.HelpFormatter(command.parser.prog, width=_WIDE)
    actions = [action for action in command.parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
    groups = command.parser._mutually_exclusive_groups  # noqa: SLF001 - argparse has no public list of them
    formatter.add_usage(None, actions, groups, prefix="")
    words = formatter.format_help().strip().removeprefix(command.parser.prog).strip()
    return f".B {_roff(command.parser.prog)}\n{_paragraph(words)}"


def _entries(parser: argparse.ArgumentParser, *, options: bool) -> Iterator[str]:
    """The options of a command, or its other arguments, each with its help."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        skipped = isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS  # noqa: SLF001
        if skipped or bool(action.option_strings) is not options:
            continue
        value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest)
        names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in action.option_strings)
        takes = "" if action.nargs == 0 else f" \\fI{_roff(str(value))}\\fR"
        yield f".TP\n{names}{takes}\n".replace(".TP\n ", ".TP\n") + _paragraph((action.help or "") % vars(action))


def _exit_status(program: str) -> str:
    """As the program's epilog lists it."""
    listed = re.findall(r"(\d) ([^,]+(?:, (?!\d)[^,]+)*)", PROGRAMS[program]().epilog or "")
    return "".join(f".TP\n.B {code}\n{_paragraph(meaning)}" for code, meaning in listed)


def _paragraph(text: str) -> str:
    marked = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", _roff(text))
    return re.sub(r"^(?=[.'])", r"\\&", marked) + "\n"


def _roff(text: str) -> str:
    """Text in which nothing means anything to roff."""
    return re.sub(r",(?=\w)", r",\\:", text.replace("\\", "\\e").replace("-", "\\-"))  # a list of words may be broken


def main() -> None:
    """Entry point."""
    folder, version, seconds = sys.argv[1:]
    date = time.strftime("%Y-%m-%d", time.gmtime(int(seconds)))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for program in PROGRAMS:
        found = list(commands(program))
        names = [*PROGRAMS, *(command.name for command in found[1:])]
        for command in found:
            text = page(command, names, version, date)
            Path(folder, f"{command.name}.1").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
