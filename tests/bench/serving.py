"""The API and the metrics of a running agent: how soon it answers, what that costs it, and what the data plane notes.

Readers (readers.py) are in a process of their own, each with its own connection, and ask as fast as they are answered;
the time is the caller's, until it has the answer's bytes. Client and agent share the machine's cores, and so does the
flood of ARP requests (stream.py), whose time is the kernel's. Memory is compared with an agent that serves nothing.
"""

import http.client
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import grpc
from bed import VIP, a_pin_dir, two_hosts
from footprint import Memory, Where, an_agent
from google.protobuf.message import Message
from report import Row, Section
from stream import Stream, a_stream

from arpguard.v1 import agent_pb2 as pb
from arpguard.v1 import agent_pb2_grpc

TITLE = "api: answers to callers, and their price; an agent with 10,000 VIPs where nothing else is said"
FEW, TWO_PAGES, MANY = 10, 2_000, 10_000
READERS = 50
MAX_ENTRIES = 1 << 14
GROWTH_MB = 25
_SCRIPT = str(Path(__file__).with_name("readers.py"))
_METRICS = ("127.0.0.1", 9469)
SCRAPES = 200
_SETTLE_S = 1.5


@dataclass(frozen=True)
class Case:
    """A call, or several in a row, by so many readers at once; `limit_ms`: a goal for the 99th percentile."""

    name: str
    method: str
    requests: tuple[Message, ...]
    readers: int = READERS
    limit_ms: float | None = None


@dataclass
class Figures:
    """Samples by name, in the order they came up, which become the section's rows."""

    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[str, tuple[str, float | None, str]] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, under: float | None = None, note: str = "") -> None:
        self.samples[name].append(value)
        self.kinds[name] = unit, under, note

    def section(self, title: str) -> Section:
        section = Section(title)
        for name, samples in self.samples.items():
            unit, under, note = self.kinds[name]
            met = None if under is None else median(samples) < under
            section.add(Row(name, samples, unit, "" if under is None else f"under {under:g}", met, note))
        return section


@dataclass(frozen=True)
class Api:
    """An agent's API."""

    target: str

    def cases(self) -> list[Case]:
        """What is asked for."""
        pages = tuple(self._pages())
        one = str(VIP)
        return [
            Case("GetStatus", "GetStatus", (pb.GetStatusRequest(),), limit_ms=100),
            Case("ListVips, 100 VIPs", "ListVips", (pb.ListVipsRequest(),), limit_ms=300),
            Case("ListVips, 1,000 VIPs", "ListVips", pages[:1], limit_ms=300),
            Case("ListVips, all VIPs in pages of 1,000", "ListVips", pages),
            Case("GetVip", "GetVip", (pb.GetVipRequest(address=one),), 1),
            Case("ExplainVip", "ExplainVip", (pb.ExplainVipRequest(address=one),), 1),
        ]

    def _pages(self) -> Iterator[pb.ListVipsRequest]:
        with grpc.insecure_channel(self.target) as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            token, more = "", True
            while more:
                yield (request := pb.ListVipsRequest(page_size=1000, page_token=token))
                token = stub.ListVips(request).next_page_token
                more = bool(token)

    @contextmanager
    def asked(self, case: Case, seconds: float) -> Iterator[Callable[[], list[float]]]:
        """Readers ask meanwhile; gives what waits for them and tells the milliseconds of every round."""
        requests = [request.SerializeToString().hex() for request in case.requests]
        method = f"/arpguard.v1.AgentService/{case.method}"
        words = [sys.executable, _SCRIPT, self.target, method, str(case.readers), str(seconds), *requests]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                if process.stdout.readline() != "asking\n":
                    raise RuntimeError(f"no answer from the API to {case.name}")
                yield lambda: json.loads(process.stdout.read())
            finally:
                process.kill()

    def ask(self, case: Case, seconds: float, figures: Figures) -> None:
        with self.asked(case, seconds) as took:
            times = took()
        *_, p99 = quantiles(times, n=100)
        who = f"{case.name}: {case.readers} at once"
        figures.add(f"{who}, median", median(times), "ms")
        figures.add(f"{who}, 99th percentile", p99, "ms", case.limit_ms)
        took_s = max(seconds, sum(times) / 1000 / case.readers)
        figures.add(f"{who}, rate", len(times) / took_s, "/s")


def measure(*, quick: bool) -> Section:
    """The section."""
    rounds, seconds, count = (1, 0.1, 50_000) if quick else (3, 8, 1_000_000)
    vips, scrapes = (TWO_PAGES, 10) if quick else (MANY, SCRAPES)
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="arpguard-bench-")))
        pin_dir = stack.enter_context(a_pin_dir("api"))
        hosts = stack.enter_context(two_hosts("api"))
        stream = stack.enter_context(a_stream(hosts))
        where = Where(hosts.node, folder, pin_dir)
        with an_agent(where, _config(where, FEW, serving=False)):
            pass  # the programs are loaded
        for _ in range(rounds):
            _few(where, figures, min(seconds, 0.5), scrapes)
            with _compared(where, vips, figures) as api:
                _many(api, where, figures, seconds, scrapes)
                _flood(api, figures, stream, count)
    return figures.section(TITLE)


def _config(where: Where, vips: int, *, serving: bool) -> Path:
    """VIP is this node's; the others are not, for announcing ten thousand takes minutes."""
    lines = [f"bpf: {{pin_dir: {where.pin_dir}, max_entries: {MAX_ENTRIES}}}", "mode: enforce", "interfaces: [eth0]"]
    lines += [f'grpc: {{listen: ["unix://{where.folder}/api"]}}'] if serving else ["grpc: {listen: []}"]
    lines += [f'metrics: {{listen: "{_METRICS[0]}:{_METRICS[1]}"}}'] if serving else ["metrics: {listen: off}"]
    lines += ["vips:", f"  - {{address: {VIP}, owner: {{node: n}}}}"]
    lines += [f"  - {{address: {VIP + number}, owner: {{node: m}}}}" for number in range(1, vips)]
    path = where.folder / f"{vips}-{serving}.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@contextmanager
def _an_agent(where: Where, vips: int, figures: Figures, *, serving: bool) -> Iterator[Callable[[], float]]:
    """A running agent, settled; gives what tells its memory."""
    name = f"{vips:,} VIPs, {'serving' if serving else 'nothing served'}"
    with an_agent(where, _config(where, vips, serving=serving)) as (pid, took):
        time.sleep(_SETTLE_S)

        def rss() -> float:
            memory = Memory()
            memory.add(pid)
            return memory.rss[0]

        figures.add(f"start: {name}", took, "s")
        figures.add(f"RSS: {name}, idle", rss(), "MB")
        yield rss


@contextmanager
def _compared(where: Where, vips: int, figures: Figures) -> Iterator[Api]:
    """An agent that serves; what it has grown to by the end is compared with one that serves nothing."""
    with _an_agent(where, vips, figures, serving=False) as rss:
        least = rss()
    with _an_agent(where, vips, figures, serving=True) as rss:
        yield Api(f"unix://{where.folder}/api")
        figures.add(f"RSS: {vips:,} VIPs, serving, after all this", rss(), "MB")
        figures.add(f"RSS: {vips:,} VIPs, growth by serving", rss() - least, "MB", GROWTH_MB)


def _few(where: Where, figures: Figures, seconds: float, scrapes: int) -> None:
    """With few VIPs only the memory is of interest."""
    with _compared(where, FEW, figures) as api:
        for case in api.cases():
            api.ask(case, seconds, Figures())
        scrape(where, Figures(), scrapes)


def _many(api: Api, where: Where, figures: Figures, seconds: float, scrapes: int) -> None:
    for case in api.cases():
        api.ask(case, seconds, figures)
    scrape(where, figures, scrapes)


def scrape(where: Where, figures: Figures, times: int = SCRAPES, name: str = "") -> None:
    """By one scraper, which opens a connection for each scrape."""

    def once() -> tuple[float, int]:
        began = time.perf_counter()
        connection = http.client.HTTPConnection(*_METRICS)
        connection.request("GET", "/metrics")
        length = len(connection.getresponse().read())
        connection.close()
        return 1000 * (time.perf_counter() - began), length

    scrapes = where.netns.call(lambda: [once() for _ in range(times)])
    took = [took for took, _ in scrapes]
    note = f"{scrapes[0][1]:,} bytes"
    figures.add(f"{name}GET /metrics: 1 at once, median", median(took), "ms", note=note)
    figures.add(f"{name}GET /metrics: 1 at once, 99th percentile", quantiles(took, n=100)[-1], "ms")


def _flood(api: Api, figures: Figures, stream: Stream, count: int) -> None:
    """The data plane's answers, with nobody asking the API and with readers."""
    case = api.cases()[2]
    stream.flood(1000)
    alone = stream.flood(count)
    with api.asked(case, 3600):  # for as long as it takes
        asked = stream.flood(count)
    figures.add("ARP answers, nobody asks the API", alone.rate, "/s", note=_lost(alone.lost, count))
    figures.add(f"ARP answers, {case.readers} readers of ListVips", asked.rate, "/s", note=_lost(asked.lost, count))
    figures.add("ARP answers, with readers / without", asked.rate / alone.rate, "times")


def _lost(lost: int, count: int) -> str:
    return f"{lost:,} of {count:,} lost" if lost else f"all of {count:,} answered"
