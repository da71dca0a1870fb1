"""An agent among 1,000 nodes that vouch for each other, with 1,000 VIPs: what it hears, what that costs, and a death.

Four of the nodes are real, in the lab (arpguard_lab), and have twelve of the VIPs. The others are Leases in the lab's
API server, written here as agents write theirs: a heartbeat for each every 12 s, bound to the next one, and a claim.
They are on another network of the same link, so the real nodes vouch for each other, which they do before the others
come. In `shown` their renewals are as those of agents that all watch everything; in `quiet` as those of agents now. CPU
is that of one real agent, without its voucher's process (`vouching`).
"""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from statistics import median
from uuid import UUID

from deaths import LEFT
from labs import a_lab
from report import Row, Section

from arpguard.addresses import MacAddress
from arpguard.core.leasetimes import BOUND_NS
from arpguard.core.ownership.lease import RENEWALS_IN_BOUND_LEASE
from arpguard.core.ownership.records import NamedVoucher, Published, PublishedLink, WriteClaim, WriteHeartbeat
from arpguard.kube import claims
from arpguard.kube.writer import LeaseContent, micro_time
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench
from arpguard_lab.cluster.kubeapi import MERGE_PATCH, KubeApi
from arpguard_lab.cluster.scene import a_bench
from arpguard_lab.cluster.vouched import LEASE, VIPS, an_owner, until_all_publish, until_bound
from arpguard_lab.cluster.vouched_deaths import Deaths
from arpguard_lab.topology import NETWORK6

TITLE = "members: an agent among 1,000 nodes that vouch for each other"
NODES, REAL = 1_000, 4
CPU, MEMORY_MB, DEATH_MS = 1.0, 100, 2_000
_INTERVAL_S = BOUND_NS / RENEWALS_IN_BOUND_LEASE / NS_PER_S
_PER_SERVICE = 100
_FIRSTS = [int(ip_address(f"{NETWORK6}::{block}:0")) for block in (1, 2)]  # of nodes, of VIPs
_LINK = PublishedLink("eth0", MacAddress.parse("02:00:00:00:ff:01"), (ip_network(f"{NETWORK6}::/64"),))


def measure(*, quick: bool = False) -> Section:
    """The section."""
    section = Section(TITLE)
    count, seconds = (100, 10.0) if quick else (NODES, 60.0)
    with a_lab(REAL) as lab, a_cluster(lab, count - REAL) as (bench, others):
        for quiet in (False, True):
            others.quiet = quiet
            _at_rest(section, bench, others, seconds)
        _deaths(section, bench, 1 if quick else REAL - LEFT)
    return section


@contextmanager
def a_cluster(lab, count: int) -> Iterator[tuple[KubeBench, "Others"]]:
    """The real nodes, bound to each other, among so many others."""
    with a_bench(lab, "members", lease=LEASE) as bench:
        until_all_publish(bench)
        bench.set_out(*VIPS)
        until_bound(bench)
        others = Others(bench, count)
        others.create()
        with others.renewing():
            yield bench, others


class Others:
    """Nodes of which there are Leases alone. `quiet`: how they renew."""

    def __init__(self, bench: KubeBench, count: int) -> None:
        self._api: KubeApi = bench.server.api
        self._home = bench.home
        self._names = [f"other-{number}" for number in range(count)]
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{bench.home}/leases"
        self._over = threading.Event()
        self.quiet = False
        self.late_s = 0.0

    def create(self) -> None:
        """Their Nodes, Services, heartbeats and claims."""
        addresses, vips = ([ip_address(first + number) for number in range(len(self._names))] for first in _FIRSTS)
        with self._api.connected() as ask:
            for number, (name, address, vip) in enumerate(zip(self._names, addresses, vips, strict=True)):
                claim = WriteClaim(vip, name, _uuid("epoch", number), None)
                ask("POST", "/api/v1/nodes", objects.node(name, address))
                ask("POST", self._leases, self._body(claims.node_lease_name(name), self._heartbeat(number)))
                ask("POST", self._leases, self._body(claims.lease_name(vip), claims.claim_content(claim)))
            for at in range(0, len(vips), _PER_SERVICE):
                service = objects.service(self._home, f"others-{at}", vips[at : at + _PER_SERVICE])
                ask("POST", f"/api/v1/namespaces/{self._home}/services", service)

    def _heartbeat(self, number: int) -> LeaseContent:
        following = (number + 1) % len(self._names)
        ids = [_uuid(kind, following) for kind in ("instance", "epoch")]
        voucher = NamedVoucher(self._names[following], *ids, _uuid("term", number), NS_PER_S, 400 * NS_PER_MS)
        own = _uuid("epoch", number), _uuid("instance", number)
        sent = WriteHeartbeat(self._names[number], *own, None, BOUND_NS, voucher, bound=True, quiet=self.quiet)
        return claims.heartbeat_content(sent, Published((_LINK,)))

    def _body(self, name: str, content: LeaseContent) -> dict:
        metadata = {"name": name, "labels": dict(content.labels), "annotations": dict(content.annotations)}
        metadata |= {"finalizers": list(content.finalizers)} if content.finalizers else {}
        spec = {"holderIdentity": content.holder, "leaseDurationSeconds": content.duration_s}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Each renews once in an interval, one after the other."""
        renewing = threading.Thread(target=self._renew)
        renewing.start()
        try:
            yield
        finally:
            self._over.set()
            renewing.join()

    def _renew(self) -> None:
        began, sent = time.monotonic(), 0
        with self._api.connected() as ask:
            while not self._over.wait(max(0.0, began + sent * _INTERVAL_S / len(self._names) - time.monotonic())):
                number = sent % len(self._names)
                path = f"{self._leases}/{claims.node_lease_name(self._names[number])}"
                renewal = {"metadata": {"labels": dict(self._heartbeat(number).labels)}}
                ask("PATCH", path, renewal | {"spec": {"renewTime": micro_time(time.time_ns())}}, MERGE_PATCH)
                sent += 1
                self.late_s = time.monotonic() - began - sent * _INTERVAL_S / len(self._names)


def _uuid(kind: str, number: int) -> str:
    return str(UUID(int=(sum(kind.encode()) << 64) + number + 1))


def _at_rest(section: Section, bench: KubeBench, others: Others, seconds: float) -> None:
    """Of one real agent, once all renew in that way."""
    kind = "quiet" if others.quiet else "shown"
    time.sleep(2 * _INTERVAL_S)
    agent = bench.agent(bench.nodes[0])
    name = bench.server.node_name(bench.nodes[0])
    before_s, began_s, writes = agent.cpu_s(), time.monotonic(), bench.server.writes()
    events = _events(bench, claims.news_selector(name) if others.quiet else "", round(seconds))
    took_s = time.monotonic() - began_s
    cpu = 100 * (agent.cpu_s() - before_s) / took_s
    wrote = median(count - writes[node] for node, count in bench.server.writes().items()) / took_s

    section.add(Row(f"{kind}: events for one agent", [events / took_s], "1/s"))
    section.add(Row(f"{kind}: events for all agents, if all were real", [NODES * events / took_s], "1/s"))
    goal = (f"under {CPU}", cpu < CPU) if others.quiet else ("", None)
    section.add(Row(f"{kind}: CPU of one agent", [cpu], "%", *goal, note=f"others are {others.late_s:.1f} s late"))
    section.add(Row(f"{kind}: writes of one real node", [wrote], "1/s", "0.1 or less", wrote <= 0.1))
    rss_mb = agent.rss_kb() / 1024
    section.add(Row(f"{kind}: RSS", [rss_mb], "MB", f"under {MEMORY_MB}", rss_mb < MEMORY_MB))


def _events(bench: KubeBench, labels: str, seconds: int) -> int:
    """How many changes of Leases a watch shows in so many seconds."""
    api = bench.server.api
    path = f"/apis/coordination.k8s.io/v1/namespaces/{bench.home}/leases"
    version = api.get(f"{path}?limit=1")["metadata"]["resourceVersion"]
    query = f"watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
    query += f"&labelSelector={labels.replace(' ', '%20')}" if labels else ""
    connection = http.client.HTTPConnection(api._name, timeout=seconds + 60)
    with api._connect(api.address) as opened:
        opened.settimeout(seconds + 60)
        connection.sock = api._tls.wrap_socket(opened, server_hostname=api._name) if api._tls else opened
        connection.request("GET", f"{path}?{query}", headers={"Authorization": f"Bearer {api._token}"})
        return sum(json.loads(line)["type"] != "BOOKMARK" for line in connection.getresponse())


def _deaths(section: Section, bench: KubeBench, count: int) -> None:
    """Real nodes die, one after the other, until another one answers for all of their VIPs."""
    alive, taken_ms = list(bench.nodes), []
    with bench.watch(VIPS) as watch:
        for _ in range(count):
            until_bound(bench, alive)
            time.sleep(1.0)
            victim, deaths = an_owner(bench, alive), Deaths(bench, watch)
            deaths.die(victim.name, victim)
            alive.remove(victim)
            taken_ms.append(max(deaths.taken_ns) / NS_PER_MS)
    if watch.findings:
        raise RuntimeError(f"two nodes answered: {watch.findings[0]}")
    met = max(taken_ms) < DEATH_MS
    section.add(Row("all VIPs of a dead node are taken", taken_ms, "ms", f"under {DEATH_MS}", met, f"{count} deaths"))
