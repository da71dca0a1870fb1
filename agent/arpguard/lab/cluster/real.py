"""A given API server: the lab makes a namespace, Nodes and accounts of its own there, and takes them away again.

Nodes belong to the whole cluster; the lab's have the namespace in their names, so that they are nobody else's.
The nodes of the lab reach the server through a door in the lab's second network; TLS is theirs and the server's.
"""

import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from arpguard.lab.cluster import objects
from arpguard.lab.cluster.forwarding import Forwarder
from arpguard.lab.cluster.kubeapi import KubeApi, KubeApiError, current, inlined
from arpguard.lab.cluster.servers import ApiUnderTest, Fault
from arpguard.lab.cluster.topology import API_ADDRESS, API_PORT, MANAGEMENT, KubeLab
from arpguard.lab.topology import Host

VARIABLE = "ARPGUARD_TEST_KUBECONFIG"
_TOKEN_S = 7200
_COLLECTIONS = (
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "/api/v1/namespaces/{}/pods",
    "/api/v1/namespaces/{}/configmaps",
    "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
)


class Real(ApiUnderTest):
    """The server of a kubeconfig."""

    faults = (Fault("cut"), Fault("stall"))

    def __init__(self, lab: KubeLab, kubeconfig: Path, manifests: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(lab, f"arpguard-lab-{secrets.token_hex(4)}")
        document = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = current(document)
        self._cluster = inlined(cluster, kubeconfig.parent)
        self.api = KubeApi(_kubeconfig(self._cluster, inlined(user, kubeconfig.parent)))
        self._documents = objects.moved(manifests, "arpguard", self.home) or objects.access(self.home)
        self._forwarder = Forwarder(lab.api, (API_ADDRESS, API_PORT), self.api.address)

    def node_name(self, host: Host) -> str:
        """With the namespace before it."""
        return f"{self.home}-{host.name}"

    def start(self) -> None:
        """Namespace, accounts, and the door."""
        self.api.create("/api/v1/namespaces", objects.namespace(self.home))
        for document in self._documents:
            self.api.create(_collection(document), document)
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
        return _kubeconfig(cluster, {"token": answer["status"]["token"]})

    def stop(self) -> None:
        """Takes all away, as far as the server still answers; finalizers that would hold it are taken off."""
        self._forwarder.stop()
        for host in self.lab.nodes:
            self._try(partial(self.api.delete, f"/api/v1/nodes/{self.node_name(host)}"))
        for collection in _COLLECTIONS:
            self._try(partial(self._empty, collection.format(self.home)))
        for document in reversed(self._documents):
            path = f"{_collection(document)}/{document['metadata']['name']}"
            self._try(partial(self.api.delete, path))
        self._try(partial(self.api.delete, f"/api/v1/namespaces/{self.home}"))

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
        """Closes the door."""
        self._forwarder.go_down()

    def come_back(self) -> None:
        """Opens it again."""
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


def _kubeconfig(cluster: dict[str, Any], user: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
    }


def _collection(document: dict[str, Any]) -> str:
    """The path of the collection that an object belongs to."""
    version, kind = document["apiVersion"], document["kind"]
    head = f"/apis/{version}" if "/" in version else f"/api/{version}"
    home = document["metadata"].get("namespace")
    plural = f"{kind.lower()}s"
    return f"{head}/namespaces/{home}/{plural}" if home else f"{head}/{plural}"
