"""`arpguard completion`: what makes a shell complete this command's words."""

import argparse
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from string import Template

import shtab

from arpguard.cli import exits

_PATHS = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}  # by metavar
_SCENARIOS = "scenario"  # the option's name in the parser
# Bash breaks words at colons, and with them IPv6 addresses. Sourced after shtab's script, it takes its place.
_COLONS = Template("""
_${name}() {
  local typed=("${COMP_WORDS[@]:0:COMP_CWORD+1}") piece last=
  local COMP_WORDS=() COMP_CWORD
  for piece in "${typed[@]}"; do
    if [[ $piece =~ ^:+$ || $last =~ ^:+$ ]]; then
      COMP_WORDS[-1]+=$piece
    else
      COMP_WORDS+=("$piece")
    fi
    last=$piece
  done
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _shtab_${name}

  local word=${COMP_WORDS[COMP_CWORD]}
  [[ $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
  return 0
}

complete -o bashdefault -F _${name} ${program}""")


def complete(parser: argparse.ArgumentParser, shell: str, known: Mapping[str, str]) -> int:
    """Prints the script for a shell; `known`: what to ask the program for, by the names of arguments and options."""
    for action in _actions(parser):
        if action.metavar in _PATHS:
            action.complete = _PATHS[str(action.metavar)]  # type: ignore[attr-defined] # shtab looks for it there
        elif action.dest in known:
            action.complete = _asked(parser.prog, known[action.dest])  # type: ignore[attr-defined] # as above
        elif action.dest == _SCENARIOS:
            action.choices = _scenarios()

    script = shtab.complete(parser, shell)
    if shell == "bash":
        script += _COLONS.safe_substitute(program=parser.prog, name=_wordified(parser.prog))
    print(script)
    return exits.OK


def _asked(program: str, kind: str) -> dict[str, object]:
    """Makes the shell ask this program each time that a word of this kind is to be completed."""
    ask = f"{program} completion {kind}"
    function = f"_{_wordified(program)}_{kind}"
    found = shtab.cmd(f"{ask} 2>/dev/null")
    # Zsh expands a command in its specification only once: when it loads the script.
    once_more = f'{function}() {{ compadd -- ${{(f)"$({ask} 2>/dev/null)"}} }}'
    return {**found, "zsh": function, "tcsh": f"`{ask}`", "preamble": {**found["preamble"], "zsh": once_more}}


def _scenarios() -> list[str]:
    """The lab's, where it is installed."""
    try:
        runner = import_module("arpguard_lab.runner")
    except ModuleNotFoundError:
        return []
    return [name for kubernetes in (False, True) for name, _ in runner.catalogue(kubernetes=kubernetes)]


def _wordified(text: str) -> str:
    return re.sub(r"\W", "_", text)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All options and arguments, those of commands too."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            for command in action.choices.values():
                yield from _actions(command)
