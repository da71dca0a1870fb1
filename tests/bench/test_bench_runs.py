"""The benchmarks run, clean up, and give figures that can be figures; how good those are is not for a test to say."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from arpguard_lab.peers.programs import KEEPALIVED, find

RUN = Path(__file__).with_name("run.py")
COMPILED = ("frames", "vouched")
LIMIT_S = 900
LIMIT_MS = 1000 * LIMIT_S


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(RUN), *words], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


@cache
def _done(*sections: str) -> dict[str, dict]:
    """A quick run."""
    done = _run("--quick", "--json", *sections)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _rows(section: str) -> dict[str, dict]:
    """The rows of a section's quick run, by name. A run compiles programs once for all sections that need that."""
    sections = COMPILED if section in COMPILED else (section,)
    return {row["name"]: row for row in _done(*sections)[section]["rows"]}


@pytest.mark.bpf
@pytest.mark.netns
def test_frames_gives_plausible_json():
    rows = _rows("frames")
    assert {"bare XDP program", "bare tc program", "boot clock read, alone"} <= rows.keys()
    for program in ("ingress_tc", "ingress_xdp", "egress_tc"):
        assert f"{program}: IPv4, 60 bytes" in rows
    for program in ("ingress_tc", "ingress_xdp"):
        assert f"{program}: answered, fenced (100,000 VIPs)" in rows
    for name, row in rows.items():
        assert row["unit"] == "ns", name
        assert row["min"] <= row["median"] <= row["max"] < 100_000, name
        assert row["samples"], name
        assert (row["met"] is None) == (row["goal"] == ""), name
        assert row["max"] > 0, name


@pytest.mark.bpf
def test_vouched_gives_plausible_json():
    rows = _rows("vouched")
    for program in ("ingress_tc", "ingress_xdp"):
        answered = rows[f"{program}: answered, fenced: with a voucher"]
        assert answered["min"] <= answered["median"] <= answered["max"]
        assert abs(answered["median"]) < 10_000
        for what in ("ping, pong", "grant"):
            row = rows[f"{program}: {what}"]
            assert 0 < row["min"] <= row["median"] <= row["max"] < 100_000, what
            assert row["goal"] == "floor + 150 or less"


@pytest.mark.bpf
@pytest.mark.netns
def test_api_gives_plausible_json():
    rows = _rows("api")
    for call in ("GetStatus: 50", "ListVips, 100 VIPs: 50", "ListVips, 1,000 VIPs: 50", "GetVip: 1", "ExplainVip: 1"):
        middle, slow, rate = (rows[f"{call} at once, {what}"] for what in ("median", "99th percentile", "rate"))
        assert 0 < middle["median"] <= slow["median"] < 60_000, call
        readers = int(call.rpartition(" ")[2])
        assert rate["median"] * middle["median"] / 1000 < 3 * readers, f"{call}: no reader has two calls open"
    whole, page = (
        rows[f"ListVips, {what}: 50 at once, median"] for what in ("all VIPs in pages of 1,000", "1,000 VIPs")
    )
    assert whole["median"] > page["median"], "two pages are not one"
    assert rows["ARP answers, with readers / without"]["median"] > 0
    assert all(
        " answered" in row["note"] for name, row in rows.items() if name.startswith("ARP answers, ") and row["note"]
    )
    assert 9 < rows["RSS: 10 VIPs, nothing served, idle"]["median"] < 1000


@pytest.mark.bpf
@pytest.mark.netns
def test_vouching_gives_plausible_json():
    rows = _rows("vouching")
    gaps = {name: row for name, row in rows.items() if row["unit"] == "ms"}
    assert len(gaps) == 6
    for name, row in gaps.items():
        assert len(row["samples"]) >= 10, name
        assert 0 < row["min"] <= row["median"] <= row["max"], name
        assert "p99.9" in row["note"], name
    assert 9 < rows["the process: resident, own share"]["max"] < 100


@pytest.mark.bpf
@pytest.mark.netns
def test_deaths_gives_plausible_json():
    rows = _rows("deaths")
    for profile in ("fast", "default"):
        first, every = (rows[f"vouching, {profile}: {what}"] for what in ("the first VIP", "every VIP"))
        assert 0 < first["min"] == every["min"] <= every["max"] < LIMIT_MS
        assert 1 == len(first["samples"]) <= len(every["samples"]), "one node dies"
    if find(KEEPALIVED):
        for interval in ("1", "0.1"):
            taken = rows[f"keepalived, advert_int {interval}"]
            assert len(taken["samples"]) == 1
            assert 0 < taken["min"] <= taken["max"] < LIMIT_MS


@pytest.mark.bpf
@pytest.mark.netns
def test_busy_gives_plausible_json():
    rows = _rows("busy")
    sent = int(rows["requests lost"]["note"].split()[1].replace(",", ""))
    assert 0 <= rows["requests lost"]["max"] < sent
    silent, longest = rows["silent in all, of each VIP"], rows["longest silence"]
    assert len(silent["samples"]) == 12, "each VIP has a figure"
    assert (silent["max"] > 0) == (longest["max"] > 0) == (rows["requests lost"]["max"] > 0)
    assert 0 < rows["a task waited for a core"]["max"] <= 110, "the kernel averages"


@pytest.mark.bpf
@pytest.mark.netns
def test_audit_gives_plausible_json():
    rows = _rows("audit")
    without, audited = rows["an agent without the audit"], rows["an agent with every: 15s"]
    assert [len(row["samples"]) for row in (without, audited)] == [3, 3], "each node has a figure"
    assert 0 < min(without["min"], audited["min"]) <= max(without["max"], audited["max"]) < 100
    found = rows["a rogue is found on every VIP"]
    assert (found["note"], 0 < found["max"] < LIMIT_MS / 1000) == ("60 VIPs", True)


def test_an_unknown_section_is_refused():
    done = _run("no-such-section")
    assert done.returncode == 2
    assert "no section no-such-section" in done.stderr
