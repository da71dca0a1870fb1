"""The configuration in a file, or in the ConfigMap key of the same name: an `AgentConfig`, or all its problems.

Scalars are read as text, and given their type by the field they stand in. So a MAC such as 12:34:56:10:20:30,
which YAML 1.1 takes for a number in base 60, and a node called "no" are what they look like.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import yaml

from arpguard.config.model import CONFIG_KEY, AgentConfig
from arpguard.config.reading import Place, Problems, Raw, Trail, shortened
from arpguard.config.sections import whole
from arpguard.errors import ConfigError, Problem

# What anybody may put into a file is bounded: bytes, values (a VIP is about seven), and what is said of it all.
MAX_FILE_BYTES = 32 << 20
MAX_VALUES = 1 << 21
MAX_PROBLEMS = 100
_MAX_DEPTH = 16

_TOO_LARGE = Problem("", f"too large: at most {MAX_FILE_BYTES >> 20} MiB")
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_IN_CONFIGMAP = ("data", CONFIG_KEY)


def read_config(path: Path) -> AgentConfig:
    """The configuration in a file; ConfigError with every problem in it, also when it cannot be read."""
    return parse_file(read_file(path), str(path))


def read_file(path: Path) -> bytes:
    """What a file holds that may be a configuration; ConfigError when it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), [_unreadable("not a regular file")])
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(str(path), [_TOO_LARGE])
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(str(path), [_unreadable(error.strerror or type(error).__name__)]) from error


def parse_config(text: str, source: str = "configuration") -> AgentConfig:
    """The configuration in YAML text; ConfigError with its problems, all or MAX_PROBLEMS. `source` is named in it."""
    return _checked(_compose(text, source), text, source)


def parse_file(data: bytes, source: str) -> AgentConfig:
    """The configuration in what a file holds: in YAML, or in the manifest of a ConfigMap. Raises as `parse_config`."""
    return _checked(*_found(data, source))


def lines_of(data: bytes, wanted: AbstractSet[Trail]) -> dict[Trail, int]:
    """In which lines of a file, which `parse_file` took, places are; nothing if its lines are not the file's."""
    _, text, _, above = _found(data, "")
    return {} if above is None else {steps: line + above for steps, line in _lines(text, wanted).items()}


def _found(data: bytes, source: str) -> tuple[Raw, str, str, int | None]:
    """What a file says: the document, its text, the source again, and how many lines of the file come before it."""
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(source, [_TOO_LARGE])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(source, [_unreadable("not UTF-8 text")]) from error

    document = _compose(text, source)
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return document, text, source, 0

    found = document.get("data")
    inner = found.get(CONFIG_KEY) if isinstance(found, dict) else None
    if not isinstance(inner, str):
        raise ConfigError(source, [Problem("data", f"no key {CONFIG_KEY}: put the configuration under this key")])
    above = _lines_above(text.encode())
    return _compose(inner, source, above), inner, source, above


def _compose(text: str, source: str, above: int | None = 0) -> Raw:
    """The content of YAML text. `above`: how many lines of its file precede it; None: its lines are not the file's."""
    try:
        return _Composer(text).document()
    except yaml.YAMLError as error:
        raise ConfigError(source, [_problem(error, above)]) from error


def _checked(document: Raw, text: str, source: str, above: int | None = 0) -> AgentConfig:
    problems = Problems(MAX_PROBLEMS)
    config = whole(document, Place(problems))
    if not problems.first:
        return config

    lines = _lines(text, {steps for steps, _ in problems.first}) if above is not None else {}
    named = problems.named({steps: line + (above or 0) for steps, line in lines.items()})
    rest = [Problem("", f"{problems.more} more problems: correct the first ones, then check again")]
    raise ConfigError(source, named + rest * bool(problems.more))


def _lines_above(data: bytes) -> int | None:
    """How many lines of a ConfigMap's manifest come before its configuration; None: it is not in a literal block."""
    node: Any = yaml.compose(data, Loader=_LOADER)
    for key in _IN_CONFIGMAP:
        node = next(value for name, value in node.value if name.value == key)
    return node.start_mark.line + 1 if node.style == "|" else None


def _unreadable(reason: str) -> Problem:
    return Problem("", f"{reason}: name a readable YAML file")


class _Composer:
    """Makes str, list and dict of YAML's events: tags do nothing, scalars stay text, and no key is there twice.

    Aliases to aliases stand for billions of items, and deep nesting overflows the stack of whoever reads it. PyYAML's
    own composer makes a node for each value first, which takes ten times as long and as much memory.
    """

    def __init__(self, text: str) -> None:
        if len(text) > MAX_FILE_BYTES:
            raise yaml.MarkedYAMLError(problem=f"more than {MAX_FILE_BYTES >> 20} MiB")
        try:
            data = text.encode()
        except UnicodeEncodeError as error:  # JSON can write half a character
            raise yaml.MarkedYAMLError(problem="not Unicode text") from error
        self._events = _events(data)
        self._values = 0

    def document(self) -> Raw:
        """The content of the only document; None where there is none."""
        document = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                document = self._value(next(self._events), 0)
                break
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise _trouble("a second YAML document begins here", event)
        return document

    def _value(self, event: yaml.Event, depth: int) -> Raw:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _trouble(f"more than {MAX_VALUES} values", event)
        if isinstance(event, yaml.ScalarEvent):
            return event.value
        if isinstance(event, yaml.AliasEvent):
            raise _trouble("aliases are not supported", event)
        if depth == _MAX_DEPTH:
            raise _trouble("nested too deeply", event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, depth + 1) for item in _until(self._events, yaml.SequenceEndEvent)]
        return self._mapping(depth + 1)

    def _mapping(self, depth: int) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        for event in _until(self._events, yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _trouble("a key must be text", event)
            if event.value in found:
                raise _trouble(f"{shortened(event.value)!r} appears twice", event)
            found[event.value] = self._value(next(self._events), depth)
        return found


def _events(data: bytes) -> Iterator[yaml.Event]:
    return yaml.parse(data, Loader=_LOADER)


def _until(events: Iterator[yaml.Event], end: type[yaml.Event]) -> Iterator[yaml.Event]:
    while not isinstance(event := next(events), end):
        yield event


def _lines(text: str, wanted: AbstractSet[Trail]) -> dict[Trail, int]:
    """In which line of YAML text, which was composed before, places are; of what is missing, where it belongs."""
    asked = {start for steps in wanted for start in _starts(steps)}
    events = _events(text.encode())
    found: dict[Trail, int] = {}
    for event in events:
        if isinstance(event, yaml.NodeEvent):
            found |= {steps: line for steps, line in _outline(events, event, ()) if steps in asked}
    nearest = {steps: next((start for start in _starts(steps) if start in found), None) for steps in wanted}
    return {steps: found[start] for steps, start in nearest.items() if start is not None}


def _outline(events: Iterator[yaml.Event], event: yaml.Event, steps: Trail) -> Iterator[tuple[Trail, int]]:
    """All places from one on, each with its line; a setting's is that of its key."""
    if isinstance(event, yaml.SequenceStartEvent):
        for index, item in enumerate(_until(events, yaml.SequenceEndEvent)):
            yield (*steps, index), _line(item)
            yield from _outline(events, item, (*steps, index))
    elif isinstance(event, yaml.MappingStartEvent):
        for key in _until(events, yaml.MappingEndEvent):
            place = (*steps, getattr(key, "value", ""))
            yield place, _line(key)
            yield from _outline(events, next(events), place)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _starts(steps: Trail) -> Iterator[Trail]:
    return (steps[:length] for length in range(len(steps), 0, -1))


def _trouble(problem: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]


def _problem(error: yaml.YAMLError, above: int | None) -> Problem:
    mark = getattr(error, "problem_mark", None)
    where = "" if above is not None else ".".join(_IN_CONFIGMAP)
    if mark and above is not None:
        where = f"line {mark.line + 1 + above}, column {mark.column + 1}"
    problem = getattr(error, "problem", None) or "not YAML"
    return Problem(where, f"{problem}: correct the YAML")
