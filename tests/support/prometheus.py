"""promtool and Prometheus, for real: `make test` brings them beside the interpreter, or they are on the PATH."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from arpguard_lab.netns import Netns
from support.netns.waiting import HUNG_S, until
from support.required import do_without

_LISTEN = "127.0.0.1:9090"
_START_S = 60.0


def run_promtool(*arguments: str, stdin: str = "") -> str:
    """What promtool prints, when it has no objections."""
    done = subprocess.run([_found("promtool"), *arguments], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """One that runs in a namespace."""

    def __init__(self, netns: Netns) -> None:
        self._netns = netns

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer of its API."""

        def ask() -> bytes:
            with urllib.request.urlopen(
                f"http://{_LISTEN}/api/v1/{path}?{urlencode(query)}", timeout=HUNG_S
            ) as response:
                return response.read()

        found = json.loads(self._netns.call(ask))
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """What an expression gives now: labels and value of each series."""
        found = self.get("query", query=expr)
        assert found["resultType"] == "vector", expr
        return [(each["metric"], float(each["value"][1])) for each in found["result"]]

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            self.get("status/runtimeinfo")
        except OSError:
            return False
        return True


@contextmanager
def a_prometheus(netns: Netns, config: Path) -> Iterator[Prometheus]:
    """One with this configuration; what it stores lies beside that."""
    words = [_found("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={config.parent / 'tsdb'}"]
    log = config.with_suffix(".log")
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*netns.prefix(), *words, f"--web.listen-address={_LISTEN}", "--log.level=warn"],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        prometheus = Prometheus(netns)
        until(lambda: process.poll() is not None or prometheus.is_ready(), _START_S)
        assert process.poll() is None, log.read_text(encoding="utf-8")
        yield prometheus
    finally:
        process.terminate()
        process.wait()


def _found(name: str) -> str:
    path = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if path is None:
        do_without(name, f"it is not installed: `make .venv/bin/{name}` brings it")
    return path
