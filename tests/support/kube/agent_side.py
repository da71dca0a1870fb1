"""An agent's side towards Kubernetes, as the agent runs it, against an API server over real HTTP; the kernel is a
Recorder, and nobody but `strangers` is on the segment."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

from arpguard.addresses import Address, MacAddress
from arpguard.clock import boot_ns
from arpguard.core.announcing import AnnouncementSchedule
from arpguard.core.decisions import ConflictLog
from arpguard.kube.connecting import find_access
from arpguard.model import Decision, EntryKey, InterfaceAddress, Link, Surroundings, VipEntry
from arpguard.runtime.cluster.kubernetes import Kubernetes
from arpguard.runtime.cluster.member import Membership
from arpguard.runtime.cluster.objects import AgentIdentity
from arpguard.runtime.conflicts import Conflicts
from arpguard.runtime.kernel.reconciler import Reconciler
from arpguard.runtime.settings import Settings
from arpguard.runtime.waking import Alarm
from arpguard.verdict import Kind
from arpguard_lab.apiserver.embedded import Embedded
from arpguard_lab.cluster import objects
from support.kube.plain_http import Api, counted
from support.kube.scripted_server import until
from support.netns.waiting import HUNG_S
from support.programs.recorder import Control, Entries, Ranges, Recorder, Vouching

HOME = "arpguard"
CONFIGMAP = "config"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
LINK = "lab0"
CONFIG = (
    "{mode: enforce, interfaces: [lab0], ranges: [192.0.2.0/24], services: {owner: elect},"
    " lease: {duration: 3s, renew: 500ms, margin: 1s, vouching: off}}"
)
PASS_S = 0.5


def vip(number: int) -> IPv4Address:
    return IPv4Address("192.0.2.0") + number


def mac_of(number: int) -> MacAddress:
    return MacAddress(bytes((2, 0, 0, 0, 0, number)))


def number_of(node: str) -> int:
    return int(node.rpartition("-")[2])


def a_link(number: int) -> Link:
    own = ip_interface(f"192.0.2.{number}/24")
    return Link(2, LINK, mac_of(number), up=True, addresses=(InterfaceAddress(own.ip, own.network),))


class Cable(Recorder):
    """One node's kernel, which outlives its agents."""

    def __init__(self) -> None:
        super().__init__()
        self.room = 1000
        self.fences: list[tuple[int, int, int, int]] = []

    def write_control(self, control):
        super().write_control(control)
        seen = (control.epoch, control.fence_ns, control.lease_ns)
        if not self.fences or self.fences[-1][:3] != seen:
            self.fences.append((*seen, boot_ns()))

    def entry(self, address: Address) -> VipEntry | None:
        return self.entries.get(EntryKey(2, address))

    def kind(self, address: Address) -> Kind | None:
        entry = self.entry(address)
        return entry.kind if entry else None

    def owned(self) -> set[Address]:
        return {key.vip for key, entry in self.entries.items() if entry.kind is Kind.OWNED}


class Segment:
    """Stands for the prober: hosts that answer without a guard, by address."""

    strangers: dict[Address, MacAddress] = {}  # noqa: RUF012 - one segment for all
    asked: list[Address] = []  # noqa: RUF012
    asked_on: list[str] = []  # noqa: RUF012

    def __init__(self, is_ours) -> None:
        self._is_ours = is_ours

    async def probe(self, link: Link, address: IPv4Address) -> MacAddress | None:
        self.asked.append(address)
        self.asked_on.append(link.name)
        found = self.strangers.get(address)
        return None if found is None or self._is_ours(address, found) else found

    def claimed(self, _ifname, _address, _sha) -> None:
        pass

    def close(self) -> None: ...


class Scene:
    """The API server with what is in it; `folder` is for files of the agents."""

    def __init__(self, server: Embedded, folder: Path) -> None:
        self.server = server
        self.folder = folder
        server.do(lambda it: it.add_client("admin"))
        self.api = Api(server.do(lambda it: it.kubeconfig("admin")))
        self.put(objects.namespace(HOME), objects.namespace("shop"))

    def put(self, *bodies: dict) -> None:
        self.server.do(lambda it: [it.put(body) for body in bodies])

    def nodes(self, *names: str) -> None:
        self.put(*(objects.node(name, IPv4Address(f"192.0.2.{number_of(name)}")) for name in names))

    def publish(self, name: str, vips: Iterable[IPv4Address], annotations: dict | None = None, **more) -> None:
        self.put(objects.service("shop", name, vips, annotations, **more))

    def configure(self, text: str = CONFIG) -> None:
        self.put(objects.config_map(HOME, CONFIGMAP, text))

    def fault(self, client: str = "*", **faults) -> None:
        self.server.do(lambda it: it.fault(client, **faults))

    def get(self, path: str) -> dict:
        return self.api.ask("GET", path).body

    def delete(self, path: str) -> None:
        assert self.api.ask("DELETE", path).code in (200, 202)

    def lease(self, name: str) -> dict:
        """Its metadata and specification in one; empty when there is none."""
        found = self.get(f"{LEASES}/{name}")
        return found["metadata"] | found["spec"] if found["kind"] == "Lease" else {}

    def claim(self, address: IPv4Address) -> dict:
        return self.lease(f"vip.{address}")

    def holder(self, address: IPv4Address) -> str:
        return self.claim(address).get("holderIdentity", "")

    def events(self, reason: str) -> list[dict]:
        found = self.get("/apis/events.k8s.io/v1/events")["items"]
        return [event for event in found if event["reason"] == reason]

    def count(self, client: str, verb: str = "", resource: str = "") -> int:
        """Requests of an agent so far, whatever came of them."""
        return self.server.do(lambda it: counted(it.counters, client, verb, resource))

    def writes(self, client: str, resource: str = "leases") -> int:
        return sum(self.count(client, verb, resource) for verb in ("create", "update", "patch", "delete"))

    def kubeconfig(self, node: str, service_account: str = "") -> Path:
        path = self.folder / f"{node}.kubeconfig"
        self.server.do(lambda it: it.write_kubeconfig(path, node, service_account))
        return path


class Announcing:
    """Stands for what announces: whether there was something to announce, and what is to be defended against."""

    def __init__(self) -> None:
        self.woken = False
        self.defended: list[Decision] = []

    def wake(self) -> None:
        self.woken = True

    def defend(self, decision: Decision) -> None:
        self.defended.append(decision)


class Side:
    """One agent's side; passes of the reconciler are made as the agent makes them."""

    def __init__(self, node: str, kernel: Cable, settings: Settings) -> None:
        self.node = node
        self.kernel = kernel
        self.settings = settings
        self.surroundings = Surroundings(links=(a_link(number_of(node)),))
        self.problems: tuple[str, ...] = ()
        self.wanted = Alarm()
        self.announcing = Announcing()
        self.conflicts = ConflictLog()
        self.found_guard = kernel.value is not None
        self.reconciler = Reconciler(
            node, Entries(kernel), Ranges(kernel), Control(kernel), kernel, AnnouncementSchedule(), Vouching(kernel)
        )
        self.kube: Kubernetes
        self.running: asyncio.Task[None]
        self.may_end = False  # by itself, before it is killed

    def has_mac(self, mac: MacAddress) -> None:
        """Gives the node's link another MAC."""
        self.surroundings = Surroundings(links=(replace(a_link(number_of(self.node)), mac=mac),))
        self.wanted.wake()

    @property
    def membership(self):
        return self.kube._membership

    @property
    def joined(self) -> bool:
        return isinstance(self.membership, Membership)

    @property
    def ready(self) -> bool:
        """Whether a pass is done with all that the cluster has."""
        return self.kube._is_ready

    @property
    def renewals(self):
        return self.membership.renewals

    @property
    def writes(self):
        return self.membership.writes

    async def run(self, kubeconfig: Path, configmap: str) -> None:
        access, identity = await find_access(kubeconfig), AgentIdentity(self.node, HOME, configmap)
        conflicts = Conflicts(self.conflicts, self.announcing)
        self.kube = Kubernetes(
            access, identity, self.reconciler, self.settings, self.announcing, conflicts, self.wanted
        )
        await self.apply()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.kube.run())
            tasks.create_task(self._keep_right())

    async def _keep_right(self) -> None:
        while True:
            await self.wanted.sleep_for(PASS_S)
            await self.apply()

    async def apply(self) -> None:
        self.wanted.clear()
        asked = await self.kube.ask(self.surroundings)
        asked = replace(asked, problems=[*self.settings.problems(), *asked.problems])
        if self.settings.awaited and self.found_guard:
            self.reconciler.wait(asked.problems)
        else:
            await self.reconciler.apply(asked, self.surroundings, boot_ns())
            self.kube.passed()
        self.problems = tuple(self.reconciler.state.problems)

    def says(self, text: str) -> bool:
        return any(text in problem for problem in self.problems)


@asynccontextmanager
async def a_side(
    scene: Scene,
    node: str = "node-1",
    kernel: Cable | None = None,
    *,
    config: str = CONFIG,
    configmap: str = "",
    service_account: str = "",
    trace: Path | None = None,
    surroundings: Surroundings | None = None,
) -> AsyncIterator[Side]:
    """A running agent's side; it is killed at the end, and leaves what it has left. `surroundings`: from its start."""
    file = scene.folder / f"{node}.yaml"
    file.write_text(config)
    side = Side(node, kernel or Cable(), Settings(file, f"{HOME}/{configmap}" if configmap else ""))
    side.settings.trace = trace
    side.surroundings = surroundings or side.surroundings
    running = side.running = asyncio.create_task(side.run(scene.kubeconfig(node, service_account), configmap))
    try:
        await until(lambda: running.done() or hasattr(side, "kube"))
        yield side
        assert side.may_end or not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.wait([running], timeout=HUNG_S)
        assert running.done(), [str(task) for task in asyncio.all_tasks()]
        for client in side.kube._clients:
            await client.aclose()


async def waited(condition, what: str = "", seconds: float = 10.0) -> None:
    """For conditions that ask the API server: looks less often."""
    await until(condition, seconds, what, pause_s=0.02)
