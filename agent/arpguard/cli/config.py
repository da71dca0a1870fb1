"""`arpguard config`: work with configuration files."""

import argparse

from arpguard.cli import exits
from arpguard.config.files import read_config
from arpguard.core.cautions import needs_cluster, without_effect


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config = read_config(options.file)
    for caution in (*without_effect(config), *needs_cluster(config)):
        print(f"{options.file}: warning: {caution}")
    print(f"{options.file}: ok, mode {config.mode.name.lower()}, {len(config.vips)} VIPs")
    return exits.OK
