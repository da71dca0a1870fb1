"""The file of a trace: lines that are there at once, and an end that it says itself."""

import json
from types import SimpleNamespace

from arpguard.core.ownership.records import ClearTerm, ReadTerm, SetFence
from arpguard.core.pacing import Pacing
from arpguard.runtime.cluster.tracing import TracedLeases
from arpguard.runtime.tracefile import FULL, BufferedTrace, TraceFile


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_line_is_in_the_file_at_once_and_says_when_and_who(tmp_path):
    path = tmp_path / "trace"
    trace = TraceFile(path, "node-1", "i-1")

    trace.tell("claim seen", {"vip": "192.0.2.1", "found": None})
    (line,) = lines_of(path)
    assert line.pop("ns") > 0
    assert line == {"node": "node-1", "instance": "i-1", "event": "claim seen", "vip": "192.0.2.1", "found": None}


def test_the_next_agent_appends(tmp_path):
    path = tmp_path / "trace"
    for instance in ("i-1", "i-2"):
        TraceFile(path, "node-1", instance).tell("started", {})

    assert [line["instance"] for line in lines_of(path)] == ["i-1", "i-2"]


def test_a_file_that_is_full_ends_with_a_line_that_says_so(tmp_path, caplog):
    path = tmp_path / "trace"
    trace = TraceFile(path, "node-1", "i-1", longest=300)
    for _ in range(20):
        trace.tell("claim seen", {"vip": "192.0.2.1"})

    *seen, last = lines_of(path)
    assert {line["event"] for line in seen} == {"claim seen"}
    assert last["event"] == FULL
    assert path.stat().st_size < 600
    assert f"{path}: writing no more lines" in caplog.text

    size = path.stat().st_size
    TraceFile(path, "node-1", "i-2", longest=300).tell("started", {})
    assert path.stat().st_size == size


def test_a_full_disk_ends_the_trace_and_nothing_else(caplog):
    trace = TraceFile("/dev/full", "node-1", "i-1")

    trace.tell("started", {})
    trace.tell("claim seen", {})
    assert caplog.text.count("cannot write to the file: No space left on device") == 1


def test_lines_of_a_voucher_are_written_together_with_the_time_at_which_each_was_told(tmp_path):
    path = tmp_path / "trace"
    agent = TraceFile(path, "node-1", "i-1")
    name, *who = agent.words
    voucher = BufferedTrace(TraceFile(name, *who))

    voucher.tell("granted", {"number": 1})
    agent.tell("fence set", {})
    voucher.tell("granted", {"number": 2})
    assert [line["event"] for line in lines_of(path)] == ["fence set"]

    voucher.flush()
    voucher.flush()
    lines = lines_of(path)
    assert [line["event"] for line in lines] == ["fence set", "granted", "granted"]
    assert lines[1]["ns"] < lines[0]["ns"] < lines[2]["ns"]
    assert {(line["node"], line["instance"]) for line in lines} == {("node-1", "i-1")}


class Trace:
    def __init__(self, done):
        self.done = done

    def tell(self, event, _what):
        self.done.append(event)


def test_effects_are_told_once_they_are_performed_and_in_their_order():
    done = []
    terms = SimpleNamespace(clear=lambda: done.append("cleared"), read=lambda: None)
    kernel = SimpleNamespace(fence=lambda *_: done.append("moved"))
    ownership = SimpleNamespace(term_read=lambda *_: [ClearTerm()])
    leases = TracedLeases(
        Trace(done),
        SimpleNamespace(kernel=kernel),
        ownership,
        SimpleNamespace(pacing=Pacing()),
        None,
        terms,
        None,
        None,
    )

    leases.do([SetFence("00000001-0000-4000-8000-000000000000", 5, 3), ReadTerm()])
    assert done == ["moved", "fence set", "cleared", "term cleared"]
