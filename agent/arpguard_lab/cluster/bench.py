"""What the scenarios with Kubernetes are made of: agents, objects, questions, and a watch over the wire."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Self

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import build_question
from arpguard.errors import DataPlaneError
from arpguard.units import NS_PER_MS
from arpguard_lab import questions
from arpguard_lab.asking import ALL_ADDRESSES, INTERVAL_S, Stream
from arpguard_lab.bench import LATE_S, Step, judged, until
from arpguard_lab.capture import Capture, Said
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.servers import ApiUnderTest
from arpguard_lab.cluster.topology import CONFIGMAP, KubeAgent, KubeLab
from arpguard_lab.neighbours import with_room
from arpguard_lab.oracle import Finding, Handover, Ledger, Oracle
from arpguard_lab.patience import Patience
from arpguard_lab.progress import waits_for
from arpguard_lab.topology import NETWORK, NETWORK6, Host, first_mac

Json = dict[str, Any]

OFF = "vouching: off"  # of the scenarios that are not about it
SETTLE_S = 20.0
READY_S = 120.0  # three agents load at once, on few cores
_WAIT_S = 0.06
AT_THE_FENCE_NS = 5 * NS_PER_MS  # what is asked so shortly before may be answered after
_POLL_S = 0.02
_QUIET_S = 1.5
_LATE_S = 0.1  # for what was sent last to be answered and recorded
# Senders of single questions; streams have 10.0.0.0/8 and fd00::/104.
_ASKERS = {4: int(IPv4Address("11.0.0.1")), 6: int(IPv6Address("fd01::1"))}


def vip(number: int) -> IPv4Address:
    """An address of the nodes' network."""
    return IPv4Address(f"{NETWORK}.{number}")


def vip6(number: int) -> IPv6Address:
    """The same in IPv6."""
    return IPv6Address(f"{NETWORK6}::{number:x}")


def now_ns() -> int:
    """The wall clock, as the capture and the API's journal have it."""
    return time.time_ns()


class Watch:
    """A stream of requests, and all that is said, from entering to leaving; then it is judged."""

    def __init__(self, bench: "KubeBench", stream: Stream, capture: Capture, also: Stream | None = None) -> None:
        """`also`: a second client's requests."""
        self._bench = bench
        self.stream = stream
        self._streams = [each for each in (stream, also) if each is not None]
        self._capture = capture
        self.oracle = Oracle({host.mac: host.name for host in bench.lab.hosts.values()})
        self.said: list[Said] = []
        self.drops = 0
        self.unbacked: list[Finding] = []
        self._began_s = self._ended_s = 0.0

    def __enter__(self) -> Self:
        self._capture.start()
        self._began_s = time.monotonic()
        for stream in self._streams:
            stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            stream.stop()
        self._ended_s = time.monotonic()
        time.sleep(_LATE_S)
        self._capture.stop()
        self.poll()
        self.drops = self._capture.drops

    def poll(self) -> None:
        """Takes in what was heard so far."""
        taken = [replace(each, mac=first_mac(each.mac)) for each in self._capture.take()]
        self.said += taken
        for stream in self._streams:
            stream.hear(taken)
        self.oracle.hear(taken)

    def wait(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        """Returns once the condition holds, looked at after every `poll`; DataPlaneError when patience is over."""
        patience = Patience(timeout_s)
        waits_for(what)
        while True:
            self.poll()
            if condition():
                return
            if patience.is_over:
                raise DataPlaneError(f"did not happen within {timeout_s:g} s: {what}")
            time.sleep(_POLL_S)

    def first(self, address: Address, since_ns: int, besides: Host | None = None) -> Said | None:
        """The first answer or announcement since a time, by anybody but one node."""
        found = _about(self.said, address, since_ns)
        return next((each for each in found if not (besides and each.mac == besides.mac)), None)

    def takeovers(self, vips: Sequence[Address], victim: Host, since_ns: int, timeout_s: float) -> list[Said]:
        """Waits until other nodes answer for all of a node's VIPs; the first answer for each."""
        self.wait(
            lambda: all(self.first(each, since_ns, victim) for each in vips),
            timeout_s,
            f"other nodes answer for the VIPs of {victim.name}",
        )
        return [said for each in vips if (said := self.first(each, since_ns, victim))]

    def last(self, address: Address, host: Host, since_ns: int = 0) -> Said | None:
        """The last answer or announcement of a node."""
        found = _about(reversed(self.said), address, since_ns)
        return next((each for each in found if each.mac == host.mac), None)

    def gaps(self) -> list[Handover]:
        """Every change of the answering node."""
        return self.oracle.handovers

    def forget(self, keep: int) -> None:
        """Forgets the requests of each client but for the last few."""
        for stream in self._streams:
            stream.forget(keep)

    @property
    def sent(self) -> int:
        """How many requests so far, of all clients."""
        return sum(stream.sent for stream in self._streams)

    @property
    def lasted_s(self) -> float:
        """How long requests were sent, in seconds, once it is over."""
        return self._ended_s - self._began_s

    @property
    def findings(self) -> list[Finding]:
        """All that must not be, those of the journal last."""
        return [*self.oracle.findings, *self.unbacked]

    def facts(self) -> dict[str, object]:
        """Whether at most one answered at any moment, and what that is known from."""
        findings = self.findings
        facts: dict[str, object] = {
            "requests": self.sent,
            "answers": self.oracle.answers,
            "overlaps": len(findings),
            "never_two_at_once": not findings,
            "nothing_missed": self.drops == 0,
        }
        if findings:
            facts["finding"] = "; ".join(map(str, findings[:3]))
        return facts


def _about(said: Iterable[Said], address: Address, since_ns: int) -> Iterator[Said]:
    return (each for each in said if each.time_ns >= since_ns and each.vip == address)


class KubeBench:
    """One scenario's tools over a lab with an API server and agents."""

    def __init__(self, lab: KubeLab, server: ApiUnderTest, scenario: str, settings: str = "", lease: str = OFF) -> None:
        """`settings`: what its agents' configuration says besides; `lease`: of their leases, "" for the defaults."""
        self.lab = lab
        self.server = server
        self.scenario = scenario
        self._settings = settings
        self.lease = lease
        self._asker = lab.client.listen()
        self._questions = 0
        self.ledger = Ledger({server.node_name(host): host.mac for host in lab.nodes})
        self._bound: set[Address] = set()
        self._loose: Counter[str] = Counter()

    # ---- who there is ----

    @property
    def nodes(self) -> list[Host]:
        """The cluster nodes."""
        return self.lab.nodes

    @property
    def home(self) -> str:
        """The namespace of all objects."""
        return self.server.home

    def agent(self, host: Host) -> KubeAgent:
        """The agent of a node."""
        return self.lab.guards[host.name]

    def host_of(self, mac: MacAddress) -> Host:
        """The host with a MAC."""
        return next(host for host in self.lab.hosts.values() if host.mac == mac)

    def others(self, *hosts: Host) -> list[Host]:
        """The nodes besides some."""
        return [host for host in self.nodes if host not in hosts]

    # ---- setting the scene ----

    def config(
        self,
        mode: str = "enforce",
        extra: str = "",
        interfaces: str = "[eth0]",
        owner: str = "elect",
        lease: str | None = None,
    ) -> str:
        """The agents' configuration, the same for all; `lease`: other settings of leases than the scenario has."""
        ranges = ", ".join(f"'{each}'" for each in objects.RANGES)
        lines = [f"mode: {mode}", f"interfaces: {interfaces}", f"ranges: [{ranges}]"]
        lines += [f"services: {{enabled: true, selector: {{{objects.LAB_LABEL}: {self.home}}}, owner: {owner}}}"]
        lines += [f"lease: {{{self.lease if lease is None else lease}}}", self._settings, extra]
        return "\n".join(lines) + "\n"

    def set_up(self) -> None:
        """Nodes and configuration in the API, and an agent on every node."""
        api = self.server.api
        for host in self.nodes:
            api.create("/api/v1/nodes", objects.node(self.server.node_name(host), host.address))
        waits_for(f"starting {len(self.nodes)} agents")
        api.create(self._path("configmaps"), objects.config_map(self.home, CONFIGMAP, self.config()))
        for host in self.nodes:
            self.prepare(host)
            self.agent(host).forget_entries()
            self.agent(host).start()
        for host in self.nodes:
            self.agent(host).wait_for(timeout_s=READY_S)

    def prepare(self, host: Host) -> None:
        """Writes the agent's own configuration, and tells it who it is."""
        agent = self.agent(host)
        agent.node = self.server.node_name(host)
        agent.namespace = self.home
        agent.configure(self.config())

    def tear_down(self) -> None:
        """Ends the agents, and puts the networks right."""
        for host in self.nodes:
            self.lab.put_right(host)
            agent = self.agent(host)
            agent.send(signal.SIGCONT)
            agent.kill(signal.SIGKILL)
            agent.pod = agent.code = ""
            agent.follows = True
            while self._loose[host.name]:
                self.tighten(host)
        self.unbind_everywhere(*self._bound)
        self._asker.close()

    def bind_everywhere(self, *vips: Address) -> None:
        """Puts VIPs on `lo` of all nodes, as kube-proxy in IPVS mode does: each kernel would answer for them."""
        for host in self.nodes:
            for address in vips:
                host.bind(address, "lo")
        self._bound |= set(vips)

    def unbind_everywhere(self, *vips: Address) -> None:
        """The end of `bind_everywhere`."""
        for host in self.nodes:
            for address in vips:
                host.unbind(address, "lo")
        self._bound -= set(vips)

    def loosen(self, host: Host) -> None:
        """Takes what `bind_everywhere` bound off one node; as often as `tighten` is to be called."""
        self._loose[host.name] += 1
        if self._loose[host.name] == 1:
            for address in self._bound:
                host.unbind(address, "lo")

    def tighten(self, host: Host) -> None:
        """The end of `loosen`."""
        self._loose[host.name] -= 1
        if self._loose[host.name] == 0:
            for address in self._bound:
                host.bind(address, "lo")

    def publish(
        self,
        name: str,
        vips: Iterable[Address],
        annotations: Mapping[str, str] | None = None,
        *,
        local: bool = False,
    ) -> None:
        """Makes a Service with these externalIPs."""
        body = objects.service(self.home, name, vips, annotations, local=local)
        self.server.api.create(self._path("services"), body)

    def set_out(self, *vips: Address) -> None:
        """Makes a Service with these VIPs; once each has its owner, binds them on all nodes."""
        self.publish("web", vips)
        self.settle_evenly(vips)
        self.bind_everywhere(*vips)

    def allow(self, bodies: Iterable[Json]) -> None:
        """Gives the agents these rights, by objects of RBAC."""
        for body in bodies:
            namespace = body["metadata"].get("namespace", "")
            where = f"namespaces/{namespace}/" if namespace else ""
            self.server.api.create(f"/apis/{body['apiVersion']}/{where}{body['kind'].lower()}s", body)

    def forbid_secret(self) -> None:
        """Takes the agents' right to the Secret of vouching away."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.home}/rolebindings/{objects.SECRET}"
        self.server.api.delete(path)

    def publish_load_balancer(self, name: str, address: IPv4Address) -> None:
        """Makes a Service of another announcer, which has given it an address."""
        self.server.api.create(self._path("services"), objects.load_balancer(self.home, name))
        self.server.api.patch(f"{self._path('services', name)}/status", {"status": objects.ingress(address)})

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        """Sets annotations of a Service, or (None) takes them off."""
        self.server.api.patch(self._path("services", name), {"metadata": {"annotations": dict(annotations)}})

    def withdraw(self, name: str) -> None:
        """Deletes it."""
        self.server.api.delete(self._path("services", name))

    def endpoints(self, name: str, ready: Mapping[Host, bool]) -> None:
        """Says on which nodes a Service has ready endpoints."""
        body = objects.endpoint_slice(
            self.home, name, {self.server.node_name(host): is_ready for host, is_ready in ready.items()}
        )
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.home}/endpointslices"
        found = [item["metadata"]["name"] for item in self.server.api.get(path)["items"]]
        if name in found:
            self.server.api.patch(f"{path}/{name}", {"endpoints": body["endpoints"]})
        else:
            self.server.api.create(path, body)

    def configure(self, text: str) -> None:
        """Edits the ConfigMap."""
        self.server.api.patch(self._path("configmaps", CONFIGMAP), {"data": {"config.yaml": text}})

    def cordon(self, host: Host, *, cordoned: bool = True) -> None:
        """Kubectl cordon, or uncordon."""
        self.server.api.patch(self._node(host), {"spec": {"unschedulable": cordoned or None}})

    def set_ready(self, host: Host, *, ready: bool) -> None:
        """What a node's controller says of it."""
        status = objects.node_status(host.address, ready=ready)
        self.server.api.patch(f"{self._node(host)}/status", {"status": status})

    def exclude(self, host: Host, *, excluded: bool = True) -> None:
        """Labels a node as none for load balancers, or takes the label off."""
        self.server.api.patch(self._node(host), {"metadata": {"labels": {objects.EXCLUDE: "" if excluded else None}}})

    def _node(self, host: Host) -> str:
        return f"/api/v1/nodes/{self.server.node_name(host)}"

    def _path(self, plural: str, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.home}/{plural}" + (f"/{name}" if name else "")

    # ---- asking ----

    def who(self, *vips: Address) -> dict[Address, list[MacAddress]]:
        """Who answers for VIPs now: one question for each, every answer."""
        while self._asker.hear(0) is not None:
            pass

        asked: dict[Address, Address] = {}
        for address in vips:
            self._questions += 1
            spa = type(address)(_ASKERS[address.version] + self._questions)
            asked[spa] = address
            self._asker.send(build_question(self._asker.mac, spa, address))

        found: dict[Address, list[MacAddress]] = {address: [] for address in vips}
        deadline = time.monotonic() + _WAIT_S
        while (heard := self._asker.hear(deadline - time.monotonic())) is not None:
            packet = heard.packet
            if not packet.is_question and asked.get(packet.tpa) == packet.spa:
                found[packet.spa].append(first_mac(packet.sha))

        return found

    def who_in_the_end(
        self, vips: Iterable[Address], is_enough: Callable[[Address, set[MacAddress]], bool]
    ) -> dict[Address, set[MacAddress]]:
        """Who answers for VIPs. What is not enough is asked for again: an answer may be late."""
        found: dict[Address, set[MacAddress]] = {address: set() for address in vips}
        asked, patience = list(found), Patience(LATE_S)
        while asked:
            for address, macs in self.who(*asked).items():
                found[address].update(macs)
            asked = [address for address in asked if not is_enough(address, found[address])]
            if patience.is_over:
                break
        return found

    def still(self, owners: Mapping[Address, Sequence[MacAddress]]) -> bool:
        """Whether the same hosts answer for these VIPs, and no others."""
        before = {address: set(macs) for address, macs in owners.items()}
        return before == self.who_in_the_end(before, lambda address, macs: macs >= before[address])

    def settle(
        self, vips: Sequence[Address], among: Sequence[Host] | None = None, limit_s: float = SETTLE_S
    ) -> dict[Address, list[MacAddress]]:
        """Returns once exactly one node, of some, answers for each VIP: who answers for each.

        Raises DataPlaneError when for `limit_s` there were no more such VIPs than before: how long it takes with many
        is the machine's affair.
        """
        macs = {host.mac for host in (self.nodes if among is None else among)}
        waits_for(f"one node answers for each of {len(vips)} VIPs")
        patience, most = Patience(limit_s), 0
        while True:
            found = self.who(*vips)
            wrong = {address: each for address, each in found.items() if len(each) != 1 or each[0] not in macs}
            if not wrong:
                return found
            if len(vips) - len(wrong) > most:
                most = len(vips) - len(wrong)
                patience.renew()
            if patience.is_over:
                shown = {str(address): [self.lab.who(mac) for mac in each] for address, each in wrong.items()}
                raise DataPlaneError(
                    f"not exactly one node for each VIP, and no progress within {limit_s:g} s: {shown}"
                )

    def settle_evenly(self, vips: Sequence[Address], limit_s: float = SETTLE_S) -> None:
        """Returns once nobody has moved for a while."""
        self.settle(vips, limit_s=limit_s)
        patience, since, before = Patience(limit_s), time.monotonic(), self.who(*vips)
        while time.monotonic() - since < _QUIET_S and not patience.is_over:
            time.sleep(0.2)
            found = self.who(*vips)
            if found != before:
                since, before = time.monotonic(), found

    def owner(self, address: Address) -> Host:
        """The one node that answers for a VIP now."""
        return self.host_of(self.settle([address])[address][0])

    def owned(self, vips: Sequence[Address], host: Host) -> list[Address]:
        """The VIPs that a node answers for now."""
        return [address for address, macs in self.who(*vips).items() if macs == [host.mac]]

    def watch(
        self,
        vips: Sequence[Address],
        interval_s: float = INTERVAL_S,
        addresses: int = ALL_ADDRESSES,
        also: Stream | None = None,
    ) -> Watch:
        """Watches VIPs while requests for them take turns; `also`: VIPs that a second client asks for."""
        stream = Stream(self.lab.client.listen(), vips, interval_s, addresses)
        return Watch(self, stream, Capture(self.lab.switch), also)

    def check_against_journal(self, watch: Watch, skip: Iterable[Address] = ()) -> None:
        """Judges what a watch recorded by the API's journal too, if there is one; the journal is read later."""
        if self.server.is_double:
            self.ledger.write(self.server.journal())
            watch.unbacked += self.ledger.judge(watch.said, frozenset(skip))

    until = staticmethod(until)

    def status(self, host: Host) -> Json:
        """`arpguard status` of a node."""
        return questions.status(self.agent(host))

    def audit(self, host: Host, address: Address) -> list[Json]:
        """What `arpguard audit ADDRESS` of a node finds on each link: who answers now, and whether that is right."""
        return questions.audits(self.agent(host), address)

    def events(self, kind: str, name: str) -> list[Json]:
        """The Events about an object, wherever they are kept."""
        found = []
        for home in dict.fromkeys((self.home, "default")):
            items = self.server.api.get(f"/apis/events.k8s.io/v1/namespaces/{home}/events")["items"]
            found += [
                item
                for item in items
                if item.get("regarding", {}).get("kind") == kind and item["regarding"].get("name") == name
            ]
        return found

    # ---- steps ----

    def step(
        self, text: str, address: Address, expected: Sequence[Host], macs: Iterable[MacAddress], **facts: object
    ) -> Step:
        """A step from what was seen; right when exactly the expected hosts were, and no fact is False."""
        known = {name: fact for name, fact in facts.items() if fact is not None}
        seen = {(self.lab.who(mac), mac) for mac in macs}
        return judged(self.scenario, text, address, expected, seen, known)

    def one_of(
        self, text: str, address: Address, among: Sequence[Host], macs: Iterable[MacAddress], **facts: object
    ) -> Step:
        """A step that is right when exactly one of some nodes was seen, whichever."""
        seen = set(macs)
        chosen = [host for host in among if host.mac in seen]
        return self.step(text, address, chosen if len(chosen) == len(seen) == 1 else among, seen, **facts)

    def one_answers(self, text: str, address: Address, among: Sequence[Host] = (), /, **facts: object) -> Step:
        """Asks who answers for a VIP now: right when exactly one node does, of some or of all."""
        hosts = among or self.nodes
        wanted = {host.mac for host in hosts}
        found = self.who_in_the_end([address], lambda _, macs: bool(macs & wanted))
        return self.one_of(text, address, hosts, found[address], **facts)

    def ask(self, text: str, address: Address, expected: Sequence[Host], **facts: object) -> Step:
        """Asks who answers for a VIP now, and compares with who should."""
        return self.step(text, address, expected, self.all_who(address, expected), **facts)

    def all_who(self, address: Address, expected: Iterable[Host]) -> list[MacAddress]:
        """Who answers for a VIP, until all have who should, or time is up; longer where some had no room for whom."""
        wanted = {host.mac for host in expected}
        ask = partial(self.who_in_the_end, [address], lambda _, macs: macs >= wanted)
        return sorted(with_room(lambda: ask()[address], wanted.issubset))


def ms(length_ns: int) -> int:
    """Whole milliseconds."""
    return round(length_ns / NS_PER_MS)
