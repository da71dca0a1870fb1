"""New VIPs that kube-proxy binds on every node before any agent has read of them, in ranges that are closed."""

import signal
from collections.abc import Iterator
from ipaddress import IPv4Address

from arpguard_lab.bench import Bounded, Step
from arpguard_lab.cluster.bench import KubeBench, Watch, now_ns, vip
from arpguard_lab.oracle import Spread
from arpguard_lab.topology import NETWORK

_CLOSED = f"{NETWORK}.48/28"
_NEW = [vip(number) for number in range(50, 55)]
_STRAY, _LATER = vip(60), vip(61)
_INTERVAL_S = 0.001
_PATIENCE_S = 10.0
_FIRST_ANSWER_MS = 500


def run_new_service(bench: KubeBench) -> Iterator[Step]:
    """Closes a range; makes Services in it one by one, and one while no agent runs."""
    bench.bind_everywhere(_STRAY)
    config = bench.config(extra="unknown: suppress").replace(f"'{NETWORK}.0/24'", f"'{_CLOSED}'")
    bench.configure(config)
    bench.until(lambda: not bench.who(_STRAY)[_STRAY], _PATIENCE_S, "the range is closed")
    yield bench.ask("bound on every node, and no Service: no node answers", _STRAY, [])
    yield _appear_one_by_one(bench)
    yield from _appear_without_agents(bench)


def _appear_one_by_one(bench: KubeBench) -> Step:
    """A client asks for each from before it is bound."""
    first_ns = []

    with bench.watch(_NEW, _INTERVAL_S) as watch:
        for number, address in enumerate(_NEW):
            bench.bind_everywhere(address)
            since_ns = now_ns()
            bench.publish(f"new-{number}", [address])
            first_ns.append(_first_answer_ns(watch, address, since_ns))

    bench.check_against_journal(watch)
    after = Spread.of(first_ns)
    return bench.one_answers(
        f"{len(_NEW)} new Services, their VIPs bound on every node before: one node answers from the first request on",
        _NEW[0],
        first_answer_median_ms=after.median_ms,
        first_answer_ms=Bounded(after.worst_ms or 0, _FIRST_ANSWER_MS, "within_half_a_second"),
        **watch.facts(),
    )


def _first_answer_ns(watch: Watch, address: IPv4Address, since_ns: int) -> int:
    watch.wait(lambda: watch.first(address, since_ns), _PATIENCE_S, f"a node answers for {address}")
    said = watch.first(address, since_ns)
    return said.time_ns - since_ns if said is not None else 0


def _appear_without_agents(bench: KubeBench) -> Iterator[Step]:
    """The kernel alone keeps the range closed."""
    for host in bench.nodes:
        bench.agent(host).kill(signal.SIGKILL)
    with bench.watch([_LATER], _INTERVAL_S) as watch:
        bench.bind_everywhere(_LATER)
        bench.publish("later", [_LATER])
        yield bench.ask("a new Service while no agent runs: no node answers", _LATER, [])
        for host in bench.nodes:
            bench.agent(host).start()
        for host in bench.nodes:
            bench.agent(host).wait_for()
        bench.settle([_LATER])
    bench.check_against_journal(watch)
    yield bench.one_answers("the agents are back: one node answers", _LATER, **watch.facts())
