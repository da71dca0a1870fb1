"""docs/api.md says what the code does; tests/netns/test_readme.py runs its commands."""

import re
from pathlib import Path

import grpc
import pytest

from arpguard.api import answers, calls, requests, server, watching
from arpguard.v1 import agent_pb2 as pb

PAGE = (Path(__file__).resolve().parents[3] / "docs/api.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_every_method_is_in_the_table():
    named = re.findall(r"^\| `(\w+)` \|", _section("Methods"), re.MULTILINE)

    assert named == [method.name for method in pb.DESCRIPTOR.services_by_name["AgentService"].methods]


def test_every_method_is_asked():
    assert set(re.findall(r"AgentService/(\w+)", PAGE)) == {
        method.name for method in pb.DESCRIPTOR.services_by_name["AgentService"].methods
    }


def test_status_codes_are_real_ones():
    codes = re.findall(r"^\| `(\w+)` \|", _section("Status codes"), re.MULTILINE)

    assert codes == [
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "RESOURCE_EXHAUSTED",
        "DEADLINE_EXCEEDED",
        "UNAVAILABLE",
    ]
    assert set(codes) <= set(grpc.StatusCode.__members__)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("Limits", f"| a request | {dict(server._OPTIONS)['grpc.max_receive_message_length'] >> 10} KiB |"),
        ("Limits", f"| calls at a time, at each address | {server._MAX_CALLS} |"),
        ("Limits", f"| connections to an address | {dict(server._OPTIONS)['grpc.max_allowed_incoming_connections']} |"),
        ("Status codes", f"its request did not come within {calls.REQUEST_S:g} s"),
        ("Limits", f"| streams among them | {calls.MAX_STREAMS} |"),
        ("Limits", f"| operations in one `ExplainVip` | {answers._MAX_OPERATIONS} |"),
        ("Slow readers", f"a queue of {watching.QUEUE_LEN} decisions"),
        ("Pages", f"({requests.PAGE_SIZE} unless said otherwise, {requests.MAX_PAGE_SIZE} at most)"),
    ],
)
def test_limits_are_those_of_the_code(section, words):
    assert words in _section(section)
