"""`--all-nodes`: the same request to the agents of all nodes at the same time, and their answers side by side.

The agent that the options name tells which nodes Kubernetes has, and at which addresses. The command asks the others
there; it shows one that it cannot reach with the reason, and the others' answers all the same.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from arpguard.cli import client, documents, exits, render, tables
from arpguard.cli.client import AgentQuestions
from arpguard.cli.clustering import connection, lease_state
from arpguard.cli.exits import AskError
from arpguard.cli.explanation import explanation, is_guarded
from arpguard.cli.options import filters
from arpguard.cli.targets import need_tls, refuse_pins, target, target_of
from arpguard.cli.words import problems
from arpguard.v1 import agent_pb2 as pb

_AT_ONCE = 32
_NO_OTHER = (
    "cannot reach the other nodes' agents: an agent serves other machines only if its `grpc.listen` names an address "
    "of its node and its `grpc.tls` is set (docs/api.md); set --port to the agents' port"
)

Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[Answer]):
    """What one node's agent said: an answer, or why there is none."""

    node: str
    target: str
    answer: Answer | None = None
    error: str = ""
    exit_code: int = exits.OK


@dataclass(frozen=True, slots=True)
class View(Generic[Answer]):
    """The answers of all nodes side by side: as a page, and whether all is right."""

    page: Callable[[Sequence[tuple[str, Answer]]], str]
    is_right: Callable[[Sequence[Answer]], bool]


def show(options: argparse.Namespace, question: Callable[[AgentQuestions], Answer], view: View[Answer]) -> int:
    """Asks the agents of all nodes, and prints what they say; gives the exit code."""
    heard = _ask(options, question)
    right = print_all(options, heard, view)
    unreachable = [each for each in heard if each.exit_code == exits.UNREACHABLE]
    if unreachable and len(unreachable) >= len(heard) - 1:
        sys.stderr.write(f"arpguard {options.command}: {_NO_OTHER}\n")
    if unreachable:
        return exits.UNREACHABLE
    return exits.OK if right else exits.NOT_RIGHT


def _ask(options: argparse.Namespace, question: Callable[[AgentQuestions], Answer]) -> list[NodeAnswer[Answer]]:
    """All nodes' answers, by node. AskError when the agent that knows the nodes cannot be asked, or knows none."""
    refuse_pins(options)
    home = target(options)
    with client.connected(home) as agent:
        status = agent.get_status(pb.GetStatusRequest())
        nodes = _nodes(status, home.address)
        if len(nodes) > 1:
            need_tls(options)

        def hear(node: pb.ClusterNode) -> NodeAnswer[Answer]:
            if node.name == status.node:
                return _hear(node.name, home.address, question, agent)
            return _hear_other(options, node, question)

        with ThreadPoolExecutor(min(_AT_ONCE, len(nodes))) as pool:
            return list(pool.map(hear, nodes))


def _nodes(status: pb.GetStatusResponse, address: str) -> list[pb.ClusterNode]:
    if status.kubernetes.state == pb.Kubernetes.STATE_NOT_USED:
        raise AskError(exits.USAGE, f"--all-nodes needs Kubernetes: the agent at {address} runs without it")
    if not status.kubernetes.nodes:
        raise AskError(
            exits.UNREACHABLE, f"the agent at {address} knows no node yet: it is still reading from the API server"
        )
    return list(status.kubernetes.nodes)


def _hear_other(
    options: argparse.Namespace, node: pb.ClusterNode, question: Callable[[AgentQuestions], Answer]
) -> NodeAnswer[Answer]:
    if not node.addresses:
        return NodeAnswer(node.name, "", None, "its Node object has no address", exits.UNREACHABLE)
    try:
        found = target_of(options, node.addresses[0])
    except ValueError as error:
        return NodeAnswer(node.name, "", None, str(error), exits.UNREACHABLE)
    with client.connected(found) as agent:
        return _hear(node.name, found.address, question, agent)


def _hear(
    node: str, address: str, question: Callable[[AgentQuestions], Answer], agent: AgentQuestions
) -> NodeAnswer[Answer]:
    try:
        return NodeAnswer(node, address, question(agent))
    except AskError as error:
        if error.exit_code == exits.USAGE:  # every node would say the same
            raise
        return NodeAnswer(node, address, None, str(error), error.exit_code)


def print_all(options: argparse.Namespace, heard: Sequence[NodeAnswer[Answer]], view: View[Answer]) -> bool:
    """Prints the answers as one page, and below it which nodes gave none, and why; whether the answers are right."""
    answers = [(each.node, each.answer) for each in heard if each.answer is not None]
    if options.output == "table":
        pages = [view.page(answers)] if answers else []
        print("\n\n".join([*pages, *_silent(heard)]))
    else:
        print(documents.document({"nodes": [_plain(each) for each in heard]}, options.output))
    return view.is_right([answer for _, answer in answers])


def _silent(heard: Iterable[NodeAnswer[Answer]]) -> Iterator[str]:
    """Why some nodes did not answer, as a block of text."""
    lines = []
    for each in heard:
        if each.answer is None:
            style = render.careful if each.exit_code == exits.NOT_RIGHT else render.bad
            lines += [str(style(line)) for line in render.wrapped(f"{each.node}: {each.error}", render.page_width())]
    if lines:
        yield "\n".join(lines)


def _plain(heard: NodeAnswer[Answer]) -> dict[str, object]:
    found = {"node": heard.node, "target": heard.target, "error": heard.error}
    return found | (documents.as_dict(heard.answer) if heard.answer is not None else {})


def _statuses(answers: Sequence[tuple[str, pb.GetStatusResponse]]) -> str:
    """A line for each node, and its problems below."""
    head = ("NODE", "MODE", "KUBERNETES", "LEASE", "FENCE", "OWNED", "VIPS", "PROBLEMS", "VERSION")
    rows = [
        (
            node,
            tables.mode(status),
            connection(status.kubernetes),
            lease_state(status),
            tables.fence(status),
            tables.owned(status),
            status.entries,
            len(problems(status)),
            status.version,
        )
        for node, status in answers
    ]

    told = [f"{node}: {text}" for node, status in answers for text in problems(status)]
    lines = [str(render.bad(line)) for text in told for line in render.wrapped(text, render.page_width())]

    page = render.table(head, rows, yielding="VERSION")
    return f"{page}\n\n" + "\n".join(lines) if lines else page


STATUSES = View(_statuses, lambda answers: not any(map(problems, answers)))


def vips(options: argparse.Namespace) -> View[pb.ListVipsResponse]:
    """A VIP's lines together, a line for each node and link."""
    return View(lambda answers: _vips(answers, filters(options)), lambda answers: bool(answers) or not options.vip)


def _vips(answers: Sequence[tuple[str, pb.ListVipsResponse]], filters: str) -> str:
    found = [(node, vip) for node, answer in answers for vip in answer.vips]
    order = {address: place for place, address in enumerate(dict.fromkeys(vip.address for _, vip in found))}
    found.sort(key=lambda row: order[row[1].address])
    return tables.vip_table(("VIP", "NODE"), [((vip.address, node), vip) for node, vip in found], filters)


def conflicts(options: argparse.Namespace) -> View[pb.ListConflictsResponse]:
    """Who claimed what, as each node heard it: the latest first."""
    return View(
        lambda answers: _conflicts(answers, filters(options)),
        lambda answers: not any(tables.is_conflict(claim) for answer in answers for claim in answer.conflicts),
    )


def _conflicts(answers: Sequence[tuple[str, pb.ListConflictsResponse]], filters: str) -> str:
    found = [(node, claim) for node, answer in answers for claim in answer.conflicts]
    found.sort(key=lambda row: (row[1].last_time.seconds, row[1].last_time.nanos), reverse=True)
    rows = [(node, *tables.conflict_cells(claim)) for node, claim in found]
    head = ("NODE", *tables.CONFLICT_COLUMNS)
    return render.table(head, rows, "WHO", tables.SPARE_OF_CONFLICTS) if rows else tables.no_conflicts(filters)


def explanations(options: argparse.Namespace) -> View[pb.ExplainVipResponse]:
    """One node after the other."""
    return View(lambda answers: _explanations(options.vip, answers), lambda answers: any(map(is_guarded, answers)))


def _explanations(address: str, answers: Sequence[tuple[str, pb.ExplainVipResponse]]) -> str:
    return "\n\n".join(
        f"{render.strong(f'on node {node}')}\n\n{explanation(address, answer)}" for node, answer in answers
    )
