"""Commands in Pods, through the API server: `pods/exec` by a websocket with remotecommand's channels.

Version 5 of the protocol is the API server's own (1.30 and newer), version 4 the kubelet's; for a command without
input they are the same. Each message begins with its channel's number. The last message is a Status on the error
channel: how the command ended, or why it did not run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from arpguard.kube.client import Client
from arpguard.kube.decoding import decode
from arpguard.kube.errors import Failure, JsonObject, UnavailableError, cut, error_of, message_of
from arpguard.kube.resources import PODS, Request

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_MOST_STDERR = 4096  # of its end, where the reason is


@dataclass(frozen=True, slots=True)
class PodCommand:
    """A command in one container of a Pod."""

    namespace: str
    pod: str
    container: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and the end of what it wrote to standard error."""

    exit_code: int
    stderr: str


async def execute(client: Client, command: PodCommand, take: Callable[[bytes], None]) -> Ended:
    """Runs a command, and hands over what it writes to standard output, in pieces of any size.

    Raises ClusterError when the command cannot be run, or the connection ends before the command does.
    """
    query = [("container", command.container), ("stdout", "true"), ("stderr", "true")]
    query += [("command", word) for word in command.words]
    request = Request("create", PODS, command.namespace, command.pod, subresource="exec")
    stderr = bytearray()

    async with client.websocket(request, query, PROTOCOLS) as messages:
        async for message in messages:
            channel, data = message[:1], message[1:]
            if channel == bytes([_STDOUT]) and data:
                take(data)
            elif channel == bytes([_STDERR]):
                stderr += data
                del stderr[:-_MOST_STDERR]
            elif channel == bytes([_ERROR]) and data:
                return Ended(_exit_code(data, request), stderr.decode(errors="replace"))
    raise UnavailableError(Failure(request.verb, request.what, 0, "the connection ended before the command did"))


def _exit_code(data: bytes, request: Request) -> int:
    """What the Status says. Raises ClusterError where the command did not run."""
    status = _status(data)
    if status.get("status") == "Success":
        return 0
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    for cause in causes if isinstance(causes, list) else ():
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode":
            text = str(cause.get("message"))
            if text.isascii() and text.isdigit():
                return int(text)
    code = status.get("code")
    raise error_of(Failure(request.verb, request.what, code if isinstance(code, int) else 0, message_of(status)))


def _status(data: bytes) -> JsonObject:
    try:
        found = decode(data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": cut(data.decode(errors="replace"))}
