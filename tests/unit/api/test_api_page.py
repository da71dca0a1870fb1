"""docs/api.md says what the code does; tests/netns/test_readme.py runs its commands."""

import re
from pathlib import Path

import grpc

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
