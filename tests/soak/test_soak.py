"""A short soak: nothing grows, and what grows is told."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import record  # noqa: E402

SECONDS = 40
ASK_S = 0.01


def a_series(value, count=100, name="rss_mb"):
    return [dict.fromkeys(record.QUANTITIES, 1.0) | {"time_s": float(at), name: value(at)} for at in range(count)]


def test_what_stays_does_not_grow():
    assert record.growing({"node-1": a_series(lambda at: 80.0 + at % 7)}) == []


@pytest.mark.parametrize("name", record.QUANTITIES)
def test_what_grows_is_told(name):
    most = record.QUANTITIES[name].tolerance
    assert record.growing({"node-1": a_series(lambda at: at * most / 90, name=name)})
    assert not record.growing({"node-1": a_series(lambda at: at * most / 110, name=name)})


def test_one_peak_is_no_growth():
    assert record.growing({"node-1": a_series(lambda at: 500.0 if at == 99 else 80.0)}) == []


def test_slope_is_per_second():
    assert record.slope([(0.0, 1.0), (10.0, 3.0), (20.0, 5.0)]) == pytest.approx(0.2)
    assert record.slope([]) == record.slope([(1.0, 1.0)]) == 0.0


@pytest.mark.bpf
@pytest.mark.netns
def test_agents_need_no_more_at_the_end(tmp_path):
    asked = {"--for": SECONDS, "--every": 2, "--ask": ASK_S, "--out": tmp_path}
    words = [sys.executable, str(FOLDER / "run.py"), *(str(word) for option in asked.items() for word in option)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "soak.csv").open(encoding="ascii") as file:
        rows = list(csv.DictReader(file))
    assert {row["node"] for row in rows} == {"node-1", "node-2", "node-3"}
    assert len(rows) > SECONDS / 2
    sent = int(re.search(r"requests=(\d+)", done.stdout)[1])
    assert 0 < sent < 1.5 * SECONDS / ASK_S
    assert all(float(row["rss_mb"]) > float(row["anon_mb"]) > 10 and float(row["entries"]) >= 11 for row in rows)
    assert all(float(row["connections"]) >= 1 and float(row["fds"]) > 10 for row in rows)
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
    assert "overlaps=0" in done.stdout
    assert len(re.findall(r"an hour: [+-][\d.]+ MB resident, [+-][\d.]+ MB without pages of files\n", done.stdout)) == 3
