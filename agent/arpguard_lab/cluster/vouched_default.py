"""Agents whose configuration says nothing of vouching, with the rights of the manifests, and without those."""

import time
from collections.abc import Iterator

from arpguard_lab.bench import Step
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.vouched import VIPS, an_owner, begin, until_all_publish
from arpguard_lab.cluster.vouched_deaths import Deaths

_WORST_MS = 2000  # with the slowest profile, which a virtual machine has; without vouching no node answers so soon
_LEASE_WORST_MS = 4000
_REST_S = 8.0
_READS = 4  # of each agent, until that is over


def run_default(bench: KubeBench) -> Iterator[Step]:
    """An owner's node dies."""
    yield from begin(bench)

    with bench.watch(VIPS) as watch:
        deaths, victim = Deaths(bench, watch), an_owner(bench)
        yield deaths.die(f"{victim.name} dies", victim)
    yield deaths.verdict("vouching without any configuration", _WORST_MS)


def run_no_right(bench: KubeBench) -> Iterator[Step]:
    """The same; beforehand the agents ask for the Secret in vain."""
    bench.forbid_secret()  # before they ask for it, which they do once there are VIPs
    before = bench.server.secret_reads()
    until_all_publish(bench)
    bench.set_out(*VIPS)
    time.sleep(_REST_S)
    reads = bench.server.secret_reads() - before

    with bench.watch(VIPS) as watch:
        deaths, victim = Deaths(bench, watch), an_owner(bench)
        yield deaths.die(f"{victim.name} dies", victim)
    few = 0 < reads <= _READS * len(bench.nodes)
    bound = sum(bench.agent(host).is_bound() for host in bench.nodes)
    facts = {"secret_reads": reads, "hardly_asked": few, "bound": bound, "none_bound": not bound}
    yield deaths.verdict("no right to the Secret, so no node vouches", _LEASE_WORST_MS, **facts)
