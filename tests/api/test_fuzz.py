"""Whatever callers send: a documented status code, no trace in the agent, and nothing that grows.

The seed is printed; ARPGUARD_SEED=N repeats a run. ARPGUARD_RUNS=500, as in `make fuzz`, has more calls.
"""

import random
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from api.apitools import INVALID, NOT_FOUND, OK, SERVICE, Api, a_node, an_api, request_of, served
from api.conftest import OWNED
from arpguard.model import EntryKey, VipEntry
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Kind
from support.chance import RUNS, SEED
from support.netns.agents import pid_of
from support.netns.waiting import HUNG_S, until
from support.processes import descriptors, resident_kib

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

CALLS = min(60 * RUNS, 3000)  # what grpcio itself leaks is another test's affair
MOST_KIB = 8192
AT_ONCE = 8  # an audit waits for answers
STREAM_S = 0.2  # then the test ends a stream that the agent accepted
COMPLAINT = re.compile(r"Traceback|ERROR|failed|\b[EF]\d{4} |Exception")
CODES = {OK, INVALID, NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED}
METHODS: dict[str, type[Message]] = {
    **{f"{SERVICE.full_name}/{method.name}": request_of(method.name) for method in SERVICE.methods},
    "grpc.health.v1.Health/Check": health_pb2.HealthCheckRequest,
    "grpc.health.v1.Health/Watch": health_pb2.HealthCheckRequest,
    "grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reflection_pb2.ServerReflectionRequest,
}
STREAMS = [name for name in METHODS if "Watch" in name]
WORDS = [
    "",
    *[str(OWNED)] * 4,
    "eth0",
    "dataplane",
    "arpguard.v1.AgentService",
    "02:00:00:00:00:aa",
    "::ffff:198.51.100.50",
    "fe80::1%eth0",
    "fe80::1%" + "z" * 20_000,
    "255.255.255.255",
    "0",
    "1.2.3.4.5",
    "é" * 200,
    "\0\x1b[2J\r\n\u202e\ufeff",
    "\U0001f980" * 50,
    "%s%n{0}",
    "../../etc/passwd",
    "9" * 5000,
    "A" * 60_000,
]
WHOLE = [0, 1, -1, 7, 28, 29, 1000, 1001, 2**31 - 1, -(2**31)]
LONG = [0, 1, -1, 253402300799, 253402300800, 2**63 - 1, -(2**63)]


class Fuzzer:
    """Requests from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._makers: list[Callable[[type[Message]], bytes]] = [
            self._noise,
            self._mutant,
            self._values,
            self._nearly,
            self._sound,
        ]

    def request(self, kind: type[Message]) -> bytes:
        return self.rng.choice(self._makers)(kind)[: 1 << 16]

    def _noise(self, _kind: type[Message]) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 2, 7, 60, 1000, 20_000)))

    def _mutant(self, kind: type[Message]) -> bytes:
        """A sound message with some bytes changed, cut out or put in twice."""
        data = bytearray(self._values(kind)[:500])
        for _ in range(self.rng.randint(1, 5)):
            at = self.rng.randrange(len(data) + 1)
            data[at : at + self.rng.choice((0, 1, 3))] = self.rng.randbytes(self.rng.choice((0, 1, 2)))
        return bytes(data)

    def _values(self, kind: type[Message]) -> bytes:
        message = kind()
        self._fill(message)
        return message.SerializeToString()

    def _nearly(self, kind: type[Message]) -> bytes:
        """A request about a VIP with one field that may be wrong."""
        message = about_a_vip(kind)
        fields = list(message.DESCRIPTOR.fields_by_name)
        self._fill(message, self.rng.sample(fields, k=min(1, len(fields))))
        return message.SerializeToString()

    def _sound(self, kind: type[Message]) -> bytes:
        """A request with nothing wrong: a fifth of all, so that no run of each method is without an answer."""
        return about_a_vip(kind).SerializeToString()

    def _fill(self, message: Message, names: list[str] | None = None) -> None:
        """The named fields; half of all, when none are named."""
        for field in message.DESCRIPTOR.fields:
            if field.name not in names if names is not None else self.rng.random() < 0.5:
                continue
            if field.is_repeated:
                getattr(message, field.name).extend(
                    self.rng.choices(WHOLE[:5], k=self.rng.choice((1, 3, 64, 65, 2000)))
                )
            elif field.message_type:
                getattr(message, field.name).SetInParent()
                self._fill(getattr(message, field.name))
            else:
                setattr(message, field.name, self._scalar(field))

    def _scalar(self, field: FieldDescriptor) -> object:
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            text = self.rng.choice(WORDS) if self.rng.random() < 0.8 else chr(self.rng.randrange(0xD800)) * 20
            return text if field.type == FieldDescriptor.TYPE_STRING else text.encode()
        if field.type == FieldDescriptor.TYPE_BOOL:
            return self.rng.random() < 0.5
        return self.rng.choice(LONG if field.type == FieldDescriptor.TYPE_INT64 else WHOLE)


def about_a_vip(kind: type[Message]) -> Message:
    message = kind()
    if "address" in message.DESCRIPTOR.fields_by_name:
        setattr(message, "address", str(OWNED))  # noqa: B010 - not every message has it
    return message


def code_of(api: Api, method: str, data: bytes) -> grpc.StatusCode:
    """How the call ends; a stream that goes on for a moment is OK."""
    try:
        if method in STREAMS:
            next(api.channel.unary_stream(f"/{method}")(data, timeout=STREAM_S))
        elif "Reflection" in method:
            list(api.channel.stream_stream(f"/{method}")(iter([data]), timeout=HUNG_S))
        else:
            api.channel.unary_unary(f"/{method}")(data, timeout=HUNG_S)
    except grpc.RpcError as error:
        if method in STREAMS and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return OK
        return error.code()
    return OK


@pytest.fixture
def fuzzer() -> Fuzzer:
    print(f"ARPGUARD_SEED={SEED}")
    return Fuzzer(SEED)


def test_random_requests_end_with_a_documented_code_and_leave_no_trace(agent, fuzzer):
    """As many before memory and descriptors are counted, so that what is kept for good is there."""
    pid = pid_of(agent)
    ends: Counter[tuple[str, str]] = Counter()

    def run(count: int) -> None:
        methods = fuzzer.rng.choices(list(METHODS), k=count)
        requests = [fuzzer.request(METHODS[method]) for method in methods]
        with an_api(agent) as api, ThreadPoolExecutor(AT_ONCE) as pool:
            codes = pool.map(partial(code_of, api), methods, requests)
            for method, data, code in zip(methods, requests, codes, strict=True):
                ends[method.partition("/")[2], code.name] += 1
                assert code in CODES, f"{method} of {data[:200]!r} ended with {code}"

    run(CALLS)
    time.sleep(0.1)
    before = resident_kib(pid), descriptors(pid)
    run(CALLS)

    with an_api(agent) as api:
        assert api.GetVip(address=str(OWNED)).vips[0].owner == "node-1"
        assert api.status_of("") == "SERVING"
    assert COMPLAINT.findall(agent.log.read_text(encoding="utf-8", errors="replace")) == []
    until(lambda: resident_kib(pid) - before[0] < MOST_KIB, 40, "the memory of the calls is given back")
    until(lambda: descriptors(pid) <= before[1])
    for method in SERVICE.methods_by_name:
        assert ends[method, "INVALID_ARGUMENT"] > 20, ends
        assert ends[method, "OK"] > 5, ends


def test_every_answer_to_random_questions_is_a_message(loaded, fuzzer, tmp_path):
    """And messages of refusals are short enough for every client's headers."""
    with (
        served(a_node(loaded, {EntryKey(1, OWNED): VipEntry(Kind.OWNED)}), tmp_path) as node,
        an_api(node.address) as api,
    ):
        lengths = []
        for _ in range(500):
            method = fuzzer.rng.choice([method for method in SERVICE.methods if not method.server_streaming])
            call = api.channel.unary_unary(f"/{SERVICE.full_name}/{method.name}")
            try:
                answer = call(fuzzer.request(request_of(method.name)), timeout=HUNG_S)
            except grpc.RpcError as error:
                lengths.append(len(error.details()))
            else:
                getattr(pb, method.output_type.name).FromString(answer)

    assert lengths
    assert 0 < min(lengths) <= max(lengths) < 800


def test_bytes_that_are_no_http2_disturb_nobody(agent, fuzzer):
    """Also connections that are cut in the middle, or say nothing at all."""
    pid = pid_of(agent)
    path = agent.api.removeprefix("unix://")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    before = descriptors(pid)
    silent = []
    for number in range(200):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        start = (b"", preface, preface[:10], b"GET / HTTP/1.1\r\n\r\n")[number % 4]
        if number % 5:
            with suppress(OSError):  # 64 are let in; and some are sent away at once
                connection.sendall(start + fuzzer.rng.randbytes(fuzzer.rng.choice((1, 9, 100))))
        silent.append(connection)
    with an_api(agent) as api:  # those that say nothing lose their places
        until(lambda: answers(api), 10)
    for connection in silent:
        connection.close()

    until(lambda: descriptors(pid) <= before, 10)
    assert COMPLAINT.findall(agent.log.read_text(encoding="utf-8", errors="replace")) == []


def answers(api) -> bool:
    try:
        return api.GetStatus().node == "node-1"
    except grpc.RpcError:
        return False


def test_callers_that_leave_at_any_moment_leave_nothing_behind(agent, fuzzer):
    """Calls are cancelled while they are on their way, read, answered; and streams in the middle."""
    pid = pid_of(agent)
    with an_api(agent) as api:
        api.GetStatus()
    before = descriptors(pid)
    with an_api(agent) as api:
        for _ in range(500):
            method = fuzzer.rng.choice(list(METHODS)[:-1])
            start = api.channel.unary_stream(f"/{method}")
            call = start(METHODS[method]().SerializeToString(), timeout=HUNG_S)
            time.sleep(fuzzer.rng.choice((0, 0, 0.0001, 0.001)))
            call.cancel()
        until(lambda: answers(api), what="calls that are over leave room for others: a connection has 128 streams")
        assert api.GetVip(address=str(OWNED)).vips
    until(lambda: descriptors(pid) <= before, 10)
    assert COMPLAINT.findall(agent.log.read_text(encoding="utf-8", errors="replace")) == []


def test_agent_that_was_fuzzed_stops_in_good_order(agent):
    """Last in this file."""
    agent.kill(signal.SIGTERM)

    assert "stopped: " in agent.log.read_text(encoding="utf-8")
    assert COMPLAINT.findall(agent.log.read_text(encoding="utf-8", errors="replace")) == []
