"""Asks the agent of this node grpc.health.v1, for a kubelet: `python -m arpguard.probe [--any] [COMPONENT]`.

Not a command of `arpguard`, whose start takes twice the time, again and again on every node. Exit codes: 0 when the
component (default: the guard as a whole) is serving, with --any when there is an answer at all; 1 when it is not
serving; 3 when there is no answer. The agent is looked for at $ARPGUARD_ADDRESS, else at its socket.
"""

import os
import sys

import grpc
from grpc_health.v1 import health_pb2

_DEFAULT = "unix:///run/arpguard/agent.sock"
_METHOD = "/grpc.health.v1.Health/Check"
_DEADLINE_S = 5.0


def main(words: list[str]) -> int:
    """The exit code."""
    component = next((word for word in words if not word.startswith("-")), "")
    try:
        status = _status(os.environ.get("ARPGUARD_ADDRESS", _DEFAULT), component)
    except grpc.RpcError as error:
        sys.stderr.write(f"no answer: {error.details()}\n")
        return 3
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
    sys.stdout.write(f"{name}\n")
    return 0 if name == "SERVING" or "--any" in words else 1


def _status(target: str, component: str) -> int:
    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        ask = channel.unary_unary(
            _METHOD,
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return int(ask(health_pb2.HealthCheckRequest(service=component), timeout=_DEADLINE_S).status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
