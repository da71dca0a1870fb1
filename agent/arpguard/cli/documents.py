"""What a program reads on standard output: answers of the API as JSON or YAML."""

import argparse
import json
from collections.abc import Callable
from typing import TypeVar

import yaml
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

_YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # the one in C is ten times as fast, if it is there
Answer = TypeVar("Answer", bound=Message)


def document(value: Message | dict[str, object] | list[dict[str, object]], form: str) -> str:
    """A message in protobuf's JSON mapping, or plain values, as "json" or "yaml"."""
    plain = as_dict(value) if isinstance(value, Message) else value
    return json_text(plain) if form == "json" else yaml_text(plain).rstrip("\n")


def show(options: argparse.Namespace, answer: Answer, as_page: Callable[[Answer], str]) -> None:
    """Prints an answer in the form that the options name."""
    print(as_page(answer) if options.output == "table" else document(answer, options.output))


def stream_document(value: Message | dict[str, object], form: str) -> str:
    """One of several documents: a line of JSON, or a YAML document."""
    plain = as_dict(value) if isinstance(value, Message) else value
    return json.dumps(plain) if form == "json" else "---\n" + yaml_text(plain).rstrip("\n")


def as_dict(message: Message) -> dict[str, object]:
    """A message in protobuf's JSON mapping, with the fields that are empty."""
    found: dict[str, object] = MessageToDict(message, always_print_fields_with_no_presence=True)
    return found


def json_text(value: object) -> str:
    """Indented JSON; addresses and enums as text."""
    return json.dumps(value, indent=2, default=str)


def yaml_text(value: object) -> str:
    """The same as YAML, in the order of the fields."""
    plain = json.loads(json_text(value))
    return str(yaml.dump(plain, Dumper=_YAML_DUMPER, sort_keys=False))
