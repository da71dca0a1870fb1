"""Tables that a command writes into a page of the documentation."""

import platform
import subprocess
import time
from pathlib import Path

from neighbours.versions import KUBERNETES


def replace_table(page: Path, name: str, text: str) -> None:
    """Replaces what is between the marks of a table; what is around it stays."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, mark, rest = page.read_text(encoding="utf-8").partition(begin)
    _, other, after = rest.partition(end)
    if not mark or not other:
        raise ValueError(f"{page} has no {begin} with {end} after it")
    page.write_text(f"{before}{begin}\n{text}{end}{after}", encoding="utf-8")


def kept_rows(page: Path, name: str) -> dict[str, str]:
    """The rows of a table in a page, by their first cells; its head is left out."""
    text = page.read_text(encoding="utf-8").partition(f"<!-- {name} -->")[2].partition(f"<!-- end of {name} -->")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in lines[1:]}


def surroundings() -> str:
    """When and with what a table was made."""
    keepalived = subprocess.run(["keepalived", "--version"], capture_output=True, text=True, check=False)
    first = (keepalived.stderr or keepalived.stdout).splitlines()[:1] or ["no keepalived"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    kernel = platform.release().partition("-")[0]  # what follows is its maker's
    return f"{day}; Linux {kernel}, Kubernetes {KUBERNETES}, {first[0].partition('(')[0].strip()}."
