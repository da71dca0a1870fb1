"""Builds the documentation site into dist/site: `make docs`. A warning is an error.

The pages are Markdown files all over the repository. They are staged in the same folders, so that their links
lead where they lead in the repository; a link to a folder, which the site does not have, becomes plain text.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
STAGE, SITE = TOP / ".cache/site", TOP / "dist/site"
STYLE = "docs/site.css"
_LEFT_OUT = {".github", ".venv", ".cache", ".pytest_cache", "dist", "build"}
_LINK = re.compile(r"(?<!`)\[([^\]]*)\]\(([^)#\s]+)((?:#[^)]*)?)\)")


def pages() -> Iterator[Path]:
    """Every page, below the top."""
    for path in sorted(TOP.rglob("*.md")):
        below = path.relative_to(TOP)
        if not _LEFT_OUT & set(below.parts):
            yield below


def stage(folder: Path) -> None:
    """Fills the folder with the pages, and the files that they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    _put(folder / STYLE, (TOP / STYLE).read_text(encoding="utf-8"))
    for page in pages():
        text = (TOP / page).read_text(encoding="utf-8")
        for _, target, _ in _LINK.findall(text):
            source = (TOP / page.parent / target).resolve()
            if "://" not in target and source.is_file() and source.suffix != ".md":
                _put(folder / source.relative_to(TOP), source.read_text(encoding="utf-8"))
        _put(folder / page, _LINK.sub(lambda found, page=page: _linked(page, found), text))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _linked(page: Path, found: "re.Match[str]") -> str:
    """A link as the site has it."""
    is_folder = "://" not in found[2] and (TOP / page.parent / found[2]).is_dir()
    return found[1] if is_folder else found[0]


def build(staged: Path, site: Path) -> int:
    """Builds the site from staged pages, and gives the exit code: 1 for any warning."""
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(TOP / "docs/mkdocs.yml")]
    settings = {"ARPGUARD_STAGE": str(staged), "NO_MKDOCS_2_WARNING": "1"}  # no word from the theme about its successor
    done = subprocess.run([*words, "--site-dir", str(site)], cwd=TOP, env=os.environ | settings, check=False)  # noqa: S603
    return done.returncode


def main() -> int:
    """Entry point."""
    stage(STAGE)
    return build(STAGE, SITE)


if __name__ == "__main__":
    sys.exit(main())
