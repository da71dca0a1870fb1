"""Tables that fit, whatever stands in them; documents."""

import json
import sys

import pytest
import yaml
from rich.cells import cell_len

from arpguard.cli import documents, render, tables
from arpguard.cli.render import bad, clean, facts, table, wrapped
from arpguard.v1 import agent_pb2 as pb
from support.cli import HOSTILE, lines_of


def test_columns_are_aligned_and_numbers_stand_to_the_right():
    assert table(("A", "LONGER", "N"), [("xxx", "1", 7), ("y", "22", 12)]) == (
        "A    LONGER   N\nxxx  1        7\ny    22      12"
    )


def test_wide_letters_count_twice():
    assert table(("A", "B"), [("名前", "x"), ("abc", "y")]) == "A     B\n名前  x\nabc   y"


def test_table_fits_the_page_and_shortens_what_is_widest():
    lines = lines_of(table(("A", "B", "C"), [("short", HOSTILE, HOSTILE), ("192.0.2.1", "b" * 80, 1)]))

    assert max(map(cell_len, lines)) == 100
    assert lines[2].startswith("192.0.2.1  ")
    assert "…" in lines[1]


def test_nothing_is_shortened_that_fits():
    row = ("a" * 32, "b" * 32, "c" * 32)

    assert table(("A", "B", "C"), [row]).endswith("  ".join(row))


def test_column_that_yields_is_shortened_down_to_its_title_before_the_others():
    head = ("VIP", "OWNER", "DECISIONS")
    (_, some), (_, none) = (
        lines_of(table(head, [("192.0.2.10", "o" * width, "d" * 200)], yielding="DECISIONS")) for width in (70, 200)
    )

    assert some == f"192.0.2.10  {'o' * 70}  {'d' * 15}…"
    assert none.endswith("o…  dddddddd…")


def test_lists_are_cut_between_their_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [("a" * 60, "one=12 two=3456 three=7"), ("a", "b" * 40), ("a", "one=12")]
    (_, some, long, whole) = lines_of(table(("A", "DECISIONS"), rows, yielding="DECISIONS"))

    assert some.endswith("  one=12 two=3456 …")
    assert long.endswith("  " + "b" * 17 + "…")
    assert whole.endswith("  one=12")


def test_addresses_are_cut_last_and_only_if_they_are_none(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    vip, mac = "2001:db8:1234:5678:9abc:def0:1234:5678", "02:00:00:00:00:50"
    (_, line) = lines_of(table(("VIP", "MAC", "A", "B"), [(vip, mac, "a" * 30, "b" * 30)]))
    (_, other) = lines_of(table(("VIP", "MAC", "A", "B"), [("v" * 90, mac, "a" * 30, "b" * 30)]))

    assert line.startswith(f"{vip}  {mac}  aaa")
    assert cell_len(line) == cell_len(other) == 80
    assert mac in other


def test_spare_columns_are_left_out_of_a_narrow_page_before_anything_is_cut(monkeypatch):
    head, row = ("A", "B", "C", "N"), ("a" * 40, "b" * 20, "c" * 20, 7)
    shown = {}
    for width in (90, 80, 81):
        monkeypatch.setenv("COLUMNS", str(width))
        shown[width] = lines_of(table(head, [row], spare=("N", "B")))[1]

    assert shown == {90: "  ".join(map(str, row)), 80: f"{row[0]}  {row[2]}", 81: f"{row[0]}  {row[2]}"}


def test_column_that_is_on_the_screen_stays(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    columns = render.Columns(("A", "B"), spare=("B",))
    columns.add(("a", "b"))
    columns.keep()
    columns.add(("a" * 90, "b"))

    assert columns.line(("a" * 90, "b")).endswith("…  b")


def test_owners_mac_is_shown_whole_whatever_else_there_is():
    vip = pb.Vip(address="192.0.2.10", link="eth0", owner="external 02:00:00:00:00:50", kind=1, mode=2)
    vip.reasons.extend(pb.ReasonCount(reason=reason, enforced=10**9) for reason in range(1, 29))

    assert "external 02:00:00:00:00:50" in tables.vips(pb.ListVipsResponse(vips=[vip]))


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("columns", [80, 120, 200])
def test_page_is_as_wide_as_columns_says(columns, terminal, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")

    assert max(map(cell_len, lines_of(table(("A", "B"), [("x" * 300, 1)])))) == columns


def test_control_characters_are_dropped_and_blanks_stay():
    assert clean("a\x1b[2J\tb\nc\u202ed\x9b\x7f") == "a[2J b cd"


def test_facts_wrap_behind_their_name():
    lines = lines_of(facts([("problem", "word " * 40), ("x", HOSTILE)]))

    assert max(map(cell_len, lines)) <= 100
    assert lines[0].startswith("problem  word word")
    assert lines[1].startswith("         word word")


@pytest.mark.parametrize("text", [HOSTILE, "", "名" * 90, "a " * 300])
def test_wrapped_lines_fit_and_lose_nothing(text):
    lines = wrapped(text, 21)

    assert max(map(cell_len, lines)) <= 21
    assert "".join(lines).replace(" ", "") == clean(text).replace(" ", "")


@pytest.mark.parametrize(
    ("terminal", "env", "coloured"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(terminal, env, coloured, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)

    assert str(bad("no")) == ("\x1b[31mno\x1b[0m" if coloured else "no")
    assert ("\x1b[31mno\x1b[0m" in table(("A",), [(bad("no"),)])) is coloured


def test_style_does_not_move_columns(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    styled = table(("A", "B"), [(bad("no"), "x"), ("yes", "y")])

    assert styled.replace("\x1b[31m", "").replace("\x1b[1m", "").replace("\x1b[0m", "") == "A    B\nno   x\nyes  y"


def test_documents_are_json_and_yaml_of_the_same():
    value = {"node": "node-1", "mac": "12:34:56:10:20:30", "text": HOSTILE, "no": [True, 1, None]}

    assert json.loads(documents.document(value, "json")) == value
    assert yaml.safe_load(documents.document(value, "yaml")) == value
    assert documents.document(value, "yaml").replace("\n", "").isprintable()


def test_table_for_a_program_is_cut_nowhere(monkeypatch):
    monkeypatch.delenv("COLUMNS")
    long = "x" * 500
    assert render.table(("A", "B"), [(long, "b")]).splitlines()[1] == f"{long}  b"


def test_text_for_a_program_is_wrapped_as_for_a_person(monkeypatch):
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, render.facts([("a", "word " * 100)]).splitlines())) <= 100
