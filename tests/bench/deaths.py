"""How long it takes until another node answers for the VIPs of one that dies: with vouching, and keepalived beside it.

The lab's nodes, API server and client (arpguard_lab). A node dies as in its scenarios: its links go down, and all that
runs there is killed. Nodes die one after the other, each once the others are bound to their vouchers, and none comes
back. keepalived has two pairs of hosts on the same switch, with a VIP and a virtual router each; its masters die in the
same way, and come back. A trial lasts from the moment before the links go down to the first answer of another node.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from labs import a_lab
from report import Row, Section

from arpguard.addresses import Address
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard_lab.asking import FEW_ADDRESSES, Stream
from arpguard_lab.capture import Capture
from arpguard_lab.cluster.bench import KubeBench, Watch, now_ns, vip
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.cluster.vouched import VIPS, an_owner, until_bound
from arpguard_lab.cluster.vouched_deaths import Deaths
from arpguard_lab.peers.programs import KEEPALIVED, Keepalived, find

TITLE = "deaths: from a node's death to the first answer of another one, for each of its VIPs"
NODES, LEFT = 7, 2
GOALS = {"fast": (750, 1000), "default": (1200, 1500)}
_PAIRS = {"keepalived, advert_int 1": (1.0, 61, (81, 82)), "keepalived, advert_int 0.1": (0.1, 62, (83, 84))}
_PATIENCE_S = 30.0
_REST_S, _REST_NS = 1.0, NS_PER_S


@dataclass
class _Pair:
    """Two hosts with keepalived; the first is master while it runs."""

    vip: Address
    daemons: Sequence[Keepalived]
    taken_ms: list[float] = field(default_factory=list)


def measure(*, quick: bool = False) -> Section:
    """Trials of each profile, and of keepalived."""
    section = Section(TITLE)
    trials = 1 if quick else 20
    with a_lab(4 if quick else NODES, _hosts()) as lab:
        for profile, (usual_ms, worst_ms) in GOALS.items():
            first, every = _of_profile(lab, profile, trials)
            goal = f"median under {usual_ms}, worst under {worst_ms}"
            rows = (f"vouching, {profile}: the first VIP", first), (f"vouching, {profile}: every VIP", every)
            for name, samples in rows:
                row = Row(name, samples, "ms", goal, note=f"{len(samples)} of {trials} trials")
                section.add(row if quick else _judged(row, usual_ms, worst_ms))
        if find(KEEPALIVED):
            for name, pair in _of_keepalived(lab, trials).items():
                section.add(Row(name, pair.taken_ms, "ms", note=f"{trials} trials"))
    return section


def _judged(row: Row, usual_ms: int, worst_ms: int) -> Row:
    met = row.median < usual_ms and max(row.samples) < worst_ms
    return Row(row.name, row.samples, row.unit, row.goal, met, row.note)


# ---- nodes that vouch for each other ----


def _of_profile(lab: KubeLab, profile: str, trials: int) -> tuple[list[float], list[float]]:
    """For each trial the first answer for any VIP of the node, and the first one for each of them."""
    first: list[float] = []
    every: list[float] = []
    while len(first) < trials:
        with a_bench(lab, "deaths", lease=f"vouching: {{profile: {profile}}}") as bench:
            for taken_ns in _deaths(bench, trials - len(first)):
                first.append(min(taken_ns) / NS_PER_MS)
                every += [each / NS_PER_MS for each in taken_ns]
    return first, every


def _deaths(bench: KubeBench, most: int) -> Iterator[list[int]]:
    """Of so many nodes at most, until few are left."""
    bench.set_out(*VIPS)
    alive = list(bench.nodes)
    with bench.watch(VIPS) as watch:
        for _ in range(min(most, len(alive) - LEFT)):
            until_bound(bench, alive)
            time.sleep(_REST_S)
            victim, deaths = an_owner(bench, alive), Deaths(bench, watch)
            deaths.die(victim.name, victim)
            alive.remove(victim)
            yield deaths.taken_ns
    if watch.findings:
        raise RuntimeError(f"two nodes answered: {watch.findings[0]}")


# ---- keepalived ----


def _hosts() -> list[tuple[str, int]]:
    return [(f"k{number}", number) for _, _, numbers in _PAIRS.values() for number in numbers]


def _of_keepalived(lab: KubeLab, trials: int) -> dict[str, _Pair]:
    """Masters die; all pairs at once."""
    pairs = {name: _pair(lab, *terms) for name, terms in _PAIRS.items()}
    vips = [pair.vip for pair in pairs.values()]
    watch = Watch(_Hosts(lab), Stream(lab.client.listen(), vips, addresses=FEW_ADDRESSES), Capture(lab.switch))  # type: ignore[arg-type]
    for pair in pairs.values():
        for daemon in pair.daemons:
            daemon.start()
    with watch:
        for _ in range(trials):
            for pair in pairs.values():
                _until_master(watch, pair)
            _masters_die(lab, watch, list(pairs.values()))
    return pairs


def _pair(lab: KubeLab, interval_s: float, router_id: int, numbers: Sequence[int]) -> _Pair:
    address = vip(router_id + 60)
    hosts = [lab.hosts[f"k{number}"] for number in numbers]
    daemons = [
        lab.program(
            Keepalived(host, lab.folder, address, priority, vmac=False, interval_s=interval_s, router_id=router_id)
        )
        for host, priority in zip(hosts, (110, 100), strict=True)
    ]
    return _Pair(address, daemons)


def _masters_die(lab: KubeLab, watch: Watch, pairs: Sequence[_Pair]) -> None:
    died_ns = now_ns()
    for pair in pairs:
        lab.switch.batch([f"link set {pair.daemons[0].host.port} down"])
    for pair in pairs:
        pair.daemons[0].kill(signal.SIGKILL)
    for pair in pairs:
        firsts = watch.takeovers([pair.vip], pair.daemons[0].host, died_ns, _PATIENCE_S)
        pair.taken_ms.append((firsts[0].time_ns - died_ns) / NS_PER_MS)
    for pair in pairs:
        master = pair.daemons[0]
        if master.holds():
            master.host.unbind(pair.vip, "eth0")
        lab.switch.batch([f"link set {master.host.port} up"])
        master.start()


def _until_master(watch: Watch, pair: _Pair) -> None:
    """Until the first alone has the VIP, and has answered for a while: on a busy machine masters change."""
    (first, second), since_ns = pair.daemons, now_ns()

    def is_steady() -> bool:
        quiet_ns = now_ns() - _REST_NS
        alone = first.holds() and not second.holds() and not watch.last(pair.vip, second.host, quiet_ns)
        return alone and since_ns < quiet_ns and watch.last(pair.vip, first.host, quiet_ns) is not None

    watch.wait(is_steady, _PATIENCE_S, f"{first.host.name} is master")


@dataclass(frozen=True)
class _Hosts:
    """All that a watch asks of a bench."""

    lab: KubeLab
