"""`arpguard completion vips`, `links`: the words that a shell may complete, as the agent on this node knows them.

A shell waits for them while a person types: without an agent, or with a slow one, there are none, and no error.
"""

import argparse
import os
import re
from collections.abc import Iterable

from arpguard.cli import client, exits
from arpguard.cli.client import AgentQuestions, Target
from arpguard.cli.options import DEFAULT_TARGET
from arpguard.errors import ArpguardError
from arpguard.v1 import agent_pb2 as pb

_LIMIT_S = 1.0
_MOST = 5000
# Bash expands what it is given to choose from, commands too, and a link may have almost any name.
_WORD = re.compile(r"[\w.:@-]+", re.ASCII)


def show_known(options: argparse.Namespace) -> int:
    """Prints one word per line; none if the agent does not answer."""
    try:
        target = Target(os.environ.get("ARPGUARD_ADDRESS") or DEFAULT_TARGET, timeout_s=_LIMIT_S)
        with client.connected(target) as agent:
            words = _KINDS[options.shell](agent)
    except ArpguardError:
        return exits.OK
    print_words(words)
    return exits.OK


def print_words(words: Iterable[str]) -> None:
    """Prints each word once, except those that a shell could take for more than a word."""
    for word in dict.fromkeys(words):
        if _WORD.fullmatch(word):
            print(word)


def _vips(agent: AgentQuestions) -> list[str]:
    return [vip.address for vip in client.every_page(agent.list_vips, pb.ListVipsRequest(), _MOST).vips]


def _links(agent: AgentQuestions) -> list[str]:
    return [link.name for link in agent.get_status(pb.GetStatusRequest()).links]


_KINDS = {"vips": _vips, "links": _links}
