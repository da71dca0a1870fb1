"""An agent in a large cluster: memory, time until it is in sync, and from a changed Service to the kernel's map.

5,000 Services, a tenth of them with externalTrafficPolicy Local, and 10,000 EndpointSlices, on the lab's API server.
The agent is alone, so it claims all VIPs; it is measured when it is in sync, and again when it owns them all. Baselines
of the same run: an agent without Services, one client that only reads the same lists, and one that only watches.
"""

import ctypes
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory

from bed import a_namespace, a_pin_dir
from footprint import Memory, settle
from report import Row, Section

from arpguard.addresses import to_mapped
from arpguard.dataplane import syscall
from arpguard.dataplane.layout import EntryKeyStruct, EntryStruct
from arpguard_lab.netns import Netns

TITLE = "cluster: 5,000 Services, 10,000 EndpointSlices"
SERVICES, SLICES, LOCAL_EVERY = 5_000, 10_000, 10
EMPTY_MB, SYNCED_MB, OWNER_MB, SYNC_S, CHANGE_MS = 64, 130, 100, 10.0, 200
PORT = 6443
_LIMIT_S = 120.0
_CHANGES = 200
_FIRST_VIP, _FIRST_NEW = IPv4Address("10.20.16.0"), IPv4Address("10.20.64.0")
_NODE = "node-1"
_PAGE = 100


def _service(number: int, address: IPv4Address) -> dict:
    local = number % LOCAL_EVERY == 0
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"web-{number}", "namespace": "shop", "labels": {"app": f"web-{number}"}},
        "spec": {
            "type": "LoadBalancer",
            "ports": [{"port": 80}],
            "externalIPs": [str(address)],
            "externalTrafficPolicy": "Local" if local else "Cluster",
        },
    }


def _slice(number: int) -> dict:
    name = f"web-{number // 2}"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{name}-{number % 2}",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [f"10.9.{index}.{number % 256}"], "nodeName": _NODE, "conditions": {"ready": True}}
            for index in range(5)
        ],
    }


def _objects(services: int, slices: int) -> str:
    """YAML, of which JSON is a part."""
    node = {"conditions": [{"type": "Ready", "status": "True"}]}
    config = "mode: enforce\ninterfaces: [eth0]\nranges: [10.20.0.0/16]\nlease: {vouching: off}\n"
    found = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "arpguard"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": _NODE}, "status": node},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "arpguard", "namespace": "arpguard"},
            "data": {"config.yaml": config},
        },
    ]
    found += [_service(number, _FIRST_VIP + number) for number in range(services)]
    found += [_slice(number) for number in range(slices)]
    return "\n---\n".join(map(json.dumps, found))


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


@dataclass
class Cluster:
    """An API server in the node's namespace, over plain HTTP, and an agent that is started on demand."""

    netns: Netns
    folder: Path
    pin_dir: Path

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    @contextmanager
    def server(self, services: int, slices: int) -> Iterator[None]:
        objects = self.folder / "objects.yaml"
        objects.write_text(_objects(services, slices), encoding="utf-8")
        words = [sys.executable, "-m", "arpguard_lab.apiserver", "--http", "--listen", f"127.0.0.1:{PORT}"]
        words += ["--control", f"unix:{self.folder}/control", "--load", str(objects)]
        words += ["--client", f"{_NODE}=arpguard/arpguard", "--kubeconfigs", str(self.folder)]
        process = subprocess.Popen([*self.netns.prefix(), *words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the API server did not start")
            yield
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def agent(self) -> Iterator[tuple[int, float]]:
        """Its process, and the seconds until it was ready."""
        config = self.folder / "agent.yaml"
        config.write_text(
            f"bpf: {{pin_dir: {self.pin_dir}, max_entries: 16384}}\n"
            f'grpc: {{listen: ["unix://{self.folder}/api"]}}\nmetrics: {{listen: "off"}}\n',
            encoding="utf-8",
        )
        words = [sys.executable, "-m", "arpguard", "agent", "--config", str(config), "--node-name", _NODE]
        words += ["--configmap", "arpguard/arpguard", "--kubeconfig", str(self.folder / f"{_NODE}.yaml")]
        with (self.folder / "log").open("wb") as log:
            began = time.perf_counter()
            process = subprocess.Popen([*self.netns.prefix(), *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _wait(lambda: "ready:" in self.log, "the agent to be ready", pause_s=0.02)
            yield process.pid, time.perf_counter() - began
        finally:
            process.kill()
            process.wait()

    def change(self, number: int, address: IPv4Address) -> None:
        """Gives a Service another address."""
        connection = UnixConnection(self.folder / "control")
        connection.request("POST", "/control/load", json.dumps(_service(number, address)))
        connection.getresponse().read()
        connection.close()

    def connection(self) -> http.client.HTTPConnection:
        """One to the API server, from inside."""
        found = http.client.HTTPConnection("127.0.0.1", PORT)
        self.netns.call(found.connect)
        return found


def measure(*, quick: bool) -> Section:
    """The section."""
    changes = 30 if quick else _CHANGES
    section = Section(TITLE)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="arpguard-bench-")))
        cluster = Cluster(stack.enter_context(_a_node()), folder, stack.enter_context(a_pin_dir("cluster")))
        empty = Memory()
        with cluster.server(0, 0), cluster.agent() as (pid, _):
            settle(quick=quick)
            empty.add(pid)
        with cluster.server(SERVICES, SLICES):
            lists = _lists_s(cluster)
            _measure_agent(cluster, section, empty, lists, changes)
    return section


def _measure_agent(cluster: Cluster, section: Section, empty: Memory, lists_s: float, changes: int) -> None:
    synced, owner = Memory(), Memory()
    with cluster.agent() as (pid, took):
        synced.add(pid)
        _wait(lambda: cluster.log.count("owned:") >= SERVICES, "all VIPs to be owned", pause_s=1.0)
        owner.add(pid)
        seen, done = _changes(cluster, changes)
    for name, memory, goal_mb in (
        ("no Services", empty, EMPTY_MB),
        ("in sync", synced, SYNCED_MB),
        ("owner of all VIPs", owner, OWNER_MB),
    ):
        section.add(Row(f"RSS, {name}", memory.rss, "MB", f"under {goal_mb}", memory.rss[0] < goal_mb))
    section.add(Row("start to in sync", [took], "s", f"under {SYNC_S:g}", took < SYNC_S))
    section.add(Row("a bare client reads the lists", [lists_s], "s", note="without decoding"))
    section.add(Row("a bare watcher has a change", seen, "ms", note="the time of the server and of HTTP"))
    slowest = sorted(done)[int(len(done) * 0.99)]
    section.add(Row("the kernel has a change", done, "ms"))
    section.add(Row("the same, 99th percentile", [slowest], "ms", f"under {CHANGE_MS}", slowest < CHANGE_MS))


def _lists_s(cluster: Cluster) -> float:
    """Reads the lists in the agent's pages."""
    connection = cluster.connection()
    began = time.perf_counter()
    for path in ("/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices"):
        token = ""
        while True:
            connection.request("GET", f"{path}?limit={_PAGE}{token}")
            metadata = json.loads(connection.getresponse().read())["metadata"]
            if not metadata.get("continue"):
                break
            token = f"&continue={metadata['continue']}"
    return time.perf_counter() - began


def _changes(cluster: Cluster, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds from the order to a watcher, and to the kernel's map, of one Service after the other."""
    seen_at: dict[str, float] = {}
    connection = cluster.connection()
    connection.request("GET", "/api/v1/services?limit=1")
    version = json.loads(connection.getresponse().read())["metadata"]["resourceVersion"]
    connection.request("GET", f"/api/v1/services?watch=true&resourceVersion={version}")
    stream = connection.getresponse()

    def watch() -> None:
        try:
            for line in stream:
                seen_at.setdefault(json.loads(line)["object"]["spec"]["externalIPs"][0], time.perf_counter())
        except (OSError, ValueError, http.client.HTTPException, AttributeError):
            return  # it was closed

    threading.Thread(target=watch, daemon=True).start()  # until the server ends
    (path,) = cluster.pin_dir.glob("maps-*/entries")
    ifindex = _ifindex(cluster.netns)
    seen, done = [], []
    with syscall.obj_get(str(path)) as entries:
        for number in range(count):
            address = _FIRST_NEW + number
            key = bytes(EntryKeyStruct(ifindex=ifindex, addr=(ctypes.c_uint8 * 16)(*to_mapped(address))))
            began = time.perf_counter()
            cluster.change(number, address)
            _wait(lambda key=key: syscall.map_lookup(entries, key, ctypes.sizeof(EntryStruct)) is not None, "an entry")
            done.append((time.perf_counter() - began) * 1000)
            _wait(lambda address=address: str(address) in seen_at, "the watcher")
            seen.append((seen_at[str(address)] - began) * 1000)
    return seen, done


def _ifindex(netns: Netns) -> int:
    return int(json.loads(netns.run("ip", "-json", "link", "show", "eth0"))[0]["ifindex"])


def _wait(holds: Callable[[], bool], what: str, pause_s: float = 0.001) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {_LIMIT_S:g} s for {what}")
        time.sleep(pause_s)


@contextmanager
def _a_node() -> Iterator[Netns]:
    with a_namespace("cluster") as netns:
        netns.batch(
            [
                "link add eth0 type veth peer name port0",
                "link set eth0 up",
                "link set port0 up",
                "addr add 10.20.0.1/16 dev eth0",
            ]
        )
        yield netns
