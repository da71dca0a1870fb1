"""What happens without warning: nodes that die, agents that hang, networks that part, an API server that is gone."""

import signal
import time
from collections.abc import Callable, Iterator

from arpguard.addresses import Address
from arpguard.units import NS_PER_S
from arpguard_lab.bench import Bounded, Step
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns, vip
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import Host

WORST_S, MEDIAN_S = 4.0, 3.0
LEASE_S, MARGIN_S = 3.0, 1.0
_KILLS = 4
_STEP_S = 0.27  # the deaths are spread over the second in which a renewal is due
_PATIENCE_S = 15.0
_AFTER_S = 3.0  # how long a node that comes back is watched
_VIPS = [vip(50 + number) for number in range(6)]
_HELD = vip(60)


def run_kill(bench: KubeBench) -> Iterator[Step]:
    """Kills owners, one after the other, with their nodes."""
    bench.set_out(*_VIPS)

    taken_ns: list[int] = []
    with bench.watch(_VIPS) as watch:
        for number in range(_KILLS):
            victim = bench.owner(_VIPS[number])
            time.sleep(number * _STEP_S)  # at another moment of its second
            lost = bench.owned(_VIPS, victim)
            killed_ns = now_ns()
            bench.agent(victim).kill(signal.SIGKILL)
            bench.lab.pull(victim)
            yield _taken_over(bench, watch, f"{victim.name} dies", victim, lost, killed_ns, taken_ns)
            bench.lab.plug_in(victim)
            bench.agent(victim).start()
            bench.agent(victim).wait_for()
            bench.settle_evenly(_VIPS)

    yield _verdict(bench, watch, "all deaths", taken_ns, median_s=MEDIAN_S)


def run_hang(bench: KubeBench) -> Iterator[Step]:
    """Stops the owner's agent, while its programs stay on the node's link; then lets it continue."""

    def stop(host: Host) -> None:
        bench.agent(host).send(signal.SIGSTOP)

    def go_on(host: Host) -> None:
        bench.agent(host).send(signal.SIGCONT)

    yield from _silenced(bench, "its agent hangs", stop, "it continues", go_on)


def run_partition(bench: KubeBench) -> Iterator[Step]:
    """Cuts the owner off from the API server, while everybody hears it on the LAN; then connects it again."""

    def ask(victim: Host, address: Address) -> Step:
        """The agent still runs, and hears the next owner: that must not look like a second one."""
        found = bench.audit(victim, address)
        is_right = bool(found) and all(each["right"] for each in found)
        text = "it asks who answers now, and accuses nobody"
        return bench.one_answers(text, address, bench.others(victim), nobody_accused=is_right)

    harm, cure = "it is cut off from the API server", "it is connected again"
    yield from _silenced(bench, harm, bench.lab.cut_off, cure, bench.lab.reconnect, ask)


def _silenced(
    bench: KubeBench,
    harm: str,
    do_harm: Callable[[Host], None],
    cure: str,
    do_cure: Callable[[Host], None],
    meanwhile: Callable[[Host, Address], Step] | None = None,
) -> Iterator[Step]:
    bench.set_out(*_VIPS)

    taken_ns: list[int] = []
    with bench.watch(_VIPS) as watch:
        victim = bench.owner(_VIPS[0])
        lost = bench.owned(_VIPS, victim)
        began_ns = now_ns()
        do_harm(victim)
        harmed_ns = now_ns()
        yield _taken_over(bench, watch, f"{victim.name}: {harm}", victim, lost, began_ns, taken_ns)

        last_ns = max((said.time_ns for each in lost if (said := watch.last(each, victim))), default=harmed_ns)
        silent_ms = max(0, ms(last_ns - harmed_ns))
        limit_ms = round((LEASE_S - MARGIN_S) * 1000)
        yield bench.one_answers(
            "its kernel falls silent by itself, before any other node answers",
            lost[0],
            bench.others(victim),
            silent_after_ms=silent_ms,
            limit_ms=limit_ms,
            silent_in_time=silent_ms <= limit_ms,
        )
        if meanwhile is not None:
            yield meanwhile(victim, lost[0])

        cured_ns = now_ns()
        do_cure(victim)
        time.sleep(_AFTER_S)
        bench.settle(_VIPS)
        watch.poll()
        early = [
            each for each in lost if (said := watch.last(each, victim, cured_ns)) and said.time_ns < cured_ns + NS_PER_S
        ]
        yield bench.one_answers(
            f"{victim.name}: {cure}",
            lost[0],
            old_owner_kept_silent=not early,
        )

    yield _verdict(bench, watch, "the whole time", taken_ns)


def _taken_over(
    bench: KubeBench,
    watch: Watch,
    text: str,
    victim: Host,
    lost: list[Address],
    began_ns: int,
    taken_ns: list[int],
) -> Step:
    """Waits until others answer for all VIPs of a node; notes how long each took since `began_ns`."""
    firsts = watch.takeovers(lost, victim, began_ns, _PATIENCE_S)
    taken = [said.time_ns - began_ns for said in firsts]
    taken_ns += taken
    spread = Spread.of(taken)

    return bench.one_of(
        text,
        lost[0],
        bench.others(victim),
        [firsts[0].mac],
        vips=len(lost),
        first_answer_median_ms=spread.median_ms,
        first_answer_worst_ms=spread.worst_ms,
    )


def _verdict(bench: KubeBench, watch: Watch, text: str, taken_ns: list[int], median_s: float = WORST_S) -> Step:
    """The last step: the bars, and the whole record. One fault alone says nothing of the median."""
    bench.check_against_journal(watch)
    spread = Spread.of(taken_ns)
    handovers = Spread.of([each.gap_ns for each in watch.gaps()])

    return bench.one_answers(
        f"{text}: at most one node answered at any moment",
        _VIPS[0],
        takeovers=spread.count,
        median_ms=Bounded(spread.median_ms, round(median_s * 1000), "median_in_bounds"),
        worst_ms=Bounded(spread.worst_ms, round(WORST_S * 1000), "worst_in_bounds"),
        handovers=handovers.count,
        worst_gap_ms=handovers.worst_ms,
        **watch.facts(),
    )


def run_api_down(bench: KubeBench, outage_s: float = 10.0) -> Iterator[Step]:
    """The API server refuses connections for a while, and comes back."""
    bench.publish("web", _VIPS)
    bench.publish("held", [_HELD], {"hold": "true"})
    every = [*_VIPS, _HELD]
    bench.settle_evenly(every)
    bench.bind_everywhere(*every)

    holder = bench.owner(_HELD)
    with bench.watch(every, interval_s=0.002) as watch:
        lines = {host: len(bench.agent(host).said().splitlines()) for host in bench.nodes}
        cpu_s = {host: bench.agent(host).cpu_s() for host in bench.nodes}
        rss_kb = {host: bench.agent(host).rss_kb() for host in bench.nodes}

        down_ns = now_ns()
        bench.server.go_down()
        time.sleep(outage_s)
        yield bench.ask("API server gone: no answers after the fence", _VIPS[0], [])
        yield bench.ask("the owner of a VIP with hold: true still answers", _HELD, [holder])

        used = max(bench.agent(host).cpu_s() - cpu_s[host] for host in bench.nodes)
        grown = max(bench.agent(host).rss_kb() - rss_kb[host] for host in bench.nodes)
        said = max(len(bench.agent(host).said().splitlines()) - lines[host] for host in bench.nodes)

        back_ns = now_ns()
        bench.server.come_back()
        watch.wait(
            lambda: all(watch.first(each, back_ns) for each in _VIPS), _PATIENCE_S, "nodes answer for all VIPs again"
        )

        firsts = [first.time_ns - back_ns for each in _VIPS if (first := watch.first(each, back_ns))]
        watch.poll()
        last_ns = max((each.time_ns for each in watch.said if each.vip != _HELD and each.time_ns < back_ns), default=0)
        bench.settle(every)
        recovered = Spread.of(firsts)
        yield bench.one_answers(
            "API server back: nodes answer for all VIPs",
            _VIPS[0],
            recovered_worst_ms=Bounded(recovered.worst_ms, 2000, "recovered_within_2_s"),
            silent_after_ms=ms(last_ns - down_ns),
        )

    bench.check_against_journal(watch, skip=[_HELD])
    share = round(1000 * used / outage_s) / 10
    lost = watch.stream.lost(_HELD)

    yield bench.one_answers(
        f"{outage_s:g} s without the API server",
        _HELD,
        cpu_tenths_of_percent=round(share * 10),
        cpu_under_2_percent=share < 2.0,
        log_lines=said,
        log_is_bounded=said <= 20 + len(every),
        grown_kb=grown,
        memory_is_flat=grown < 2048,
        held_lost=lost,
        hold_never_paused=lost == 0,
        **watch.facts(),
    )
