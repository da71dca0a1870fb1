"""The lab against an API server that is given to it: what it leaves there, what it refuses, and what it advises."""

import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from types import SimpleNamespace

import pytest
import yaml

from arpguard.errors import ArpguardError
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects, real
from arpguard_lab.cluster.kubeapi import KubeApi, KubeApiError
from arpguard_lab.cluster.real import Heartbeats, Real, refuse_rivals
from arpguard_lab.cluster.topology import DAEMONSET
from support.kube.plain_http import Api

VIP = "198.51.100.50"
SERVICES = "/api/v1/namespaces/shop/services"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
EVERYTHING = (
    *("/api/v1/namespaces", "/api/v1/nodes", "/api/v1/services", "/api/v1/pods", "/api/v1/configmaps"),
    *("/api/v1/serviceaccounts", "/apis/apps/v1/daemonsets", "/apis/coordination.k8s.io/v1/leases"),
    *("/apis/discovery.k8s.io/v1/endpointslices", "/apis/events.k8s.io/v1/events"),
    *(f"/apis/rbac.authorization.k8s.io/v1/{each}" for each in ("roles", "rolebindings")),
    *(f"/apis/rbac.authorization.k8s.io/v1/{each}" for each in ("clusterroles", "clusterrolebindings")),
)


class NoDoor:
    """A lab without namespaces of the network: nothing is forwarded."""

    def __init__(self, *_: object) -> None:
        pass

    def start(self) -> None:
        pass

    stop = start


@pytest.fixture(params=[True, False], ids=["bare", "with kube-controller-manager"])
def given(request, tmp_path) -> Iterator[SimpleNamespace]:
    with running(Options(bare=request.param)) as server:
        server.do(lambda it: it.add_client("admin"))
        kubeconfig = server.do(lambda it: it.kubeconfig("admin"))
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig))
        yield SimpleNamespace(api=KubeApi(kubeconfig), http=Api(kubeconfig), path=path, bare=request.param)


@pytest.fixture
def lab(given, tmp_path, monkeypatch) -> Real:
    """Its objects in the API, and none of its nodes."""
    monkeypatch.setattr(real, "Forwarder", NoDoor)
    nodes = [SimpleNamespace(name="node-1"), SimpleNamespace(name="node-2")]
    guards = {node.name: SimpleNamespace(kubeconfig=None) for node in nodes}
    return Real(SimpleNamespace(nodes=nodes, guards=guards, folder=tmp_path, api=None), given.path)


def found(api: Api) -> dict[str, list[str]]:
    return {path: sorted(api.ask("GET", path).names) for path in EVERYTHING}


def a_whole_scene(lab: Real) -> None:
    """One of all that scenarios make."""
    home, api = lab.home, lab.api
    api.create("/api/v1/nodes", objects.node(lab.node_name(lab.lab.nodes[0]), "198.51.100.1"))
    inside = f"namespaces/{home}"
    api.create(f"/api/v1/{inside}/configmaps", objects.config_map(home, "arpguard", ""))
    api.create(f"/api/v1/{inside}/services", objects.service(home, "web", [VIP]))
    api.create(f"/apis/apps/v1/{inside}/daemonsets", objects.daemon_set(home, DAEMONSET))
    api.create(f"/api/v1/{inside}/pods", objects.pod(home, "arpguard-1", f"{home}-node-1"))
    slices = f"/apis/discovery.k8s.io/v1/{inside}/endpointslices"
    api.create(slices, objects.endpoint_slice(home, "web", {f"{home}-node-1": True}))
    claim = objects.lease(home, "vip.198-51-100-50", {})
    claim["metadata"]["finalizers"] = ["arpguard.io/claim"]
    api.create(f"/apis/coordination.k8s.io/v1/{inside}/leases", claim)


def test_a_run_leaves_the_server_as_it_was(lab, given):
    before = found(given.http)

    lab.start()
    a_whole_scene(lab)
    assert found(given.http) != before
    lab.stop()

    assert found(given.http) == before


def test_a_namespace_is_left_to_the_controller_manager_that_serves_it(lab, given):
    """It may have more to take away than the lab knows of."""
    lab.start()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    given.api.create(f"/api/v1/namespaces/{lab.home}/serviceaccounts", account)
    lab.stop()

    left = [name for name in given.http.ask("GET", "/api/v1/namespaces").names if name == lab.home]
    assert left == ([lab.home] if given.bare else [])


@pytest.mark.parametrize("where", ["spec", "status"])
def test_a_service_that_decides_about_the_labs_addresses_is_named_with_the_remedy(given, where):
    body = objects.service("shop", "old", [VIP] if where == "spec" else [], {"owner": "follow"})
    body["spec"]["type"] = "LoadBalancer"
    given.api.create("/api/v1/namespaces", objects.namespace("shop"))
    given.api.create(SERVICES, body)
    if where == "status":
        status = {"loadBalancer": {"ingress": [{"hostname": "x.example"}, {"ip": VIP}]}}
        given.api.patch(f"{SERVICES}/old/status", {"status": status})

    with pytest.raises(ArpguardError, match=f"Service shop/old .*{VIP}.*`kubectl -n shop delete service old`"):
        refuse_rivals(given.api)


@pytest.mark.parametrize(
    ("vip", "annotations"),
    [("192.0.2.1", {"owner": "follow"}), (VIP, {}), (VIP, {"hold": "true"})],
    ids=["another address", "chosen by its labels", "no owner"],
)
def test_other_services_are_let_be(given, vip, annotations):
    given.api.create("/api/v1/namespaces", objects.namespace("shop"))
    given.api.create(SERVICES, objects.service("shop", "other", [vip], annotations))

    refuse_rivals(given.api)


def test_no_service_of_a_lab_decides_for_another_lab(given):
    """Of an address that two Services name, the older namespace would have the say: of two labs, the first one."""
    given.api.create("/api/v1/namespaces", objects.namespace("shop"))
    given.api.create(SERVICES, objects.service("shop", "a", [VIP], {"hold": "true"}))
    given.api.create(SERVICES, objects.load_balancer("shop", "b"))
    given.api.patch(f"{SERVICES}/b/status", {"status": objects.ingress(IPv4Address(VIP))})

    refuse_rivals(given.api)


def test_a_pod_of_the_lab_needs_no_service_account_but_the_labs_own(lab, given):
    lab.start()
    pod = objects.pod(lab.home, "arpguard-1", f"{lab.home}-node-1")
    given.api.create(f"/api/v1/namespaces/{lab.home}/pods", pod)

    del pod["spec"]["serviceAccountName"]
    pod["metadata"]["name"] = "arpguard-2"
    if given.bare:
        with pytest.raises(KubeApiError, match="is kube-controller-manager running"):
            given.api.create(f"/api/v1/namespaces/{lab.home}/pods", pod)


def test_the_agents_token_is_the_account_with_the_labs_rights(lab, given):
    lab.start()
    document = yaml.safe_load(lab.lab.guards["node-1"].kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = f"https://{given.api.address[0]}:{given.api.address[1]}"
    who = Api(document).ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})

    assert who.body["status"]["userInfo"]["username"] == f"system:serviceaccount:{lab.home}:{objects.ACCOUNT}"


def test_the_labs_nodes_are_said_to_live_until_the_end(given, monkeypatch):
    monkeypatch.setattr(real, "_HEARTBEAT_S", 0.01)
    heartbeats = Heartbeats(given.api, ["a", "b"])

    def renewed() -> list[str]:
        return [item["spec"]["renewTime"] for item in given.api.get(NODE_LEASES)["items"]]

    heartbeats.start()
    first, deadline = renewed(), time.monotonic() + 20
    while any(time_ in first for time_ in renewed()) and time.monotonic() < deadline:
        threading.Event().wait(0.01)
    assert len(first) == 2
    assert not set(first) & set(renewed())

    heartbeats.stop()
    assert renewed() == []


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        (403, 'namespaces is forbidden: User "x" cannot create resource "namespaces"', "cluster-admin"),
        (401, "Unauthorized", "cluster-admin"),
        (403, 'pods "a" is forbidden: error looking up service account n/default: not found', "controller-manager"),
        (500, "etcdserver: request timed out", "look at the API server's log"),
        (415, "the body of the request was in an unknown format", "does not accept"),
    ],
)
def test_a_refusal_says_what_to_do(code, message, advice):
    assert advice in str(KubeApiError(code, message))
    assert ("look at the API server's log" in str(KubeApiError(code, message))) == (code >= 500)
