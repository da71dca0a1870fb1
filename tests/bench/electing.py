"""Elections in a large cluster: what a claim costs the reconciler, and what it takes to decide who wants which VIP.

10,000 VIPs that nobody has, and 100 or 1,000 nodes, beside ten VIPs and three nodes in the same run. All times are CPU
time of the thread that has the event loop: so long others wait, on an idle machine. A stretch is one without the loop.
"""

import asyncio
import gc
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_interface
from statistics import median
from types import SimpleNamespace

from bed import NODE_MAC, a_pin_dir
from report import Row, Section

from arpguard.clock import boot_ns
from arpguard.config.files import parse_config
from arpguard.config.model import LeaseConfig
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.basis import Asked
from arpguard.core.cluster import Node
from arpguard.core.ownership.records import Heartbeat, PublishedLink, Version
from arpguard.core.sourcing import Collected
from arpguard.dataplane import loader
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable
from arpguard.dataplane.syscall import Fd
from arpguard.model import InterfaceAddress, Link, Owner, OwnerKind, Standing, Surroundings, Vip
from arpguard.runtime.cluster.here import Here
from arpguard.runtime.cluster.joining import Left, join
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.outlook import Outlook
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.kernel.vouching import VouchingMaps
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind
from support.programs.recorder import Recorder

TITLE = "electing: 10,000 VIPs, and up to 1,000 nodes"
FEW, MANY = 10, 10_000
CLAIM_MS, STRETCH_MS = 0.1, 50
PASS_MS = {3: None, 100: 50, 1000: 300}  # by how many nodes there are; of three each wants thousands of VIPs at once
_ME = "node-0"
_OWN = ip_interface("10.20.0.1/16")
_FIRST = IPv4Address("10.20.16.0")
_LINK = Link(2, "eth0", NODE_MAC, up=True, addresses=(InterfaceAddress(_OWN.ip, _OWN.network),))
_HERE = Surroundings(links=(_LINK,))
_CONFIG = parse_config("{mode: enforce, interfaces: [eth0]}")
_MINE, _NOBODYS = Standing(Kind.OWNED, 1), Standing(Kind.UNCLAIMED)
_LONG_NS = 3600 * NS_PER_S


def measure(*, quick: bool) -> Section:
    """The section."""
    with a_pin_dir("electing") as pin_dir:
        return _measure(loader.load(pin_dir, read_build(2 * MANY)).maps, 1 if quick else 5)


def _measure(maps: dict[str, Fd], rounds: int) -> Section:
    section = Section(TITLE)
    for vips in (FEW, MANY):
        for known, complete in (("", True), (", while the cluster is read", False)):
            goal = ("under 0.1", CLAIM_MS) if vips == MANY else None
            samples = [_claim_ms(maps, vips, complete=complete) for _ in range(rounds)]
            section.add(_row(f"a claim's outcome told to the kernel: {vips:,} VIPs{known}", samples, goal))
    for nodes, pass_ms in PASS_MS.items():
        figures = [_decisions(maps, nodes) for _ in range(rounds)]
        goal = (f"under {pass_ms}", pass_ms) if pass_ms else None
        stretch = f"under {STRETCH_MS}", STRETCH_MS
        section.add(_row(f"{nodes:,} nodes: the first decision", [each.first_ms for each in figures]))
        section.add(_row(f"{nodes:,} nodes: each further one", [each.pass_ms for each in figures], goal))
        section.add(_row(f"{nodes:,} nodes: when one has gone", [each.gone_ms for each in figures]))
        section.add(_row(f"{nodes:,} nodes: longest stretch of all", [each.stretch_ms for each in figures], stretch))
    return section


def _row(name: str, samples: list[float], goal: tuple[str, float] | None = None) -> Row:
    said, limit = goal or ("", 0)
    return Row(name, samples, "ms", said, median(samples) < limit if goal else None)


def _vips(count: int) -> dict[IPv4Address, Vip]:
    return {_FIRST + number: Vip(_FIRST + number, Owner(OwnerKind.ELECT)) for number in range(count)}


def _a_reconciler(maps: dict[str, Fd], vips: dict[IPv4Address, Vip], *, complete: bool = True) -> Reconciler:
    """Over real maps, after its first pass; nothing is attached."""
    tables = EntryTable(maps["entries"], maps["counters"]), RangeTable(maps["ranges"], maps["counters"])
    control = ControlValue(maps["control"])
    vouching = VouchingMaps(maps["vouching"], maps["control"], maps["grants"], maps["control"])
    reconciler = Reconciler(_ME, *tables, control, Recorder(), AnnouncementSchedule(), vouching)
    asyncio.run(reconciler.apply(Asked(_CONFIG, 1, vips, complete), _HERE, 0))
    return reconciler


def _claim_ms(maps: dict[str, Fd], count: int, *, complete: bool, claims: int = 1000) -> float:
    """Of one claim; of each VIP, one is taken and given up in turns."""
    vips = _vips(count)
    reconciler = _a_reconciler(maps, vips, complete=complete)
    gc.collect()
    gc.freeze()  # as the agent does
    addresses = [*vips][:claims]
    began_s = time.thread_time()

    for _ in range(claims // len(addresses)):
        for standing in (_MINE, _NOBODYS):
            for address in addresses:
                reconciler.take_standings({address: standing}, 0)

    took_s = time.thread_time() - began_s
    gc.unfreeze()
    return took_s / (2 * claims) * 1000


@dataclass
class Decisions:
    """How long they took, in ms of CPU."""

    first_ms: float = 0.0
    pass_ms: float = 0.0
    gone_ms: float = 0.0
    stretch_ms: float = 0.0


def _decisions(maps: dict[str, Fd], nodes: int) -> Decisions:
    """Of a member of so many nodes; nobody has any of the VIPs, and no server answers."""
    heartbeats = [_a_heartbeat(f"node-{number}") for number in range(1, nodes)]
    vips = _vips(MANY)
    return asyncio.run(_measured(heartbeats, vips, _a_reconciler(maps, vips)))


async def _measured(heartbeats: list[Heartbeat], vips: dict[IPv4Address, Vip], kernel: Reconciler) -> Decisions:
    found, member = Decisions(), await _a_member(heartbeats, vips, kernel)
    gc.collect()
    gc.freeze()  # as the agent does
    watching = asyncio.create_task(_watch(found))

    found.first_ms = await _decide_ms(member)
    found.pass_ms = min([await _decide_ms(member) for _ in range(5)])
    member.heartbeat_changed(heartbeats[-1].node, heartbeats[-1], None)
    found.gone_ms = await _decide_ms(member)

    watching.cancel()
    gc.unfreeze()
    return found


async def _watch(found: Decisions) -> None:
    """Has its turn as often as there is one."""
    while True:
        began_s = time.thread_time()
        await asyncio.sleep(0)
        found.stretch_ms = max(found.stretch_ms, (time.thread_time() - began_s) * 1000)


async def _decide_ms(member: Membership) -> float:
    await asyncio.sleep(0)
    began_s = time.thread_time()
    await member._decide(boot_ns())
    return (time.thread_time() - began_s) * 1000


async def _no_secret(_name: str) -> bytes:
    """The server does not answer, so no node vouches for this one."""
    await asyncio.Event().wait()
    raise AssertionError


class Silent:
    """A server that knows no heartbeat of this node, and answers nothing else."""

    def set_timeout(self, seconds: float) -> None:
        """It takes as long as it takes."""

    async def heartbeat(self, _node: str) -> None:
        return None

    def __getattr__(self, _request: str):
        return lambda *_: asyncio.Event().wait()


class Nobody:
    """Is told of what happens."""

    def look(self) -> None: ...

    def owned(self, address, holder) -> None: ...


def _a_heartbeat(name: str) -> Heartbeat:
    link = PublishedLink("eth0", NODE_MAC, (_OWN.network,))
    return Heartbeat(name, "epoch", name, _LONG_NS, Version(name, "1"), (link,))


async def _a_member(heartbeats: list[Heartbeat], vips: dict[IPv4Address, Vip], kernel: Reconciler) -> Membership:
    names = [_ME, *(heartbeat.node for heartbeat in heartbeats)]
    cluster = SimpleNamespace(
        nodes={name: Node(name, ready=True) for name in names},
        known=True,
        leases_known=True,
        heartbeats=heartbeats,
        claims=(),
        announcers=SimpleNamespace(reports={}),
        renewed=lambda _sent_ns: None,
    )
    outlook = Outlook(LeaseConfig(), Collected(vips), _HERE, known=True)
    here = Here(_ME, kernel, cluster, outlook, Nobody())
    return await join(here, Left(None, {}), (Silent(), Silent()), asyncio.Event(), _no_secret)
