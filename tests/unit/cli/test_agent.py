"""What the agent writes to its log."""

import logging

import pytest

from arpguard.cli.agent import OneLine


def line_of(text: str, **more) -> str:
    record = logging.makeLogRecord({"msg": "claim: interface=%s", "args": (text,), "levelname": "INFO", **more})
    return OneLine("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("eth0", "eth0"),
        ("Zürich 網", "Zürich 網"),
        ("a\nERROR forged", r"a\nERROR forged"),
        ("a\r\x1b[2J\x07", r"a\r\x1b[2J\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202efdp", r"abc\u202efdp"),
        ("\u2028", r"\u2028"),
        ("\udcff", r"\udcff"),
    ],
)
def test_text_of_others_makes_no_lines_and_steers_no_terminal(text, shown):
    assert line_of(text) == f"INFO claim: interface={shown}"


def test_traceback_keeps_its_lines():
    try:
        int("x")
    except ValueError as error:
        shown = line_of("eth0", exc_info=(ValueError, error, error.__traceback__))
    assert len(shown.splitlines()) > 2


def test_line_has_an_end():
    assert line_of("x" * 1_000_000) == "INFO claim: interface=" + "x" * 3983 + "..."
