"""What the table makes of requests and answers; a name states the fact."""

from ipaddress import IPv4Address
from types import SimpleNamespace

import pytest

from arpguard.addresses import MacAddress
from arpguard.units import NS_PER_MS
from arpguard_lab.asking import Stream
from arpguard_lab.capture import Said
from neighbours.pages import kept_rows, replace_table
from neighbours.table import Cell, Seen, judge, run_cell, seen, table

VIPS = [IPv4Address("198.51.100.50"), IPv4Address("198.51.100.128")]
A, B = MacAddress.parse("02:00:00:00:00:01"), MacAddress.parse("02:00:00:00:00:02")
STEP_MS = 10
RIGHT = Seen(asked=100, lost=0, doubled=0, excused=0, moves=0, silent_at_the_end=False)


def a_watch(answers: dict[int, str], count: int = 400) -> SimpleNamespace:
    """One request each 10 ms, VIPs in turns; who answered: A unless said otherwise, both for AB."""
    stream = Stream(SimpleNamespace(mac=A), VIPS, addresses=50)
    stream._sent_ns.extend(number * STEP_MS * NS_PER_MS for number in range(count))
    said = [
        Said((number * STEP_MS + 1) * NS_PER_MS, VIPS[number % 2], mac, "port1", IPv4Address("10.0.0.1") + number % 50)
        for number in range(count)
        for name, mac in (("A", A), ("B", B))
        if name in answers.get(number, "A")
    ]
    return SimpleNamespace(stream=stream, said=said)


def of(**what) -> Seen:
    return Seen(**{name: what.get(name, getattr(RIGHT, name)) for name in Seen.__dataclass_fields__})


def test_each_vip_is_judged_by_its_own_requests():
    watch = a_watch({10: "", 12: "AB", 13: ""})
    assert seen(watch, VIPS[0], []) == of(asked=200, lost=1, doubled=1, moves=2)
    assert seen(watch, VIPS[1], []) == of(asked=200, lost=1)


def test_an_answer_to_the_next_request_with_the_same_address_doubles_nothing():
    watch = a_watch(dict.fromkeys(range(50, 400), "B"))
    assert seen(watch, VIPS[0], []) == of(asked=200, moves=1)


def test_what_is_doubled_right_after_an_edit_is_excused():
    watch = a_watch({20: "AB", 40: "AB"})
    assert seen(watch, VIPS[0], [195 * NS_PER_MS]) == of(asked=200, doubled=1, excused=1, moves=4)
    assert seen(watch, VIPS[0], [205 * NS_PER_MS]) == of(asked=200, doubled=2, moves=4)


@pytest.mark.parametrize(
    ("answers", "moves"),
    [
        ({}, 0),
        (dict.fromkeys(range(100, 200), ""), 0),
        (dict.fromkeys(range(100, 200), "AB"), 2),
        (dict.fromkeys(range(100, 400), "AB"), 1),
        ({100: "AB", 104: "AB", 108: "AB"}, 2),
        ({100: "AB", 200: "AB"}, 4),
        (dict.fromkeys(range(100, 150), "AB") | dict.fromkeys(range(150, 400), "B"), 1),
        (dict.fromkeys(range(100, 150), "") | dict.fromkeys(range(150, 400), "B"), 1),
        (dict.fromkeys(range(100, 200), "B"), 2),
    ],
)
def test_who_begins_last_announces_until_it_stops(answers, moves):
    assert seen(a_watch(answers), VIPS[0], []).moves == moves


def test_the_last_second_tells_whether_it_is_silent():
    assert seen(a_watch(dict.fromkeys(range(300, 400), "")), VIPS[0], []).silent_at_the_end
    assert not seen(a_watch(dict.fromkeys(range(300, 398), "")), VIPS[0], []).silent_at_the_end


@pytest.mark.parametrize(
    ("bare", "guarded", "is_right"),
    [
        (RIGHT, RIGHT, True),
        (RIGHT, of(lost=5), True),
        (RIGHT, of(lost=6), False),
        (of(lost=30, moves=1), of(lost=35, moves=1), True),
        (of(lost=30, moves=1), of(lost=36, moves=1), False),
        (of(lost=30, moves=2), of(lost=40, moves=2), True),
        (of(lost=30, silent_at_the_end=True), of(lost=35, silent_at_the_end=True), True),
        (of(lost=30, moves=1), of(lost=30, moves=1, silent_at_the_end=True), False),
        (of(doubled=50), RIGHT, True),
        (of(doubled=50), of(doubled=1), False),
        (RIGHT, of(excused=1), True),
    ],
)
def test_a_cell_is_right_when_the_guard_costs_nothing_and_nothing_is_doubled(bare, guarded, is_right):
    assert (judge(bare, guarded, moves=1) == []) is is_right


def test_where_nothing_moves_nothing_is_lost():
    assert judge(RIGHT, of(lost=1), moves=0) == ["1 more lost than without the guard"]
    assert judge(of(lost=1), of(lost=1), moves=0) == []


def test_an_agent_accuses_a_host_only_where_two_answered():
    assert judge(RIGHT, RIGHT, moves=1, accused=["node-1 hears node-2"]) == ["false alarm: node-1 hears node-2"]
    assert judge(RIGHT, of(excused=1), moves=1, accused=["node-1 hears node-2"]) == []


def a_cell(**what) -> Cell:
    guarded = of(**what)
    return Cell("MetalLB", "partition", RIGHT, guarded, wrong=judge(RIGHT, guarded, moves=1))


@pytest.mark.parametrize(
    ("measured", "taken"),
    [
        ([a_cell()], 0),
        ([a_cell(lost=50), a_cell(), a_cell(lost=8)], 2),
        ([a_cell(lost=50), a_cell(lost=9), a_cell()], 1),
        ([a_cell(lost=50), a_cell(lost=60), a_cell()], 0),
        ([a_cell(doubled=1)], 0),
        ([a_cell(lost=50), a_cell(doubled=1)], 1),
        ([a_cell(lost=50), a_cell(lost=60, silent_at_the_end=True)], 1),
    ],
)
def test_a_cell_that_loses_is_measured_again_and_one_that_doubles_or_ends_silent_stands(measured, taken):
    assert run_cell(iter(measured).__next__) is measured[taken]


def test_a_wrong_cell_is_bold_and_the_page_keeps_what_is_not_measured(tmp_path):
    page = tmp_path / "page.md"
    old = "| announcer | steady |\n|---|---|\n| MetalLB | old |\n| another | kept |"
    page.write_text(f"before\n<!-- table -->\n{old}\n<!-- end of table -->\nafter\n", encoding="utf-8")
    cells = [
        Cell("MetalLB", "steady", RIGHT, RIGHT),
        Cell("MetalLB", "partition", of(doubled=3), of(lost=9), 4, ["9 more lost than without the guard"]),
        Cell("kube-vip", "steady", wrong=["nobody announces"]),
    ]
    replace_table(page, "table", table(cells, kept_rows(page, "table")))
    head, *rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert head.startswith("| announcer | steady | SIGTERM |")
    assert [row.split(" | ")[0] for row in rows] == ["| MetalLB", "| another", "| kube-vip"]
    assert rows[1] == "| another | kept |"
    assert rows[0].split(" | ")[1] == "0 of 100 lost / 0 of 100 lost"
    assert "**0 of 100 lost, 3 doubled / 9 of 100 lost; 4 events: 9 more lost than without the guard**" in rows[0]
    assert rows[2].split(" | ")[1] == "**nobody announces**"
    assert page.read_text(encoding="utf-8").startswith("before\n<!-- table -->\n| announcer")
    assert page.read_text(encoding="utf-8").endswith("<!-- end of table -->\nafter\n")
