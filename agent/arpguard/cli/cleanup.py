"""`arpguard cleanup`: removes the guard of an agent that is gone."""

import argparse
import asyncio
from pathlib import Path

from arpguard.cli import exits
from arpguard.cli.arguments import need_root
from arpguard.config.files import read_config
from arpguard.config.model import NOT_A_PIN_DIR
from arpguard.dataplane import bpffs
from arpguard.dataplane.attach import remove_guard
from arpguard.errors import ConfigError, DataPlaneError, LockedError, Problem


def clean_up(options: argparse.Namespace) -> int:
    """`arpguard cleanup`."""
    pin_dir = read_config(options.config).bpf.pin_dir if options.config else options.pin_dir
    need_root()

    if pin_dir in NOT_A_PIN_DIR:
        raise ConfigError(
            "arpguard cleanup", [Problem("--pin-dir", f"{pin_dir}: must be a folder that only the agent uses")]
        )
    if not pin_dir.is_dir():
        print(f"nothing is pinned under {pin_dir}")
        _remove_early(options.early_file, pin_dir)
        return exits.OK
    if not bpffs.is_bpffs(pin_dir):
        raise DataPlaneError(f"{pin_dir} is not on a BPF file system: --pin-dir must be the agent's bpf.pin_dir")

    try:
        held = bpffs.lock(pin_dir)
    except LockedError as error:
        raise LockedError(
            f"an agent is running here and would guard the node again: stop it first (its bpf.pin_dir is {pin_dir})"
        ) from error
    with held:
        _remove_early(options.early_file, pin_dir)
        asyncio.run(remove_guard(pin_dir))
    bpffs.remove_all(pin_dir)
    print(f"removed the guard and everything under {pin_dir}")
    return exits.OK


def _remove_early(file: Path, pin_dir: Path) -> None:
    """Removes what `arpguard early` would close at the next boot, unless it belongs to an agent with other pins."""
    try:
        if not file.exists() or read_config(file).bpf.pin_dir != pin_dir:
            return
    except ConfigError:
        pass  # it closes nothing, and would only fail at each boot
    file.unlink()
    print(f"removed {file}: `arpguard early` closes no ranges at the next boot")
