"""The commands of docs/replay.md, typed as they stand there, on a client that three nodes answer."""

import re
import subprocess

import pytest

from arpguard_lab.topology import Lab
from netns.test_readme import _BEFORE, ROOT, Typed, _typed
from support.netns.cable import a_place, address
from support.netns.waiting import HUNG_S
from support.netns.wire import asking

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

PAGE, CONFIG = ROOT / "docs/replay.md", ROOT / "deploy/standalone/config.yaml"
VIP = address(50)
DOUBLED, DONE = 1, 0


def _pattern(line: str) -> str:
    """A line with any numbers in the place of its own, which differ from run to run; MACs and addresses stay."""
    times = re.sub(r"(?<![\d:])\d\d:\d\d:\d\d(\.\d+)?(?!:)|\d{4}-\d\d-\d\d", "T", line)
    return re.sub(r"\s+", " ", re.sub(r"(?<![\d:.])\d+(?=[ ,;s]|$)", "N", times)).strip()


@pytest.fixture(scope="module")
def typed() -> list[tuple[Typed, str, int]]:
    """Each command of the page with what it printed, and its exit code."""
    commands = _typed(PAGE)
    questions = "export COLUMNS=100\n" + "\n".join(
        f"echo '@@@'; {{ {one.command}; }} 2>&1; echo @@=$?" for one in commands
    )
    with a_place("page") as (folder, pin_root), Lab(3, folder, pin_root) as lab:
        folder.chmod(0o777)  # tcpdump writes as a user of its own
        (folder / "config.yaml").write_text(CONFIG.read_text())
        for node in lab.nodes:
            node.bind(VIP, "lo")
        with asking(lab.client, VIP):
            done = subprocess.run(
                [*lab.client.netns.prefix(), "unshare", "--mount", "bash", "-c", _BEFORE + "set +e\n" + questions],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=HUNG_S,
                check=False,
            )
    found = re.findall(r"^@@@\n(.*?)^@@=(\d+)$", done.stdout, re.MULTILINE | re.DOTALL)
    assert len(found) == len(commands), done.stdout + done.stderr
    return [(one, output, int(code)) for one, (output, code) in zip(commands, found, strict=True)]


def test_commands_of_the_page_do_what_it_says(typed):
    assert len(typed) >= 5
    for one, output, code in typed:
        assert code == (DOUBLED if "arpguard replay" in one.command else DONE), f"{one.command}\n{output}"


def test_what_the_page_shows_is_what_is_printed(typed):
    assert sum(bool(one.shown) for one, _, _ in typed) >= 3
    for one, output, _ in typed:
        printed = {_pattern(line) for line in output.splitlines()}
        missing = [line for line in one.shown.splitlines() if _pattern(line) not in printed]
        assert missing == [], f"{one.command}\n{output}"
