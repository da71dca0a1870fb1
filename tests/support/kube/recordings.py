"""Objects that other announcers write, as they were recorded (tests/kube/recorded), and who reads them."""

import json
from functools import cache
from pathlib import Path

from arpguard.kube.following import SOURCES

RECORDED = Path(__file__).parents[2] / "kube/recorded"
OF = {each.source: each for each in SOURCES}


@cache
def _text(path: str) -> str:
    return (RECORDED / f"{path}.json").read_text()


def recorded(path: str) -> dict:
    """A copy of its own for each who asks."""
    return json.loads(_text(path))
