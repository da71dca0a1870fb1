"""`kubectl arpguard completion vips`, `links`, `nodes`: the words that a shell may complete, as the agents know them.

A shell waits for them while somebody types: the nodes that have not answered by then are left out, and no error is
shown.
"""

import argparse
import asyncio
from collections.abc import Iterable

from arpguard.cli import exits
from arpguard.cli.completing import print_words
from arpguard.cli.kubectl.reach import ReachedAgents, answer_of, finished, reached
from arpguard.errors import ArpguardError
from arpguard.v1 import agent_pb2 as pb

_LIMIT_S = 3.0
_EACH_S = 2.0
_ASKED = 3  # nodes: most know the same


def show_known(options: argparse.Namespace) -> int:
    """Prints one completion per line, by the current context and default namespace; nothing if no agent answers."""
    asked = argparse.Namespace(kubeconfig=None, context=None, namespace="arpguard", node=[], timeout=_EACH_S)

    async def work() -> Iterable[str]:
        async with asyncio.timeout(_LIMIT_S), reached(asked) as agents:
            return await _words(agents, options.shell)

    try:
        print_words(finished(work()))
    except (ArpguardError, TimeoutError):
        return exits.OK
    return exits.OK


async def _words(agents: ReachedAgents, kind: str) -> Iterable[str]:
    if kind == "nodes":
        return [pod.node for pod in agents.pods]
    words = ("arpguard", "vips", "--output=json")
    said = await asyncio.gather(*(agents.run_in(pod, words) for pod in agents.pods[:_ASKED]))
    answers = [heard.answer for each in said if (heard := answer_of(each, pb.ListVipsResponse)).answer is not None]
    return [vip.address if kind == "vips" else vip.link for answer in answers for vip in answer.vips]
