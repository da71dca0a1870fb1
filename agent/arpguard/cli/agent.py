"""`arpguard agent`: guards this node until SIGTERM or SIGINT."""

import argparse
import asyncio
import os
import resource
from pathlib import Path

from arpguard.cli import exits
from arpguard.cli.arguments import need_root, node_name
from arpguard.cli.logs import start_log
from arpguard.errors import ConfigError, Problem
from arpguard.runtime.settings import KubernetesOptions
from arpguard.runtime.startup import AgentOptions, Startup


def run_agent(options: argparse.Namespace) -> int:
    """`arpguard agent`."""
    start_log(options.log_level, options.log_format)
    wanted = AgentOptions(
        options.config,
        node_name(options),
        _kubernetes(options),
        options.standby,
        options.early_file,
        named_by_host=not options.node_name,
    )
    startup = Startup(wanted)
    need_root()
    os.umask(os.umask(0o077) | 0o022)  # only root may write to what it creates
    # Connections of callers must not take the descriptors that the guard needs; systemd's soft limit is 1024.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(startup.run())
    return exits.OK


def _kubernetes(options: argparse.Namespace) -> KubernetesOptions | None:
    """How to reach the cluster; None when nothing says that there is one."""
    if not options.configmap and not options.kubeconfig:
        if not options.config:
            raise _wrong("--config", "missing: name a file, or a ConfigMap with --configmap NAMESPACE/NAME")
        if options.trace:
            raise _wrong(
                "--trace",
                "traces the claim protocol, which needs a cluster: give --configmap or --kubeconfig, or omit --trace",
            )
        return None

    if options.trace:
        _require_writable(options.trace)
    return KubernetesOptions(options.kubeconfig, options.configmap or "", options.trace)


def _require_writable(trace: Path) -> None:
    """Checks at the start that the file can be written, although the agent opens it only later."""
    try:
        trace.open("ab").close()
    except OSError as error:
        wrong = f"cannot write {trace}: {error.strerror}; name a file in a folder that exists"
        raise _wrong("--trace", wrong) from error


def _wrong(option: str, message: str) -> ConfigError:
    return ConfigError("arpguard agent", [Problem(option, message)])
