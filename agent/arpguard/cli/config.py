"""`arpguard config`: work with configuration files."""

import argparse

from arpguard.cli import exits
from arpguard.config.files import read_config


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config = read_config(options.file)
    print(f"{options.file}: ok, mode {config.mode.name.lower()}, {len(config.vips)} VIPs")
    return exits.OK
