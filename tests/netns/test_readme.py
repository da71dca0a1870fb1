"""The README's commands, typed as they stand there, on a node of a lab."""

import re
import subprocess
from pathlib import Path

import pytest

from arpguard.lab.topology import Lab

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

ROOT = Path(__file__).resolve().parents[2]

# A bpffs of its own in a mount namespace of its own: the commands use the default pin directory.
_BEFORE = "set -e; mount -t bpf bpf /sys/fs/bpf\n"


def _commands() -> list[str]:
    blocks = re.findall(
        r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [line.removeprefix("# ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("make ")]


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "# make lab\n# make test\n" in text


def test_readme_commands_do_what_they_say(tmp_path):
    with Lab(1, tmp_path, tmp_path) as lab:
        done = subprocess.run(
            [*lab.nodes[0].netns.prefix(), "unshare", "--mount", "bash", "-c", _BEFORE + "\n".join(_commands())],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        "config.yaml: ok",
        "mode observe, 2 of 1024 entries",
        "198.51.100.51",
        "02:00:00:00:00:64",
        "removed",
    ):
        assert expected in done.stdout
