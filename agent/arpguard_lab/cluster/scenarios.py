"""The table of scenarios with Kubernetes, and the one about elections in peace."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from arpguard_lab.bench import Step
from arpguard_lab.cluster import (
    burst,
    crashes,
    follow,
    planned,
    refused,
    unknown,
    vouched,
    vouched_deaths,
    vouched_default,
    vouched_outages,
)
from arpguard_lab.cluster.bench import OFF, KubeBench, vip

_FEW = [vip(50 + number) for number in range(10)]
_REST_S = 8.0


def _elect(bench: KubeBench) -> Iterator[Step]:
    bench.set_out(*_FEW)
    with bench.watch(_FEW) as watch:
        at_rest = _at_rest(bench)
    bench.check_against_journal(watch)
    yield _spread(bench, f"{len(_FEW)} VIPs of a Service", _FEW, **at_rest, **watch.facts())


def _load(bench: KubeBench) -> Iterator[Step]:
    services = burst.services_of(burst.MANY)
    with burst.a_wide_network(bench):
        began = time.monotonic()
        for name, vips in services.items():
            bench.publish(name, vips)
        bench.settle(burst.MANY)
        took_s = time.monotonic() - began
        _until_quiet(bench)
        facts = {"settled_after_ms": round(took_s * 1000), **_at_rest(bench)}
        yield _spread(bench, f"{len(burst.MANY)} VIPs of {len(services)} Services", burst.MANY, **facts)


def _spread(bench: KubeBench, text: str, vips: list[IPv4Address], **facts: object) -> Step:
    """Whether exactly one node answers for each of some VIPs, and how many each node has."""
    found = bench.who_in_the_end(vips, lambda _, macs: bool(macs))
    single = [min(macs) for macs in found.values() if len(macs) == 1]
    counts = Counter(bench.lab.who(mac) for mac in single)
    shares = {f"on_{host.name.replace('-', '_')}": counts[host.name] for host in bench.nodes}
    return bench.step(
        f"{text}: exactly one node answers for each",
        vips[0],
        bench.nodes,
        single,
        vips=len(vips),
        exactly_one_each=len(single) == len(vips),
        **shares,
        **facts,
    )


def _at_rest(bench: KubeBench) -> dict[str, object]:
    """API writes while nothing changes, by the server's own counters; nothing where nobody counts."""
    before, claims, began_s = bench.server.writes(), bench.server.claim_writes(), time.monotonic()
    reads = bench.server.reads()
    time.sleep(_REST_S)
    after, took_s = bench.server.writes(), time.monotonic() - began_s
    if not after:
        return {}
    rates = [(after[name] - before[name]) / took_s for name in after]
    polls = bench.server.reads() - reads
    return {
        "writes_per_node_and_100_s": round(100 * max(rates)),
        "one_write_per_second_at_most": max(rates) <= 1.0 + 1.5 / took_s,
        "claim_writes": bench.server.claim_writes() - claims,
        "reads": polls,
    }


def _until_quiet(bench: KubeBench, limit_s: float = 60.0) -> None:
    """Until no claim was written for some seconds, where that is known."""
    deadline, quiet_since, before = time.monotonic() + limit_s, time.monotonic(), bench.server.claim_writes()
    while time.monotonic() - quiet_since < 3.0 and time.monotonic() < deadline:
        time.sleep(0.5)
        claims = bench.server.claim_writes()
        if claims != before:
            quiet_since, before = time.monotonic(), claims


@dataclass(frozen=True, slots=True)
class KubeScenario:
    """What it shows, and its steps; `lease`: as in KubeBench."""

    summary: str
    run: Callable[[KubeBench], Iterator[Step]]
    lease: str = OFF
    own_server: bool = False  # it writes where nothing of the lab belongs on another API server


def _vouching(summary: str, run: Callable[[KubeBench], Iterator[Step]]) -> KubeScenario:
    return KubeScenario(f"vouching: {summary}", run, vouched.LEASE)


SCENARIOS: dict[str, KubeScenario] = {
    "elect": KubeScenario(
        "VIPs of a Service: exactly one node answers for each; the API server's load at rest", _elect
    ),
    "load": KubeScenario("the same with 1,000 VIPs", _load),
    "burst": KubeScenario("1,000 VIPs come and go together: the other VIPs lose no request", burst.run_burst),
    "new-service": KubeScenario(
        "closed ranges, a VIP bound on every node: one node answers from the first request on", unknown.run_new_service
    ),
    "kill": KubeScenario("the owner's node dies: another node answers within 4 s", crashes.run_kill),
    "hang": KubeScenario(
        "the owner's agent hangs: its kernel falls silent before another node answers", crashes.run_hang
    ),
    "partition": KubeScenario(
        "the owner is cut off from the API server, but not from the LAN: the same", crashes.run_partition
    ),
    "api-down": KubeScenario(
        "no API server: answers end, except for VIPs with hold; all VIPs are back within 2 s", crashes.run_api_down
    ),
    "drain": KubeScenario(
        "an owner that is cordoned, not ready or excluded hands over within 50 ms", planned.run_drain
    ),
    "rolling-update": KubeScenario(
        "agents replaced: no request lost; DaemonSet deleted: no guard left", planned.run_rolling_update
    ),
    "bad-image": KubeScenario(
        "the next agent does not start, or never comes: VIPs are silent for 3 s at most", planned.run_bad_image
    ),
    "toggle": KubeScenario(
        "the ConfigMap switches between observe and enforce, live; a wrong edit changes nothing", planned.run_toggle
    ),
    "node-ip": KubeScenario("an externalIP that is a node's own address is left to the node", refused.run_node_ip),
    "taken-outside": KubeScenario(
        "an externalIP that a host outside has is left to that host", refused.run_taken_outside
    ),
    "follow-metallb": KubeScenario(
        "two speakers answer: the one that MetalLB's status names gets through", follow.run_metallb, own_server=True
    ),
    "follow-kube-vip": KubeScenario(
        "two nodes have the address: the one that kube-vip names gets through", follow.run_kube_vip
    ),
    "node-dies": _vouching("the owner's node dies, another node answers within 1.5 s", vouched_deaths.run_node_dies),
    "voucher-dies": _vouching("an owner's voucher dies: the owner loses no request", vouched_deaths.run_voucher_dies),
    "both-die": _vouching(
        "an owner dies with its voucher: another node answers within 3 s", vouched_deaths.run_both_die
    ),
    "ring-of-three": _vouching(
        "three nodes are partitioned, then two die: the third answers within 3 s",
        vouched_deaths.run_ring_of_three,
    ),
    "lan-dead": _vouching(
        "the owner's LAN is dead, its link up: another node answers within 3 s",
        vouched_deaths.run_lan_dead,
    ),
    "voucher-deaf": _vouching(
        "an owner's voucher receives nothing: the owner keeps its VIPs",
        vouched_deaths.run_voucher_deaf,
    ),
    "lan-mute": _vouching(
        "the owner hears the LAN, but is not heard: another answers within 3 s",
        vouched_deaths.run_lan_mute,
    ),
    "vouched-by-default": KubeScenario(
        "vouching: nothing is configured, a node dies, another node answers within 2 s",
        vouched_default.run_default,
        lease="",
    ),
    "no-right-to-vouch": KubeScenario(
        "vouching: without the right to the Secret, a dead node is replaced as without vouching",
        vouched_default.run_no_right,
        lease="",
    ),
    "api-away": _vouching("no API server for 40 s, and no node falls silent", vouched_outages.run_api_away),
    "api-away-60s": _vouching(
        "no API server for 60 s: no node falls silent within 48 s, all answer within 3 s afterwards",
        vouched_outages.run_api_away_60s,
    ),
    "api-rolling": _vouching(
        "the API server restarts five times for 8 s: no node falls silent", vouched_outages.run_api_rolling
    ),
    "api-away-and-node-dies": _vouching(
        "a node dies while the API server is unreachable: it is replaced once the server is back",
        vouched_outages.run_api_away_and_node_dies,
    ),
    "agent-killed": _vouching(
        "an agent is killed, and starts after 20 s; its node keeps answering", vouched_outages.run_agent_killed
    ),
    "vouched-update": _vouching("agents restarted and replaced, no request lost", vouched_outages.run_update),
    "upgrade": KubeScenario(
        "vouching: agents switch to it one after the other, no request lost", vouched_outages.run_upgrade
    ),
    "etp-local": KubeScenario(
        "externalTrafficPolicy Local: only nodes with ready endpoints answer", planned.run_etp_local
    ),
}
