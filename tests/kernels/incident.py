"""kube-proxy in IPVS mode on a guest's kernel: who answers for what it binds, without the guard and with it.

Runs in the guest, and talks to a control plane outside, which has the Nodes: `kernels.run` starts both.
"""

import json
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from arpguard.addresses import Address, MacAddress
from arpguard.errors import DataPlaneError
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.bench import KubeBench, vip
from arpguard_lab.cluster.kubeapi import KubeApi, connect_directly
from arpguard_lab.cluster.topology import API_ADDRESS, MANAGEMENT, KubeLab
from arpguard_lab.netns import command
from arpguard_lab.patience import Patience
from arpguard_lab.topology import Host, HostProcess
from neighbours.announcers import SHOP, node_of
from neighbours.controlplane import BINARIES
from neighbours.scene import NODES, Given, pins

Json = dict[str, Any]

EXTERNAL, INGRESS = vip(50), vip(51)
VIPS: Sequence[Address] = (EXTERNAL, INGRESS)
DEVICE = "kube-ipvs0"
_BACKEND_PORT = 8080
_CONNECTIONS = 6
_READY_S = 3600.0  # three agents at once, on an emulated processor: minutes, and more where others want the real one
_PATIENCE_S = 300.0
_CONNECT_S = 30.0
_COUNTED_S = 60.0
_INTERVAL_S = 0.1
# On an emulated processor an agent takes minutes to start, and renews late; who takes over from whom is not asked here.
_LEASE = "lease: {duration: 10m, renew: 5s, margin: 5s, vouching: off}"
_TIMES = 20
_DEVICES = f"dummy, NOARP: on {NODES} of {NODES} nodes"
# What the usual cure sets; with --ipvs-strict-arp kube-proxy would.
_ARP_SETTINGS = [
    f"net.ipv4.conf.{where}.{name}" for where in ("all", "eth0") for name in ("arp_ignore", "arp_announce")
]
_MODULES = ("nf_conntrack", "ip_vs", "ip_vs_rr")  # which kube-proxy expects to find
_ANSWER = (
    "import socket, sys\n"
    "listener = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "print('ready:', flush=True)\n"
    "while True:\n"
    "    with listener.accept()[0] as connection:\n"
    "        connection.sendall(sys.argv[3].encode())\n"
)


@dataclass(frozen=True)
class Row:
    """One step: what is expected, what was found, and whether that will do."""

    done: str
    expected: str
    found: str
    holds: bool


class GuestLab(KubeLab):
    """The lab inside a guest; the host is at API_ADDRESS, behind the guest's eth0."""

    def _build(self) -> None:
        super()._build()
        moved = [f"addr del {API_ADDRESS}/24 dev mgmt0", f"addr add {MANAGEMENT}.253/24 dev mgmt0"]
        self.api.batch(moved)
        command("ip", "link", "set", "eth0", "netns", self.switch.name)
        self.switch.batch(["link set eth0 master br1 up"])


class KubeProxy(HostProcess):
    """The real one, on a node."""

    def __init__(self, host: Host, folder: Path) -> None:
        super().__init__(host, folder, "kube-proxy")
        self._kubeconfig = folder / "kube-proxy.kubeconfig"

    def words(self) -> list[str]:
        options = {
            "kubeconfig": self._kubeconfig,
            "hostname-override": node_of(self.host),
            "proxy-mode": "ipvs",
            "conntrack-max-per-core": 0,  # that limit is the machine's, not the namespace's
            "conntrack-min": 0,
        }
        return [str(BINARIES / "kube-proxy"), *(f"--{name}={value}" for name, value in options.items())]


class Backend(HostProcess):
    """What the Services lead to: tells which node it is on."""

    def __init__(self, host: Host, folder: Path) -> None:
        super().__init__(host, folder, "backend")

    def words(self) -> list[str]:
        return [sys.executable, "-c", _ANSWER, str(self.host.address), str(_BACKEND_PORT), self.host.name]


class Incident(KubeBench):
    """Three nodes with kube-proxy, backends and, once they are started, agents."""

    def __init__(self, lab: KubeLab, server: Given, shared: Path) -> None:
        super().__init__(lab, server, "kube-proxy")
        self._shared = shared
        self.proxies = {host.name: lab.program(KubeProxy(host, shared)) for host in lab.nodes}

    def begin(self) -> None:
        """Services, backends and kube-proxies; no agents."""
        for host in self.nodes:
            self.lab.program(Backend(host, self._shared)).start()
        self._make_services()
        for proxy in self.proxies.values():
            proxy.start()
        self.until(self.all_bound, _PATIENCE_S, "all VIPs are bound")

    def _make_services(self) -> None:
        services = f"/api/v1/namespaces/{SHOP}/services"
        self.server.api.create(services, _to_backends(objects.service(SHOP, "external", [EXTERNAL])))
        self.server.api.create(services, _to_backends(objects.load_balancer(SHOP, "ingress")))
        self.server.api.patch(f"{services}/ingress/status", {"status": objects.ingress(INGRESS)})
        for name in ("external", "ingress"):
            path = f"/apis/discovery.k8s.io/v1/namespaces/{SHOP}/endpointslices"
            self.server.api.create(path, _slice(name, self.nodes))

    def guard(self) -> None:
        """Starts the agents, which elect an owner for each VIP."""
        self.configure("\n".join(["mode: enforce", "interfaces: [eth0]", f"ranges: [{EXTERNAL}/31]", _LEASE]))
        for host in self.nodes:
            agent = self.agent(host)
            agent.kubeconfig = self._shared / f"{host.name}-agent.kubeconfig"
            agent.log = self._shared / agent.log.name
            self.prepare(host)
            agent.start()
        for host in self.nodes:
            self.agent(host).wait_for(timeout_s=_READY_S)
        self.owners()

    # ---- looking ----

    def bound(self, host: Host) -> set[IPv4Address]:
        """The VIPs on kube-proxy's own device of a node."""
        links = json.loads(host.netns.run("ip", "-json", "address", "show"))
        addresses = [each for link in links if link["ifname"] == DEVICE for each in link["addr_info"]]
        return {IPv4Address(each["local"]) for each in addresses} & set(VIPS)  # type: ignore[arg-type]

    def all_bound(self) -> bool:
        """Whether all VIPs are on all nodes; DataPlaneError when a kube-proxy has ended."""
        for proxy in self.proxies.values():
            if proxy.has_failed:
                raise DataPlaneError(f"{proxy.name} of {proxy.host.name} has ended: {proxy.said()[-500:]}")
        return all(self.bound(host) == set(VIPS) for host in self.nodes)

    def devices(self) -> str:
        """What kube-proxy made on the nodes, how its link is, and on how many nodes it has all VIPs."""
        words = ("ip", "-json", "-details", "link", "show", DEVICE)
        shown = [json.loads(host.netns.run(*words))[0] for host in self.nodes]
        kinds = {f"{each['linkinfo']['info_kind']}, {'NOARP' if 'NOARP' in each['flags'] else 'ARP'}" for each in shown}
        count = sum(self.bound(host) == set(VIPS) for host in self.nodes)
        return f"{'; '.join(sorted(kinds))}: on {count} of {NODES} nodes"

    def arp_settings(self) -> str:
        """The values that arp_ignore and arp_announce have, on all nodes."""
        texts = [host.netns.run("sysctl", "-n", *_ARP_SETTINGS) for host in self.nodes]
        return ", ".join(sorted({number for text in texts for number in text.split()}))

    def answerers(self, address: Address) -> list[str]:
        """All who answer for a VIP when it is asked for many times: on a busy machine answers may come late."""
        return sorted({self.lab.who(mac) for _ in range(_TIMES) for mac in self.who(address)[address]})

    def answers(self) -> str:
        """The same for both."""
        return "; ".join(f"{address}: {', '.join(self.answerers(address)) or 'nobody'}" for address in VIPS)

    def owners(self) -> dict[Address, Host]:
        """The one node that answers, of each VIP."""
        macs: dict[Address, list[MacAddress]] = {}

        def are_alone() -> bool:
            macs.update(self.who(*VIPS))
            return all(len(each) == 1 for each in macs.values())

        self.until(are_alone, _PATIENCE_S, "one node answers for each VIP")
        return {address: self.host_of(each[0]) for address, each in macs.items()}

    def connect(self, address: Address) -> str:
        """Which backend is at the other end of a TCP connection of the client's to a VIP; "" for none."""

        def ask() -> str:
            with socket.create_connection((str(address), 80), _CONNECT_S) as connection:
                return connection.recv(100).decode()

        self.lab.client.netns.run("ip", "neigh", "flush", "all")
        try:
            return self.lab.client.netns.call(ask)
        except OSError:
            return ""

    def scheduled(self) -> dict[Host, int]:
        """How many connections each node's IPVS has had."""
        texts = {host: host.netns.run("cat", "/proc/net/ip_vs_stats") for host in self.nodes}
        return {host: int(text.splitlines()[2].split()[0], 16) for host, text in texts.items()}

    def scheduled_after(self, before: dict[Host, int], many: int) -> dict[Host, int]:
        """The same once so many more are counted: the kernel updates these totals every two seconds (ip_vs_est.c)."""
        patience = Patience(_COUNTED_S)
        while sum((counted := self.scheduled()).values()) < sum(before.values()) + many and not patience.is_over:
            time.sleep(_INTERVAL_S)
        return counted


def run(bench: Incident) -> Iterator[Row]:
    """What is done, one thing after another."""
    everybody = ", ".join(host.name for host in bench.nodes)
    all_answer = "; ".join(f"{address}: {everybody}" for address in VIPS)
    bench.begin()
    yield equal("kube-proxy binds both VIPs on every node", _DEVICES, bench.devices())
    yield equal(
        "`arp_ignore` and `arp_announce` on the nodes, which kube-proxy does not change", "0", bench.arp_settings()
    )
    yield equal("which nodes answer without the guard", all_answer, bench.answers())
    bench.guard()
    yield guarded(bench)
    yield equal("what kube-proxy has bound, with the guard", _DEVICES, bench.devices())
    yield equal("`arp_ignore` and `arp_announce`, with the guard", "0", bench.arp_settings())
    yield connections(bench)
    yield from restarts(bench)
    for host in bench.nodes:
        bench.agent(host).kill(signal.SIGTERM)
        bench.agent(host).remove_guard()
    yield equal("`arpguard cleanup` on every node", all_answer, bench.answers())


def equal(done: str, expected: str, found: str) -> Row:
    """A row that holds when what was found is what was expected."""
    return Row(done, expected, found, holds=found == expected)


def guarded(bench: Incident) -> Row:
    """Who answers with the guard."""
    found = {address: bench.answerers(address) for address in VIPS}
    text = "; ".join(f"{address}: {', '.join(names)}" for address, names in found.items())
    return Row(
        "which nodes answer with the guard",
        "one node for each VIP",
        text,
        all(len(each) == 1 for each in found.values()),
    )


def connections(bench: Incident) -> Row:
    """TCP through the owners' IPVS, each connection after a request by ARP."""
    owners, before = bench.owners(), bench.scheduled()
    backends = [bench.connect(address) for address in VIPS for _ in range(_CONNECTIONS)]
    answered = sum(map(bool, backends))
    counted = bench.scheduled_after(before, answered)
    through = {host.name for host, count in counted.items() if count > before[host]}
    text = f"{answered} of {len(backends)}, through {', '.join(sorted(through))}, to {len({*backends} - {''})} backends"
    holds = answered == len(backends) and through == {host.name for host in owners.values()}
    return Row(f"{len(backends)} TCP connections", "all, through the IPVS of the owners alone", text, holds)


def restarts(bench: Incident) -> Iterator[Row]:
    """Agents and a kube-proxy that end and start again, under the eyes of a client."""
    owners = bench.owners()
    resting = next(host for host in bench.nodes if host not in owners.values())
    owner = owners[EXTERNAL]

    def agent_again(host: Host) -> None:
        bench.agent(host).kill(signal.SIGTERM)
        bench.agent(host).start()
        bench.agent(host).wait_for(timeout_s=_READY_S)

    def proxy_again(host: Host) -> None:
        proxy = bench.proxies[host.name]
        proxy.kill(signal.SIGTERM)
        proxy.start()
        proxy.wait_for("Using ipvs", _PATIENCE_S)

    yield watched(bench, "the agent of the node without a VIP ends and starts again", lambda: agent_again(resting))
    yield watched(bench, "an owner's agent ends and starts again", lambda: agent_again(owner))
    yield watched(bench, "an owner's kube-proxy ends and starts again", lambda: proxy_again(owner))


def watched(bench: Incident, done: str, action: Callable[[], None]) -> Row:
    """Something that must not make two nodes answer, nor move a VIP, nor silence it."""
    before = bench.owners()
    with bench.watch(VIPS, _INTERVAL_S) as watch:
        action()
        after = bench.owners()
    moved = sum(after[address] is not before[address] for address in VIPS)
    lost = sum(watch.stream.lost(address) for address in VIPS)
    text = f"{lost} of {watch.sent} requests lost, {len(watch.findings)} answered by two; {moved} moved"
    holds = not (watch.findings or watch.drops or moved or lost) and bench.devices() == _DEVICES
    return Row(done, "one answer to each request, from the same node; kube-proxy's VIPs stay bound", text, holds)


def _to_backends(service: Json) -> Json:
    service["spec"]["ports"][0]["targetPort"] = _BACKEND_PORT
    return service


def _slice(name: str, hosts: Sequence[Host]) -> Json:
    """An EndpointSlice with a backend on each node."""
    endpoints = [
        {"addresses": [str(host.address)], "conditions": {"ready": True}, "nodeName": node_of(host)} for host in hosts
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": SHOP, "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"port": _BACKEND_PORT, "protocol": "TCP", "name": ""}],
    }


def main() -> None:
    """Writes `result.json` and the logs into the folder that is given."""
    shared = Path(sys.argv[1])
    document = yaml.safe_load((shared / "admin.kubeconfig").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, pins() as pin_root:
        command("modprobe", "--all", *_MODULES)
        with GuestLab(NODES, Path(folder), pin_root) as lab:
            api = KubeApi(document, lambda address: lab.api.call(lambda: connect_directly(address)))
            rows = []
            for row in run(Incident(lab, Given(lab, api), shared)):
                rows.append(asdict(row))
                print(time.strftime("%T"), row, flush=True)
    (shared / "result.json").write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
