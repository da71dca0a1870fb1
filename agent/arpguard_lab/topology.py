"""A small Ethernet in namespaces: nodes, a client, perhaps other hosts, all on one switch.

       node-1        node-2        node-3        db           client
      198.51.100.1  198.51.100.2  198.51.100.3  .80          .100
          |             |             |          |             |
    ------+-------------+-------------+----------+-------------+------  switch (a bridge)

MAC addresses are 02:00:00:00:00:<last byte>, so that tables can be read; a NIC that got another one has 01 before
that byte. No other traffic. IPv6 (2001:db8:51::<last byte>) only where a scenario wants it: without router
advertisements, and without duplicate address detection, so that nothing is heard but what is asked for.
"""

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Self, TypeVar

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.errors import DataPlaneError
from arpguard_lab import warm
from arpguard_lab.interrupts import put_off
from arpguard_lab.netns import Netns
from arpguard_lab.patience import Patience

P = TypeVar("P", bound="HostProcess")

NETWORK, NETWORK6 = "198.51.100", "2001:db8:51"
CLIENT_NUMBER = 100
READY_S = 60.0  # many agents load at once, on few cores
STOP_S = 15.0
_WITHOUT_IPV6 = ("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
_QUIET_IPV6 = tuple(f"net.ipv6.conf.default.{name}=0" for name in ("accept_ra", "accept_dad", "router_solicitations"))
# Solicitations go where their group was asked for: `mcast_querier` asks who listens, and is believed at once.
_SNOOPING = "mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 10 mcast_startup_query_interval 20"


class Host:
    """A host on the switch, with one interface, eth0."""

    def __init__(self, name: str, netns: Netns, number: int) -> None:
        self.name = name
        self.netns = netns
        self.address = IPv4Address(f"{NETWORK}.{number}")
        self.address6 = IPv6Address(f"{NETWORK6}::{number:x}")
        self.mac = MacAddress(bytes((2, 0, 0, 0, 0, number)))
        self.port = f"port{number}"

    def bind(self, vip: Address, where: str) -> None:
        """Puts a VIP on `lo`, on `eth0`, or on a NOARP device like kube-proxy's (`kube-ipvs0`), up or down."""
        device, _, state = where.partition(" ")
        lines = [f"addr replace {_alone(vip)} dev {device}"]
        if device == "kube-ipvs0":
            lines = [f"link add {device} type bridge", f"link set {device} arp off {state}", *lines]
        self.netns.batch(lines)

    def unbind(self, vip: Address, where: str) -> None:
        """Takes it off again."""
        device = where.partition(" ")[0]
        gone = f"link del {device}" if device == "kube-ipvs0" else f"addr del {_alone(vip)} dev {device}"
        self.netns.batch([gone])

    @property
    def link_local(self) -> IPv6Address:
        """The address that its kernel makes of its MAC (RFC 4291, appendix A)."""
        head, tail = self.mac.octets[:3], self.mac.octets[3:]
        return IPv6Address(b"\xfe\x80" + bytes(6) + bytes((head[0] ^ 2,)) + head[1:] + b"\xff\xfe" + tail)

    def address_like(self, other: Address) -> Address:
        """Its own address in the family of another one."""
        return self.address if isinstance(other, IPv4Address) else self.address6

    def listen(self) -> NeighbourSocket:
        """A socket that hears and sends ARP and neighbour discovery on eth0."""
        return self.netns.call(lambda: NeighbourSocket("eth0"))


def other_mac(mac: MacAddress) -> MacAddress:
    """The one that a host's NIC has after it was changed."""
    return MacAddress(mac.octets[:4] + b"\1" + mac.octets[5:])


def first_mac(mac: MacAddress) -> MacAddress:
    """The one that a host's NIC had at first, of whichever it has."""
    return MacAddress(mac.octets[:4] + b"\0" + mac.octets[5:])


def _alone(vip: Address) -> str:
    return f"{vip}/{vip.max_prefixlen}"


class HostProcess(ABC):
    """A program in a host's namespace, from `start` to `kill`, and what it says in the meantime."""

    own_group = False  # it has children that signals are for, too

    def __init__(self, host: Host, folder: Path, name: str) -> None:
        """`name`: what it is, for its log and for people."""
        self.host = host
        self.name = name
        self.log = folder / f"{host.name}-{name}.log"
        self._process: warm.Process | None = None

    @abstractmethod
    def words(self) -> list[str]:
        """Its command line."""

    def environment(self) -> dict[str, str]:
        """Its environment."""
        return dict(os.environ)

    def start(self) -> None:
        """Starts it and does not wait; see `wait_for`."""
        self.log.write_bytes(b"")
        with self.log.open("ab") as log, put_off():
            self._process = warm.popen(
                [*self.host.netns.prefix(), *self.words()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=self.own_group,
            )

    @property
    def pid(self) -> int | None:
        """Its process, while that runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def has_failed(self) -> bool:
        """Whether it was started, and ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def said(self) -> str:
        """Its log since it was started."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def wait_for(self, text: str = "ready:", timeout_s: float = READY_S) -> None:
        """Returns once the log has `text`; DataPlaneError when the program ends or takes too long."""
        patience = Patience(timeout_s)
        while text not in self.said():
            if self.pid is None or patience.is_over:
                last = self.said().strip().splitlines()[-1:]
                raise DataPlaneError(
                    f"the {self.name} of {self.host.name} did not log {text!r}: {' '.join(last) or 'its log is empty'}"
                )
            time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, to its children too where it has any, and does not wait."""
        if self._process is None:
            return
        if self.own_group:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def kill(self, number: signal.Signals) -> None:
        """Sends a signal and waits until the process is gone; one that does not go in time is ended by force."""
        if self._process is not None:
            self.send(number)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
                self._process.wait()
            self._process = None


def states_of(host: Host, folder: Path) -> Path:
    """The FIFO in which a host's keepalived tells its states, and in which the host's agent reads them."""
    return folder / f"{host.name}.states"


class AgentProcess(HostProcess):
    """`arpguard agent` in a node's namespace, with a configuration file, a pin directory and a socket of its own."""

    def __init__(self, host: Host, folder: Path, pin_dir: Path) -> None:
        super().__init__(host, folder, "agent")
        self.pin_dir = pin_dir
        self.config = folder / f"{host.name}.yaml"
        self.api = f"unix://{folder / host.name}.sock"
        self.fifo = states_of(host, folder)

    @property
    def own_settings(self) -> str:
        """What keeps it apart from other agents on this machine."""
        grpc = f'grpc: {{listen: ["{self.api}", "127.0.0.1:50051"]}}'
        return f"bpf: {{pin_dir: {self.pin_dir}}}\n{grpc}\nkeepalived: {{fifo: {self.fifo}}}\n"

    def configure(self, text: str) -> None:
        """Replaces the configuration, as an editor would; a running agent follows."""
        draft = self.config.with_suffix(".new")
        draft.write_text(f"{self.own_settings}{text}", encoding="utf-8")
        draft.replace(self.config)

    def words(self) -> list[str]:
        """Its command line."""
        words = [sys.executable, "-m", "arpguard", "agent", "--config", str(self.config)]
        return [*words, "--node-name", self.host.name]


@dataclass(frozen=True, slots=True)
class Ethernet:
    """What the lab's network is like. `snooping`: the switch looks into MLD (RFC 4541), and asks who listens."""

    ipv6: bool = False
    snooping: bool = False


class Lab:
    """The whole set-up, as a context manager that leaves nothing behind."""

    def __init__(
        self,
        nodes: int,
        folder: Path,
        pin_root: Path,
        others: Sequence[tuple[str, int]] = (),
        ethernet: Ethernet = Ethernet(),
        label: str = "",
    ) -> None:
        """`label`: what the names of its namespaces begin with, after "arpguard-"; "" for this process's number."""
        self._ethernet = ethernet
        self._prefix = f"arpguard-{label or os.getpid()}-"
        self._namespaces: list[Netns] = []
        self.folder = folder
        self._pin_root = pin_root
        numbers = [(f"node-{number}", number) for number in range(1, nodes + 1)]
        self._wanted = [*numbers, *others, ("client", CLIENT_NUMBER)]
        self._node_count = nodes
        self.hosts: dict[str, Host] = {}
        self.switch: Netns
        self.agents: list[AgentProcess] = []
        self._programs: list[HostProcess] = []

    @property
    def has_ipv6(self) -> bool:
        """Whether the hosts speak IPv6."""
        return self._ethernet.ipv6

    @property
    def nodes(self) -> list[Host]:
        """The cluster nodes."""
        return list(self.hosts.values())[: self._node_count]

    @property
    def client(self) -> Host:
        """Who asks."""
        return self.hosts["client"]

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def who(self, mac: MacAddress) -> str:
        """The name of the host with this MAC."""
        return next((host.name for host in self.hosts.values() if host.mac == mac), str(mac))

    def at_port(self, port: str) -> Host:
        """The host behind a port of the switch."""
        return next(host for host in self.hosts.values() if host.port == port)

    def part(self, hosts: Sequence[Host]) -> None:
        """From now on the switch carries nothing between these hosts; everybody else hears them all."""
        self.switch.batch([f"link set {host.port} type bridge_slave isolated on" for host in hosts])

    def heal(self, hosts: Sequence[Host]) -> None:
        """The end of `part`."""
        self.switch.batch([f"link set {host.port} type bridge_slave isolated off" for host in hosts])

    def program(self, program: P) -> P:
        """Takes a program in, that it is ended at the latest with the lab."""
        self._programs.append(program)
        return program

    def agent(self, host: Host) -> AgentProcess:
        """A new agent for a node; stopped at the latest with the lab."""
        agent = AgentProcess(host, self.folder, self._pin_root / host.name)
        self.agents.append(agent)
        return agent

    def join(self, name: str, number: int) -> Host:
        """One more host on the switch; `number` is the last byte of its address."""
        self.hosts[name] = self._plug(self.switch, name, number)
        return self.hosts[name]

    def _build(self) -> None:
        self.switch = self.namespace("switch")
        kind = _SNOOPING if self._ethernet.snooping else "mcast_snooping 0"
        self.switch.batch([f"link add br0 type bridge forward_delay 0 {kind}"])
        if self._ethernet.snooping:  # a querier of MLD needs an address
            self.switch.run("sysctl", "-qw", "net.ipv6.conf.br0.accept_dad=0", "net.ipv6.conf.br0.disable_ipv6=0")
        self.switch.batch(["link set br0 up"])
        for name, number in self._wanted:
            self.join(name, number)

    def namespace(self, name: str) -> Netns:
        """A quiet namespace that goes with the lab."""
        with put_off():
            netns = Netns(self._prefix + name)
            self._namespaces.append(netns)
        netns.run("sysctl", "-qw", *_WITHOUT_IPV6)
        return netns

    def _plug(self, switch: Netns, name: str, number: int) -> Host:
        host = Host(name, self.namespace(name), number)
        if self._ethernet.ipv6:
            host.netns.run("sysctl", "-qw", *_QUIET_IPV6, *(line.replace("=1", "=0") for line in _WITHOUT_IPV6))

        switch.batch(
            [
                f"link add {host.port} type veth peer name eth0 netns {host.netns.name}",
                f"link set {host.port} master br0 up",
            ]
        )

        host.netns.batch(
            [
                f"link set eth0 address {host.mac}",
                "link set eth0 up",
                f"addr add {host.address}/24 dev eth0",
                f"route add default via {NETWORK}.254",
                *([f"addr add {host.address6}/64 dev eth0"] if self._ethernet.ipv6 else []),
            ]
        )
        return host

    def _remove(self) -> None:
        for program in (*self._programs, *self.agents):
            program.kill(signal.SIGTERM)
        for netns in self._namespaces:
            netns.remove()
