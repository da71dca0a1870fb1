"""What the audit costs agents, and how soon it finds a silent rogue: 1,000 VIPs on three nodes.

Each agent's CPU for a whole period, without the audit and with it, in one lab. Then a host answers everybody who asks
for any of the VIPs, by unicast, and announces nothing: how long until the audit has found it on every VIP.
"""

import re
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from statistics import median

from labs import a_lab
from report import Row, Section

from arpguard.addresses import MacAddress
from arpguard_lab.bench import until
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.burst import MANY, a_wide_network, services_of
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.topology import KubeLab
from arpguard_lab.topology import Host
from support.netns.rogue import a_rogue

TITLE = "audit: 1,000 VIPs on three nodes, CPU of each agent, and a rogue that answers for all of them"
NODES = 3
CPU_PERCENT = 0.5
_PERIOD_S, _QUICK_PERIOD_S, _QUICK_VIPS = 60, 15, 60
_SETTLE_S, _QUIET_S, _LATE_S = 120.0, 5.0, 30.0
_ROGUE = MacAddress.parse("02:00:00:00:00:99")
_METRICS = "http://127.0.0.1:9469/metrics"


def measure(*, quick: bool = False) -> Section:
    """The section."""
    vips, period_s = (MANY[:_QUICK_VIPS], _QUICK_PERIOD_S) if quick else (MANY, _PERIOD_S)
    with a_lab(NODES) as lab:
        with _audited(lab, vips, "off") as bench:
            without = _cpu_percent(bench, period_s)
        with _audited(lab, vips, f"{period_s}s") as bench:
            audited = _cpu_percent(bench, period_s)
            found_s = _found_s(bench, vips, period_s)

    cost = [after - before for before, after in zip(without, audited, strict=True)]
    section = Section(TITLE)
    section.add(Row("an agent without the audit", without, "%"))
    section.add(Row(f"an agent with every: {period_s}s", audited, "%"))
    section.add(Row("the difference", cost, "%", f"under {CPU_PERCENT:g}", median(cost) < CPU_PERCENT))
    note = f"{len(vips):,} VIPs"
    section.add(Row("a rogue is found on every VIP", [found_s], "s", f"under {period_s}", found_s < period_s, note))
    return section


@contextmanager
def _audited(lab: KubeLab, vips: Sequence[IPv4Address], every: str) -> Iterator[KubeBench]:
    """Agents with VIPs that have settled."""
    with a_bench(lab, "audit", f"audit: {{every: {every}}}") as bench, a_wide_network(bench):
        for name, some in services_of(vips).items():
            bench.publish(name, some)
        bench.settle(vips, limit_s=_SETTLE_S)
        time.sleep(_QUIET_S)
        yield bench


def _cpu_percent(bench: KubeBench, seconds: float) -> list[float]:
    """Of a core, of each agent, for so long."""
    agents = [bench.agent(host) for host in bench.nodes]
    before_s, began_s = [agent.cpu_s() for agent in agents], time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    return [100 * (agent.cpu_s() - earlier_s) / took_s for agent, earlier_s in zip(agents, before_s, strict=True)]


def _found_s(bench: KubeBench, vips: Sequence[IPv4Address], period_s: float) -> float:
    """How long a rogue answers until all its VIPs are known to have several answers."""
    with a_rogue(bench.lab.client.netns, set(vips), _ROGUE):
        return until(
            lambda: sum(_doubled(host) for host in bench.nodes) == len(vips),
            period_s + _LATE_S,
            "the rogue is found on every VIP",
        )


def _doubled(host: Host) -> int:
    """The VIPs for which several hosts answered, by a node's audit."""
    text = host.netns.call(lambda: urllib.request.urlopen(_METRICS, timeout=10).read().decode())
    (count,) = re.findall(r'^arpguard_audited_vips{finding="several"} (\S+)$', text, re.MULTILINE)
    return int(float(count))
