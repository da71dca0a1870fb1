"""Where it is measured: two namespaces with a veth between them, pins of this process's own, a CPU to stay on.

       client                      node
      192.0.2.2  eth0 ------ eth0  192.0.2.1        VIPs 10.20.0.1 and on: the first, VIP, is asked for

Everything is a context manager that leaves nothing behind.
"""

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import IPv4Address
from pathlib import Path

from arpguard.addresses import Address, MacAddress, Network
from arpguard.clock import boot_ns
from arpguard.core.closing import with_ranges
from arpguard.core.desired import strictest6_mode, vips4_of
from arpguard.dataplane import bpffs, loader, syscall
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.build import Build, read_build
from arpguard.dataplane.maps import ControlValue, EntryTable, RangeTable, VouchingTable, write_term
from arpguard.model import EntryKey, Grants, LinkTerm, NodeControl, RangeKey, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Hook, Kind, Mode
from arpguard.wire.arp import build_request
from arpguard_lab.netns import Netns
from support.frames.vouch_builders import ETHERTYPE
from support.programs.compiling import BPF, compiled
from support.programs.prog_run import grants_value

NODE_MAC, CLIENT_MAC = MacAddress(bytes((2, 0, 0, 0, 0, 1))), MacAddress(bytes((2, 0, 0, 0, 0, 2)))
NODE_IP, CLIENT_IP = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
VIP = IPv4Address("10.20.0.1")
EPOCH = 1
_HOUR_NS = 3600 * NS_PER_S
_QUIET = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
_OTHERS = IPv4Address("10.20.1.0")

REQUEST = build_request(CLIENT_MAC, CLIENT_IP, VIP)


@contextmanager
def pinned_to_a_cpu() -> Iterator[None]:
    """Keeps the calling thread on its last CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def a_pin_dir(name: str) -> Iterator[Path]:
    """A folder in bpffs."""
    path = Path(f"/sys/fs/bpf/arpguard-bench-{os.getpid()}-{name}")
    bpffs.prepare(path)
    try:
        yield path
    finally:
        bpffs.remove(path)


@contextmanager
def a_namespace(name: str) -> Iterator[Netns]:
    """A network namespace without IPv6."""
    netns = Netns(f"arpguard-bench-{os.getpid()}-{name}")
    try:
        netns.run("sysctl", "-qw", *_QUIET)
        yield netns
    finally:
        netns.remove()


@cache
def a_changed_build(head: str, max_entries: int) -> Build:
    """The programs with a line put before their source."""
    with tempfile.TemporaryDirectory(prefix="arpguard-bench-") as folder:
        shutil.copytree(BPF, folder, dirs_exist_ok=True)
        main = Path(folder, "arpguard.c")
        main.write_text(f"{head}\n{main.read_text(encoding='utf-8')}", encoding="utf-8")
        return replace(compiled(Path(folder)), max_entries=max_entries)


class Plane:
    """Loaded programs and their maps, set for one link."""

    def __init__(self, pin_dir: Path, build: Build, ifindex: int) -> None:
        loaded = loader.load(pin_dir, build)
        self.programs = loaded.programs
        self.maps = loaded.maps
        self.table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        self._ifindex = ifindex
        self.fill(1, [])

    def fill(self, count: int, special: Sequence[tuple[Address, VipEntry]]) -> None:
        """Sees to `count` entries: VIP, which this node owns, those in `special`, and others that it does not own."""
        entries = {EntryKey(self._ifindex, VIP): an_entry()}
        entries |= {EntryKey(self._ifindex, vip): entry for vip, entry in special}
        others = range(count - len(entries))
        entries |= {EntryKey(self._ifindex, _OTHERS + number): an_entry(Kind.FOREIGN) for number in others}
        self.table.write(entries)
        self._control = NodeControl(
            Mode.ENFORCE,
            generation=1,
            strictest6=strictest6_mode(Mode.ENFORCE, entries),
            epoch=EPOCH,
            fence_ns=boot_ns() + _HOUR_NS,
            lease_ns=2 * _HOUR_NS,
            vips4=vips4_of(entries),
        )
        ControlValue(self.maps["control"]).write(self._control)

    def vouch(self, term: LinkTerm | None) -> None:
        """Has the link take frames of this term, and binds the node to it for an hour; None: nobody vouches for it."""
        vouched = replace(self._control, term=term.number, ethertype=ETHERTYPE) if term else None
        terms = {self._ifindex: term} if term else {}
        tables = ControlValue(self.maps["control"]), VouchingTable(self.maps["vouching"])
        write_term(*tables, vouched or self._control, terms)
        grants = Grants(boot_ns() + term.window_ns, term.number, term.window_ns) if term else Grants()
        syscall.map_update(self.maps["grants"], bytes(4), bytes(grants_value(grants)))

    def close(self, networks: Sequence[Network]) -> None:
        """Closes ranges besides the entries that were seen to last."""
        ranges = {RangeKey(self._ifindex, network): an_entry(Kind.CLOSED) for network in networks}
        RangeTable(self.maps["ranges"], self.maps["counters"]).write(ranges)
        vips4 = with_ranges(self._control.vips4, ranges)
        ControlValue(self.maps["control"]).write(replace(self._control, closed=True, vips4=vips4))


def an_entry(kind: Kind = Kind.OWNED, *, unfenced: bool = False, primary: Address = NODE_IP) -> VipEntry:
    """An entry of the node's link, fenced unless `unfenced`."""
    return VipEntry(kind, unfenced=unfenced, epoch=EPOCH, link_mac=NODE_MAC, answer_mac=NODE_MAC, primary=primary)


@dataclass(frozen=True)
class Hosts:
    """The two hosts."""

    client: Netns
    node: Netns
    client_ifindex: int
    node_ifindex: int


@dataclass(frozen=True)
class Bed(Hosts):
    """The two hosts and the programs; nothing is attached yet."""

    pin_dir: Path
    plane: Plane

    def attacher(self, plane: Plane | None = None) -> Attacher:
        """Attaches the bed's programs, or those of another build."""
        return Attacher(self.pin_dir, (plane or self.plane).programs)

    def attach(self, *hooks: Hook) -> None:
        """Attaches the guard to the node's link."""
        attacher = self.attacher()
        for hook in hooks:
            self.node.call(lambda hook=hook: asyncio.run(attacher.ensure(self.node_ifindex, hook)))

    def detach(self, *hooks: Hook) -> None:
        """Takes it off again: at once, while unpinning a link only lets it go some time later."""
        attacher = self.attacher()
        for pin in attacher.pins():
            if pin.hook in hooks:
                with syscall.obj_get(str(pin.path)) as link:
                    syscall.link_detach(link)
        for hook in hooks:
            asyncio.run(attacher.detach(self.node_ifindex, hook, filters=False))


@contextmanager
def two_hosts(name: str) -> Iterator[Hosts]:
    """Client and node."""
    with a_namespace(f"{name}-client") as client, a_namespace(f"{name}-node") as node:
        node.batch(
            [
                f"link add eth0 address {NODE_MAC} type veth peer name eth0 address {CLIENT_MAC} netns {client.name}",
                "link set eth0 up",
                f"addr add {NODE_IP}/24 dev eth0",
            ]
        )
        client.batch(["link set eth0 up", f"addr add {CLIENT_IP}/24 dev eth0"])
        client_ifindex, node_ifindex = (netns.call(lambda: socket.if_nametoindex("eth0")) for netns in (client, node))
        yield Hosts(client, node, client_ifindex, node_ifindex)


@contextmanager
def a_bed(name: str, vips: int = 1) -> Iterator[Bed]:
    """Two hosts, and the programs with `vips` entries of the node's link."""
    with a_pin_dir(name) as pin_dir, two_hosts(name) as hosts:
        plane = Plane(pin_dir, read_build(), hosts.node_ifindex)
        plane.fill(vips, [])
        yield Bed(**vars(hosts), pin_dir=pin_dir, plane=plane)
