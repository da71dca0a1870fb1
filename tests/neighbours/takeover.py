"""How long a VIP is silent when its node dies, its program is killed, or it is moved on purpose: side by side.

    PYTHONPATH=tests python -m neighbours.takeover [--times 10] [--write docs/performance.md]

All announcers run on the same three nodes at the same time, each with a VIP of its own, and the agents elect the owner
of one more. They guard no other: these are the times of the announcers by themselves.
"""

import argparse
import contextlib
import signal
import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

from arpguard.errors import ArpguardError
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import Watch, ms, now_ns
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import Host, HostProcess
from neighbours.announcers import SHOP, KeepalivedKind, Kind, KubeVip, MetalLb, node_of
from neighbours.controlplane import ControlPlane, missing
from neighbours.pages import replace_table, surroundings
from neighbours.scene import READY_S, Street, a_street_alone, end_by_signals
from neighbours.versions import WHOLE

INTERVAL_S = 0.002  # the VIPs take turns: each is asked for every 12 ms
_ADDRESSES = 300
_AT_MOST_S = 30.0
_SETTLE_S = 90.0
_QUIET_S = 1.0
NODE, PROCESS, PLANNED = FAULTS = ("node cut off and killed", "process killed", "planned")
Samples = dict[tuple[str, str], list[int]]  # nanoseconds of silence, by announcer and fault


class Elected(Kind):
    """The guard itself: an external IP that the agents elect an owner for."""

    name = "arpguard, elect"
    watched = ""

    @property
    def services(self) -> dict[str, IPv4Address]:
        return {"elected": IPv4Address("198.51.100.50")}

    def install(self) -> None:
        """Nothing besides what all agents need."""

    def publish(self) -> None:
        self.plane.apply(objects.service(SHOP, "elected", self.vips))

    def program(self, host: Host) -> HostProcess:
        raise NotImplementedError


class Several(Kind):
    """All of them on the same nodes, each with a class of load balancers of its own."""

    name = "takeover"
    watched = ""

    def __init__(self, plane: ControlPlane, hosts: Sequence[Host]) -> None:
        super().__init__(plane, hosts)
        self.kinds: list[Kind] = [
            Elected(plane, hosts),
            MetalLb(plane, hosts, WHOLE[-1], alone=1),
            KubeVip(plane, hosts, alone=2, timing=(15, 10, 2)),
            KubeVip(plane, hosts, alone=3, timing=(5, 3, 1)),
            KeepalivedKind(plane, hosts, alone=4, interval_s=1.0),
            KeepalivedKind(plane, hosts, alone=5, interval_s=0.1),
        ]
        self.kinds[2].name += ", lease 15/10/2 s"
        self.kinds[3].name += ", lease 5/3/1 s"
        self.announcers = self.kinds[1:]

    @property
    def services(self) -> dict[str, IPv4Address]:
        return {name: vip for kind in self.kinds for name, vip in kind.services.items()}

    def install(self) -> None:
        for kind in self.kinds:
            kind.install()

    def publish(self) -> None:
        for kind in self.kinds:
            kind.publish()

    def program(self, host: Host) -> HostProcess:
        raise NotImplementedError

    def start(self, host: Host) -> None:
        for kind in self.announcers:
            kind.start(host)

    def tend(self) -> None:
        for kind in self.announcers:
            kind.tend()

    def stop(self) -> None:
        for kind in self.announcers:
            kind.stop()


# ---- what is done ------------------------------------------------------------------------------------------------


def kill(street: Street, kind: Kind, owner: Host) -> None:
    """The program alone; the guard's is the agent."""
    if isinstance(kind, Elected):
        street.agent(owner).kill(signal.SIGKILL)
    else:
        kind.end(owner, signal.SIGKILL)


def move(street: Street, kind: Kind, owner: Host) -> None:
    """What an operator does before work on a node: cordons it, or ends the announcer in good order."""
    if isinstance(kind, Elected):
        street.cordon(owner)
    else:
        kind.end(owner, signal.SIGTERM)


def take_node(street: Street, owner: Host) -> None:
    """Off both networks, with all that ran there."""
    street.lab.pull(owner)
    street.kubelets.alive.discard(node_of(owner))
    street.agent(owner).kill(signal.SIGKILL)
    for kind in street.kind.announcers:
        kind.end(owner, signal.SIGKILL)


def put_right(street: Street) -> None:
    for host in street.nodes:
        street.cordon(host, cordoned=False)
        street.lab.plug_in(host)
        street.kubelets.alive.add(node_of(host))
        for kind in street.kind.announcers:
            if host.name not in kind.running:
                for vip in kind.vips:  # what a killed one left; a machine that starts anew has none of it
                    with contextlib.suppress(ArpguardError):
                        host.unbind(vip, "eth0")
                kind.start(host)
        if street.agent(host).pid is None:
            street.agent(host).start()
    for host in street.nodes:
        street.agent(host).wait_for(timeout_s=READY_S)
    if not street.tend_until(partial(is_settled, street), _SETTLE_S):
        print(f"not settled: {street.who(*street.kind.vips)}", file=sys.stderr)


def is_settled(street: Street) -> bool:
    return all(len(macs) == 1 for macs in street.who(*street.kind.vips).values())


# ---- what is measured --------------------------------------------------------------------------------------------


def owners(street: Street) -> dict[Kind, Host]:
    """Who answers, for each VIP that one node alone answers for."""
    found = street.who(*street.kind.vips)
    return {
        kind: street.host_of(found[vip][0]) for kind in street.kind.kinds for vip in kind.vips if len(found[vip]) == 1
    }


def measure(street: Street, samples: Samples, fault: str, victims: dict[Kind, Host]) -> None:
    """Does it to some announcers at once, each on the node that has its VIP, and notes how long each was silent."""
    began: dict[Kind, int] = {}
    with street.watch(street.kind.vips, INTERVAL_S, _ADDRESSES) as watch:
        street.go_on(watch, _QUIET_S)
        if fault == NODE:
            began = dict.fromkeys(victims, now_ns())
            take_node(street, next(iter(victims.values())))
        for kind, owner in victims.items() if fault != NODE else ():
            began[kind] = now_ns()
            (kill if fault == PROCESS else move)(street, kind, owner)
        wait(street, watch, victims, began)
        street.go_on(watch, _QUIET_S)
    for kind, owner in victims.items():
        (vip,) = kind.vips
        if not had_it(watch, vip, owner, began[kind]):
            continue  # it was on its way to another node already
        if watch.first(vip, began[kind], owner) is None:
            print(f"{kind.name}: {fault}: nobody took over within {_AT_MOST_S:g} s", file=sys.stderr)
        samples[kind.name, fault].append(watch.stream.silence(vip, began[kind] - _BEFORE_NS).length_ns)


_BEFORE_NS = 100_000_000


def had_it(watch: Watch, vip: IPv4Address, owner: Host, began_ns: int) -> bool:
    """Whether a node was the last to answer before a fault."""
    before = [said for said in watch.said if said.vip == vip and said.time_ns < began_ns and not said.is_announcement]
    return bool(before) and before[-1].mac == owner.mac


def wait(street: Street, watch: Watch, victims: dict[Kind, Host], began: dict[Kind, int]) -> None:
    """Until another node has answered for each."""
    waiting = dict(victims)
    deadline_ns = now_ns() + int(_AT_MOST_S * 1e9)
    while waiting and now_ns() < deadline_ns:
        street.go_on(watch, 0.1)
        waiting = {kind: owner for kind, owner in waiting.items() if not watch.first(kind.vips[0], began[kind], owner)}


def run(street: Street, times: int) -> Samples:
    """So many of each fault for each VIP; a node that dies takes all that it has."""
    samples: Samples = defaultdict(list)
    put_right(street)
    for number in range(times):
        for fault in (PROCESS, PLANNED):
            measure(street, samples, fault, owners(street))
            put_right(street)
        take_one(street, samples)
        print(f"{number + 1} of {times}: {summary(samples)}", flush=True)
    for fault in (PROCESS, PLANNED):
        top_up(street, samples, fault, times)
    while (least := fewest(street, samples)) is not None and len(samples[least.name, NODE]) < times:
        take_one(street, samples)
        print(summary(samples), flush=True)
    return samples


def top_up(street: Street, samples: Samples, fault: str, times: int) -> None:
    """Repeats a fault for what has fewer samples: nothing is measured where two nodes answered before it, or none."""
    for _ in range(times):
        lacking = {kind: host for kind, host in owners(street).items() if len(samples[kind.name, fault]) < times}
        if not lacking:
            return
        measure(street, samples, fault, lacking)
        put_right(street)
        print(summary(samples), flush=True)


def take_one(street: Street, samples: Samples) -> None:
    """The node that has the VIP whose node has died least often."""
    least = fewest(street, samples)
    if least is None:
        return
    have = owners(street)
    victim = have.get(least) or next(iter(have.values()))
    measure(street, samples, NODE, {kind: host for kind, host in have.items() if host is victim})
    put_right(street)


def fewest(street: Street, samples: Samples) -> Kind | None:
    """Whose node has died least often, of those that have a node now."""
    return min(owners(street), key=lambda kind: len(samples[kind.name, NODE]), default=None)


def summary(samples: Samples) -> str:
    return "; ".join(f"{name}, {fault}: {[ms(each) for each in found]}" for (name, fault), found in samples.items())


def table(samples: Samples) -> str:
    names = list(dict.fromkeys(name for name, _ in samples))
    lines = [f"| | {' | '.join(FAULTS)} |", "|---|---|---|---|"]
    lines += [f"| {name} | {' | '.join(_cell(samples[name, fault]) for fault in FAULTS)} |" for name in names]
    return "\n".join([surroundings(), "", *lines, ""])


def _cell(found: Sequence[int]) -> str:
    spread = Spread.of(found)
    if spread.median_ms is None or spread.worst_ms is None:
        return ""
    return f"{spread.median_ms / 1000:.2f} s, {spread.worst_ms / 1000:.2f} s ({spread.count})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--write", type=Path, help="the page whose table is replaced")
    asked = parser.parse_args()
    if (why := missing()) is not None:
        print(f"neighbours: skipped: {why}")
        return 0
    end_by_signals()
    with a_street_alone(Several) as street:
        samples = run(street, asked.times)
    text = table(samples)
    print(text)
    if asked.write:
        replace_table(asked.write, "takeover", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
