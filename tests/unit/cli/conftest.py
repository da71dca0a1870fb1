"""A real gRPC server on a Unix socket whose answers a test prepares: it is the command line that is under test."""

import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.cli.main import main
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc


@pytest.fixture(autouse=True)
def _page_has_100_columns(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


METHODS = (
    *("GetStatus", "ListVips", "GetVip", "ExplainVip", "ListDecisions", "ListConflicts", "WatchDecisions"),
    *("ListAudits", "AuditVip"),
)


class Prepared(agent_pb2_grpc.AgentServiceServicer):
    """`answers[method]`: a message, a function of the request, or (code, words) to refuse with.

    WatchDecisions: a list of messages and at last perhaps a refusal.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "GetStatus": pb.GetStatusResponse(node="node-1", mode=pb.MODE_ENFORCE),
            "ListDecisions": pb.ListDecisionsResponse(),
        }
        self.requests: list[Any] = []


def _method(name: str) -> Callable[..., Any]:
    def answer(prepared: Prepared, request: Any, context: grpc.ServicerContext) -> Any:
        prepared.requests.append(request)
        found = prepared.answers[name]
        if isinstance(found, tuple):
            context.abort(*found)
        return found(request) if callable(found) else found

    return answer


def _watch(prepared: Prepared, request: Any, context: grpc.ServicerContext) -> Iterator[pb.WatchDecisionsResponse]:
    prepared.requests.append(request)
    for found in prepared.answers["WatchDecisions"]:
        if isinstance(found, tuple):
            context.abort(*found)
        yield found


for _name in METHODS:
    setattr(Prepared, _name, _watch if _name == "WatchDecisions" else _method(_name))


class Served:
    """A server and where it listens."""

    def __init__(self, target: str, credentials: grpc.ServerCredentials | None = None) -> None:
        self.prepared = Prepared()
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self.prepared, self._server)
        if credentials is None:
            port = self._server.add_insecure_port(target)
        else:
            port = self._server.add_secure_port(target, credentials)
        self.target = target if target.startswith("unix:") else target.replace(":0", f":{port}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Starts servers; they end with the test."""
    started: list[Served] = []

    def start(*arguments: Any) -> Served:
        started.append(Served(*arguments))
        return started[-1]

    yield start
    for served in started:
        served.stop()


@pytest.fixture
def agent(serve, tmp_path, monkeypatch) -> Served:
    """An agent that the commands ask unless they are told otherwise."""
    served = serve(f"unix://{tmp_path}/agent.sock")
    monkeypatch.setenv("ARPGUARD_ADDRESS", served.target)
    return served


@pytest.fixture
def run(capsys) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; gives exit code, output and errors."""

    def command(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(list(words))
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return command


@pytest.fixture
def ago() -> Callable[[float], Timestamp]:
    """The time so many seconds ago."""

    def timestamp(seconds: float) -> Timestamp:
        made = Timestamp()
        made.FromNanoseconds(time.time_ns() - int(seconds * 1e9))
        return made

    return timestamp
