"""Runs the server as a process.

    python -m arpguard_lab.apiserver --listen 127.0.0.1:8080 --control unix:/run/lab.sock --client node-1

Prints its URL in one line once it listens, and ends on SIGTERM or SIGINT.
"""

import argparse
import asyncio
import gc
import signal
import sys
from pathlib import Path

from arpguard.errors import ArpguardError, ConfigError
from arpguard_lab.apiserver import manifests
from arpguard_lab.apiserver.control import Control
from arpguard_lab.apiserver.server import ApiServer, Options


def main(arguments: list[str] | None = None) -> None:
    """Entry point; leaves by SystemExit."""
    options = _parser().parse_args(arguments)
    try:
        asyncio.run(_run(options))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    except ArpguardError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(3) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m arpguard_lab.apiserver", description="An API server for labs.")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDR:PORT", help="default: any port on loopback")
    parser.add_argument(
        "--control", metavar="unix:PATH|ADDR:PORT", help="the address at which tests order faults (default: none)"
    )
    parser.add_argument(
        "--http", action="store_true", help="plain HTTP, over which kubectl sends no token (default: HTTPS)"
    )

    parser.add_argument(
        "--rbac", type=Path, action="append", default=[], metavar="FILE", help="RBAC objects to enforce (default: none)"
    )
    parser.add_argument(
        "--load", type=Path, action="append", default=[], metavar="FILE", help="objects to start with, in this order"
    )
    parser.add_argument(
        "--bare", action="store_true", help="behave as without a kube-controller-manager: deleted namespaces stay"
    )

    parser.add_argument("--client", action="append", default=[], metavar="NAME[=NAMESPACE/SERVICEACCOUNT]")
    parser.add_argument("--kubeconfigs", type=Path, metavar="DIR", help="writes DIR/NAME.yaml for each --client")

    return parser


async def _run(arguments: argparse.Namespace) -> None:
    host, _, port = arguments.listen.rpartition(":")

    options = Options(
        host=host.strip("[]"),
        port=int(port),
        tls=not arguments.http,
        bare=arguments.bare,
        rbac=[each for path in arguments.rbac for each in manifests.of_rbac(manifests.read(path))],
        objects=[each for path in arguments.load for each in manifests.read(path)],
    )

    async with ApiServer(options) as server:
        _introduce(server, arguments)
        control = Control(server)
        if arguments.control:
            await control.start(arguments.control)
        gc.freeze()  # what was loaded stays: looking through it again and again costs pauses of 0.2 s
        told_to_end = _told_to_end()
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await told_to_end.wait()
        await control.stop()


def _introduce(server: ApiServer, arguments: argparse.Namespace) -> None:
    for client in arguments.client:
        name, _, account = client.partition("=")
        server.add_client(name, account)
        if arguments.kubeconfigs:
            server.write_kubeconfig(arguments.kubeconfigs / f"{name}.yaml", name, account)


def _told_to_end() -> asyncio.Event:
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    return told


if __name__ == "__main__":
    main()
