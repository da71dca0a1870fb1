"""The commands' requests to an agent, by gRPC. Every failure is one line and an exit code.

The words of the gRPC library tell failed connections apart, because it has no codes for them. Words that are not
known here are shown as they are.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from arpguard.cli import exits
from arpguard.cli.exits import AskError
from arpguard.cli.options import DEFAULT_TARGET
from arpguard.errors import ConfigError, Problem
from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc as rpc

_MAX_PAGE_SIZE = 1000  # what the API gives at most
_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):(\d{1,5})")
# What the agent's refusals begin with.
_FIELD = re.compile(r"^(?:filter\.)?(address|vip|link|kind|verdict|reason|since|sender_mac|sender_address): ")
_CHANNEL = {
    "grpc.enable_http_proxy": 0,  # an agent is asked directly, whatever http_proxy says
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1000,
    # A stream has no deadline: without pings, it would wait for ever for an agent that hangs. How long a ping may take
    # grpc.keepalive_timeout_ms does not say: this library lets it wait for ping_timeout_ms, a minute otherwise.
    "grpc.keepalive_time_ms": 10_000,
    "grpc.http2.ping_timeout_ms": 5_000,
    "grpc.http2.max_pings_without_data": 0,
}
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT: (exits.USAGE, "{words}"),
    grpc.StatusCode.NOT_FOUND: (exits.NOT_RIGHT, "{words}"),
    grpc.StatusCode.FAILED_PRECONDITION: (exits.NOT_RIGHT, "{words}"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (
        exits.UNREACHABLE,
        "{target} did not answer within {timeout_s:g} s: try again, or allow more time with --timeout",
    ),
    grpc.StatusCode.UNIMPLEMENTED: (
        exits.UNREACHABLE,
        "the server at {target} is not an arpguard agent, or is an agent of another version",
    ),
    grpc.StatusCode.CANCELLED: (exits.UNREACHABLE, "{target} ended the call: try again"),
}
_OTHERWISE = (exits.UNREACHABLE, "{target}: {words}")
OTHER_AGENT = "or name another with --address"
OTHER_SOURCES = "name another with --address, or read the kernel's objects with --pin-dir"
_NOBODY = "no agent listens at {target}: start the agent, {other}"
_NO_TLS = "no TLS connection to {target}: check --tls-ca, --tls-cert, --tls-key and --tls-server-name ({words})"
_PING_TIMEOUT = "ping timeout"  # the library's words
_BROKEN = "{target} closed the connection: if it speaks TLS, give --tls-ca, --tls-cert and --tls-key"
# The first that the library's words contain.
_NO_CONNECTION = {
    _PING_TIMEOUT: "{target} no longer answers: it hangs or cannot be reached; the guard stays in the kernel",
    "No such file or directory": _NOBODY,
    "Permission denied": "this user has no access to {target}: run as root, {other}",
    "Connection refused": _NOBODY,
    "ertificate": _NO_TLS,
    "handshake": _NO_TLS,
    "Verification": _NO_TLS,
    "TSI": _NO_TLS,
    "errors resolving": "cannot resolve {target}: check the name ({words})",
    "Socket closed": _BROKEN,
    "onnection reset": _BROKEN,
    "Broken pipe": _BROKEN,
    "failed to connect": "no connection to {target}: is it the right address? ({words})",
}

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True, slots=True)
class Tls:
    """Mutual TLS: PEM files, and the name in the agent's certificate if that is not the target's."""

    ca: Path
    cert: Path
    key: Path
    server_name: str = ""


def spelt_out(address: str) -> str:
    """unix:/PATH, which is gRPC's short form (naming.md), as unix:///PATH."""
    return re.sub(r"^unix:(?=/(?!/))", "unix://", address)


@dataclass(frozen=True, slots=True)
class Target:
    """An agent: unix:///PATH or HOST:PORT. `remedy`: what else to do when no program listens there."""

    address: str = DEFAULT_TARGET
    tls: Tls | None = None
    timeout_s: float = 5.0
    remedy: str = OTHER_AGENT

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", spelt_out(self.address))
        wrong = _wrong_address(self.address, self.tls)
        if wrong:
            raise ConfigError("arpguard", [Problem("--address", f"{self.address}: {wrong}")])


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions that an agent and the pinned objects can answer. Each raises AskError."""

    get_status: Callable[[pb.GetStatusRequest], pb.GetStatusResponse]
    list_vips: Callable[[pb.ListVipsRequest], pb.ListVipsResponse]
    get_vip: Callable[[pb.GetVipRequest], pb.GetVipResponse]
    explain_vip: Callable[[pb.ExplainVipRequest], pb.ExplainVipResponse]


@dataclass(frozen=True, slots=True)
class AgentQuestions(Questions):
    """All questions, including those that only a running agent can answer."""

    list_decisions: Callable[[pb.ListDecisionsRequest], pb.ListDecisionsResponse]
    list_conflicts: Callable[[pb.ListConflictsRequest], pb.ListConflictsResponse]
    list_audits: Callable[[pb.ListAuditsRequest], pb.ListAuditsResponse]
    audit_vip: Callable[[pb.AuditVipRequest], pb.AuditVipResponse]
    watch_decisions: Callable[[pb.WatchDecisionsRequest], Iterator[pb.WatchDecisionsResponse]]


PagedRequest = TypeVar(
    "PagedRequest", pb.ListVipsRequest, pb.ListDecisionsRequest, pb.ListConflictsRequest, pb.ListAuditsRequest
)
PagedAnswer = TypeVar(
    "PagedAnswer", pb.ListVipsResponse, pb.ListDecisionsResponse, pb.ListConflictsResponse, pb.ListAuditsResponse
)


@contextmanager
def connected(target: Target) -> Iterator[AgentQuestions]:
    """An agent that is asked over the network; nothing is sent before the first question."""
    with _open(target) as channel:
        stub = rpc.AgentServiceStub(channel)
        yield AgentQuestions(
            get_status=_asked(stub.GetStatus, target),
            list_vips=_asked(stub.ListVips, target),
            get_vip=_asked(stub.GetVip, target),
            explain_vip=_asked(stub.ExplainVip, target),
            list_decisions=_asked(stub.ListDecisions, target),
            list_conflicts=_asked(stub.ListConflicts, target),
            list_audits=_asked(stub.ListAudits, target),
            audit_vip=_asked(stub.AuditVip, target),
            watch_decisions=_followed(stub.WatchDecisions, target),
        )


def every_page(
    ask: Callable[[PagedRequest], PagedAnswer], request: PagedRequest, limit: int = sys.maxsize
) -> PagedAnswer:
    """The pages of a list as one answer, with at most `limit` items."""
    request.page_size = min(limit, _MAX_PAGE_SIZE)
    whole = ask(request)
    while whole.next_page_token and limit > _MAX_PAGE_SIZE:
        limit -= _MAX_PAGE_SIZE
        request.page_size = min(limit, _MAX_PAGE_SIZE)
        request.page_token, whole.next_page_token = whole.next_page_token, ""
        whole.MergeFrom(ask(request))
    whole.next_page_token = ""
    return whole


def _wrong_address(address: str, tls: Tls | None) -> str | None:
    if address.startswith("unix:///"):
        return "a Unix socket needs no TLS: omit the --tls options" if tls else None
    match = _HOST_PORT.fullmatch(address)
    known = match and 0 < int(match[2]) < 1 << 16
    return None if known else "must be unix:///PATH or HOST:PORT (check $ARPGUARD_ADDRESS, too)"


def _open(target: Target) -> grpc.Channel:
    # The scheme is named, or gRPC would read one of its others in a host's name.
    address = target.address if target.address.startswith("unix:///") else f"dns:///{target.address}"
    options: tuple[tuple[str, str | int], ...] = tuple(_CHANNEL.items())
    if target.tls is None:
        return grpc.insecure_channel(address, options=options)
    if target.tls.server_name:
        options = (*options, ("grpc.ssl_target_name_override", target.tls.server_name))
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read("--tls-ca", target.tls.ca),
        private_key=_read("--tls-key", target.tls.key),
        certificate_chain=_read("--tls-cert", target.tls.cert),
    )
    return grpc.secure_channel(address, credentials, options=options)


def _read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError("arpguard", [Problem(flag, f"{path}: cannot be read: {error.strerror}")]) from None


def _asked(method: "grpc.UnaryUnaryMultiCallable[Request, Response]", target: Target) -> Callable[[Request], Response]:
    def ask(request: Request) -> Response:
        try:
            return method(request, timeout=target.timeout_s)
        except grpc.RpcError as error:
            raise refusal(error.code(), error.details() or "", target) from None

    return ask


def _followed(
    method: "grpc.UnaryStreamMultiCallable[Request, Response]", target: Target
) -> Callable[[Request], Iterator[Response]]:
    def follow(request: Request) -> Iterator[Response]:
        try:
            yield from method(request)
        except grpc.RpcError as error:
            words = error.details() or ""
            if error.code() is not grpc.StatusCode.UNAVAILABLE or _PING_TIMEOUT in words:
                raise refusal(error.code(), words, target) from None
        raise AskError(
            exits.UNREACHABLE, f"the agent at {target.address} stopped; the guard stays in the kernel: try again later"
        )

    return follow


def _typed(field: re.Match[str]) -> str:
    """A field of a request, as the option for it is called here."""
    return "ADDRESS: " if field[1] == "address" else f"--{field[1].replace('_', '-')}: "


def refusal(code: grpc.StatusCode, words: str, target: Target) -> AskError:
    """The message for a status code and the words that came with it."""
    exit_code, text = _REFUSALS.get(code, _OTHERWISE)
    if code is grpc.StatusCode.UNAVAILABLE:
        text = next((known for part, known in _NO_CONNECTION.items() if part in words), text)
        if text is _BROKEN and target.tls:
            text = _NO_TLS  # with TLS 1.3 a client's certificate is refused after the handshake
    told = _FIELD.sub(_typed, words.rpartition("last error: ")[2])
    other = {"target": target.address, "timeout_s": target.timeout_s, "other": target.remedy}
    return AskError(exit_code, text.format(words=told, **other))
