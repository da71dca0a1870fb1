"""`arpguard agent`: the command that goes on."""

import argparse
import asyncio
import logging
import resource
import sys

from arpguard.cli import exits
from arpguard.cli.arguments import need_root
from arpguard.runtime.agent import Agent, AgentOptions

_LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(message)s"


def run_agent(options: argparse.Namespace) -> int:
    """`arpguard agent`."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=_LOG_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S")
    agent = Agent(AgentOptions(config=options.config, node=options.node_name))
    need_root()
    # Connections of callers must not take the descriptors that the guard needs; systemd's soft limit is 1024.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(agent.run())
    return exits.OK
