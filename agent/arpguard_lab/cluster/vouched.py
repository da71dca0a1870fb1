"""Nodes that vouch for each other: who is dead is known in a second, and nothing else silences anybody."""

import signal
import time
from collections.abc import Iterator, Sequence

from arpguard.addresses import Address
from arpguard_lab.asking import EVER_NS
from arpguard_lab.bench import Step
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.cluster.pods import Pods
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import Host

SETTINGS = "lease: {vouching: {profile: default}}"

_VIPS = [vip(50 + number) for number in range(6)]
_BOUND_S = 60.0
_PATIENCE_S = 15.0
_DEATHS = 2
_WORST_MS = 1500
_AWAY_S = 40.0
_RESTART_S = 20.0


def run_node_dies(bench: KubeBench) -> Iterator[Step]:
    """Kills owners, one after the other, with their nodes."""
    yield from _begin(bench)

    taken_ns: list[int] = []
    alive = list(bench.nodes)
    with bench.watch(_VIPS) as watch:
        for number in range(_DEATHS):
            victim = next(host for host in alive if bench.owned(_VIPS, host))
            yield _dies(bench, watch, victim, taken_ns)
            bench.lab.plug_in(victim)
            bench.agent(victim).start()
            bench.agent(victim).wait_for()
            bench.settle_evenly(_VIPS)
            alive.remove(victim)  # its boot clock has gone on: who revoked it takes that for a mistake, and waits
            if number + 1 < _DEATHS:
                _until_bound(bench, alive)

    worst_ms = Spread.of(taken_ns).worst_ms
    yield _verdict(
        bench,
        watch,
        "all deaths: at most one answered at any moment",
        takeovers=len(taken_ns),
        median_ms=Spread.of(taken_ns).median_ms,
        worst_ms=worst_ms,
        dead_in_time=worst_ms is not None and worst_ms < _WORST_MS,
    )


def run_api_away(bench: KubeBench) -> Iterator[Step]:
    """The API server refuses connections for longer than any restart takes, and comes back."""
    yield from _begin(bench)
    owners = bench.who(*_VIPS)

    with bench.watch(_VIPS) as watch:
        bench.server.go_down()
        time.sleep(_AWAY_S)
        bench.server.come_back()
        time.sleep(5.0)
    yield _none_lost(bench, watch, f"{_AWAY_S:g} s without the API server", stayed=bench.who(*_VIPS) == owners)


def run_agent_killed(bench: KubeBench) -> Iterator[Step]:
    """SIGKILL to the owner's agent; it is started again much later than its lease would last without a voucher."""
    yield from _begin(bench)
    owners, victim = bench.who(*_VIPS), bench.owner(_VIPS[0])

    with bench.watch(_VIPS) as watch:
        bench.agent(victim).kill(signal.SIGKILL)
        time.sleep(_RESTART_S)
        stayed = bench.who(*_VIPS) == owners
        bench.agent(victim).start()
        bench.agent(victim).wait_for()
        time.sleep(3.0)
    yield _none_lost(bench, watch, f"the agent of {victim.name} is away for {_RESTART_S:g} s", stayed=stayed)
    yield bench.ask("it is bound again", _VIPS[0], [bench.owner(_VIPS[0])], bound_after_s=_until_bound(bench))


def run_update(bench: KubeBench) -> Iterator[Step]:
    """Kills one agent, which starts again at once, and then replaces all as a DaemonSet's controller does."""
    bench.allow(objects.vouching_access(bench.home))
    bench.publish("web", _VIPS)
    pods = Pods(bench)
    bench.settle_evenly(_VIPS)
    bench.bind_everywhere(*_VIPS)
    _until_bound(bench)

    with bench.watch(_VIPS) as watch:
        agent = bench.agent(bench.owner(_VIPS[0]))
        agent.kill(signal.SIGKILL)
        agent.start()
        agent.wait_for()
        time.sleep(3.0)
    yield _none_lost(bench, watch, "an agent killed and started again at once")
    _until_bound(bench)

    with bench.watch(_VIPS) as watch:
        for host in bench.nodes:
            pods.replace(host)
        bench.settle(_VIPS)
        time.sleep(1.0)
    yield _none_lost(bench, watch, "every agent replaced, one after the other", bound_after_s=_until_bound(bench))


def _begin(bench: KubeBench) -> Iterator[Step]:
    """VIPs that are answered for, and nodes that are bound to each other."""
    bench.allow(objects.vouching_access(bench.home))
    bench.set_out(*_VIPS)
    took_s = _until_bound(bench)
    yield bench.ask("every node is vouched for", _VIPS[0], [bench.owner(_VIPS[0])], bound_after_s=took_s)


def _until_bound(bench: KubeBench, hosts: Sequence[Host] = ()) -> int:
    """Waits until some nodes, or all, are bound to a voucher; returns for how many seconds."""
    began = time.monotonic()
    bench.until(
        lambda: all(bench.agent(host).is_bound() for host in hosts or bench.nodes), _BOUND_S, "nodes are vouched for"
    )
    return round(time.monotonic() - began)


def _dies(bench: KubeBench, watch: Watch, victim: Host, taken_ns: list[int]) -> Step:
    """Its agent and its voucher's process are killed, and its links are down."""
    lost: list[Address] = bench.owned(_VIPS, victim)
    killed_ns = now_ns()
    bench.lab.pull(victim)
    bench.agent(victim).kill(signal.SIGKILL)

    firsts = watch.takeovers(lost, victim, killed_ns, _PATIENCE_S)
    taken = [said.time_ns - killed_ns for said in firsts]
    taken_ns += taken
    return bench.one_of(
        f"{victim.name} dies",
        lost[0],
        bench.others(victim),
        [firsts[0].mac],
        vips=len(lost),
        first_answer_ms=ms(min(taken)),
        all_answered_ms=ms(max(taken)),
    )


def _none_lost(bench: KubeBench, watch: Watch, text: str, **facts: object) -> Step:
    lost = sum(watch.stream.lost(each, until_ns=EVER_NS) for each in _VIPS)
    longest_ms = max(watch.stream.silence(each).length_ms for each in _VIPS)
    return _verdict(bench, watch, text, lost=lost, longest_silence_ms=longest_ms, none_lost=lost == 0, **facts)


def _verdict(bench: KubeBench, watch: Watch, text: str, **facts: object) -> Step:
    bench.check_against_journal(watch)
    answering = bench.who(_VIPS[0])[_VIPS[0]]
    return bench.one_of(text, _VIPS[0], bench.nodes, answering, **facts, **watch.facts())
