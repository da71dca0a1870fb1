"""The dashboard as tests read it."""

import json
from pathlib import Path
from typing import Any

MONITORING = Path(__file__).resolve().parents[2] / "deploy/monitoring"


def dashboard() -> dict[str, Any]:
    """The one for Grafana, as it is shipped."""
    return json.loads((MONITORING / "arpguard.json").read_text(encoding="utf-8"))


def all_panels(of: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows, and what is in them, from the top: those of a collapsed row are inside it."""
    return [each for panel in of["panels"] for each in (panel, *panel.get("panels", ()))]
