"""`arpguard agent`: guards this node until SIGTERM or SIGINT."""

import argparse
import asyncio
import logging
import os
import resource
import sys

from arpguard.cli import exits
from arpguard.cli.arguments import need_root
from arpguard.errors import ConfigError, Problem
from arpguard.names import printable
from arpguard.runtime.cluster.leaving import KubernetesOptions
from arpguard.runtime.startup import AgentOptions, Startup

_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"


_MAX_MESSAGE = 4000


class OneLine(logging.Formatter):
    """Whoever chose the name of a link, or a text in a Service, makes no lines of the log, and steers no terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, without characters that cannot be printed, and with an end."""
        if len(record.message) > _MAX_MESSAGE:
            record.message = record.message[:_MAX_MESSAGE] + "..."
        record.message = printable(record.message)
        return super().formatMessage(record)


def run_agent(options: argparse.Namespace) -> int:
    """`arpguard agent`."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    logging.getLogger().handlers[0].setFormatter(OneLine(_LOG_FORMAT, "%Y-%m-%dT%H:%M:%S"))
    startup = Startup(AgentOptions(options.config, options.node_name, _kubernetes(options), options.standby))
    need_root()
    os.umask(os.umask(0o077) | 0o022)  # whatever it makes, nobody else may write to
    # Connections of callers must not take the descriptors that the guard needs; systemd's soft limit is 1024.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(startup.run())
    return exits.OK


def _kubernetes(options: argparse.Namespace) -> KubernetesOptions | None:
    """How to reach the cluster; None when nothing says that there is one."""
    if not options.configmap and not options.kubeconfig:
        if not options.config:
            wrong = Problem("--config", "missing", "name a file, or a ConfigMap with --configmap NAMESPACE/NAME")
            raise ConfigError("arpguard agent", [wrong])
        return None
    return KubernetesOptions(options.kubeconfig, options.configmap or "")
