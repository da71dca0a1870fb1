"""How an hour at rest is judged; a name states the fact."""

import json

import pytest

from neighbours.resting import Figures, levels_of, streams_of, table

NODES = {"203.0.113.1": "node-1"}


def audit(*events: tuple[str, str, str], uri: str = "/apis/x/leases?watch=true&timeoutSeconds=300") -> list[str]:
    """Events by ID, stage and time."""
    return [
        json.dumps(
            {
                "auditID": name,
                "stage": stage,
                "stageTimestamp": f"2026-01-01T{at}.000000Z",
                "verb": "watch",
                "requestURI": uri,
                "sourceIPs": ["203.0.113.1"],
                "objectRef": {"resource": "leases"},
            }
        )
        for name, stage, at in events
    ]


@pytest.mark.parametrize(
    ("end", "is_short"), [("00:05:00", False), ("00:04:59", False), ("00:04:30", True), ("00:00:20", True)]
)
def test_a_watch_is_short_that_ends_before_the_time_it_asked_for(end, is_short):
    (found,) = streams_of(audit(("a", "ResponseStarted", "00:00:00"), ("a", "ResponseComplete", end)), NODES)
    assert (found.node, found.resource, found.is_short) == ("node-1", "leases", is_short)


def test_a_watch_that_asks_for_no_time_has_half_an_hour():
    lines = audit(("a", "ResponseStarted", "00:00:00"), ("a", "ResponseComplete", "00:29:00"), uri="/x?watch=true")
    assert streams_of(lines, NODES)[0].is_short


def test_one_that_still_goes_on_is_not_short_and_each_is_counted():
    lines = audit(
        ("a", "ResponseStarted", "00:00:00"),
        ("a", "ResponseComplete", "00:05:00"),
        ("b", "ResponseStarted", "00:05:00"),
    )
    found = streams_of(lines, NODES)
    assert [each.lasted_s for each in found] == [300, None]
    assert not any(each.is_short for each in found)


def test_other_requests_are_no_watches():
    line = json.loads(audit(("a", "ResponseStarted", "00:00:00"))[0])
    assert streams_of([json.dumps({**line, "verb": "update"})], NODES) == []


def test_lines_are_counted_by_level_and_the_worse_ones_are_kept():
    log = "2026-01-01T00:00:00.000 INFO a\n2026-01-01T00:00:00.000 WARNING b\nTraceback (most recent call last):\n"
    counts, bad = levels_of(log)
    assert counts == {"INFO": 1, "WARNING": 1, "ERROR": 1}
    assert bad == ["2026-01-01T00:00:00.000 WARNING b", "Traceback (most recent call last):"]


def test_the_table_has_the_figures():
    figures = Figures(3600, 3, {"INFO": 2}, {"node-1 leases": 12, "node-2 leases": 13}, 0, 720, [3], [0], 180)
    text = table(figures)
    assert "| 3 nodes, 3600 s | |" in text
    assert "| log lines | 2 INFO |" in text
    assert "| watches that one agent opened for one resource | 12 to 13 |" in text
    assert "| `arpguard status` with a problem | 0 of 180 |" in text
