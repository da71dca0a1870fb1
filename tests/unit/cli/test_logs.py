"""What the agent writes to its log."""

import argparse
import json
import logging
import subprocess
import sys
import time

import pytest

from arpguard.cli.logs import FORMATS, LogfmtLine, TextLine, add_log_options

AT_S = 1_767_225_600.0625  # 2026-01-01, 00:00 UTC


def record_of(text: str, **more) -> logging.LogRecord:
    fields = {"msg": "claim: interface=%s", "args": (text,), "levelname": "INFO", "name": "arpguard.x"}
    return logging.makeLogRecord({**fields, "created": AT_S, "msecs": 62.5, **more})


def line_of(text: str, **more) -> str:
    return TextLine().format(record_of(text, **more))


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
    assert line_of(text).endswith(f" INFO claim: interface={shown}")
    for form in ("logfmt", "json"):
        assert FORMATS[form]().format(record_of(text)).isascii()
        assert FORMATS[form]().format(record_of(text)).isprintable()


@pytest.fixture
def _in_india(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_in_india")
def test_time_is_utc_wherever_the_node_stands():
    assert line_of("eth0").startswith("2026-01-01T00:00:00.062Z INFO ")
    assert LogfmtLine().format(record_of("eth0")).startswith("time=2026-01-01T00:00:00.062Z level=info ")


def test_traceback_keeps_its_lines_in_text_and_is_a_field_elsewhere():
    try:
        int("x")
    except ValueError as error:
        wrong = record_of("eth0", exc_info=(ValueError, error, error.__traceback__))

    assert len(TextLine().format(wrong).splitlines()) > 2
    assert json.loads(FORMATS["json"]().format(wrong))["exception"].endswith(
        "invalid literal for int() with base 10: 'x'"
    )
    assert len(LogfmtLine().format(wrong).splitlines()) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_line_has_an_end(form):
    line = FORMATS[form]().format(record_of("x" * 1_000_000))

    assert "interface=" + "x" * 3980 in line
    assert len(line) < 4200


def test_fields_come_back_from_json_as_they_were():
    line = FORMATS["json"]().format(record_of('Zürich "網"\n'))

    assert json.loads(line) == {
        "time": "2026-01-01T00:00:00.062Z",
        "level": "info",
        "logger": "arpguard.x",
        "msg": 'claim: interface=Zürich "網"\n',
    }


def test_logfmt_quotes_the_message():
    assert (
        LogfmtLine().format(record_of('a "b" c=d')).endswith(r' logger=arpguard.x msg="claim: interface=a \"b\" c=d"')
    )


def _written(level: str, form: str = "text") -> list[str]:
    """What a fresh process writes for a record of each level, by the agent's logger and by another package's."""
    script = (
        "import logging\n"
        "from arpguard.cli.logs import start_log\n"
        f"start_log({level!r}, {form!r})\n"
        "for name in ('arpguard.x', 'kubernetes'):\n"
        "    for level in ('debug', 'info', 'warning', 'error'):\n"
        "        getattr(logging.getLogger(name), level)('%s of %s', level, name)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not shown.stdout
    return shown.stderr.splitlines()


@pytest.mark.parametrize(
    ("level", "ours", "others"), [("debug", 4, 3), ("info", 3, 3), ("warning", 2, 2), ("error", 1, 1)]
)
def test_level_leaves_out_what_is_less_severe_and_never_lets_clients_log_answers(level, ours, others):
    lines = _written(level)

    assert [sum(line.endswith(f"of {name}") for line in lines) for name in ("arpguard.x", "kubernetes")] == [
        ours,
        others,
    ]


def test_options_take_their_defaults_from_the_environment(monkeypatch):
    monkeypatch.setenv("ARPGUARD_LOG_LEVEL", "warning")
    monkeypatch.setenv("ARPGUARD_LOG_FORMAT", "json")
    parser = argparse.ArgumentParser()
    add_log_options(parser)

    assert vars(parser.parse_args([])) == {"log_level": "warning", "log_format": "json"}
    assert vars(parser.parse_args(["--log-level", "debug", "--log-format=logfmt"])) == {
        "log_level": "debug",
        "log_format": "logfmt",
    }


@pytest.mark.parametrize("source", ["option", "environment"])
def test_wrong_word_is_refused_with_those_that_are_right(source, monkeypatch, capsys):
    if source == "environment":
        monkeypatch.setenv("ARPGUARD_LOG_FORMAT", "xml")
    parser = argparse.ArgumentParser()
    add_log_options(parser)

    with pytest.raises(SystemExit):
        parser.parse_args(["--log-format", "xml"] if source == "option" else [])

    assert "--log-format: invalid value 'xml': expected text, logfmt, json" in capsys.readouterr().err
