"""An agent with 100,000 VIPs beside one with 10: start, memory, CPU at rest, and answers to one caller.

What a frame costs is in the section `frames`. Start and memory include reading the configuration file of 6 MB.
"""

import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bed import VIP, a_pin_dir, two_hosts
from flood import Use
from footprint import Where, an_agent
from report import Section
from serving import Api, Case, Figures, scrape

from arpguard.v1 import agent_pb2 as pb

TITLE = "scale: an agent with 100,000 VIPs, and with 10"
COUNTS = (10, 100_000)
REST = 10.0  # per cent of a core
_METRICS = "127.0.0.1:9469"


def measure(*, quick: bool) -> Section:
    """The section."""
    rounds, seconds = (1, 12.0) if quick else (3, 30.0)  # a pass over all entries comes every 10 s
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="arpguard-bench-")))
        hosts = stack.enter_context(two_hosts("scale"))
        where = Where(hosts.node, folder, stack.enter_context(a_pin_dir("scale")))
        with an_agent(where, _config(where, 1)):
            pass  # the programs are loaded
        for _ in range(rounds):
            for count in COUNTS:
                _measure(where, count, figures, seconds)
    return figures.section(TITLE)


def _measure(where: Where, count: int, figures: Figures, seconds: float) -> None:
    name = f"{count:,} VIPs"
    with an_agent(where, _config(where, count)) as (pid, took):
        use = Use(pid)
        start_cpu_s, _ = use.read()
        figures.add(f"{name}: start", took, "s")
        figures.add(f"{name}: CPU of the start", start_cpu_s, "s")
        began_s = time.monotonic()
        time.sleep(seconds)
        cpu_s, rss_mb = use.read()
        figures.add(f"{name}: at rest", 100 * (cpu_s - start_cpu_s) / (time.monotonic() - began_s), "%", REST)
        figures.add(f"{name}: RSS", rss_mb, "MB")
        api = Api(f"unix://{where.folder}/api")
        page = pb.ListVipsRequest(page_size=1000)
        for case in (
            Case("GetStatus", "GetStatus", (pb.GetStatusRequest(),), 1, 100),
            Case("ListVips, a page of 1,000", "ListVips", (page,), 1, 300),
        ):
            api.ask(Case(f"{name}: {case.name}", case.method, case.requests, 1, case.limit_ms), seconds / 2, figures)
        scrape(where, figures, name=f"{name}: ")


def _config(where: Where, count: int) -> Path:
    lines = [f"bpf: {{pin_dir: {where.pin_dir}, max_entries: 131072}}", f'metrics: {{listen: "{_METRICS}"}}']
    lines += [f'grpc: {{listen: ["unix://{where.folder}/api"]}}', "mode: enforce", "interfaces: [eth0]", "vips:"]
    lines += [f"  - {{address: {VIP + at}, owner: {{node: {'m' if at else 'n'}}}}}" for at in range(count)]
    path = where.folder / f"{count}.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
