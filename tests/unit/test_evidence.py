"""What the pages name as evidence is there."""

import re
from pathlib import Path

import pytest

from arpguard.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(tests/[\w/.]+)", PAGE))))
def test_file_is_there(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make (\w+)`", PAGE))))
def test_target_is_there_and_told_of(target):
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
    assert re.search(rf"^#   make {target} ", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`arpguard ([^`]+)`", PAGE))))
def test_command_is_one(command):
    options = build_parser().parse_args(command.split())
    assert options.scenario
