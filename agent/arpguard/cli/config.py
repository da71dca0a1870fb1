"""`arpguard config`: work with configuration files."""

import argparse

from arpguard.cli import exits
from arpguard.cli.words import counted
from arpguard.config.files import STDIN, read_config
from arpguard.core.cautions import needs_cluster, without_effect


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    config, name = read_config(options.file), "standard input" if options.file == STDIN else options.file
    for caution in (*without_effect(config), *needs_cluster(config)):
        print(f"{name}: warning: {caution}")
    print(f"{name}: ok, mode {config.mode.name.lower()}, {counted(len(config.vips), 'VIP')}")
    return exits.OK
