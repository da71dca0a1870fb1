"""Where a command sends its requests: an agent, the pinned objects in its place, or the agents of all nodes."""

import argparse
import os
from contextlib import AbstractContextManager, nullcontext
from ipaddress import ip_address

from arpguard.cli import client
from arpguard.cli.client import OTHER_AGENT, OTHER_SOURCES, Questions, Target, Tls
from arpguard.cli.options import DEFAULT_PORT, DEFAULT_TARGET
from arpguard.config.model import is_local
from arpguard.errors import ConfigError, Problem

_TLS_FLAGS = ("tls_ca", "tls_cert", "tls_key")


def target(options: argparse.Namespace) -> Target:
    """The agent that the options name; ConfigError when they make no sense."""
    given = options.agent or os.environ.get("ARPGUARD_ADDRESS")
    address = given or DEFAULT_TARGET
    everywhere = getattr(options, "all_nodes", False)
    _refuse_lone_port(options)
    return Target(
        address=address,
        tls=None if everywhere and is_local(address) else _tls(options),
        timeout_s=options.timeout,
        remedy=OTHER_SOURCES if hasattr(options, "pin_dir") else OTHER_AGENT,
    )


def target_of(options: argparse.Namespace, address: str) -> Target:
    """The agent of another node, by the address of its Node object."""
    found = ip_address(address)
    host = f"[{found}]" if found.version == 6 else str(found)
    remedy = "or give its port with --port"
    return Target(f"{host}:{options.port or DEFAULT_PORT}", _tls(options), options.timeout, remedy)


def need_tls(options: argparse.Namespace) -> None:
    """Raises ConfigError where there are no files for mutual TLS: other nodes' agents take nothing else."""
    if _tls(options) is None:
        needed = "--all-nodes asks the other nodes' agents over the network, which needs mutual TLS"
        flags = [f"--{name.replace('_', '-')}" for name in _TLS_FLAGS]
        raise ConfigError(f"arpguard {options.command}", [Problem(flag, f"missing: {needed}") for flag in flags])


def source(options: argparse.Namespace) -> AbstractContextManager[Questions]:
    """An agent, or with --pin-dir the pinned objects."""
    if options.pin_dir is None:
        return client.connected(target(options))
    if options.agent:
        allowed = "give either --address (an agent) or --pin-dir (the kernel's objects on this node)"
        raise ConfigError(f"arpguard {options.command}", [Problem("--pin-dir", f"{options.pin_dir}: {allowed}")])
    _refuse_lone_port(options)

    from arpguard.cli.pins import pinned  # noqa: PLC0415 - half of all imports, and most commands ask an agent

    return nullcontext(pinned(options.pin_dir))


def refuse_pins(options: argparse.Namespace) -> None:
    """Raises ConfigError for --pin-dir, which knows no other node."""
    if getattr(options, "pin_dir", None) is not None:
        allowed = "give either --all-nodes (the agents) or --pin-dir (the kernel's objects on this node)"
        raise ConfigError(f"arpguard {options.command}", [Problem("--pin-dir", f"{options.pin_dir}: {allowed}")])


def _refuse_lone_port(options: argparse.Namespace) -> None:
    if getattr(options, "port", None) is not None and not options.all_nodes:
        why = "needs --all-nodes; for one agent, give the port in --address"
        raise ConfigError(f"arpguard {options.command}", [Problem("--port", f"{options.port}: {why}")])


def _tls(options: argparse.Namespace) -> Tls | None:
    """All three files, or none and no name."""
    files = {name: getattr(options, name) for name in _TLS_FLAGS}
    if not any(files.values()) and not options.tls_server_name:
        return None
    missing = [f"--{name.replace('_', '-')}" for name, path in files.items() if path is None]
    if missing:
        needed = "mutual TLS needs --tls-ca, --tls-cert and --tls-key"
        raise ConfigError(f"arpguard {options.command}", [Problem(flag, f"missing: {needed}") for flag in missing])
    return Tls(files["tls_ca"], files["tls_cert"], files["tls_key"], options.tls_server_name)
