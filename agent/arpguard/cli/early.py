"""`arpguard early`: closes ranges at boot, before the agent of this node runs."""

import argparse
import asyncio

from arpguard.cli import exits
from arpguard.cli.arguments import need_root
from arpguard.cli.logs import start_log
from arpguard.config.files import read_config
from arpguard.errors import LockedError
from arpguard.runtime.early import close_early


def run_early(options: argparse.Namespace) -> int:
    """`arpguard early`."""
    start_log(options.log_level, options.log_format)
    config = read_config(options.file)
    need_root()
    try:
        print(asyncio.run(close_early(config, options.wait)))
    except LockedError:
        print(f"nothing to do: an agent is running on this node (it uses {config.bpf.pin_dir})")
    return exits.OK
