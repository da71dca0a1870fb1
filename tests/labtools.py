"""What tests/netns needs beside the lab library: one cable between two hosts, raw frames on it, and small foreign
BPF programs. Everything is made in namespaces and pin directories of this process's own, and removed again.
"""

import asyncio
import contextlib
import ctypes
import itertools
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress
from arpguard.dataplane import bpffs, loader, syscall
from arpguard.dataplane.attach import Attacher
from arpguard.dataplane.maps import ControlValue, EntryTable
from arpguard.dataplane.source import find_source
from arpguard.model import EntryKey, NodeControl, VipEntry
from arpguard.verdict import Hook
from arpguard.wire.arp import ArpOp, ArpPacket, build_frame, parse_arp
from arpguard.wire.ethernet import ETHERTYPE_ARP, parse_ethernet
from arpguard_lab.netns import Netns
from arpguard_lab.topology import NETWORK, NETWORK6, AgentProcess, Host
from support.programs.prog_run import hexdump

REPAIR_S = 1.0  # how long the agent may take to follow a change
ANSWER_S = 10.0  # how long an answer may take on a loaded machine
_numbers = itertools.count(1)


def address(number: int) -> IPv4Address:
    """An address of the network that node and client are in."""
    return IPv4Address(f"{NETWORK}.{number}")


def address6(number: int) -> IPv6Address:
    """An address of their IPv6 network, where `speak_ipv6` was called."""
    return IPv6Address(f"{NETWORK6}::{number:x}")


def _without_cpu_s() -> float:
    """For how many seconds so far a task of this machine wanted a CPU that others had: tasks (Linux,
    Documentation/accounting/psi.rst) or other guests of the host (`steal` of proc_stat(5))."""
    tasks, stat = Path("/proc/pressure/cpu"), Path("/proc/stat").read_text(encoding="ascii")
    waited = re.search(r"total=(\d+)", tasks.read_text(encoding="ascii")) if tasks.exists() else None
    return int(stat.split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK") + (int(waited[1]) / 1e6 if waited else 0.0)


def until(condition: Callable[[], object], timeout_s: float = ANSWER_S, what: str = "") -> float:
    """Waits until the condition holds, and says how many seconds that took; fails after `timeout_s`.

    For as long as somebody had to wait for a CPU meanwhile it waits longer, as long again at most.
    """
    began, lacked = time.monotonic(), _without_cpu_s()
    while not condition():
        late = time.monotonic() - began - timeout_s
        assert late < min(_without_cpu_s() - lacked, timeout_s), (
            f"not within {timeout_s} s: {what or getattr(condition, '__name__', condition)}"
        )
        time.sleep(0.005)
    return time.monotonic() - began


# ---- frames on the wire ------------------------------------------------------------------------------------------

_SOL_PACKET, _PACKET_AUXDATA, _PACKET_IGNORE_OUTGOING = 263, 8, 23
_PACKET_VERSION, _PACKET_TX_RING = 10, 13
_ETH_P_ALL = 0x0003
_SO_RCVBUFFORCE = 33
_AUXDATA = struct.Struct("=IIIHHHH")
_VLAN_VALID = 0x10


def arp_of(frame: bytes) -> ArpPacket | None:
    """The ARP packet in a frame, behind any tags; None when there is none."""
    parsed = parse_ethernet(frame)
    return parse_arp(parsed.payload) if parsed is not None and parsed.ethertype == ETHERTYPE_ARP else None


def claims(frames: Sequence[bytes], vip: IPv4Address) -> list[bytes]:
    """Those of the frames that say who has the VIP: any ARP with it as spa."""
    return [frame for frame in frames if (packet := arp_of(frame)) is not None and packet.spa == vip]


def shown(frames: Sequence[bytes]) -> str:
    """Frames for a person; what comes after the body and some padding is left out."""
    lines = []
    for frame in frames:
        lines += [f"{len(frame)} bytes, {arp_of(frame)}", hexdump(frame[:96])]
    return "\n".join(lines) or "  (nothing)"


@contextmanager
def _one_cpu() -> Iterator[None]:
    """veth keeps the order of what one CPU sends."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Wire:
    """The raw end of a host's cable: sends frames as they are, and hears every ARP frame, VLAN tags in their place.

    `also` is another EtherType that is heard.
    """

    def __init__(self, host: Host, device: str = "eth0", also: int = ETHERTYPE_ARP) -> None:
        self.mac = host.mac
        self.address = host.address
        self._heard = (ETHERTYPE_ARP, also)
        self._socket = host.netns.call(lambda: self._open(device))

    @staticmethod
    def _open(device: str) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        opened.bind((device, _ETH_P_ALL))
        return opened

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def hear(self, wait_s: float) -> bytes | None:
        """The next frame from outside; None after `wait_s` seconds without one."""
        deadline = time.monotonic() + wait_s
        while select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                data, control, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(_AUXDATA.size))
            except OSError:  # the link went down
                continue
            for _, kind, raw in control:
                status, _, _, _, _, tci, tpid = _AUXDATA.unpack_from(raw)
                if kind == _PACKET_AUXDATA and status & _VLAN_VALID:
                    data = data[:12] + struct.pack("!HH", tpid or 0x8100, tci) + data[12:]
            parsed = parse_ethernet(data)
            if parsed is not None and parsed.ethertype in self._heard:
                return data
        return None

    def listen(self, seconds: float) -> list[bytes]:
        """Everything that comes in for so long."""
        deadline = time.monotonic() + seconds
        heard = []
        while (frame := self.hear(deadline - time.monotonic())) is not None:
            heard.append(frame)
        return heard

    def exchange(
        self, frames: Sequence[bytes], mark: IPv4Address, send: Callable[[bytes], None] | None = None
    ) -> list[bytes]:
        """Sends frames (by `send`, if given), then a probe for `mark`; gives what was heard before its answer.

        Frames are worked on in the order they were sent in, so whatever they cause comes before that answer:
        this is how to hear that nothing comes, without waiting for it. A probe leaves no neighbour entry behind.
        """
        heard, answered = self._exchange(frames, mark, ANSWER_S, send or self.send)
        assert answered, f"{mark} was not answered; heard\n{shown(heard)}"
        return heard

    def answers(self, mark: IPv4Address, wait_s: float = 0.1) -> bool:
        """Whether anybody answers a probe for an address."""
        try:
            return self._exchange([], mark, wait_s, self.send)[1]
        except OSError:  # the link is down
            return False

    def _exchange(
        self, frames: Sequence[bytes], mark: IPv4Address, wait_s: float, send: Callable[[bytes], None]
    ) -> tuple[list[bytes], bool]:
        while self.hear(0) is not None:
            pass
        sha = MacAddress(b"\x02\xee" + next(_numbers).to_bytes(4, "big"))
        probe = ArpPacket(ArpOp.REQUEST, sha, IPv4Address(0), ZERO_MAC, mark)
        with _one_cpu():
            for frame in frames:
                send(frame)
            self.send(build_frame(probe, BROADCAST_MAC, sha))
        heard = []
        deadline = time.monotonic() + wait_s
        while (frame := self.hear(deadline - time.monotonic())) is not None:
            packet = arp_of(frame)
            if packet is not None and packet.op is ArpOp.REPLY and packet.spa == mark and packet.tha == sha:
                return heard, True
            heard.append(frame)
        return heard, False

    def request(self, vip: IPv4Address, spa: IPv4Address | None = None) -> bytes:
        """An ordinary request of this host."""
        packet = ArpPacket(ArpOp.REQUEST, self.mac, spa or self.address, ZERO_MAC, vip)
        return build_frame(packet, BROADCAST_MAC, self.mac)

    def who(self, vip: IPv4Address, mark: IPv4Address) -> list[MacAddress]:
        """The MACs that answer a request for the VIP, one for each answer."""
        heard = claims(self.exchange([self.request(vip)], mark), vip)
        replies = [packet for frame in heard if (packet := arp_of(frame)) is not None and packet.op is ArpOp.REPLY]
        return [packet.sha for packet in replies if packet.tpa != vip]  # announcements have the form of replies too

    def close(self) -> None:
        self._socket.close()


@contextmanager
def a_wire(host: Host, device: str = "eth0", also: int = ETHERTYPE_ARP) -> Iterator[Wire]:
    wire = Wire(host, device, also)
    try:
        yield wire
    finally:
        wire.close()


@contextmanager
def asking(host: Host, vip: IPv4Address) -> Iterator[None]:
    """The host asks for the VIP all the time."""
    done = threading.Event()

    def ask() -> None:
        with a_wire(host) as wire:
            while not done.wait(0.02):
                wire.send(wire.request(vip))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@dataclass
class Stream:
    """What came of a stream of requests."""

    sent: int = 0
    replies: Counter[IPv4Address] = field(default_factory=Counter)
    macs: set[MacAddress] = field(default_factory=set)

    @property
    def lost(self) -> int:
        return self.sent - len(self.replies)

    @property
    def doubled(self) -> int:
        return sum(self.replies.values()) - len(self.replies)


class _Disturbance(threading.Thread):
    """Runs a function beside the stream, and keeps what it raised."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__()
        self._function = function
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again by the stream
            self.failure = error


def stream(host: Host, vip: IPv4Address, disturb: Callable[[], object], margin: int = 300) -> Stream:
    """A request each millisecond, each from another address: `margin` of them, more while `disturb` runs, and
    `margin` after it."""
    seen = Stream()
    worker = _Disturbance(disturb)
    with a_wire(host) as wire:

        def ask(count: int) -> None:
            for _ in range(count):
                seen.sent += 1
                wire.send(wire.request(vip, IPv4Address(0x0A000000 + seen.sent)))
                take(0.001)

        def take(wait_s: float) -> None:
            while (frame := wire.hear(wait_s)) is not None:
                packet = arp_of(frame)
                if packet is not None and packet.op is ArpOp.REPLY and (packet.spa, packet.tha) == (vip, wire.mac):
                    seen.replies[packet.tpa] += 1
                    seen.macs.add(packet.sha)

        ask(margin)
        worker.start()
        while worker.is_alive():
            ask(1)
        ask(margin)
        take(0.3)
    if worker.failure is not None:
        raise worker.failure
    return seen


class FragmentSender:
    """Sends frames of which only the Ethernet header is in the linear part of the skb (packet(7), PACKET_TX_RING)."""

    _BLOCK = 4096

    def __init__(self, host: Host, device: str = "eth0") -> None:
        import mmap  # noqa: PLC0415 - for this class only

        def opened() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            made.setsockopt(_SOL_PACKET, _PACKET_VERSION, 1)  # TPACKET_V2
            made.setsockopt(_SOL_PACKET, _PACKET_TX_RING, struct.pack("=IIII", self._BLOCK, 1, self._BLOCK, 1))
            made.bind((device, 0))
            return made

        self._socket = host.netns.call(opened)
        self._ring = mmap.mmap(self._socket.fileno(), self._BLOCK)

    def send(self, frame: bytes) -> None:
        data_at = 32  # TPACKET_ALIGN(sizeof(struct tpacket2_hdr))
        until(lambda: struct.unpack_from("=I", self._ring, 0)[0] == 0, what="the ring's slot is free")
        self._ring[data_at : data_at + len(frame)] = frame
        struct.pack_into("=II", self._ring, 0, 1, len(frame))  # TP_STATUS_SEND_REQUEST
        self._socket.send(b"")

    def close(self) -> None:
        self._ring.close()
        self._socket.close()


class RoomyAgent(AgentProcess):
    """An agent; `room` is its map's, for the next start. None: as many entries as by default."""

    room: int | None = None

    @property
    def own_settings(self) -> str:
        settings = super().own_settings
        return settings if self.room is None else settings.replace("bpf: {", f"bpf: {{max_entries: {self.room}, ")


# ---- one cable ---------------------------------------------------------------------------------------------------


class Pair:
    """A node and a client with one cable between them. No switch: every frame arrives as it was sent."""

    def __init__(self, node: Host, client: Host, folder: Path, pin_root: Path) -> None:
        self.node = node
        self.client = client
        self.folder = folder
        self.pin_root = pin_root
        self.agents: list[AgentProcess] = []

    def agent(self, config: str | None = None, room: int | None = None) -> AgentProcess:
        """A new agent for the node, whose map has room for so many entries; with a configuration it is started, and
        ready."""
        agent = RoomyAgent(self.node, self.folder, self.pin_root / self.node.name)
        agent.room = room
        self.agents.append(agent)
        if config is not None:
            agent.configure(config)
            agent.start()
            agent.wait_for()
        return agent

    def arpguard(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs the command line on the node."""
        return arpguard(*words, prefix=self.node.netns.prefix())

    def sysctl(self, **values: object) -> None:
        """Sets net.ipv4.conf.{all,eth0}.* on the node."""

        def write() -> None:
            for name, value in values.items():
                for device in ("all", "eth0"):
                    Path(f"/proc/sys/net/ipv4/conf/{device}/{name}").write_text(f"{value}\n", encoding="ascii")

        self.node.netns.call(write)

    def ifindex(self, device: str = "eth0") -> int:
        return self.node.netns.call(lambda: socket.if_nametoindex(device))


def arpguard(
    *words: str, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, timeout: float = 60
) -> "subprocess.CompletedProcess[str]":
    """Runs the command line and gives what came of it."""
    return subprocess.run(
        [*prefix, sys.executable, "-m", "arpguard", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


@contextmanager
def a_place(name: str) -> Iterator[tuple[Path, Path]]:
    """A folder, and one in bpffs that need not be made yet; both go afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=f"arpguard-test-{name}-"))
    pin_root = Path("/sys/fs/bpf") / folder.name
    bpffs.prepare(pin_root)
    try:
        yield folder, pin_root
    finally:
        bpffs.remove(pin_root)
        shutil.rmtree(folder)


@contextmanager
def a_netns(name: str) -> Iterator[Netns]:
    """A namespace without IPv6."""
    netns = Netns(f"arpguard-test-{os.getpid()}-{name}")
    try:
        netns.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        yield netns
    finally:
        netns.remove()


@contextmanager
def a_pair(name: str) -> Iterator[Pair]:
    """Node (.1) and client (.100), default route of both over the cable."""
    with ExitStack() as stack:
        folder, pin_root = stack.enter_context(a_place(name))
        node = Host("node-1", stack.enter_context(a_netns(f"{name}-node")), 1)
        client = Host("client", stack.enter_context(a_netns(f"{name}-client")), 100)
        plug(node, client)
        pair = Pair(node, client, folder, pin_root)
        try:
            yield pair
        finally:
            for agent in pair.agents:
                agent.kill(signal.SIGKILL)


def plug(node: Host, client: Host) -> None:
    """Lays the cable, eth0 at both ends."""
    node.netns.batch([f"link add eth0 type veth peer name eth0 netns {client.netns.name}"])
    for host in (client, node):
        host.netns.batch(
            [
                f"link set eth0 address {host.mac}",
                "link set eth0 up",
                f"addr add {host.address}/24 dev eth0",
                f"route add default via {NETWORK}.254",
            ]
        )


def speak_ipv6(*hosts: Host) -> None:
    """Gives each host an address like its IPv4 one. Nothing is sent but what is asked for: no DAD, no routers."""
    for host in hosts:
        quiet = [f"net.ipv6.conf.eth0.{name}=0" for name in ("accept_ra", "accept_dad", "disable_ipv6")]
        host.netns.run("sysctl", "-qw", *quiet)
        host.netns.batch([f"addr add {host.address6}/64 dev eth0 nodad"])


def groups_of(netns: Netns, device: str = "eth0") -> dict[IPv6Address, int]:
    """The multicast groups that are listened to on a device, and how many sockets and addresses want each."""

    def read() -> dict[IPv6Address, int]:
        rows = [line.split() for line in Path("/proc/thread-self/net/igmp6").read_text(encoding="ascii").splitlines()]
        return {IPv6Address(bytes.fromhex(row[2])): int(row[3]) for row in rows if row[1] == device}

    return netns.call(read)


def pid_of(agent: AgentProcess) -> int:
    assert agent._process is not None, "the agent does not run"
    return agent._process.pid


def said(agent: AgentProcess, pattern: str) -> int:
    """How many lines of the log match."""
    return len(re.findall(pattern, agent.log.read_text(encoding="utf-8", errors="replace")))


@contextmanager
def hung(agent: AgentProcess) -> Iterator[None]:
    """The agent stands still meanwhile, and cannot mend what is damaged."""
    agent.send(signal.SIGSTOP)
    try:
        stat = Path(f"/proc/{pid_of(agent)}/stat")
        until(lambda: stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T", what="it stands still")
        yield
    finally:
        agent.send(signal.SIGCONT)


# ---- the guard without an agent ----------------------------------------------------------------------------------


class Guard:
    """The programs on a node's eth0 and their maps, without an agent: entries and control are the test's."""

    def __init__(self, pair: Pair, loaded: loader.Loaded, *, use_tcx: bool = True) -> None:
        self.pin_dir = pair.pin_root / "guard"
        self.ifindex = pair.ifindex()
        self._pair = pair
        self._use_tcx = use_tcx
        self.table = EntryTable(loaded.maps["entries"], loaded.maps["counters"])
        self.control = ControlValue(loaded.maps["control"])
        self.programs = loaded.programs

    def attach(self, *hooks: Hook, programs: Mapping[str, syscall.Fd] | None = None) -> list[str]:
        """Attaches, or replaces, the programs; says how."""

        async def ensure() -> list[str]:
            attacher = Attacher(self.pin_dir, dict(programs or self.programs), use_tcx=self._use_tcx)
            return [(await attacher.ensure(self.ifindex, hook)).how for hook in hooks]

        return self._pair.node.netns.call(lambda: asyncio.run(ensure()))

    def detach(self, *hooks: Hook) -> None:
        async def go() -> None:
            attacher = Attacher(self.pin_dir, self.programs, use_tcx=self._use_tcx)
            for hook in hooks:
                await attacher.detach(self.ifindex, hook)

        self._pair.node.netns.call(lambda: asyncio.run(go()))

    def set(self, entries: Mapping[IPv4Address, VipEntry], control: NodeControl) -> None:
        wanted = {EntryKey(self.ifindex, vip): entry for vip, entry in entries.items()}
        self.table.delete(self.table.read().entries.keys() - wanted.keys())
        self.table.write(wanted)
        self.control.write(control)


def a_guard(pair: Pair, *hooks: Hook, use_tcx: bool = True) -> Guard:
    """A guard on the pair's node; it goes with the pair."""
    pin_dir = pair.pin_root / "guard"
    bpffs.prepare(pin_dir)
    guard = Guard(pair, loader.load(pin_dir, find_source()), use_tcx=use_tcx)
    guard.attach(*hooks)
    return guard


# ---- other people's programs -------------------------------------------------------------------------------------

_PROG_LOAD = 5
_SCHED_CLS, _XDP = 3, 6
_EXIT = struct.pack("=BBhi", 0x95, 0, 0, 0)
TC_OK, TC_UNSPEC, TC_SHOT, XDP_PASS = 0, -1, 2, 2


def _mov(register: int, value: int) -> bytes:
    return struct.pack("=BBhi", 0xB7, register, 0, value)


def _load(kind: int, code: bytes) -> syscall.Fd:
    text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    attr = struct.pack("=IIQQ", kind, len(code) // 8, ctypes.addressof(text), ctypes.addressof(licence))
    return syscall.Fd(syscall._bpf(_PROG_LOAD, attr)[0])


def a_tc_program(action: int) -> syscall.Fd:
    """A tc program that does the same with every frame."""
    return _load(_SCHED_CLS, _mov(0, action) + _EXIT)


def an_xdp_program(action: int = XDP_PASS) -> syscall.Fd:
    return _load(_XDP, _mov(0, action) + _EXIT)


def a_program_that_drops_linear_frames(length: int) -> syscall.Fd:
    """Drops what has `length` bytes in the linear part of the skb, and leaves the rest to the next program."""
    data, data_end = 76, 80  # struct __sk_buff
    code = struct.pack("=BBhi", 0x61, 1 << 4 | 2, data, 0)  # r2 = skb->data
    code += struct.pack("=BBhi", 0x61, 1 << 4 | 3, data_end, 0)  # r3 = skb->data_end
    code += struct.pack("=BBhi", 0x07, 2, 0, length)  # r2 += length
    code += _mov(0, TC_UNSPEC)
    code += struct.pack("=BBhi", 0x2D, 3 << 4 | 2, 1, 0)  # if r2 > r3 goto exit
    code += _mov(0, TC_SHOT)
    return _load(_SCHED_CLS, code + _EXIT)


@contextmanager
def attached(host: Host, program: syscall.Fd, attach_type: int, flags: int, device: str = "eth0") -> Iterator[None]:
    """Somebody else's program on a device, by a bpf_link."""
    link = host.netns.call(
        lambda: syscall.link_create(program, socket.if_nametoindex(device), attach_type, flags),
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            syscall.link_detach(link)
        link.close()


def tcx_programs(host: Host, attach_type: int, device: str = "eth0") -> list[int]:
    """Ids of the TCX programs on a device, in the order they run."""
    return host.netns.call(lambda: syscall.program_query(socket.if_nametoindex(device), attach_type))


def a_program_that_tags(length: int, tpid: int, tci: int) -> syscall.Fd:
    """Puts a VLAN tag beside frames of `length` bytes, in skb->vlan_tci, as a NIC that strips tags does."""
    skb_vlan_push = 18
    code = struct.pack("=BBhi", 0x61, 1 << 4 | 2, 0, 0)  # r2 = skb->len
    code += struct.pack("=BBhi", 0x55, 2, 3, length)  # if r2 != length goto exit
    code += _mov(2, socket.htons(tpid)) + _mov(3, tci)
    code += struct.pack("=BBhi", 0x85, 0, 0, skb_vlan_push)
    code += _mov(0, TC_UNSPEC)
    return _load(_SCHED_CLS, code + _EXIT)
