"""The README's commands, typed as they stand there, on a node of a lab."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from arpguard.lab.topology import Lab

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

ROOT = Path(__file__).resolve().parents[2]

# A bpffs of its own in a mount namespace of its own: the commands use the default pin directory.
# A command that was put in the background is up once `arpguard status` says so.
_SCRIPT = """
set -e
mount -t bpf bpf /sys/fs/bpf
wait_until_up() {
    for _ in $(seq 100); do
        arpguard status >/dev/null 2>&1 && return
        sleep 0.1
    done
    exit 9
}
"""


def _commands() -> list[str]:
    blocks = re.findall(
        r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = [line.removeprefix("# ") for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith("make ")]


def _script(commands: list[str]) -> str:
    text = _SCRIPT
    for command in commands:
        text += f"echo '+ {command}'\n{command}\n"
        if command.endswith("&"):
            text += "wait_until_up\n"
        if command.startswith("kill"):
            text += "wait\n"
    return text


def test_readme_shows_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    assert "# make lab\n# make test\n" in text


def test_readme_commands_do_what_they_say(tmp_path):
    with Lab(1, tmp_path, tmp_path) as lab:
        done = subprocess.run(
            [*lab.nodes[0].netns.prefix(), "unshare", "--mount", "bash", "-c", _script(_commands())],
            cwd=ROOT,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
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
