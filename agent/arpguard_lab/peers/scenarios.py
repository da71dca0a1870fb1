"""Scenarios with other announcers: which of them is let through is in the configuration (`delegated: true`).

What each of them does is its own decision, or its own mistake: two masters in a partition, an address that nobody
took off a link, two speakers that both think it is theirs. The guard decides which of them is heard.
"""

import errno
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from arpguard.addresses import Address
from arpguard_lab.bench import Bench, Step, owned_by, until
from arpguard_lab.peers.programs import ADVERTISEMENT_S, INSTANCE, Keepalived, holds
from arpguard_lab.peers.witness import Witness
from arpguard_lab.topology import AgentProcess, Host, HostProcess

_PATIENCE_S = 10.0
_VRRP = 112
_CLOSED_PORT = 9
_ADVERTISED_S = 5 * ADVERTISEMENT_S
_TALK_S = 1.5  # both forms of kube-vip, two rounds of MetalLB, keepalived's five announcements and their repetition

Program: TypeAlias = Callable[[Host, Path, Address], HostProcess]


def run_keepalived(bench: Bench, vip: Address, *, vmac: bool = False) -> Iterator[Step]:
    """Two nodes with keepalived: parted, healed, the master killed; without the guard, then with it."""
    first, second = bench.nodes[:2]
    a, b = (
        bench.lab.program(Keepalived(host, bench.lab.folder, vip, priority, vmac=vmac))
        for host, priority in ((first, 110), (second, 100))
    )

    with Witness(bench, vip) as witness:
        for daemon in (a, b):
            daemon.start()
        _wait_for_master(a, b)
        yield witness.ask("the master answers, no guard", [first])
        yield _parted(bench, witness, (a, b), "no guard", [first, second])
        yield _healed(bench, witness, (a, b), "no guard")

        _kill_master(a, b)
        left = holds(first, vip)
        yield witness.ask("master killed (-9), no guard", [first, second], left_on_its_link=left)
        yield _kernel_speaks(bench, witness, a, "no guard", [first])

        a.start()
        _wait_for_master(a, b)
        agents = bench.guard(_delegated(first, vip))
        yield witness.ask(f"guarded, delegated to {first.name}", [first])
        yield _parted(bench, witness, (a, b), "guarded", [first])
        yield _healed(bench, witness, (a, b), "guarded")

        _kill_master(a, b)
        since_ns = _delegate(agents, witness, second)
        until(lambda: second in witness.announcers(since_ns), _PATIENCE_S, "the new master announces again")
        left = holds(first, vip)
        yield witness.ask(f"master killed (-9), delegated to {second.name}", [second], left_on_its_link=left)
        yield _kernel_speaks(bench, witness, a, "guarded", [])
        yield witness.judge("all answers and announcements since then", [second], since_ns)


def run_followed(bench: Bench, vip: Address) -> Iterator[Step]:
    """Two nodes with keepalived, whose agents follow it: handed over, killed, started again, parted."""
    first, second = bench.nodes[:2]
    a, b = (
        bench.lab.program(Keepalived(host, bench.lab.folder, vip, priority, vmac=False))
        for host, priority in ((first, 110), (second, 100))
    )

    with Witness(bench, vip) as witness:
        bench.guard(owned_by(f"{{keepalived: {INSTANCE}}}", vip))
        yield witness.ask("no keepalived runs", [])
        for daemon in (a, b):
            daemon.start()
        _wait_for_master(a, b)
        yield _followed(witness, "the master answers", first)

        a.kill(signal.SIGTERM)
        yield _followed(witness, "master stopped", second)
        a.start()
        _wait_for_master(a, b)
        yield _followed(witness, "master started again: it takes the VIP back", first)

        _kill_master(a, b)
        yield _followed(witness, "master killed (-9)", second, left_on_its_link=holds(first, vip))
        yield _kernel_speaks(bench, witness, a, "followed", [])

        a.start()
        _wait_for_master(a, b)
        yield _followed(witness, "started again", first)
        yield _parted(bench, witness, (a, b), "both are followed", [first, second])
        yield _healed(bench, witness, (a, b), "followed")


def _followed(witness: Witness, text: str, owner: Host, **facts: object) -> Step:
    """The agents have followed, and the new master was heard when it announced the VIP again."""
    since_ns = time.time_ns()
    witness.settle([owner])
    until(lambda: owner in witness.announcers(since_ns), _PATIENCE_S, f"{owner.name} announces the VIP")
    return witness.ask(text, [owner], **facts)


def _wait_for_master(a: Keepalived, b: Keepalived) -> None:
    until(lambda: a.holds() and not b.holds(), _PATIENCE_S, "only the node with the highest priority is master")


def _kill_master(a: Keepalived, b: Keepalived) -> None:
    a.kill(signal.SIGKILL)
    until(b.holds, _PATIENCE_S, "the backup takes the VIP")


def _parted(
    bench: Bench, witness: Witness, daemons: tuple[Keepalived, Keepalived], text: str, expected: list[Host]
) -> Step:
    """Neither hears the other, so both are master; the client hears both."""
    hosts = [daemon.host for daemon in daemons]
    since_ns = time.time_ns()
    bench.lab.part(hosts)
    until(lambda: all(daemon.holds() for daemon in daemons), _PATIENCE_S, "both are master")

    client = bench.lab.client.netns
    advertising = client.call(lambda: _advertisers(hosts, witness.vip))
    refused = [host for host in hosts if client.call(partial(_refuses, host.address_like(witness.vip)))]
    time.sleep(_TALK_S)
    witness.settle(expected)

    return witness.judge(
        f"partitioned, both are master: all frames, {text}",
        expected,
        since_ns,
        both_advertise=advertising == hosts,
        both_are_reached=refused == hosts,
    )


def _healed(bench: Bench, witness: Witness, daemons: tuple[Keepalived, Keepalived], text: str) -> Step:
    bench.lab.heal([daemon.host for daemon in daemons])
    _wait_for_master(*daemons)
    return witness.ask(f"healed, {text}", [daemons[0].host])


def _kernel_speaks(bench: Bench, witness: Witness, daemon: Keepalived, text: str, expected: list[Host]) -> Step:
    """Whether a kernel announces the address that was left when its link comes up, and asks in its name."""
    host = daemon.host
    since_ns = time.time_ns()
    host.netns.run("sysctl", "-qw", *(f"net/{setting}=1" for setting in _telling(witness.vip, daemon.device)))
    host.netns.batch([f"link set {daemon.device} down", f"link set {daemon.device} up"])
    asked = bench.senders(witness.vip, [host])
    announced = host in witness.announcers(since_ns)
    return bench.judge(
        f"what the kernel sends from the VIP left behind, {text}",
        witness.vip,
        expected,
        asked,
        announcements_as_expected=announced == (host in expected),
    )


def run_split(bench: Bench, program: Program, vip: Address, *, stays: bool) -> Iterator[Step]:
    """Two announcers that both think the VIP is theirs; `stays`: who is killed leaves the address on the link."""
    first, second = bench.nodes[:2]
    a, b = (bench.lab.program(program(host, bench.lab.folder, vip)) for host in (first, second))

    with Witness(bench, vip) as witness:
        since_ns = begin(a, b)
        until(lambda: witness.announcers(since_ns) == [first, second], _PATIENCE_S, "both announce the VIP")
        yield witness.ask("both answer and announce, no guard", [first, second])

        agents = bench.guard(_delegated(first, vip))
        yield witness.ask(f"guarded, delegated to {first.name}", [first])
        bench.lab.part([first, second])
        step = "partitioned, both restarted: all frames"
        yield _talk(bench, witness, step, a, agents[second.name], b)
        bench.lab.heal([first, second])
        _delegate(agents, witness, second)
        step = f"delegated to {second.name}: all frames"
        yield _talk(bench, witness, step, b, agents[first.name], a)

        a.kill(signal.SIGKILL)
        left = {"left_on_its_link": holds(first, vip)} if stays else {}
        yield witness.ask(f"the announcer of {first.name} killed (-9)", [second], **left)

        bench.unguard(agents)
        yield witness.ask("guard removed again", [first, second] if stays else [second])


def begin(*announcers: HostProcess) -> int:
    """Starts announcers, or starts them again, so that they announce; when that was."""
    since_ns = time.time_ns()
    for announcer in announcers:
        announcer.kill(signal.SIGTERM)
        announcer.start()
        announcer.wait_for()
    return since_ns


def _talk(
    bench: Bench, witness: Witness, text: str, heard: HostProcess, guard: AgentProcess, silenced: HostProcess
) -> Step:
    """Both begin again, so that they announce; everything that is said for a while. `guard` is what silences one."""
    since_ns = begin(heard, silenced)
    witness.settle([heard.host])
    time.sleep(_TALK_S)
    witness.settle([heard.host])
    dropped = bench.decided(guard, witness.vip, "enforced").get("egress_not_owner", 0)
    return witness.judge(
        text,
        [heard.host],
        since_ns,
        announces=witness.announcers(since_ns) == [heard.host],
        dropped_of_the_other=dropped,
        other_tried=dropped > 0,
    )


def _delegated(owner: Host, vip: Address) -> str:
    return owned_by(f"{{node: {owner.name}, delegated: true}}", vip)


def _delegate(agents: dict[str, AgentProcess], witness: Witness, owner: Host) -> int:
    """Edits every node's configuration; from the time that is returned on nobody but the new owner is heard."""
    for agent in agents.values():
        agent.configure(_delegated(owner, witness.vip))
    witness.settle([owner])
    return time.time_ns()


def _telling(vip: Address, device: str) -> list[str]:
    """Settings with which a kernel announces its addresses when a link comes up, and has not lost them before."""
    if vip.version == 4:
        return [f"ipv4/conf/{device}/arp_notify"]
    return [f"ipv6/conf/{device}/{name}" for name in ("ndisc_notify", "keep_addr_on_down")]


def _advertisers(hosts: list[Host], vip: Address) -> list[Host]:
    """Which of some hosts send VRRP advertisements, in the family of a VIP, as this network namespace hears them."""
    sender = {str(host.address if vip.version == 4 else host.link_local): host for host in hosts}
    heard: set[str] = set()
    deadline = time.monotonic() + _PATIENCE_S
    with closing(_vrrp(vip.version)) as ear:
        ear.settimeout(_ADVERTISED_S)
        while len(heard) < len(hosts) and time.monotonic() < deadline:
            with suppress(TimeoutError):
                heard.add(ear.recvfrom(2048)[1][0].partition("%")[0])
    return [host for address, host in sender.items() if address in heard]


def _vrrp(version: int) -> socket.socket:
    """Hears VRRP on eth0 (RFC 5798 5.1)."""
    index = socket.if_nametoindex("eth0")
    if version == 4:
        ear = socket.socket(socket.AF_INET, socket.SOCK_RAW, _VRRP)
        request = struct.pack("=4s4xi", socket.inet_aton("224.0.0.18"), index)  # ip_mreqn
        ear.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        return ear
    ear = socket.socket(socket.AF_INET6, socket.SOCK_RAW, _VRRP)
    group = socket.inet_pton(socket.AF_INET6, "ff02::12")
    ear.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("=I", index))
    return ear


def _refuses(address: Address) -> bool:
    """Whether a host refuses a connection to a closed port: then frames go to it and come back."""
    with closing(socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6)) as opened:
        opened.settimeout(_PATIENCE_S)
        return opened.connect_ex((str(address), _CLOSED_PORT)) == errno.ECONNREFUSED
