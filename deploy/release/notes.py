"""The release notes: what the changelog says of the version."""

import re
from collections.abc import Iterator
from pathlib import Path

from artefacts import Work


def make(work: Work) -> Iterator[Path]:
    """The section of the version, or that of what is unreleased, while it has none."""
    changelog = (work.stage / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = work.out / f"arpguard-{work.release.version}-notes.md"
    notes.write_text(
        f"# arpguard {work.release.version}\n\n{section(changelog, work.release.version)}\n", encoding="utf-8"
    )
    yield notes


def section(changelog: str, version: str) -> str:
    """What stands below the heading of a version, such as `## 1.2.3 - 2026-01-31`."""
    sections = dict(re.findall(r"^## \[?([^\]\s]+)\]?[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL))
    text = sections.get(version) or sections.get("Unreleased") or ""
    if not text.strip():
        raise SystemExit(f"CHANGELOG.md has no section for {version}: add a section `## {version}`")
    return text.strip()
