"""A lab of nodes with agents and an API server (arpguard_lab), for a section's time."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from arpguard.dataplane import bpffs
from arpguard_lab.cluster.topology import KubeLab


@contextmanager
def a_lab(nodes: int, hosts: Sequence[tuple[str, int]] = ()) -> Iterator[KubeLab]:
    """Nodes, and other hosts by name and number, on one switch; nothing of them is left at the end."""
    with tempfile.TemporaryDirectory(prefix="arpguard-bench-") as folder:
        pins = Path("/sys/fs/bpf") / Path(folder).name
        bpffs.prepare(pins)
        try:
            with KubeLab(nodes, Path(folder), pins, hosts) as lab:
                yield lab
        finally:
            bpffs.remove(pins)
