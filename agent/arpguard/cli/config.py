"""`arpguard config`: work with configuration files."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arpguard.cli import exits
from arpguard.cli.words import counted
from arpguard.config.files import MAX_FILE_BYTES, lines_of, parse_file, read_file
from arpguard.config.model import AgentConfig
from arpguard.config.reading import path_of
from arpguard.core.cautions import needs_cluster, without_effect
from arpguard.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class _Warning:
    """A caution, and where in the file it belongs."""

    text: str
    path: str
    line: int | None


def check_config(options: argparse.Namespace) -> int:
    """`arpguard config check`."""
    name = "standard input" if str(options.file) == "-" else str(options.file)
    try:
        data = _read(options.file, name)
        config = parse_file(data, name)
    except ConfigError as error:
        if options.output == "table":
            raise
        _print_document(options.output, name, problems=error.problems)
        return exits.USAGE

    warnings = _warnings(config, data)
    if options.output != "table":
        _print_document(options.output, name, config, warnings)
        return exits.OK
    for warning in warnings:
        at = f"line {warning.line}: " if warning.line else ""
        print(f"{name}: warning: {at}{warning.text}")
    print(f"{name}: ok, mode {config.mode.name.lower()}, {counted(len(config.vips), 'VIP')}")
    return exits.OK


def _read(file: Path, name: str) -> bytes:
    """What is to be checked."""
    if str(file) != "-":
        return read_file(file)
    if sys.stdin is None:  # closed
        raise ConfigError(name, [Problem("", "it is closed: name a YAML file to read")])
    return sys.stdin.buffer.read(MAX_FILE_BYTES + 1)


def _warnings(config: AgentConfig, data: bytes) -> list[_Warning]:
    """What may not do what its writer meant."""
    cautions = [*without_effect(config), *needs_cluster(config)]
    lines = lines_of(data, {caution.steps for caution in cautions}) if cautions else {}
    return [_Warning(caution.text, path_of(caution.steps), lines.get(caution.steps)) for caution in cautions]


def _print_document(
    form: str,
    name: str,
    config: AgentConfig | None = None,
    warnings: Sequence[_Warning] = (),
    problems: Sequence[Problem] = (),
) -> None:
    """The same for programs."""
    from arpguard.cli import documents  # noqa: PLC0415 - it loads protobuf, which a check does without

    told: dict[str, object] = {"file": name, "ok": config is not None}
    if config is not None:
        told |= {"mode": config.mode.name.lower(), "vips": len(config.vips)}
    told["problems"] = [_place(problem.path, problem.line, problem.message) for problem in problems]
    told["warnings"] = [_place(warning.path, warning.line, warning.text) for warning in warnings]
    print(documents.document(told, form))


def _place(path: str, line: int | None, message: str) -> dict[str, object]:
    return {"path": path, "line": line, "message": message}
