"""Nodes that vouch for each other, without the API server or without an agent for a while: nobody falls silent."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence

from arpguard.addresses import Address
from arpguard_lab.bench import Bounded, Step
from arpguard_lab.cluster.bench import KubeBench, Watch, ms, now_ns
from arpguard_lab.cluster.planned import CRASH_MS
from arpguard_lab.cluster.pods import Pods
from arpguard_lab.cluster.topology import KubeAgent
from arpguard_lab.cluster.vouched import (
    LEASE,
    PATIENCE_S,
    VIPS,
    an_owner,
    begin,
    none_lost,
    until_all_publish,
    until_bound,
    verdict,
    vouchers,
)
from arpguard_lab.topology import Host

_AWAY_S, _LONG_S = 40.0, 60.0
_LASTS_MS = 48_000  # a bound node's right to answer, whenever the API server goes
_RESTARTS, _DOWN_S, _UP_S = 5, 8.0, 4.0
_RESTART_S = 20.0
_BEFORE_DEATH_S, _AFTER_DEATH_S = 2.0, 8.0
_BACK_MS = 3000
_MIXED_S = 8.0  # longer than the lease of a node without a voucher
_RENEWED_S = 5.0  # all nodes have renewed by then
OUTAGES = "ARPGUARD_LAB_OUTAGES"
VERSION_BEFORE = "ARPGUARD_LAB_BEFORE"


def run_api_away(bench: KubeBench) -> Iterator[Step]:
    """The API server refuses connections for longer than any restart takes, and comes back; once, or several times."""
    yield from begin(bench)
    owners, times = bench.settle(VIPS), int(os.environ.get(OUTAGES, "1"))

    with bench.watch(VIPS) as watch:
        for _ in range(times):
            bench.server.go_down()
            time.sleep(_AWAY_S)
            bench.server.come_back()
            time.sleep(_RENEWED_S)
    text = f"{_AWAY_S:g} s without the API server" + (f", {times} times" if times > 1 else "")
    yield none_lost(bench, watch, text, handovers=len(watch.gaps()), stayed=bench.still(owners))


def run_api_away_60s(bench: KubeBench) -> Iterator[Step]:
    """The API server is unreachable for longer than a bound node's right to answer may last, and comes back."""
    yield from begin(bench)
    owners = {address: host for host in bench.nodes for address in bench.owned(VIPS, host)}

    with bench.watch(VIPS) as watch:
        down_ns = now_ns()
        bench.server.go_down()
        time.sleep(_LONG_S)
        watch.poll()
        lasts = [watch.last(address, host, down_ns) for address, host in owners.items()]
        silent_ms = min(ms(last.time_ns - down_ns) for last in lasts if last is not None)

        answered_ms = _come_back(bench, watch)

    yield verdict(
        bench,
        watch,
        f"{_LONG_S:g} s without the API server",
        vips=len(owners),
        first_silent_after_ms=silent_ms,
        none_silent_early=None not in lasts and silent_ms >= _LASTS_MS,
        all_answered_ms=answered_ms,
        all_answered_in_time=answered_ms < _BACK_MS,
    )


def _come_back(bench: KubeBench, watch: Watch) -> int:
    """The API server comes back; returns after how many milliseconds all VIPs are answered for."""
    back_ns = now_ns()
    bench.server.come_back()
    watch.wait(lambda: all(watch.first(each, back_ns) for each in VIPS), PATIENCE_S, "nodes answer for all VIPs")
    answered_ms = max(ms(said.time_ns - back_ns) for each in VIPS if (said := watch.first(each, back_ns)))
    time.sleep(_UP_S)
    return answered_ms


def run_api_rolling(bench: KubeBench) -> Iterator[Step]:
    """The API server restarts again and again, as in an upgrade of the control plane."""
    yield from begin(bench)
    owners = bench.settle(VIPS)

    with bench.watch(VIPS) as watch:
        for _ in range(_RESTARTS):
            bench.server.go_down()
            time.sleep(_DOWN_S)
            bench.server.come_back()
            time.sleep(_UP_S)
    text = f"the API server restarts {_RESTARTS} times, for {_DOWN_S:g} s each"
    yield none_lost(bench, watch, text, handovers=len(watch.gaps()), stayed=bench.still(owners))


def run_api_away_and_node_dies(bench: KubeBench) -> Iterator[Step]:
    """A node dies while the API server is unreachable: nobody may replace it before that is back.

    The node that it vouched for falls silent, as it cannot renew without its voucher, then the one that this one
    vouches for (V16), and so on.
    """
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        victim = an_owner(bench)
        owned = {host: bench.owned(VIPS, host) for host in bench.nodes}
        named = vouchers(bench)
        bench.server.go_down()
        time.sleep(_BEFORE_DEATH_S)
        died_ns = now_ns()
        bench.lab.pull(victim)
        bench.agent(victim).kill(signal.SIGKILL)
        time.sleep(_AFTER_DEATH_S)

        watch.poll()
        early = [address for vips in owned.values() for address in vips if _is_taken(watch, address, died_ns, owned)]
        silent = {
            f"{host.name.replace('-', '_')}_silent_after_ms": ms(last.time_ns - died_ns)
            for host in _behind(victim, named)
            for last in [watch.last(address, host, died_ns) for address in owned[host][:1]]
            if last is not None
        }

        answered_ms = _come_back(bench, watch)

    yield verdict(
        bench,
        watch,
        f"{victim.name} dies while the API server is unreachable; the server is back after {_AFTER_DEATH_S:g} s",
        vips=len(owned[victim]),
        taken_early=len(early),
        not_replaced_meanwhile=not early,
        **silent,
        all_answered_ms=Bounded(answered_ms, _BACK_MS, "all_answered_in_time"),
    )


def _behind(victim: Host, named: Mapping[Host, Host]) -> Iterator[Host]:
    """The node that one vouches for, the one that this one vouches for, and so on."""
    last, seen = victim, [victim]
    while (last := next((host for host, voucher in named.items() if voucher is last), victim)) not in seen:
        seen.append(last)
        yield last


def _is_taken(watch: Watch, address: Address, since_ns: int, owned: Mapping[Host, Sequence[Address]]) -> bool:
    """Whether another node than its owner has answered for a VIP."""
    owner = next(host for host, vips in owned.items() if address in vips)
    return watch.first(address, since_ns, owner) is not None


def run_agent_killed(bench: KubeBench) -> Iterator[Step]:
    """SIGKILL to the owner's agent; it is started again much later than its lease would last without a voucher."""
    yield from begin(bench)
    owners, victim = bench.settle(VIPS), bench.owner(VIPS[0])

    with bench.watch(VIPS) as watch:
        bench.agent(victim).kill(signal.SIGKILL)
        time.sleep(_RESTART_S)
        stayed = bench.still(owners)
        bench.agent(victim).start()
        bench.agent(victim).wait_for()
        time.sleep(3.0)
    yield none_lost(bench, watch, f"the agent of {victim.name} is away for {_RESTART_S:g} s", stayed=stayed)
    yield bench.ask("its node is bound again", VIPS[0], [bench.owner(VIPS[0])], bound_after_s=until_bound(bench))


def run_update(bench: KubeBench) -> Iterator[Step]:
    """Kills one agent, which starts again at once, and then replaces all as a DaemonSet's controller does."""
    pods = Pods(bench)
    until_all_publish(bench)
    bench.set_out(*VIPS)
    until_bound(bench)

    with bench.watch(VIPS) as watch:
        agent = bench.agent(bench.owner(VIPS[0]))
        agent.kill(signal.SIGKILL)
        agent.start()
        agent.wait_for()
        time.sleep(3.0)
    yield none_lost(bench, watch, "an agent killed and started again at once")
    until_bound(bench)

    with bench.watch(VIPS) as watch:
        for host in bench.nodes:
            pods.replace(host)
        bench.settle(VIPS)
        time.sleep(1.0)
    yield none_lost(bench, watch, "every agent replaced, one after the other", bound_after_s=until_bound(bench))


def run_upgrade(bench: KubeBench) -> Iterator[Step]:
    """Rolls vouching out: agents that vouch for each other beside one that knows nothing of it, then all of them.

    At first agents run with vouching off; with `VERSION_BEFORE`, agents of the older version whose modules that folder
    holds. An upgrade to programs with other maps silences a node's VIPs for a moment, as its entries are written again.
    """
    before = os.environ.get(VERSION_BEFORE, "")
    for host in bench.nodes:
        bench.agent(host).code = before
    if before:  # that version need not know the setting
        bench.configure(bench.config(lease=""))
        for host in bench.nodes:
            _configure_before(bench.agent(host), bench.config(lease=""))
    pods = Pods(bench)
    until_all_publish(bench)
    bench.set_out(*VIPS)
    *first, last = bench.nodes
    judge = _hardly_lost if before else none_lost

    bench.configure(bench.config(lease=LEASE))
    with bench.watch(VIPS) as watch:
        for host in first:
            pods.replace(host)
        bound_s = until_bound(bench, first)
    yield judge(bench, watch, f"all but {last.name} vouch for each other", bound_after_s=bound_s)

    with bench.watch(VIPS) as watch:
        victim, owners = an_owner(bench, first), bench.settle(VIPS)
        bench.agent(victim).kill(signal.SIGKILL)
        time.sleep(_MIXED_S)
        stayed = bench.still(owners)
        bench.agent(victim).start()
        bench.agent(victim).wait_for()
        time.sleep(3.0)
    yield none_lost(bench, watch, f"the agent of {victim.name} is away for {_MIXED_S:g} s", stayed=stayed)

    with bench.watch(VIPS) as watch:
        pods.replace(last)
        bound_s = until_bound(bench)
    yield judge(bench, watch, f"{last.name} vouches, too", bound_after_s=bound_s)


def _configure_before(agent: KubeAgent, text: str) -> None:
    """Gives an agent of an older version settings that this version knows."""
    own = [line for line in agent.own_settings.splitlines() if not line.startswith("keepalived:")]
    agent.config.write_text("\n".join([*own, text]), encoding="utf-8")


def _hardly_lost(bench: KubeBench, watch: Watch, text: str, **facts: object) -> Step:
    lost = sum(watch.stream.lost(each) for each in VIPS)
    longest_ms = max(watch.stream.silence(each).length_ms for each in VIPS)
    facts |= {"lost": lost, "longest_silence_ms": Bounded(longest_ms, CRASH_MS, "as_after_a_crash")}
    return verdict(bench, watch, text, **facts)
