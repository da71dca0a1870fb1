"""The kernel's pinned objects, which answer like an agent."""

from collections.abc import Callable
from pathlib import Path

from arpguard.api import answers, offline
from arpguard.api.requests import RequestError
from arpguard.cli.client import Questions, Request, Response, Target, refusal
from arpguard.node import ThisNode


def pinned(pin_dir: Path) -> Questions:
    """The kernel's objects under `pin_dir`, which need no agent; DataPlaneError when there are none."""
    node = offline.read_node(pin_dir)

    def read(answer: Callable[[ThisNode, Request], Response]) -> Callable[[Request], Response]:
        def ask(request: Request) -> Response:
            try:
                return answer(node, request)
            except RequestError as error:
                raise refusal(error.code, str(error), Target()) from None

        return ask

    return Questions(
        get_status=read(answers.get_status),
        list_vips=read(answers.list_vips),
        get_vip=read(answers.get_vip),
        explain_vip=read(answers.explain_vip),
    )
