"""Random objects of the Kubernetes API, and what has to be true of each: it is read, and hides no other."""

import json
from collections import Counter
from ipaddress import ip_address, ip_network
from pathlib import Path

from arpguard.addresses import vip_refusal
from arpguard.api import clustering
from arpguard.api.messages import MessageClock
from arpguard.config.model import AgentConfig
from arpguard.core.electing import Election
from arpguard.core.following import Following, Source
from arpguard.core.members import candidates, members_of
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.machine import Ownership
from arpguard.core.reporting import EventBook
from arpguard.core.sourcing import Sourcing
from arpguard.core.telling import MAX_NOTICES, MAX_PROBLEMS
from arpguard.kube import claims, projections
from arpguard.kube.decoding import decode
from arpguard.kube.errors import message_of
from arpguard.kube.events import MAX_NOTE, EventWriter
from arpguard.model import OwnerKind
from arpguard.units import NS_PER_MS, NS_PER_S
from fuzz.config_cases import ConfigJudge
from fuzz.hostile import Mutator, Tree
from support.kube.cluster_states import a_cluster
from support.protocol.elections import wishes_of

GOOD = ip_address("198.51.100.77")  # in no case but by way of a network
GOOD_SERVICE = ("good", "web")
EPOCH = "12345678-1234-1234-1234-123456789abc"
RECORDED = Path(__file__).parents[1] / "kube" / "recorded"
TIMES = Times(3 * NS_PER_S, NS_PER_S, NS_PER_S, 30 * NS_PER_S)
MOST_OBJECTS = 60  # then all is forgotten
MAX_LINE = 1500  # characters of a problem or a reason
CONFIG = AgentConfig(ranges=(ip_network("192.0.2.0/24"), ip_network("198.51.100.0/24"), ip_network("2001:db8::/32")))


def _meta(name: str, namespace: str = "", **more: Tree) -> dict:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **more}
    return {**metadata, "namespace": namespace} if namespace else metadata


def a_service(name: str, *addresses: str, namespace: str = "shop", **annotations: str) -> dict:
    texts = {f"arpguard.io/{key}": text for key, text in annotations.items()}
    return {
        "kind": "Service",
        "metadata": _meta(name, namespace, labels={"app": "web"}, annotations=texts),
        "spec": {"type": "LoadBalancer", "externalIPs": list(addresses), "externalTrafficPolicy": "Cluster"},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.60"}]}},
    }


def _lease(name: str, holder: str, **annotations: str) -> dict:
    texts = {f"arpguard.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return {
        "kind": "Lease",
        "metadata": _meta(name, "arpguard", annotations=texts, finalizers=["arpguard.io/claim"]),
        "spec": {
            "holderIdentity": holder,
            "leaseDurationSeconds": 3,
            "leaseTransitions": 4,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }


_LINKS = '[{"name":"eth0","mac":"02:00:00:00:00:02","networks":["192.0.2.0/24","198.51.100.0/24"]}]'
SERVICES = [
    a_service("web", "192.0.2.50", "2001:db8::50", owner="elect", interface="eth0"),
    a_service("db", "192.0.2.50", owner="node/node-1", mode="observe", hold="true"),
    a_service("cache", "192.0.2.51", owner="external/02:00:00:00:00:aa"),
    a_service("shop", "192.0.2.52", owner="follow"),
    *(json.loads(path.read_text()) for path in sorted(RECORDED.glob("*/service*.json"))),
]
for _service in SERVICES[4:]:
    _service["metadata"].setdefault("annotations", {})["arpguard.io/owner"] = "follow"
NODE = {
    "kind": "Node",
    "metadata": _meta("node-2", labels={"node.kubernetes.io/exclude-from-external-load-balancers": ""}),
    "spec": {"unschedulable": False, "podCIDRs": ["10.1.0.0/24", "2001:db8:1::/64"]},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.2"}, {"type": "Hostname", "address": "node-2"}],
    },
}
SLICE = {
    "kind": "EndpointSlice",
    "metadata": _meta("web-1", "shop", labels={"kubernetes.io/service-name": "web"}),
    "addressType": "IPv4",
    "endpoints": [{"nodeName": "node-1", "conditions": {"ready": True}}, {"nodeName": "node-2"}],
}
_VOUCHER = {"node": "node-1", "instance": "i-2", "epoch": EPOCH, "term": EPOCH, "dNs": 1000000000, "mNs": 400000000}
_VOUCHERS = json.dumps({"by": "i-1", "bound": True, "vouchers": [_VOUCHER]})
_VOUCHING = '{"seeks":"node-3","accepts":{"node-1":600000000}}'
LEASES = [
    _lease("node.node-2", "node-2", epoch=EPOCH, instance="i-1", links=_LINKS, vouchers=_VOUCHERS, vouching=_VOUCHING),
    _lease("vip.192.0.2.50", "node-2", holder_epoch=EPOCH, holder_uid="u", vip="192.0.2.50", source="service shop/web"),
    _lease("vip.192.0.2.51", "", external="02:00:00:00:00:bb"),
]
CONFIG_MAP = {
    "kind": "ConfigMap",
    "metadata": _meta("config", "arpguard"),
    "data": {"config.yaml": "mode: enforce\nvips: []\n", "other": "x"},
    "binaryData": {"config.yaml": "bW9kZTogZW5mb3JjZQ=="},
}
STATUS = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "services is forbidden"}
ANNOUNCEMENTS = [json.loads(path.read_text()) for path in sorted(RECORDED.glob("*/[ls][eto][act]*.json"))]
POD = {"kind": "Pod", "metadata": _meta("agent-x", "arpguard", deletionTimestamp=None), "spec": {"nodeName": "node-1"}}
BASES = [*SERVICES, NODE, NODE, SLICE, *LEASES * 2, CONFIG_MAP, STATUS, *ANNOUNCEMENTS, POD]


class ObjectFuzzer(Mutator):
    """JSON from a seed."""

    def json_of_object(self) -> bytes:
        base = self.rng.choice(BASES)
        text = json.dumps(self.spoil(base, 4), ensure_ascii=self.rng.random() < 0.7)
        data = text.encode("utf-8", "surrogatepass")
        return self._scratched(data) if self.rng.random() < 0.05 else data

    def _scratched(self, data: bytes) -> bytes:
        found = bytearray(data)
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.randrange(len(found) + 1)
            found[at : at + self.rng.randrange(3)] = self.rng.randbytes(self.rng.randrange(3))
        return bytes(found)


class ObjectJudge:
    """A cluster of such objects, as an agent follows it. Counts what came of each."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self._configs = ConfigJudge()
        self._events = EventWriter.__new__(EventWriter)  # of it only how an Event is written
        self._events._instance = "arpguard-node-1"
        self._now_ns = 10**15
        self._begin()

    def _begin(self) -> None:
        self._sourcing, self._following = Sourcing(), Following()
        self._ownership = Ownership("node-1", "me", TIMES, lambda: EPOCH)
        self._election = Election("node-1", self._now_ns)
        self._book = EventBook()
        self._services = {GOOD_SERVICE: projections.service(a_service("web", str(GOOD), namespace="good"))}
        self._slices: dict = {}
        self._nodes = {"node-1": projections.node({**NODE, "metadata": {"name": "node-1"}})}
        self._heartbeats: dict = {}
        self._objects = 0

    def judge(self, data: bytes) -> None:
        self._objects += 1
        self._now_ns += NS_PER_MS
        try:
            raw = decode(data)
        except ValueError:
            self.ends["no JSON"] += 1
            return
        if not isinstance(raw, dict):
            self.ends["no object"] += 1
            return
        key = projections.key_of(raw)
        assert isinstance(projections.version_of(raw), str)
        assert isinstance(projections.is_deleting(raw), bool)
        assert message_of(raw).isprintable()
        if key is None:
            self.ends["no name"] += 1
            self._project_all(raw)
            return
        self.ends["read"] += 1
        self._take(key, raw)
        self._look()
        if self._objects >= MOST_OBJECTS:
            self._begin()

    def _project_all(self, raw: Tree) -> list:
        found = [project(raw) for project in _PROJECTIONS]
        for each in found:
            assert hash(each) == hash(each)
            problems = getattr(each, "problems", ())
            assert len(problems) <= projections.MAX_PROBLEMS + 1
            assert_lines(problems)
        return found

    def _take(self, key: tuple[str, str], raw: Tree) -> None:
        """By its kind, if that is still there; else as each kind at once."""
        service, piece, node, lease, held, status, config_map = self._project_all(raw)
        kind = raw.get("kind")
        if kind in ("Service", None) and key != GOOD_SERVICE:
            self._services[key] = service
        if kind in ("EndpointSlice", None):
            self._slices[key] = piece
        if kind in ("Node", None) and key[1] != "node-1":
            self._nodes[key[1]] = node
        if kind in ("Lease", None):
            self._hear(lease)
            self._follow((Source.CILIUM, Source.KUBE_VIP_SERVICES, Source.KUBE_VIP, Source.OPENELB), key, held)
        if kind in ("ServiceL2Status", None):
            self._follow((Source.METALLB,), key, status)
        if config_map.text is not None:
            self._configs.judge(config_map.text)

    def _follow(self, sources: tuple[Source, ...], key: tuple[str, str], said) -> None:
        for source in sources:
            self._following.put(source, key, said)

    def _hear(self, lease) -> None:
        heartbeat, claim = claims.heartbeat_of(lease), claims.claim_of(lease)
        if heartbeat is not None:
            self._heartbeats[heartbeat.node] = heartbeat
            self._ownership.heartbeat_seen(heartbeat.node, heartbeat, self._now_ns)
        if claim is not None:
            assert_lines([claim.unreadable, claim.external])
            self._ownership.claim_seen(claim.vip, claim, self._now_ns)
            holder = self._ownership.holder(claim.vip, self._now_ns)
            assert clustering.claim(holder, MessageClock.now()).SerializeToString() is not None

    def _look(self) -> None:
        """What a pass makes of it all."""
        collected = self._sourcing.collect(
            CONFIG, self._services, self._slices, self._nodes, followed=self._followed_node
        )
        assert len(collected.problems) <= MAX_PROBLEMS + 1
        assert_lines(collected.problems)
        assert_lines(self._following.problems)
        self._report((*collected.notices, *collected.own_notices))
        self._good_is_there(collected.vips)
        links = {name: heartbeat.links for name, heartbeat in self._heartbeats.items()}
        members = members_of(self._nodes, links, {"node-1", *links})
        wishes = wishes_of(self._election, collected.vips, members, {}, self._now_ns, collected.undecided)
        assert wishes.wanted <= collected.vips.keys()
        state = a_cluster(collected.vips.values(), nodes=self._nodes, members=members)
        assert clustering.kubernetes(state, MessageClock.now()).SerializeToString()
        for vip in list(collected.vips.values())[:3]:
            assert vip_refusal(vip.address) is None
            assert_lines(each.why for each in candidates(vip, collected.vips, members, {}))
            assert_lines(self._sourcing.origin(vip.address).others)

    def _followed_node(self, service, address) -> str | None:
        return self._following.node_of(service, address).node or None

    def _report(self, notices) -> None:
        assert len(notices) <= 2 * MAX_NOTICES
        for notice in notices[:40]:
            posting = self._book.say(notice, self._now_ns, self._now_ns)
            if posting is not None:
                event = self._events._event(posting, "default")
                assert len(event["note"].encode()) <= MAX_NOTE
                assert event["note"].isprintable()
                assert json.dumps(event).isascii()

    def _good_is_there(self, vips) -> None:
        """One object never hides another, unless it says that the address is not free to be a VIP."""
        if GOOD in vips:
            assert vips[GOOD].owner.kind is OwnerKind.ELECT
            return
        self.ends["good one refused"] += 1
        assert self._sourcing.origin(GOOD).refusals


_PROJECTIONS = (
    projections.service,
    projections.endpoint_slice,
    projections.node,
    projections.lease,
    projections.held,
    projections.l2_status,
    projections.config_map,
)


def assert_lines(lines) -> None:
    for line in lines:
        assert line.isprintable(), repr(line)
        assert len(line) <= MAX_LINE, line
