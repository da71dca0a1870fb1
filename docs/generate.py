"""Writes docs/reasons.md from the code: `make docs`. A test compares."""

from pathlib import Path

from arpguard.verdict import Reason

PAGE = Path(__file__).with_name("reasons.md")
_HEAD = """# Reasons

Why a frame got its verdict: one list for the BPF programs, the agent, its API, its metrics and this page.
Each reason has one verdict.
Each is counted for every VIP and for the node.
Decisions that were carried out and those that were only observed are counted apart.

| number | reason | verdict | meaning |
|---|---|---|---|
"""


def reasons_page() -> str:
    """The page as it has to be."""
    return _HEAD + "".join(
        f"| {reason.value} | `{reason.name.lower()}` | {reason.verdict.name.lower()} | {reason.meaning} |\n"
        for reason in Reason
    )


if __name__ == "__main__":
    PAGE.write_text(reasons_page(), encoding="utf-8")
