"""promtool, for real: `make test` brings it beside the interpreter, or it is on the PATH."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.required import do_without


def run_promtool(*arguments: str, stdin: str = "") -> str:
    """What promtool prints, when it has no objections."""
    done = subprocess.run([_found(), *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _found() -> str:
    path = shutil.which("promtool", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if path is None:
        do_without("promtool", "it is not installed: `make .venv/bin/promtool` brings it")
    return path
