"""The lock files in deploy/lock."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def locked(name: str) -> dict[str, tuple[str, int]]:
    """Version and number of hashes of each package in a lock file."""
    text = (ROOT / "deploy" / "lock" / f"{name}.txt").read_text(encoding="utf-8")
    items = re.findall(r"^([a-z][\w.-]*)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)", text, flags=re.MULTILINE)
    assert len(items) == len(re.findall(r"^[^\s#]", text, flags=re.MULTILINE)), "a line that is no package"
    return {item: (number, hashes.count("--hash")) for item, number, hashes in items}
