"""`arpguard config`: work with configuration files."""

import argparse
import sys
from pathlib import Path

from arpguard.cli import exits
from arpguard.cli.words import counted
from arpguard.config.files import MAX_FILE_BYTES, parse_file, read_config
from arpguard.config.model import AgentConfig
from arpguard.core.cautions import needs_cluster, without_effect
from arpguard.errors import ConfigError, Problem


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config, name = _read(options.file)
    for caution in (*without_effect(config), *needs_cluster(config)):
        print(f"{name}: warning: {caution}")
    print(f"{name}: ok, mode {config.mode.name.lower()}, {counted(len(config.vips), 'VIP')}")
    return exits.OK


def _read(file: Path) -> tuple[AgentConfig, str]:
    """The configuration, and what its source is called."""
    if str(file) != "-":
        return read_config(file), str(file)
    name = "standard input"
    if sys.stdin is None:  # closed
        raise ConfigError(name, [Problem("", "closed: name a readable YAML file")])
    return parse_file(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), name), name
