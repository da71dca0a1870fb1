"""`pods/exec`: commands in Pods, over a websocket with remotecommand's channels, as a kube-apiserver has them run.

A test says what the kubelets are (`Kubelets`): for each command, the program on this machine to run in its place.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from aiohttp import WSMsgType, web

from arpguard_lab.apiserver import statuses
from arpguard_lab.apiserver.paths import is_true
from arpguard_lab.apiserver.statuses import ApiError
from arpguard_lab.apiserver.store import to_bytes

Json: TypeAlias = dict[str, Any]

PROTOCOL = "v5.channel.k8s.io"  # the one that a kube-apiserver itself speaks: streamtranslator.go
_STDOUT, _STDERR, _ERROR = 1, 2, 3
_PIECE = 32 * 1024


class UnreachableError(Exception):
    """The API server has no connection to a node's kubelet; the text is the dialer's."""


def _no_kubelet(node: str, _words: Sequence[str]) -> Sequence[str] | None:
    raise UnreachableError(f"no kubelet on {node}: a lab has none unless a test starts one")


@dataclass(frozen=True, slots=True)
class Kubelets:
    """What runs in Pods: `program` gives the words of a process for a node and a command, None for one that hangs.

    It raises UnreachableError for a node that is away, and FileNotFoundError for a command that its image has not.
    `logs` gives what the container of a node's Pod has logged.
    """

    program: Callable[[str, Sequence[str]], Sequence[str] | None] = _no_kubelet
    logs: Callable[[str], str] = lambda _node: ""


async def execute(
    request: web.BaseRequest, pod: Json, kubelets: Kubelets, executions: set[asyncio.Task[None]]
) -> web.StreamResponse:
    """Answers a request for exec; `executions` has the command while it runs. ApiError before anything is sent."""
    words = request.query.getall("command", [])
    wanted = [number for number, name in ((_STDOUT, "stdout"), (_STDERR, "stderr")) if is_true(request.query, name)]
    _check(pod, request.query.get("container", ""))

    offered = request.headers.get("Sec-WebSocket-Protocol", "").replace(" ", "").split(",")
    if PROTOCOL not in offered:
        raise statuses.bad_request(f"websocket server: unable to upgrade: none of {offered} is supported")
    socket = web.WebSocketResponse(protocols=(PROTOCOL,))
    await socket.prepare(request)
    await socket.send_bytes(bytes([min(wanted, default=_ERROR)]))  # tells the client that there is a connection

    running = asyncio.create_task(_run(socket, pod, words, wanted, kubelets))
    executions.add(running)
    running.add_done_callback(executions.discard)
    try:
        await _wait_for_close(socket)
    finally:
        running.cancel()
        await asyncio.wait([running])
    return socket


async def _wait_for_close(socket: web.WebSocketResponse) -> None:
    """The client closes once it has the Status."""
    while (await socket.receive()).type is WSMsgType.BINARY:
        pass


def _check(pod: Json, container: str) -> None:
    """As `ExecLocation` does."""
    name = pod["metadata"]["name"]
    containers = [each["name"] for each in pod["spec"].get("containers", ())]
    if container and container not in containers:
        raise statuses.bad_request(f"container {container} is not valid for pod {name}")
    if not pod["spec"].get("nodeName"):
        raise statuses.bad_request(f"pod {name} does not have a host assigned")


async def _run(
    socket: web.WebSocketResponse, pod: Json, words: Sequence[str], wanted: Sequence[int], kubelets: Kubelets
) -> None:
    node = pod["spec"].get("nodeName", "")
    try:
        program = kubelets.program(node, words)
    except UnreachableError as error:
        url = f"https://{node}:10250/exec/{pod['metadata']['namespace']}/{pod['metadata']['name']}/agent"
        await _finish(socket, _failure(f'error sending request: Post "{url}": {error}'))
        return
    except FileNotFoundError:
        why = f'exec: "{words[0]}": executable file not found in $PATH'
        await _finish(socket, _failure(f"error executing command in container: {why}"))
        return
    if program is None:
        await asyncio.get_running_loop().create_future()
        return

    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        pipes = {_STDOUT: process.stdout, _STDERR: process.stderr}
        await asyncio.gather(*(_copy(socket, number, pipes[number], wanted) for number in pipes))
        await _finish(socket, _exited(await process.wait()))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _copy(
    socket: web.WebSocketResponse, number: int, pipe: asyncio.StreamReader | None, wanted: Sequence[int]
) -> None:
    while pipe is not None and (data := await pipe.read(_PIECE)):
        if number in wanted:
            await socket.send_bytes(bytes([number]) + data)


async def _finish(socket: web.WebSocketResponse, status: Json) -> None:
    """Clients read standard output until the server closes."""
    await socket.send_bytes(bytes([_ERROR]) + to_bytes(status))
    await socket.close()


def _failure(why: str) -> Json:
    """A command that did not run."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {why}",
        {"causes": [{"message": why}]},
    ).body()


def _exited(code: int) -> Json:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = 128 - code if code < 0 else code
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: command terminated with exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
