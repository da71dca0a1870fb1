"""The commands of README, docs/quickstart.md and docs/api.md, typed as they stand there, on a node of a lab."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.apitools import needs_grpcurl
from arpguard_lab.topology import Lab
from support.netns.cable import address
from support.netns.wire import asking

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

ROOT = Path(__file__).resolve().parents[2]
README, QUICKSTART, API = (ROOT / name for name in ("README.md", "docs/quickstart.md", "docs/api.md"))
GUARDED = address(51)
TIMED_OUT = 68  # grpcurl's exit code at the end of -max-time: 64 and the status code

# In a mount namespace of its own, for the commands use the default pin directory and socket.
_BEFORE = f"""
set -e; trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
export PATH={Path(sys.executable).parent}:$PATH
"""


@dataclass
class Typed:
    """A command, and what the page shows of its output."""

    command: str
    shown: str = ""


def _typed(page: Path) -> list[Typed]:
    found: list[Typed] = []
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for language, text in blocks:
        if language == "console":
            found += [Typed(line.removeprefix("# ")) for line in text.splitlines()]
        elif language in {"json", "text"} and found:
            found[-1].shown = text
    return [typed for typed in found if not typed.command.startswith("make ")]


def _run(lab: Lab, script: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*lab.nodes[0].netns.prefix(), "unshare", "--mount", "bash", "-c", _BEFORE + script],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_readme_shows_the_two_commands():
    assert "# make lab\n# make test\n" in README.read_text(encoding="utf-8")


def test_readme_walks_from_observe_to_enforce(tmp_path):
    with Lab(1, tmp_path, tmp_path) as lab:
        done = _run(lab, "\n".join(typed.command for typed in _typed(README)), ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        "arpguard.yaml: ok",
        "mode observe, 2 of 1024 entries",
        "198.51.100.50",
        "mode enforce, 2 of 1024 entries",
        "removed",
    ):
        assert expected in done.stdout

    shown = [line.split() for typed in _typed(README) for line in typed.shown.splitlines()]
    printed = [line.split() for line in done.stdout.splitlines()]
    assert shown
    assert [line for line in shown if line not in printed] == []


def test_quickstart_commands_do_what_they_say(tmp_path):
    """The lab may exit with 1 for a bound of time alone, or not judge that: a busy machine misses one."""
    commands = [typed.command for typed in _typed(QUICKSTART)]
    commands = [f"{command} || [ $? = 1 ]" if "arpguard lab" in command else command for command in commands]
    with Lab(1, tmp_path, tmp_path) as lab:
        done = _run(lab, "\n".join(commands), ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    said = " ".join(done.stdout.split())  # lines are broken anywhere
    missed = re.findall(r"gap \d+ ms, limit \d+ ms: NOT kept", said)
    assert said.count("NOT AS EXPECTED") + said.count("NOT JUDGED") == len(missed)
    assert said.count("NOT ") == 2 * len(missed)
    for expected in ("hand_overs=3", "overlaps=0"):
        assert expected in done.stdout


# ---- pages about the API -----------------------------------------------------------------------------------------


def _config(page: Path, folder: Path) -> str:
    """The shipped configuration, with the page's `grpc:` if it has one; its files are in the folder."""
    own = re.findall(r"^```yaml\n(grpc:.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    shipped = (ROOT / "deploy/standalone/config.yaml").read_text(encoding="utf-8")
    return shipped + "".join(own).replace("/etc/arpguard/tls", str(folder))


def _script(commands: list[Typed], config: Path) -> str:
    """Files first, then the agent, then all that is asked, each with a line before it and its exit code behind."""
    before = [typed.command for typed in commands if typed.command.startswith("openssl ")]
    asked = [typed.command for typed in commands if not typed.command.startswith("openssl ")]
    start = f"arpguard agent --config {config} --node-name node-1 2>agent.log & "
    start += "until grep -q ready: agent.log; do sleep 0.1; done"
    questions = [f"echo '@@@'{shlex.quote(command)}; {command} 2>&1; echo @@=$?" for command in asked]
    return "\n".join([*before, start, "set +e", *questions, "kill %1; wait"])


def _outputs(text: str) -> dict[str, tuple[str, int]]:
    """What each command printed, and its exit code."""
    found = re.findall(r"^@@@(.*?)\n(.*?)^@@=(\d+)$", text, re.MULTILINE | re.DOTALL)
    return {command: (output, int(code)) for command, output, code in found}


def _documents(text: str) -> Iterator[object]:
    """The JSON values that follow each other in a text."""
    decoder, at = json.JSONDecoder(), 0
    while (start := text.find("{", at)) >= 0:
        value, at = decoder.raw_decode(text, start)
        yield value


def _is_part(shown: object, found: object) -> bool:
    """Whether all that is shown was found; a page leaves out what does not matter."""
    if isinstance(shown, dict) and isinstance(found, dict):
        return all(key in found and _is_part(value, found[key]) for key, value in shown.items())
    if isinstance(shown, list) and isinstance(found, list):
        return all(any(_is_part(value, other) for other in found) for value in shown)
    return shown == found


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> tuple[list[Typed], dict[str, tuple[str, int]]]:
    """The questions of docs/api.md, and what came of them."""
    needs_grpcurl()
    folder = tmp_path_factory.mktemp("page")
    (folder / "proto").symlink_to(ROOT / "proto")
    config = folder / "config.yaml"
    config.write_text(_config(API, folder), encoding="utf-8")
    commands = _typed(API)
    with Lab(1, folder, folder) as lab, asking(lab.client, GUARDED):
        done = _run(lab, _script(commands, config), folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return commands, _outputs(done.stdout)


def test_every_question_of_the_page_is_answered(asked):
    commands, outputs = asked
    assert len([command for command in outputs if command.startswith("grpcurl ")]) >= 5
    for typed in commands:
        if typed.command.startswith("openssl "):
            continue
        output, code = outputs[typed.command]
        if "-max-time" in typed.command:
            assert code == TIMED_OUT, output
            assert '"decision"' in output
        elif typed.shown.startswith("ERROR"):
            assert code not in (0, TIMED_OUT), output
        else:
            assert code == 0, f"{typed.command}\n{output}"


def test_what_the_page_shows_is_part_of_the_answer(asked):
    commands, outputs = asked
    for typed in commands:
        output = outputs[typed.command][0] if typed.shown else ""
        if typed.shown.startswith("{"):
            found = list(_documents(output))
            assert any(_is_part(json.loads(typed.shown), value) for value in found), f"{typed.command}\n{output}"
        else:
            assert typed.shown in output
