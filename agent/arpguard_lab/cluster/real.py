"""A given API server: the lab makes a namespace, Nodes and accounts of its own there, and takes them away again.

Nodes belong to the whole cluster; the lab's have the namespace in their names, so that several labs can use one server.
The nodes of the lab reach the server through a door in the lab's second network; TLS is theirs and the server's.
kube-controller-manager may run there or not: see `Heartbeats`, `objects.daemon_set` and `Real.stop`.
"""

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import yaml

from arpguard.errors import ArpguardError
from arpguard_lab.apiserver.clients import kubeconfig_of
from arpguard_lab.cluster import objects
from arpguard_lab.cluster.forwarding import Forwarder
from arpguard_lab.cluster.kubeapi import NOT_FOUND, KubeApi, KubeApiError, current, inlined
from arpguard_lab.cluster.servers import ApiUnderTest, Fault
from arpguard_lab.cluster.topology import API_ADDRESS, API_PORT, MANAGEMENT, KubeLab
from arpguard_lab.topology import Host

VARIABLE = "ARPGUARD_TEST_KUBECONFIG"
_TOKEN_S = 7200
_HEARTBEAT_S = 10.0  # as a kubelet (nodeLeaseDurationSeconds / 4)
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_COLLECTIONS = (
    "/api/v1/namespaces/{}/services",
    "/apis/apps/v1/namespaces/{}/daemonsets",
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/configmaps",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "/apis/events.k8s.io/v1/namespaces/{}/events",
)


class Real(ApiUnderTest):
    """The server of a kubeconfig."""

    faults = (Fault("cut"), Fault("stall"))

    def __init__(self, lab: KubeLab, kubeconfig: Path, manifests: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(lab, f"arpguard-lab-{secrets.token_hex(4)}")
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = current(document)
        self._cluster = inlined(cluster, kubeconfig.parent)
        self.api = KubeApi(kubeconfig_of(self._cluster, inlined(user, kubeconfig.parent)))
        self._documents = objects.moved(manifests, "arpguard", self.home) or objects.access(self.home)
        self._forwarder = Forwarder(lab.api, (API_ADDRESS, API_PORT), self.api.address)
        self._heartbeats = Heartbeats(self.api, [self.node_name(host) for host in lab.nodes])

    def node_name(self, host: Host) -> str:
        """With the namespace before it."""
        return f"{self.home}-{host.name}"

    def start(self) -> None:
        """Namespace, accounts, heartbeats, and the door; ArpguardError where a Service of others is in the way."""
        refuse_rivals(self.api)
        self.api.create("/api/v1/namespaces", objects.namespace(self.home))
        for document in self._documents:
            self.api.create(_collection(document), document)
        self._heartbeats.start()
        self._forwarder.start()
        for host in self.lab.nodes:
            path = self.lab.folder / f"{host.name}.kubeconfig"
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(self._kubeconfig_of_agent()), encoding="utf-8")
            self.lab.guards[host.name].kubeconfig = path

    def _kubeconfig_of_agent(self) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self.home}/serviceaccounts/{objects.ACCOUNT}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = self.api.create(path, {**asked, "spec": {"expirationSeconds": _TOKEN_S}})
        cluster = {"tls-server-name": self.api.address[0], **self._cluster}
        cluster["server"] = f"https://{API_ADDRESS}:{API_PORT}"
        return kubeconfig_of(cluster, {"token": answer["status"]["token"]})

    def stop(self) -> None:
        """Takes all away, as far as the server still answers; finalizers that would hold it are taken off.

        Nothing is left to kube-controller-manager, which would empty the namespace: where none runs, what stays there
        counts for every agent of the cluster.
        """
        self._forwarder.stop()
        self._heartbeats.stop()
        for host in self.lab.nodes:
            self._try(partial(self.api.delete, f"/api/v1/nodes/{self.node_name(host)}"))
        for collection in _COLLECTIONS:
            self._try(partial(self._empty, collection.format(self.home)))
        is_managed = self._is_managed()
        for document in reversed(self._documents):
            path = f"{_collection(document)}/{document['metadata']['name']}"
            self._try(partial(self.api.delete, path))
        self._try(partial(self.api.delete, f"/api/v1/namespaces/{self.home}"))
        if not is_managed:
            self._try(partial(self.api.finalize_namespace, self.home))

    def _is_managed(self) -> bool:
        """Whether kube-controller-manager runs: it makes this ServiceAccount in every namespace."""
        try:
            self.api.get(f"/api/v1/namespaces/{self.home}/serviceaccounts/default")
        except KubeApiError as error:
            return error.code != NOT_FOUND
        except OSError:
            return True
        return True

    def _empty(self, path: str) -> None:
        for item in self.api.get(path)["items"]:
            place = f"{path}/{item['metadata']['name']}"
            if item["metadata"].get("finalizers"):
                self._try(partial(self.api.patch, place, {"metadata": {"finalizers": None}}))
            self.api.delete(place, {"gracePeriodSeconds": 0})

    def _try(self, action: Callable[[], object]) -> None:
        with suppress(OSError, KubeApiError):
            action()

    def go_down(self) -> None:
        """Lets no connection to the API server through."""
        self._forwarder.go_down()

    def come_back(self) -> None:
        """Lets connections to the API server through again."""
        self._forwarder.come_back()

    def trouble(self, host: Host, fault: Fault | None) -> None:
        """Does something to the connections of one node."""
        address = f"{MANAGEMENT}.{self.lab.number(host)}"
        if fault is None:
            self._forwarder.mend(address)
        elif fault.name == "cut":
            self._forwarder.cut(address)
        else:
            self._forwarder.stall(address)


class Heartbeats:
    """Says of Nodes that they live, as their kubelets do.

    Else kube-controller-manager, where it runs, takes them for lost after 40 s (--node-monitor-grace-period).
    """

    def __init__(self, api: KubeApi, nodes: Sequence[str]) -> None:
        self._api = api
        self._nodes = nodes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-heartbeats", daemon=True)

    def start(self) -> None:
        """The first ones, and more from now on."""
        for name in self._nodes:
            spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
            self._api.create(_NODE_LEASES, objects.lease("kube-node-lease", name, spec))
        self._thread.start()

    def stop(self) -> None:
        """The last one, and takes the Leases away."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        for name in self._nodes:
            with suppress(OSError, KubeApiError):
                self._api.delete(f"{_NODE_LEASES}/{name}")

    def _run(self) -> None:
        while not self._over.wait(_HEARTBEAT_S):
            for name in self._nodes:
                with suppress(OSError, KubeApiError):  # the next one is soon
                    self._api.patch(f"{_NODE_LEASES}/{name}", {"spec": {"renewTime": _now()}})


def refuse_rivals(api: KubeApi) -> None:
    """ArpguardError for a Service that decides about an address of the lab: it counts for the lab's agents, too.

    One with an owner of its own counts whatever its labels are, and the namespace with the oldest one has the say.
    """
    for body in api.get("/api/v1/services")["items"]:
        metadata = body["metadata"]
        taken = [address for address in _addresses(body) if _is_the_labs(address)]
        if taken and f"{objects.PREFIX}owner" in (metadata.get("annotations") or {}):
            home, name = metadata["namespace"], metadata["name"]
            raise ArpguardError(
                f"the annotation {objects.PREFIX}owner of Service {home}/{name} names an owner of {taken[0]}, which "
                f"the lab's agents would follow: run `kubectl -n {home} delete service {name}`, and start the lab again"
            )


def _addresses(service: dict[str, Any]) -> list[str]:
    ingress = (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or ()
    return [*(service["spec"].get("externalIPs") or ()), *(each["ip"] for each in ingress if "ip" in each)]


def _is_the_labs(text: str) -> bool:
    address = ip_address(text)
    return any(address in ip_network(each) for each in objects.RANGES)


def _now() -> str:
    """As metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _collection(document: dict[str, Any]) -> str:
    """The path of the collection that an object belongs to."""
    version, kind = document["apiVersion"], document["kind"]
    head = f"/apis/{version}" if "/" in version else f"/api/{version}"
    home = document["metadata"].get("namespace")
    plural = f"{kind.lower()}s"
    return f"{head}/namespaces/{home}/{plural}" if home else f"{head}/{plural}"
