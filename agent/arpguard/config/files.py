"""The configuration in a file, or in the ConfigMap key of the same name: an `AgentConfig`, or all its problems.

Scalars are read as text, and given their type by the field they stand in. So a MAC such as 12:34:56:10:20:30,
which YAML 1.1 takes for a number in base 60, and a node called "no" are what they look like.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

from arpguard.config.model import AgentConfig
from arpguard.config.reading import Place, Problems, Raw, shortened
from arpguard.config.sections import whole
from arpguard.errors import ConfigError, Problem

# What anybody may put into a file is bounded: bytes, values (a VIP is about seven), and what is said of it all.
MAX_FILE_BYTES = 32 << 20
MAX_VALUES = 1 << 21
MAX_PROBLEMS = 100
_MAX_DEPTH = 16


def read_config(path: Path) -> AgentConfig:
    """The configuration in a file; ConfigError with every problem in it, also when it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), [Problem("(file)", "no regular file", "name a readable YAML file")])
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(str(path), [Problem("(file)", "too large", f"at most {MAX_FILE_BYTES >> 20} MiB")])
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(str(path), [Problem("(file)", reason, "name a readable YAML file")]) from error
    return parse_config(text, str(path))


def parse_config(text: str, source: str = "configuration") -> AgentConfig:
    """The configuration in YAML text; ConfigError with its problems, all or MAX_PROBLEMS. `source` is named in it."""
    problems = Problems(MAX_PROBLEMS)
    try:
        config = whole(_Composer(text).document(), Place(problems))
    except yaml.YAMLError as error:
        raise ConfigError(source, [_problem(error)]) from error
    if problems.more:
        rest = Problem("(file)", f"{problems.more} more problems", "correct the first ones, and look again")
        raise ConfigError(source, [*problems.first, rest])
    if problems.first:
        raise ConfigError(source, problems.first)
    return config


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
        self._events = yaml.parse(data, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        self._values = 0

    def document(self) -> Raw:
        """What the only document says; None where there is none."""
        document = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                document = self._value(next(self._events), 0)
                break
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                raise _trouble("a second document begins here", event)
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
            raise _trouble("nested too deep", event)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, depth + 1) for item in self._until(yaml.SequenceEndEvent)]
        return self._mapping(depth + 1)

    def _mapping(self, depth: int) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _trouble("a key has to be text", event)
            if event.value in found:
                raise _trouble(f"{shortened(event.value)!r} stands here twice", event)
            found[event.value] = self._value(next(self._events), depth)
        return found

    def _until(self, end: type[yaml.Event]) -> Iterator[yaml.Event]:
        while not isinstance(event := next(self._events), end):
            yield event


def _trouble(problem: str, event: yaml.Event) -> yaml.YAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)  # type: ignore[arg-type]


def _problem(error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "(file)"
    return Problem(where, str(getattr(error, "problem", None) or "not YAML"), "correct the YAML there")
