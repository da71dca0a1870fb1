"""Vouching: the gaps between grants, as the node that is vouched for receives them.

Three vouchers side by side, each with a node of its own, whose programs turn pings round on LINKS links: a thread of a
process that has other work, as it would be one of the agent; a process of its own; the same with raised priority, as it
is. First alone, then beside BUSY tasks that only compute, in the same cgroup: where that stands decides as well.
Times are those at which the node's kernel received each grant (socket(7), SO_TIMESTAMPNS).
"""

import asyncio
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bed import Bed, a_bed
from flood import Use
from footprint import Memory
from report import Row, Section

from arpguard.clock import boot_ns
from arpguard.core.vouching.profiles import SLOW, fastest_for
from arpguard.core.vouching.voucher import AdoptedTerm
from arpguard.dataplane import bpffs, loader, packetsocket
from arpguard.dataplane.build import read_build
from arpguard.dataplane.maps import ControlValue, VouchingTable
from arpguard.model import LinkTerm, NodeControl
from arpguard.runtime.voucher.messages import Adopt, Priority, Started
from arpguard.runtime.voucher.process import VoucherProcess
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.verdict import Hook, Mode
from arpguard.wire.vouching import VouchType
from support.frames.vouch_builders import ETHERTYPE

TITLE = "vouching: gaps between grants at the node that is vouched for, each 50 ms when nobody is late"
LINKS, BUSY = 4, 8
KEY = bytes(16)
EPOCH = 1
_AN_HOUR = 3600 * NS_PER_S
_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS = 35
_GRANTS = (
    (0x28, 0, 0, 12),  # ldh [12]           ethertype
    (0x15, 0, 3, ETHERTYPE),
    (0x30, 0, 0, 15),  # ldb [15]           type
    (0x15, 0, 1, VouchType.GRANT),
    (0x06, 0, 0, 64),
    (0x06, 0, 0, 0),
)
_UNRAISED = ["setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice"]
_THREAD = [*_UNRAISED, sys.executable, str(Path(__file__).with_name("busyvoucher.py"))]


class Ear:
    """Hears the grants on a link of a node; what has come is read afterwards, with the kernel's times."""

    def __init__(self, bed: Bed, device: str) -> None:
        self._socket = bed.node.call(lambda: self._open(device))

    @staticmethod
    def _open(device: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        packetsocket.attach_filter(opened, _GRANTS)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        opened.bind((device, _ETH_P_ALL))
        opened.setblocking(False)
        return opened

    def times(self) -> list[int]:
        """Of the grants since the last call, in ns."""
        found = []
        while True:
            try:
                _, control, _, _ = self._socket.recvmsg(64, socket.CMSG_SPACE(16))
            except BlockingIOError:
                return found
            seconds, ns = struct.unpack("=qq", control[0][2])
            found.append(seconds * NS_PER_S + ns)

    def close(self) -> None:
        self._socket.close()


@dataclass
class Case:
    """A running voucher, and the ears of its node. `started_s`: from spawn until it took commands."""

    name: str
    process: VoucherProcess
    priority: Priority
    started_s: float
    ears: Sequence[Ear]

    def gaps_ms(self) -> list[float]:
        """Since the last call."""
        return [(later - grant) / NS_PER_MS for ear in self.ears for grant, later in pairwise(ear.times())]


def measure(*, quick: bool) -> Section:
    """The section."""
    seconds = 3.0 if quick else 60.0
    section = Section(TITLE)
    with ExitStack() as stack:
        cases = [
            stack.enter_context(a_case("thread in a busy process", _THREAD)),
            stack.enter_context(a_case("process", _UNRAISED)),
            stack.enter_context(a_case("process, raised", [])),
        ]
        time.sleep(1.0)  # until all grant
        _watch(section, cases, "alone", seconds)
        with some_busy_tasks(BUSY):
            _watch(section, cases, f"beside {BUSY} busy tasks", seconds)

        raised = cases[-1]
        memory = Memory()
        memory.add(raised.process.pid)
        section.add(Row("the process: resident, own share", [memory.rss[0], memory.pss[0]], "MB"))
        section.add(Row("the process: start until it takes commands", [case.started_s for case in cases[1:]], "s"))
    return section


def _watch(section: Section, cases: Sequence[Case], when: str, seconds: float) -> None:
    for case in cases:
        case.gaps_ms()
    before = {case.name: Use(case.process.pid).read()[0] for case in cases}
    began = time.monotonic()
    time.sleep(seconds)

    took = time.monotonic() - began
    for case in cases:
        gaps, used = sorted(case.gaps_ms()), Use(case.process.pid).read()[0] - before[case.name]
        rank = {share: gaps[min(len(gaps) - 1, int(len(gaps) * share))] for share in (0.99, 0.999)}
        profile = fastest_for(int(rank[0.999] * NS_PER_MS))
        fits = profile.name if profile is not None else "none"
        note = f"p99 {rank[0.99]:.1f}, p99.9 {rank[0.999]:.1f}: {fits}; {used / took / LINKS:.2%} of a core a node"
        name = f"{case.name} ({case.priority.value}), {when}"
        section.add(Row(name, gaps, "ms", note=note))


@contextmanager
def a_case(name: str, prefix: Sequence[str]) -> Iterator[Case]:
    """A voucher and its node."""
    with ExitStack() as stack:
        bed = stack.enter_context(a_bed(f"vouch-{name.replace(' ', '').replace(',', '')}"))
        devices = _cables(bed)
        terms = _name_terms(bed, devices)

        maps = loader.load_unpinned(read_build(), ()).maps
        ControlValue(maps["control"]).write(_a_control())
        lock = bpffs.lock(bed.pin_dir)
        began = time.monotonic()
        words = [*bed.client.prefix(), *prefix]
        process = VoucherProcess(ETHERTYPE, lock, maps["control"], maps["grants"], words)
        stack.callback(process.close)
        select.select([process], [], [], 30)
        (priority,) = (news.priority for news in process.news() if isinstance(news, Started))
        took = time.monotonic() - began
        for device, term in terms.items():
            adopted = AdoptedTerm(term.number, process.instance, EPOCH, SLOW.d_ns)
            process.adopt(Adopt(adopted, device, _mac(bed, device), KEY))
        ears = [Ear(bed, device) for device in devices]
        for ear in ears:
            stack.callback(ear.close)
        yield Case(name, process, priority, took, ears)


def _cables(bed: Bed) -> list[str]:
    """LINKS cables with the guard at the node's end; the first is there already."""
    devices = [f"eth{number}" for number in range(LINKS)]
    for device in devices[1:]:
        bed.node.batch(
            [f"link add {device} type veth peer name {device} netns {bed.client.name}", f"link set {device} up"]
        )
        bed.client.batch([f"link set {device} up"])
    attacher = bed.attacher()
    for device in devices:
        bed.node.call(lambda device=device: asyncio.run(attacher.ensure(_ifindex(device), Hook.TC_INGRESS)))
    return devices


def _name_terms(bed: Bed, devices: Sequence[str]) -> dict[str, LinkTerm]:
    """Each link takes a term of its own, and the first is the one that binds the node."""
    terms = {
        device: LinkTerm(os.getpid() << 8 | number + 1, KEY, SLOW.window_ns) for number, device in enumerate(devices)
    }
    control = _a_control(term=terms[devices[0]].number, ethertype=ETHERTYPE)
    ControlValue(bed.plane.maps["control"]).write(control)
    links = {bed.node.call(lambda device=device: _ifindex(device)): term for device, term in terms.items()}
    VouchingTable(bed.plane.maps["vouching"]).write(links)
    return terms


def _a_control(*, term: int = 0, ethertype: int = 0) -> NodeControl:
    return NodeControl(
        Mode.ENFORCE,
        generation=1,
        epoch=EPOCH,
        fence_ns=boot_ns() + _AN_HOUR,
        lease_ns=2 * _AN_HOUR,
        term=term,
        ethertype=ethertype,
    )


def _ifindex(device: str) -> int:
    return socket.if_nametoindex(device)


def _mac(bed: Bed, device: str) -> bytes:
    text = bed.node.run("ip", "-json", "link", "show", "dev", device)
    return bytes.fromhex(text.partition('"address":"')[2][:17].replace(":", ""))


@contextmanager
def some_busy_tasks(count: int) -> Iterator[None]:
    """Tasks that only compute."""
    tasks = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.kill()
            task.wait()
