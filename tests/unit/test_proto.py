"""The API's definition: what is checked in is what it generates, and it says the same as the code it describes."""

import re
import runpy
from enum import Enum
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from arpguard.core.auditing import AuditFinding
from arpguard.core.claimants import ClaimantKind
from arpguard.core.stimulus import Operation
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Hook, Kind, Mode, Reason, Verdict

ROOT = Path(__file__).resolve().parents[2]
PROTO = (ROOT / "proto/arpguard/v1/agent.proto").read_text(encoding="utf-8")
FILE = pb.DESCRIPTOR
SERVICE = FILE.services_by_name["AgentService"]
COMMON_CODES = {"RESOURCE_EXHAUSTED", "UNAVAILABLE", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED"}
TIMES = {"google.protobuf.Timestamp", "google.protobuf.Duration"}


def _messages(within) -> list[Descriptor]:
    """All messages, nested ones too."""
    return [found for message in within for found in (message, *_messages(message.nested_types))]


MESSAGES = _messages(FILE.message_types_by_name.values())
FIELDS = [field for message in MESSAGES for field in message.fields]
ENUMS = [*FILE.enum_types_by_name.values(), *(enum for message in MESSAGES for enum in message.enum_types)]


def _name(descriptor: Descriptor | EnumDescriptor | FieldDescriptor) -> str:
    return descriptor.full_name.removeprefix("arpguard.v1.")


def _comments(kind: str, name: str) -> list[str]:
    """The lines of comment above a definition."""
    above, found, _ = PROTO.partition(f"{kind} {name}")
    assert found, f"{kind} {name}"
    comment: list[str] = []
    for line in reversed(above.rstrip().splitlines()):
        if not line.strip().startswith("//"):
            break
        comment.insert(0, line.strip().removeprefix("//").strip())
    return comment


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()


def test_generated_code_is_what_the_definition_gives(tmp_path):
    runpy.run_path(str(ROOT / "proto/generate.py"))["generate"](tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "arpguard/v1").iterdir()}
    checked_in = {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / "agent/arpguard/v1").iterdir()
        if path.suffix in {".py", ".pyi"} and path.name != "__init__.py"
    }

    assert sorted(made) == ["agent_pb2.py", "agent_pb2.pyi", "agent_pb2_grpc.py", "agent_pb2_grpc.pyi"]
    assert made == checked_in, "run `make proto`"


@pytest.mark.parametrize(
    ("enum", "members"),
    [(pb.Reason, Reason), (pb.Verdict, Verdict), (pb.Kind, Kind), (pb.Mode, Mode), (pb.Hook, Hook)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_enum_has_the_names_and_numbers_of_the_code(enum, members: type[Enum]):
    """INHERIT stands in entries only: whoever asks is told the mode in force."""
    prefix = enum.DESCRIPTOR.name.upper()
    expected = {f"{prefix}_{member.name}": member.value for member in members if member is not Mode.INHERIT}

    assert dict(enum.items()) == {f"{prefix}_UNSPECIFIED": 0, **expected}


def test_claimants_have_the_names_and_numbers_of_the_code():
    expected = {f"KIND_{kind.name}": kind.value for kind in ClaimantKind}

    assert dict(pb.Claimant.Kind.items()) == {"KIND_UNSPECIFIED": 0, **expected}


def test_operations_are_those_of_the_code_in_their_order():
    expected = ["UNSPECIFIED", *(operation.name for operation in Operation)]

    assert dict(pb.Operation.items()) == {f"OPERATION_{name}": number for number, name in enumerate(expected)}


def test_every_method_has_a_request_and_a_response_of_its_own():
    found = {method.name: (method.input_type.name, method.output_type.name) for method in SERVICE.methods}

    assert found == {name: (f"{name}Request", f"{name}Response") for name in found}


@pytest.mark.parametrize("method", [method.name for method in SERVICE.methods])
def test_every_method_says_what_it_does_and_which_status_codes_it_ends_with(method):
    comment = _comments("rpc", method)
    codes = [line.split()[0] for line in comment if re.match(r"[A-Z_]{2,}  ", line)]
    known = COMMON_CODES | {"OK", "NOT_FOUND", "FAILED_PRECONDITION"}

    assert re.match(r"[A-Z].*", comment[0])
    assert codes, f"{method} names no status code"
    assert set(codes) <= known
    assert len(codes) == len(set(codes))


def test_service_names_the_codes_that_every_method_may_end_with():
    codes = {line.split()[0] for line in _comments("service", "AgentService") if re.match(r"[A-Z_]{2,}  ", line)}

    assert codes == COMMON_CODES


@pytest.mark.parametrize("enum", ENUMS, ids=_name)
def test_every_enum_starts_with_unspecified_and_carries_its_name(enum: EnumDescriptor):
    prefix = _snake(enum.name)

    assert (enum.values[0].name, enum.values[0].number) == (f"{prefix}_UNSPECIFIED", 0)
    assert [value.name for value in enum.values if not re.fullmatch(rf"{prefix}(_[A-Z0-9]+)+", value.name)] == []
    assert [value.number for value in enum.values] == list(range(len(enum.values)))


@pytest.mark.parametrize("field", FIELDS, ids=_name)
def test_every_time_is_a_timestamp_or_a_duration_and_nothing_else_is(field: FieldDescriptor):
    """By name: an instant ends in _time or is `since`; a length of time is a duration, an interval, a margin..."""
    instant = bool(re.search(r"(^|_)(time|since|at)$", field.name))
    length = bool(re.search(r"(^|_)(duration|interval|margin|left|age|timeout|period|ttl|ms|ns|seconds)$", field.name))
    kind = field.message_type.full_name if field.message_type else None

    assert (kind == "google.protobuf.Timestamp", kind == "google.protobuf.Duration") == (instant, length)


@pytest.mark.parametrize("message", MESSAGES, ids=_name)
def test_messages_and_fields_are_named_as_the_style_guide_has_it(message: Descriptor):
    assert re.fullmatch(r"([A-Z][a-z0-9]+)+", message.name)
    for field in message.fields:
        assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", field.name), field.name
        plural = field.name.endswith("s")
        assert plural or not field.is_repeated, f"{field.name} is repeated: a plural"
    assert [field.number for field in message.fields] == list(range(1, len(message.fields) + 1))


VALUES = [message.name for message in MESSAGES if not message.name.endswith(("Request", "Response"))]


@pytest.mark.parametrize("name", VALUES)
def test_every_message_that_is_a_value_says_what_it_is(name):
    assert _comments("message", name)


def test_lists_are_paged_alike():
    """AIP-158: the same names and types in every request and response for a list."""
    lists = [method for method in SERVICE.methods if method.name.startswith("List")]
    assert len(lists) == 4
    for method in lists:
        asked, told = method.input_type.fields_by_name, method.output_type.fields_by_name
        assert asked["page_size"].type == FieldDescriptor.TYPE_INT32
        assert asked["page_token"].type == told["next_page_token"].type == FieldDescriptor.TYPE_STRING
        items = method.output_type.fields[0]
        assert items.is_repeated
        assert f"List{items.name.title()}" == method.name


def test_every_type_is_used():
    """What no method reaches would be promised and never sent."""
    reached: set[str] = set()
    waiting = [kind for method in SERVICE.methods for kind in (method.input_type, method.output_type)]
    while waiting:
        message = waiting.pop()
        if message.full_name not in reached:
            reached.add(message.full_name)
            waiting += [field.message_type for field in message.fields if field.message_type]
            reached |= {field.enum_type.full_name for field in message.fields if field.enum_type}

    assert {kind.full_name for kind in (*MESSAGES, *ENUMS)} == reached - TIMES


def test_findings_of_audits_are_those_of_the_core():
    named = {value.name.removeprefix("FINDING_"): value.number for value in pb.Audit.Finding.DESCRIPTOR.values}
    assert named == {"UNSPECIFIED": 0} | {finding.name: finding.value for finding in AuditFinding}
