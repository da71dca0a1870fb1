"""A flood from one core, at a node without a guard, and with an agent that enforces at tc and at XDP.

Each frame asks in the name of another host, for one of 8,192 addresses: this node owns 10, another one 5,990 of them.
Meanwhile a well-behaved client pings the node, and asks who has a VIP of it. The time of a frame is the kernel's, the
sender's part included, which is most of it without a guard.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory

from bed import CLIENT_IP, CLIENT_MAC, NODE_IP, Hosts, a_pin_dir, two_hosts
from footprint import Memory, Where, an_agent
from report import Section
from serving import Figures

from arpguard.dataplane import syscall
from support.netns.flooding import Asker, Flood, requests
from support.programs import raw_bpf

TITLE = "flood: as many ARP requests as one core makes, each from another host"
FIRST, BITS = IPv4Address("10.20.0.0"), 13
OWNED, GUARDED = 10, 6_000
SHARE = 10.0  # per cent of a core
NO_GUARD = "no guard"
_WAIT_S = 1.0


@dataclass(frozen=True)
class Use:
    """CPU and memory of an agent; nothing where there is none."""

    pid: int | None

    def read(self) -> tuple[float, float]:
        """Seconds, and MB."""
        if self.pid is None:
            return 0.0, 0.0
        *_, fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(") ")
        memory = Memory()
        memory.add(self.pid)
        return sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK"), memory.rss[0]


def measure(*, quick: bool) -> Section:
    """The section."""
    rounds, count = (1, 100) if quick else (3, 1000)
    figures = Figures()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="arpguard-bench-")))
        hosts = stack.enter_context(two_hosts("flood"))
        where = Where(hosts.node, folder, stack.enter_context(a_pin_dir("flood")))
        stack.enter_context(_polling(hosts))
        frames = requests(hosts.client_ifindex, FIRST, BITS)
        asker = stack.enter_context(closing(Asker(hosts.client, CLIENT_MAC, CLIENT_IP, _WAIT_S)))
        for _ in range(rounds):
            alone = _measure(NO_GUARD, Use(None), Flood(hosts.client, frames), hosts, asker, figures, count)
            for datapath in ("tc", "xdp"):
                with an_agent(where, _config(where, datapath)) as (pid, _):
                    guarded = _measure(datapath, Use(pid), Flood(hosts.client, frames), hosts, asker, figures, count)
                figures.add(f"{datapath} / {NO_GUARD}, time of a frame", guarded / alone, "times")
    return figures.section(TITLE)


@contextmanager
def _polling(hosts: Hosts) -> Iterator[None]:
    """Both ends poll, as NICs do, and XDP sees tags and gets its answers through."""
    for netns in (hosts.client, hosts.node):
        netns.run("ethtool", "-K", "eth0", "gro", "on", "rxvlan", "off")
    program = raw_bpf.bare(raw_bpf.XDP)
    with hosts.client.call(
        lambda: syscall.link_create(program, hosts.client_ifindex, syscall.ATTACH_XDP, syscall.XDP_FLAGS_DRV_MODE)
    ):
        yield


def _config(where: Where, datapath: str) -> Path:
    lines = [
        f"bpf: {{pin_dir: {where.pin_dir}, max_entries: 16384}}",
        f'grpc: {{listen: ["unix://{where.folder}/api"]}}',
    ]
    lines += ["mode: enforce", "interfaces: [eth0]", f"datapath: {datapath}", "decisions: {capacity: 100}", "vips:"]
    lines += [f"  - {{address: {FIRST + at}, owner: {{node: {'n' if at < OWNED else 'm'}}}}}" for at in range(GUARDED)]
    path = where.folder / f"{datapath}.yaml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _measure(name: str, use: Use, flood: Flood, hosts: Hosts, asker: Asker, figures: Figures, count: int) -> float:
    """Nanoseconds for a frame."""
    cpu_s, rss_mb = use.read()
    began_s = time.monotonic()
    with flood.running():
        pinged = _pinged(hosts, count)
        answered = sum(asker.is_answered(FIRST) for _ in range(count)) if use.pid is not None else 0
    took_s = time.monotonic() - began_s
    used_s, now_mb = use.read()
    frame_ns = flood.kernel_ns / flood.sent
    figures.add(f"{name}: a frame", frame_ns, "ns", note=f"{flood.sent:,} frames")
    figures.add(f"{name}: pings lost", 100 * (1 - pinged / count), "%")
    if use.pid is not None:
        figures.add(f"{name}: requests for an owned VIP lost", 100 * (1 - answered / count), "%")
        figures.add(f"{name}: the agent's share of a core", 100 * (used_s - cpu_s) / took_s, "%", SHARE)
        figures.add(f"{name}: growth of the agent", now_mb - rss_mb, "MB", 4)
    return frame_ns


def _pinged(hosts: Hosts, count: int) -> int:
    words = ["ping", "-q", "-i", "0.002", "-W", "1", "-c", str(count), str(NODE_IP)]
    said = subprocess.run([*hosts.client.prefix(), *words], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+) received", said)
    if found is None:
        raise RuntimeError(f"ping said nothing of what it received: {said}")
    return int(found[1])
