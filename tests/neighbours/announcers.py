"""Real announcers on the lab's nodes: how each is installed, started, replaced, and given an address to announce.

Each has two Services, one whose address the agents guard and one whose address they do not, and both have to be
announced by the same node: so what the guard costs or saves is seen in one run, under one fault.
"""

import secrets
import signal
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

from arpguard.addresses import Address
from arpguard_lab.cluster import objects
from arpguard_lab.peers.programs import ROUTER_ID, Keepalived, holds
from arpguard_lab.topology import Host, HostProcess
from neighbours.controlplane import BINARIES, ControlPlane
from neighbours.versions import KUBE_VIP, STUBBED

Json = dict[str, Any]

GUARDED, BARE = "guarded", "bare"
SHOP = "shop"  # the namespace of both Services
_POOL = ["198.51.100.48-198.51.100.250", "192.0.2.0/24"]
GUARDED_VIP = IPv4Address("198.51.100.50")
_BARE_VIPS = tuple(IPv4Address("198.51.100.128") + number for number in range(100))
RANGES = "[198.51.100.48/28]"  # GUARDED_VIP's, and none of the others
METALLB_SYSTEM = objects.METALLB
_LEFT_OUT = ("Deployment", "DaemonSet", "ValidatingWebhookConfiguration")  # nothing here runs Pods; no webhook
_SECRET = "neighbours"


_KEEPALIVED_CONF = """
global_defs {{
  router_id {name}
  script_user root
  enable_script_security
  vrrp_garp_master_refresh 1
}}
vrrp_instance lab {{
  interface eth0
  state BACKUP
  version 3
  virtual_router_id {router_id}
  priority {priority}
  advert_int {interval}
  virtual_ipaddress {{
    {addresses}
  }}
  {told}
}}
"""


def node_of(host: Host) -> str:
    """The name of its Node."""
    return host.name.replace("node", "worker")


class Announcer(HostProcess):
    """One announcer on one node, as its Pod would run it."""

    own_group = True

    def __init__(self, host: Host, folder: Path, name: str, words: Sequence[object], settings: dict[str, str]) -> None:
        super().__init__(host, folder, name)
        self._words = [str(word) for word in words]
        self._settings = settings

    def words(self) -> list[str]:
        return self._words

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self._settings}


class Kind(ABC):
    """One announcer in one version and mode.

    `name`: its row of the table. `group`: the API group whose absence is tried; its objects or its locks are there.
    `stays`: its address is on a link, where a killed one leaves it.
    """

    name: str
    group = "coordination.k8s.io/v1"
    stays = True
    away_s = 12.0  # how long the group is away
    patience_s = 15.0  # until an announcer has moved, whatever was done to it
    mode = ""  # what the Services say to arpguard
    components: Sequence[str] = ()
    watched = "leases.coordination.k8s.io"  # what says who announces
    line = "{.object.spec.holderIdentity}"  # and how
    columns: Collection[str] | None = None  # those that mean something for it; None: all

    def __init__(self, plane: ControlPlane, hosts: Sequence[Host], alone: int = 0) -> None:
        """`alone`: a number; then it has one Service, of a class of its own, and others like it may run beside it."""
        self.plane = plane
        self.hosts = list(hosts)
        self.folder = plane.folder
        self.programs: dict[str, HostProcess] = {}
        self.running: set[str] = set()
        self.alone = alone
        self.bare_vip: Address = self.like_the_guarded()
        self._owner: Host | None = None

    def like_the_guarded(self) -> Address:
        """An address that the same node announces."""
        return _BARE_VIPS[0]

    @property
    def services(self) -> dict[str, Address]:
        """The VIPs by the names of their Services, the guarded one first."""
        if self.alone:
            return {f"alone-{self.alone}": _BARE_VIPS[-self.alone]}
        return {GUARDED: GUARDED_VIP, BARE: self.bare_vip}

    @property
    def vips(self) -> list[Address]:
        """The guarded one first."""
        return list(self.services.values())

    @property
    def load_balancer_class(self) -> str:
        """Of its Services; none where it is the only announcer."""
        return f"neighbours/alone-{self.alone}" if self.alone else ""

    def service(self, name: str, annotations: Mapping[str, str]) -> Json:
        """One of its Services."""
        body = objects.load_balancer(SHOP, name)
        follow = {f"{objects.PREFIX}owner": self.mode} if self.mode and not self.alone else {}
        body["metadata"]["annotations"] = {**follow, **annotations}
        if self.load_balancer_class:
            body["spec"]["loadBalancerClass"] = self.load_balancer_class
        return body

    @abstractmethod
    def install(self) -> None:
        """Accounts, rights, definitions and configuration."""

    def publish(self) -> None:
        """Makes its Services, and starts what gives them their addresses."""
        for name, vip in self.services.items():
            self.publish_one(name, vip)

    def publish_one(self, name: str, vip: Address) -> None:
        """Makes a Service with a VIP."""
        self.plane.apply(self.service(name, self.notes(name, vip)), *_endpoints(name, self.hosts))

    def notes(self, name: str, vip: Address) -> dict[str, str]:  # noqa: ARG002 - of those that are asked for addresses
        """The annotations by which a Service asks this announcer for an address."""
        return {}

    @abstractmethod
    def program(self, host: Host) -> HostProcess:
        """A new one for a node, not started yet."""

    def start(self, host: Host) -> None:
        """Starts it on a node, anew or again in the same Pod."""
        if host.name not in self.programs:
            self.programs[host.name] = self.program(host)
        self.running.add(host.name)
        self.programs[host.name].kill(signal.SIGKILL)
        self.programs[host.name].start()

    def end(self, host: Host, number: signal.Signals) -> None:
        """Sends it a signal on a node and does not wait for its end; nothing starts it again."""
        self.running.discard(host.name)
        self.programs[host.name].send(number)

    def replace(self, host: Host) -> None:
        """A new Pod in place of the old one, as a rolling restart does it."""
        self.running.discard(host.name)
        self.programs.pop(host.name).kill(signal.SIGTERM)
        self.start(host)

    def tend(self) -> None:
        """Starts again what ended by itself, as a kubelet does."""
        for name in self.running:
            if self.programs[name].has_failed:
                self.programs[name].start()

    def stop(self) -> None:
        """Ends all, and takes away what they leave on links."""
        for host in self.hosts:
            if host.name in self.programs:
                self.programs[host.name].kill(signal.SIGKILL)
            for vip in self.vips:
                if holds(host, vip):
                    host.unbind(vip, "eth0")

    def owner(self) -> Host | None:
        """Whom the agents' configuration should name, where it has to; it is edited when that changes."""
        return None

    def configuration(self, owner: Host | None) -> str:  # noqa: ARG002 - of those that it has to name
        """What the agents' ConfigMap says besides mode, links and ranges."""
        return ""

    def _account(self, namespace: str, account: str, path: Path) -> Path:
        return self.plane.write_account(path, namespace, account)


class MetalLb(Kind):
    """MetalLB's controller and speakers, with memberlist between them."""

    group = "metallb.io/v1beta1"
    stays = False
    mode = "follow"
    components = ("follow-metallb",)
    watched = "servicel2statuses.metallb.io"
    line = "{.object.metadata.labels.metallb\\.io/node}"

    def __init__(self, plane: ControlPlane, hosts: Sequence[Host], version: str, alone: int = 0) -> None:
        super().__init__(plane, hosts, alone)
        self.version = version
        self.name = f"MetalLB {version}{', BGP types stubbed' if version in STUBBED else ''}"
        self._pods: dict[str, str] = {}
        self._controller: Announcer | None = None

    def like_the_guarded(self) -> Address:
        return _like(GUARDED_VIP, map(node_of, self.hosts))

    def install(self) -> None:
        path = BINARIES / f"metallb-{self.version}.yaml"
        documents = [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]
        self.plane.apply(*(each for each in documents if each["kind"] not in _LEFT_OUT))
        self.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        self.plane.apply(_pool(), _advertisement())
        (self.folder / "secretkey").write_text(_SECRET, encoding="ascii")

    def publish(self) -> None:
        kubeconfig = self._account(METALLB_SYSTEM, "controller", self.folder / "metallb-controller.kubeconfig")
        words = [BINARIES / f"metallb-controller-{self.version}", "--webhook-mode=disabled", *self._flags()]
        settings = {
            "METALLB_NAMESPACE": METALLB_SYSTEM,
            "KUBECONFIG": str(kubeconfig),
            "METALLB_POD_NAME": "controller",
        }
        _make_pod(self.plane, METALLB_SYSTEM, "controller", self.hosts[0], {"app": "metallb"}, "controller")
        place = Host("control-plane", self.plane.place, 254)
        self._controller = Announcer(place, self.folder, "metallb-controller", words, settings)
        self._controller.start()
        super().publish()

    def notes(self, name: str, vip: Address) -> dict[str, str]:  # noqa: ARG002
        return {"metallb.io/loadBalancerIPs": str(vip)}

    def program(self, host: Host) -> HostProcess:
        pod = f"speaker-{secrets.token_hex(3)}"
        if host.name in self._pods:
            self.plane.kubectl(
                "-n", METALLB_SYSTEM, "delete", "pod", self._pods[host.name], "--grace-period=0", "--force"
            )
        self._pods[host.name] = pod
        _make_pod(self.plane, METALLB_SYSTEM, pod, host, {"app": "metallb", "component": "speaker"}, "speaker")
        kubeconfig = self._account(METALLB_SYSTEM, "speaker", self.folder / f"{host.name}-speaker.kubeconfig")
        settings = {
            "KUBECONFIG": str(kubeconfig),
            "METALLB_NAMESPACE": METALLB_SYSTEM,
            "METALLB_NODE_NAME": node_of(host),
            "METALLB_POD_NAME": pod,
            "METALLB_HOST": str(host.address),
            "METALLB_ML_BIND_ADDR": str(host.address),
            "METALLB_ML_LABELS": "app=metallb,component=speaker",
            "METALLB_ML_SECRET_KEY_PATH": str(self.folder),
        }
        words = [BINARIES / f"metallb-speaker-{self.version}", "--log-level=debug", *self._flags()]
        return Announcer(host, self.folder, "speaker", words, settings)

    def _flags(self) -> list[str]:
        port = 0 if self.version >= "0.16" else 7472  # no TLS for metrics is needed here, which 0.16 insists on
        return [f"--port={port}", f"--lb-class={self.load_balancer_class}"]

    def stop(self) -> None:
        super().stop()
        if self._controller is not None:
            self._controller.kill(signal.SIGKILL)


class MetalLbDelegated(MetalLb):
    """MetalLB beside a configuration that names its node as the owner and delegates to it: agents read no objects."""

    mode = ""
    components = ()
    columns = ("steady", "API group away, agent restarts")  # a node that an operator names does not move

    def __init__(self, plane: ControlPlane, hosts: Sequence[Host], version: str) -> None:
        super().__init__(plane, hosts, version)
        self.name += ", `delegated`"

    def owner(self) -> Host | None:
        first = _preference(GUARDED_VIP, map(node_of, self.hosts))[0]
        return next(host for host in self.hosts if node_of(host) == first)

    def configuration(self, owner: Host | None) -> str:
        return _delegated(owner)


class KubeVip(Kind):
    """kube-vip for Services by ARP: one lock for all Services, or (`election`) one for each."""

    mode = "follow"
    components = ("follow-kube-vip",)
    away_s = 6.0  # less than its renew deadline
    patience_s = 25.0

    def __init__(
        self,
        plane: ControlPlane,
        hosts: Sequence[Host],
        alone: int = 0,
        *,
        election: bool = False,
        timing: tuple[int, int, int] = (15, 10, 2),
    ) -> None:
        """`timing`: lease duration, renew deadline and retry period in seconds."""
        super().__init__(plane, hosts, alone)
        self._election = election
        self._timing = timing
        self.name = f"kube-vip {KUBE_VIP}, {'svc_election' if election else 'one lock'}"

    def install(self) -> None:
        self.plane.apply(*_kube_vip_access())

    def notes(self, name: str, vip: Address) -> dict[str, str]:
        with_the_guarded = (
            {"kube-vip.io/leaseName": f"{SHOP}/kubevip-{GUARDED}"} if self._election and name == BARE else {}
        )
        return {"kube-vip.io/loadbalancerIPs": str(vip), **with_the_guarded}

    def program(self, host: Host) -> HostProcess:
        path = self.folder / f"{host.name}-kube-vip-{self.alone}.kubeconfig"
        kubeconfig = self._account("kube-system", "kube-vip", path)
        duration, renew, retry = self._timing
        words = [BINARIES / f"kube-vip-{KUBE_VIP}", "manager", "--services", "--arp", "--interface=eth0"]
        words += ["--leaderElection", f"--nodeName={node_of(host)}", "--namespace=kube-system"]
        words += [f"--leaseDuration={duration}", f"--leaseRenewDuration={renew}", f"--leaseRetry={retry}"]
        words += [f"--k8sConfigPath={kubeconfig}", f"--prometheusHTTPServer=127.0.0.1:{2112 + self.alone}"]
        words += ["--servicesElection"] if self._election else []
        if self.alone:
            words += ["--lbClassOnly", f"--lbClassName={self.load_balancer_class}", "--lbClassNameLegacyHandling=false"]
            words += [f"--servicesLeaseName=plndr-svcs-lock-{self.alone}"]
        return Announcer(host, self.folder, f"kube-vip-{self.alone}", words, {"vip_nodename": node_of(host)})


class KeepalivedDaemon(Keepalived):
    """keepalived with both VIPs in one instance, that tells of its states in a file."""

    def __init__(self, host: Host, kind: "KeepalivedKind", interval_s: float) -> None:
        folder = kind.folder / f"keepalived-{kind.alone}"
        super().__init__(host, folder, kind.vips[0], 0, vmac=False)
        script = folder / "notify"
        script.write_text(f'#!/bin/sh\necho "$1 $2" >> {kind.states}\n', encoding="ascii")
        script.chmod(0o755)
        told = [f'notify_{state} "{script} {host.name} {state}"' for state in ("master", "backup", "fault", "stop")]
        addresses = "\n    ".join(f"{vip}/{vip.max_prefixlen} dev eth0" for vip in kind.vips)
        text = _KEEPALIVED_CONF.format(
            name=host.name,
            told="\n  ".join(told),
            router_id=ROUTER_ID + kind.alone,
            priority=120 - 10 * kind.hosts.index(host),
            interval=interval_s,
            addresses=addresses,
        )
        self._config.write_text(text, encoding="utf-8")


class KeepalivedKind(Kind):
    """Debian's keepalived. Its notify scripts tell who is master, and somebody edits the agents' configuration."""

    patience_s = 8.0
    away_s = 6.0
    watched = ""

    def __init__(self, plane: ControlPlane, hosts: Sequence[Host], alone: int = 0, *, interval_s: float = 1.0) -> None:
        super().__init__(plane, hosts, alone)
        self._interval_s = interval_s
        self.name = f"keepalived, {interval_s:g} s"
        self.states = self.folder / f"keepalived-{alone}" / "states"

    def install(self) -> None:
        self.states.parent.mkdir()
        self.states.write_text("", encoding="ascii")

    def publish(self) -> None:
        """Nothing: it knows no Kubernetes."""

    def program(self, host: Host) -> HostProcess:
        return KeepalivedDaemon(host, self, self._interval_s)

    def owner(self) -> Host | None:
        states = dict(line.split() for line in self.states.read_text(encoding="ascii").splitlines())
        masters = [host for host in self.hosts if self._is_master(host, states)]
        return self._owner if self._owner in masters else next(iter(masters), self._owner)

    def _is_master(self, host: Host, states: dict[str, str]) -> bool:
        program = self.programs.get(host.name)
        return states.get(host.name) == "master" and program is not None and program.pid is not None

    def configuration(self, owner: Host | None) -> str:
        self._owner = owner
        return _delegated(owner)


# ---- objects -----------------------------------------------------------------------------------------------------


def _like(vip: IPv4Address, nodes: Iterable[str]) -> IPv4Address:
    """An address that MetalLB gives to the same node as another one, whichever nodes there are."""
    order = _preference(vip, nodes := list(nodes))
    return next(each for each in _BARE_VIPS if _preference(each, nodes) == order)


def _preference(vip: Address, nodes: Iterable[str]) -> list[str]:
    """In which order MetalLB prefers nodes for an address (its speaker/layer2_controller.go)."""
    return sorted(nodes, key=lambda node: sha256(f"{node}#{vip}".encode()).digest())


def _delegated(owner: Host | None) -> str:
    """The setting by which the guard lets that node's announcer through."""
    if owner is None:
        return ""
    return f"vips: [{{address: {GUARDED_VIP}, owner: {{node: {node_of(owner)}, delegated: true}}}}]\n"


def _endpoints(name: str, hosts: Sequence[Host]) -> list[Json]:
    return [objects.endpoint_slice(SHOP, name, {node_of(host): True for host in hosts})]


def _pool() -> Json:
    return _metallb("IPAddressPool", {"addresses": _POOL})


def _advertisement() -> Json:
    return _metallb("L2Advertisement", {"ipAddressPools": ["lab"]})


def _metallb(kind: str, spec: Json) -> Json:
    metadata = {"name": "lab", "namespace": METALLB_SYSTEM}
    return {"apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def _make_pod(plane: ControlPlane, namespace: str, name: str, host: Host, labels: Json, account: str) -> None:
    """A Pod that runs on a node's network, ready, as the kubelet would say."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "nodeName": node_of(host),
            "hostNetwork": True,
            "serviceAccountName": account,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": account, "image": "none"}],
        },
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.create(path, body)
    now = objects.node_status(host.address, ready=True)["conditions"][0]["lastTransitionTime"]
    status = {
        "phase": "Running",
        "hostIP": str(host.address),
        "podIP": str(host.address),
        "podIPs": [{"ip": str(host.address)}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
    }
    plane.api.patch(f"{path}/{name}/status", {"status": status})


def _kube_vip_access() -> list[Json]:
    """What kube-vip's documentation has applied before it (kube-vip.io/docs, RBAC)."""
    rules = [
        _rule("", ["services/status"], "update"),
        _rule("", ["services", "endpoints"], "list get watch update"),
        _rule("", ["nodes"], "list get watch update patch"),
        _rule("", ["pods"], "list"),
        _rule("coordination.k8s.io", ["leases"], "list get watch update create"),
        _rule("discovery.k8s.io", ["endpointslices"], "list get watch update"),
        _rule("", ["events"], "create patch update"),
    ]
    name, group = "system:kube-vip-role", "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "kube-vip", "namespace": "kube-system"}
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    binding = {"subjects": [account], "roleRef": reference}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "kube-vip", "namespace": "kube-system"}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}, **binding},
    ]


def _rule(group: str, resources: list[str], verbs: str) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs.split()}
