"""One cable between two hosts, in namespaces and a pin directory of this process's own, which are removed again."""

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from arpguard.addresses import Address
from arpguard.dataplane import bpffs
from arpguard_lab.netns import Netns
from arpguard_lab.topology import NETWORK, NETWORK6, AgentProcess, Host
from support.netns.agents import RoomyAgent, arpguard
from support.netns.waiting import START_S, until

# /proc/net/if_inet6: scopes (include/net/ipv6.h) and flags (include/uapi/linux/if_addr.h)
_GLOBAL, _LINK_LOCAL, _TENTATIVE = "00", "20", 0x40
_SIOCGIFFLAGS, _IFF_RUNNING = 0x8913, 0x40


def address(number: int) -> IPv4Address:
    """An address of the network that node and client are in."""
    return IPv4Address(f"{NETWORK}.{number}")


def address6(number: int) -> IPv6Address:
    """An address of their IPv6 network, where `speak_ipv6` was called."""
    return IPv6Address(f"{NETWORK6}::{number:x}")


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
            agent.wait_for(timeout_s=START_S)
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


def plug(node: Host, client: Host) -> None:
    """Lays the cable, eth0 at both ends."""
    node.netns.batch([f"link add eth0 type veth peer name eth0 netns {client.netns.name}"])
    for host in (client, node):
        set_up(host)
    until(lambda: all(_is_running(host) for host in (client, node)), what="the cable carries frames")


def _is_running(host: Host) -> bool:
    """Whether the kernel sends what a host gives to eth0 (netdevice(7)).

    A worker of the kernel's sees to that some time after the link is up. Frames that come before are dropped.
    """

    def flags() -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            request = struct.pack("16sH14x", b"eth0", 0)  # struct ifreq
            return struct.unpack_from("16sH", fcntl.ioctl(opened, _SIOCGIFFLAGS, request))[1]

    return bool(host.netns.call(flags) & _IFF_RUNNING)


@contextmanager
def a_pair(name: str, lay: Callable[[Host, Host], None] = plug) -> Iterator[Pair]:
    """Node (.1) and client (.100), default route of both over the cable, which `lay` lays."""
    with ExitStack() as stack:
        folder, pin_root = stack.enter_context(a_place(name))
        node = Host("node-1", stack.enter_context(a_netns(f"{name}-node")), 1)
        client = Host("client", stack.enter_context(a_netns(f"{name}-client")), 100)
        lay(node, client)
        pair = Pair(node, client, folder, pin_root)
        try:
            yield pair
        finally:
            for agent in pair.agents:
                agent.kill(signal.SIGKILL)


def set_up(host: Host) -> None:
    """Gives its eth0 what the host has: MAC, address, default route."""
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
    until(lambda: all(_is_spoken(host) for host in hosts), what="all addresses, and their groups")


def _is_spoken(host: Host) -> bool:
    """Whether the kernel uses both its addresses. A worker of the kernel's joins their groups before that."""
    return {scope for _, scope in _used6(host)} >= {_GLOBAL, _LINK_LOCAL}


def answers_for(host: Host, vip: Address) -> bool:
    """Whether a host's kernel answers for an address that eth0 has: for one of IPv6 once it is not tentative."""
    return vip.version == 4 or vip in {used for used, _ in _used6(host)}


def _used6(host: Host) -> list[tuple[IPv6Address, str]]:
    """The IPv6 addresses of eth0 that are not tentative, with their scopes. A worker of the kernel ends that state."""
    rows = [row for row in _table(host.netns, "if_inet6") if row[5] == "eth0" and not int(row[4], 16) & _TENTATIVE]
    return [(IPv6Address(bytes.fromhex(row[0])), row[3]) for row in rows]


def groups_of(netns: Netns, device: str = "eth0") -> dict[IPv6Address, int]:
    """The multicast groups that are listened to on a device, and how many sockets and addresses want each."""

    rows = _table(netns, "igmp6")
    return {IPv6Address(bytes.fromhex(row[2])): int(row[3]) for row in rows if row[1] == device}


def _table(netns: Netns, name: str) -> list[list[str]]:
    """The rows of a file in /proc/net, as a namespace has it."""
    text = netns.call(lambda: Path(f"/proc/thread-self/net/{name}").read_text(encoding="ascii"))
    return [line.split() for line in text.splitlines()]
