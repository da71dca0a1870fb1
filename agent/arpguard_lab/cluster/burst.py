"""Many VIPs come and go at once. Those that were there before must not feel it, and no claim of the others stays."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address

from arpguard.errors import DataPlaneError
from arpguard_lab.bench import Step
from arpguard_lab.cluster.bench import KubeBench, vip
from arpguard_lab.oracle import Spread
from arpguard_lab.patience import Patience

MANY = [IPv4Address("198.18.4.0") + number for number in range(1, 1001)]
CLAIMS_GONE_S = 30.0
_OLD = [vip(50 + number) for number in range(3)]
_PER_SERVICE = 100
_WIDE = "198.18.0"
_INTERVAL_S = 0.005
_POLL_S = 0.5
_PATIENCE_S = 120.0
_SLOW_WRITES_PER_S = 50
_FEWER = MANY[:200]


@contextmanager
def a_wide_network(bench: KubeBench) -> Iterator[None]:
    """Every node has an address in the network of the many."""
    for host in bench.nodes:
        host.netns.batch([f"addr add {_WIDE}.{bench.lab.number(host)}/15 dev eth0"])
    try:
        yield
    finally:
        for host in bench.nodes:
            host.netns.batch([f"addr del {_WIDE}.{bench.lab.number(host)}/15 dev eth0"])


def services_of(vips: Sequence[IPv4Address]) -> dict[str, Sequence[IPv4Address]]:
    """The Services that VIPs are of, by name."""
    return {f"many-{at}": vips[at : at + _PER_SERVICE] for at in range(0, len(vips), _PER_SERVICE)}


def run_burst(bench: KubeBench) -> Iterator[Step]:
    """1,000 VIPs; then fewer, and an API server that takes few writes."""
    bench.set_out(*_OLD)
    with a_wide_network(bench):
        yield _come_and_go(bench, f"{len(MANY)} VIPs come and go", MANY, CLAIMS_GONE_S)
        if bench.server.pace(_SLOW_WRITES_PER_S):
            text = f"{len(_FEWER)} VIPs with a server that takes {_SLOW_WRITES_PER_S} writes a second"
            yield _come_and_go(bench, text, _FEWER, CLAIMS_GONE_S)


def _come_and_go(bench: KubeBench, text: str, vips: Sequence[IPv4Address], gone_s: float) -> Step:
    """The old VIPs are asked for all the time, and every answer is recorded."""
    before_s = [bench.agent(host).cpu_s() for host in bench.nodes]

    with bench.watch(_OLD, _INTERVAL_S) as watch:
        began_s = time.monotonic()
        for name, some in services_of(vips).items():
            bench.publish(name, some)
        owned_s = _until(lambda: _claims(bench, held=True) >= len(vips) + len(_OLD), began_s)
        bench.settle(vips, limit_s=_PATIENCE_S)

        gone_from_s = time.monotonic()
        for name in services_of(vips):
            bench.withdraw(name)
        left_s = _until(lambda: _claims(bench) <= len(_OLD), gone_from_s)

    used_s = sum(bench.agent(host).cpu_s() for host in bench.nodes) - sum(before_s)
    bench.check_against_journal(watch)
    lost = {each: watch.stream.lost(each) for each in _OLD}
    silences = Spread.of([watch.stream.silence(each).length_ns for each in _OLD])

    return bench.one_answers(
        f"{text}: the other VIPs lose no request",
        _OLD[0],
        owned_after_s=round(owned_s, 1),
        claims_gone_after_s=round(left_s, 1),
        no_claim_left_in_time=left_s < gone_s,
        agents_cpu_ms_per_vip=round(1000 * used_s / len(vips), 1),
        lost=sum(lost.values()),
        longest_silence_ms=silences.worst_ms,
        none_lost=not any(lost.values()),
        **watch.facts(),
    )


def _claims(bench: KubeBench, *, held: bool = False) -> int:
    """How many claims there are; `held`: that name a node."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{bench.home}/leases"
    items = bench.server.api.get(path)["items"]
    found = [item for item in items if item["metadata"]["name"].startswith("vip.")]
    return sum(bool(item["spec"].get("holderIdentity")) for item in found) if held else len(found)


def _until(holds: Callable[[], bool], since_s: float) -> float:
    """Seconds until something holds."""
    patience = Patience(_PATIENCE_S)
    while not holds():
        if patience.is_over:
            raise DataPlaneError(f"after {_PATIENCE_S:g} s the claims are still not as expected")
        time.sleep(_POLL_S)
    return time.monotonic() - since_s
