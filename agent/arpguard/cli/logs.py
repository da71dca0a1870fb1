"""The agent's log: a line for each record, on standard error, as text for people or as fields for a collector."""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable

from arpguard.errors import did_you_mean
from arpguard.names import printable

LEVELS = ("debug", "info", "warning", "error")
_MAX_MESSAGE = 4000
# The kubernetes package logs whole answers of the API server at this level, Secrets included.
_OTHERS_LEVEL = logging.INFO


class TextLine(logging.Formatter):
    """`2026-01-01T00:00:00.000Z INFO ready: ...`; a traceback follows on lines of its own.

    Link names and texts in Services come from others: they must not add a line to the log, or control a terminal.
    """

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, without characters that cannot be printed, and with an end."""
        record.message = printable(_cut(record.message))
        return super().formatMessage(record)


class LogfmtLine(TextLine):
    """`time=2026-01-01T00:00:00.000Z level=info logger=arpguard.runtime.agent msg="ready: ..."`, in one line always."""

    def format(self, record: logging.LogRecord) -> str:
        """The fields of a record; one line."""
        fields = self._fields(record)
        bare = ("time", "level", "logger")
        return " ".join(f"{name}={value if name in bare else json.dumps(value)}" for name, value in fields.items())

    def _fields(self, record: logging.LogRecord) -> dict[str, str]:
        moment = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}Z"
        fields = {"time": moment, "level": record.levelname.lower(), "logger": record.name}
        fields["msg"] = _cut(record.getMessage())
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return fields


class JsonLine(LogfmtLine):
    """`{"time": ..., "level": "info", "logger": ..., "msg": ...}`, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The fields of a record; one line of ASCII."""
        return json.dumps(self._fields(record))


FORMATS: dict[str, Callable[[], TextLine]] = {"text": TextLine, "logfmt": LogfmtLine, "json": JsonLine}


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--log-level` and `--log-format`; the environment has their defaults, for manifests that are patched."""
    parser.add_argument(
        "--log-level",
        type=_one_of(LEVELS),
        default=os.environ.get("ARPGUARD_LOG_LEVEL") or "info",
        metavar="LEVEL",
        help=f"lowest level to log: {', '.join(LEVELS)} (default: $ARPGUARD_LOG_LEVEL, then info)",
    )
    parser.add_argument(
        "--log-format",
        type=_one_of(tuple(FORMATS)),
        default=os.environ.get("ARPGUARD_LOG_FORMAT") or "text",
        metavar="FORMAT",
        help=f"format of the log: {', '.join(FORMATS)}; times are in UTC (default: $ARPGUARD_LOG_FORMAT, then text)",
    )


def start_log(level: str, form: str) -> None:
    """Writes records of this level and above, one of `LEVELS`, to standard error, in one of `FORMATS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[form]())
    logging.basicConfig(level=max(_OTHERS_LEVEL, logging.getLevelName(level.upper())), handlers=[handler])
    logging.getLogger("arpguard").setLevel(level.upper())


def _cut(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "..."


def _one_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    """An argument type: one of these words. Unlike `choices`, it also checks a default from the environment."""

    def parse(text: str) -> str:
        if text not in choices:
            hint = did_you_mean(text, choices) or f": expected {', '.join(choices)}"
            raise argparse.ArgumentTypeError(f"invalid value {text!r}{hint}")
        return text

    return parse
