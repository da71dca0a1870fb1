"""What the ValidatingAdmissionPolicies let an agent write, and how the FlowSchema has it served. Both are for an API
server to evaluate: such tests run against the cluster of ARPGUARD_TEST_KUBECONFIG, by somebody who acts as agents.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml

from arpguard.core.cluster import OWNED_BY
from arpguard.core.ownership.records import WriteClaim, WriteHeartbeat
from arpguard.kube.claims import claim_content, heartbeat_content, lease_name
from arpguard.kube.writer import LeaseContent
from arpguard.runtime.controlplane import End
from arpguard.units import NS_PER_S
from arpguard_lab.cluster import objects
from support.kube import agent_side
from support.kube.agent_side import Segment, a_side, waited
from support.kube.manifests import DEPLOY, built, charted, one, parsed
from support.kube.plain_http import MERGE, Api, Reply, real_kubeconfig
from support.kube.scripted_server import in_loop

POLICY = "arpguard-node-identity"
KUBECONFIG = os.environ.get("ARPGUARD_TEST_KUBECONFIG", "")
KINDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
PATHS = {
    kind: f"/apis/admissionregistration.k8s.io/v1/{plural}"
    for kind, plural in zip(KINDS, ("validatingadmissionpolicies", "validatingadmissionpolicybindings"), strict=True)
}
FLOW_SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
PRIORITY_LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
EPOCHS = [str(uuid.UUID(int=number)) for number in (1, 2)]
NODES = ("node-1", "node-2")
VIP = ip_address("192.0.2.50")
OK, FORBIDDEN = (200, 201), (422, 403)
# The loop of such a test ends before the server has answered the end of the TLS connections.
with_agents = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
on_a_cluster = pytest.mark.skipif(not KUBECONFIG, reason="ARPGUARD_TEST_KUBECONFIG names no cluster to evaluate CEL")


def shipped() -> list[dict]:
    return parsed((DEPLOY / "components/node-identity/policy.yaml").read_text(encoding="utf-8"))


def test_chart_has_the_policy_of_the_component():
    theirs = [each for each in parsed(charted("--set", "nodeIdentity=true")) if each["kind"] in KINDS]
    assert theirs == shipped()
    assert not [each for each in parsed(charted()) if each["kind"] in KINDS]


def test_policy_is_for_the_agents_of_the_charts_namespace():
    theirs = charted("--set", "nodeIdentity=true", namespace="elsewhere")
    assert "system:serviceaccount:elsewhere:arpguard" in theirs
    assert "metadata.name: elsewhere" in theirs


def test_policy_denies_and_does_not_fail_open():
    policy, binding = (one(shipped(), kind, POLICY) for kind in KINDS)
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert policy["spec"]["matchConstraints"]["resourceRules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (POLICY, ["Deny"])


@dataclass
class Cluster:
    """A namespace with the policy, in a real cluster."""

    namespace: str
    admin: Api

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    def as_agent(self, node: str, method: str, name: str, body: dict | None = None, *, services: bool = False) -> int:
        """The code of a request of a node's agent about a Lease or a Service; "": of one whose token names no node."""
        acting = {"h_Impersonate-Group": "system:masters"}  # what RBAC says is not the question
        if node:
            acting["h_Impersonate-Extra-authentication.kubernetes.io%2Fnode-name"] = node
        kind = f"/api/v1/namespaces/{self.namespace}/services" if services else self.leases
        return self._acting(method, kind if method == "POST" else f"{kind}/{name}", body, **acting).code

    def flow_schema_of(self, method: str) -> str:
        """The uid of that by which a request for a Lease is served; whether it is allowed does not matter."""
        data = None if method == "GET" else {}
        return self._acting(method, f"{self.leases}/x", data).headers["X-Kubernetes-PF-FlowSchema-UID"]

    def _acting(self, method: str, path: str, body: dict | None, **headers: str) -> Reply:
        """A request as the agents' account, whatever the administrator's credentials are."""
        account = f"system:serviceaccount:{self.namespace}:arpguard"
        content_type = MERGE if method == "PATCH" else "application/json"
        return self.admin.ask(method, path, body, content_type, **{"h_Impersonate-User": account}, **headers)

    def body(self, name: str, content: LeaseContent, **metadata: str) -> dict:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": name,
                "annotations": dict(content.annotations),
                "labels": dict(content.labels),
                **metadata,
            },
            "spec": {"holderIdentity": content.holder, "leaseDurationSeconds": content.duration_s},
        }

    def put(self, node: str, name: str, content: LeaseContent) -> int:
        """Creates or replaces a Lease, as an agent does."""
        found = self.admin.ask("GET", f"{self.leases}/{name}")
        if found.code == 404:
            return self.as_agent(node, "POST", name, self.body(name, content))
        metadata = {"uid": found.body["metadata"]["uid"], "resourceVersion": found.version}
        return self.as_agent(node, "PUT", name, self.body(name, content, **metadata))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    admin = Api(real_kubeconfig(KUBECONFIG))
    name = f"test-{uuid.uuid4().hex[:8]}"
    made = Cluster(name, admin)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert admin.ask("POST", "/api/v1/namespaces", namespace).code == 201
    for each in shipped():
        text = json.dumps(each).replace("serviceaccount:arpguard:", f"serviceaccount:{name}:").replace(POLICY, name)
        body = json.loads(
            text.replace('"kubernetes.io/metadata.name": "arpguard"', f'"kubernetes.io/metadata.name": "{name}"')
        )
        reply = admin.ask("POST", PATHS[each["kind"]], body)
        assert reply.code == 201, reply.body
    try:
        deadline = time.monotonic() + 30
        while made.as_agent("node-9", "POST", "x", made.body("other", heartbeat("node-9"))) in OK:  # not in force yet
            admin.ask("DELETE", f"{made.leases}/other")
            assert time.monotonic() < deadline
        checked = admin.ask("GET", f"{PATHS[KINDS[0]]}/{name}").body["status"]
        assert "expressionWarnings" not in checked.get("typeChecking", {}), checked
        yield made
    finally:
        for path in PATHS.values():
            admin.ask("DELETE", f"{path}/{name}")
        admin.ask("DELETE", f"/api/v1/namespaces/{name}")


def heartbeat(node: str, instance: str = "i", epoch: int = 0) -> LeaseContent:
    """A renewal; without an instance a revocation."""
    return heartbeat_content(WriteHeartbeat(node, EPOCHS[epoch], instance, None, 3 * NS_PER_S))


def reporting(node: str) -> LeaseContent:
    """A revocation that tells of the announcer there, too."""
    return replace(heartbeat(node, "", 1), annotations=(("arpguard.io/speakers", "{}"),))


def naming(node: str) -> LeaseContent:
    """A revocation that says who vouches for the node, too."""
    return replace(heartbeat(node, "", 1), annotations=(("arpguard.io/vouchers", "{}"),))


def claim(holder: str) -> LeaseContent:
    return claim_content(WriteClaim(VIP, holder, EPOCHS[0] if holder else "", None))


def clear(cluster: Cluster) -> None:
    for name in ("node.node-1", "node.node-2", lease_name(VIP)):
        cluster.admin.ask("DELETE", f"{cluster.leases}/{name}")


def revoked_then_deleted(cluster: Cluster) -> int:
    assert cluster.put("node-2", "node.node-1", heartbeat("node-1", "", 1)) in OK
    return cluster.as_agent("node-2", "DELETE", "node.node-1")


Act = Callable[[Cluster], int]
CASES: dict[str, tuple[Act, tuple[int, ...]]] = {
    "own heartbeat": (lambda it: it.put("node-1", "node.node-1", heartbeat("node-1")), OK),
    "another's heartbeat": (lambda it: it.put("node-2", "node.node-1", heartbeat("node-1")), FORBIDDEN),
    "revocation": (lambda it: it.put("node-2", "node.node-1", heartbeat("node-1", "", 1)), OK),
    "report in another's heartbeat": (lambda it: it.put("node-2", "node.node-1", reporting("node-1")), FORBIDDEN),
    "voucher in another's heartbeat": (lambda it: it.put("node-2", "node.node-1", naming("node-1")), FORBIDDEN),
    "own heartbeat in another's name": (lambda it: it.put("node-2", "node.node-2", heartbeat("node-1")), FORBIDDEN),
    "heartbeat without a node's token": (lambda it: it.put("", "node.node-1", heartbeat("node-1")), FORBIDDEN),
    "own claim": (lambda it: it.put("node-1", lease_name(VIP), claim("node-1")), OK),
    "claim for another": (lambda it: it.put("node-2", lease_name(VIP), claim("node-1")), FORBIDDEN),
    "claim that is released": (lambda it: it.put("node-1", lease_name(VIP), claim("")), OK),
    "another Lease": (lambda it: it.put("node-1", "leader", claim("node-1")), FORBIDDEN),
    "another's heartbeat deleted": (lambda it: it.as_agent("node-2", "DELETE", "node.node-1"), FORBIDDEN),
    "another's heartbeat revoked, then deleted": (revoked_then_deleted, OK),
    "own heartbeat deleted": (lambda it: it.as_agent("node-1", "DELETE", "node.node-1"), OK),
    "claim of a VIP that is no more": (lambda it: it.as_agent("node-2", "DELETE", lease_name(VIP)), OK),
}


@on_a_cluster
@pytest.mark.parametrize("held", [False, True], ids=["new", "there"])
@pytest.mark.parametrize("name", CASES)
def test_agent_may_write_for_its_own_node_only(cluster, name, held):
    """`there`: the heartbeat and the claim of node-1 exist."""
    act, expected = CASES[name]
    clear(cluster)
    if held or "deleted" in name or "no more" in name:
        assert cluster.put("node-1", "node.node-1", heartbeat("node-1")) in OK
        assert cluster.put("node-1", lease_name(VIP), claim("node-1")) in OK
    assert act(cluster) in expected


@on_a_cluster
def test_people_are_not_kept_from_anything(cluster):
    clear(cluster)
    assert cluster.put("node-1", lease_name(VIP), claim("node-1")) in OK
    assert cluster.admin.ask("DELETE", f"{cluster.leases}/{lease_name(VIP)}").code == 200


# ---- Services --------------------------------------------------------------------------------------------------------

OWN = "arpguard-owned-by"
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "web",
        "labels": {"app": "web"},
        "annotations": {"example.org/other": "x", OWNED_BY: "192.0.2.50=node-1"},
        "finalizers": ["example.org/kept"],
    },
    "spec": {"ports": [{"port": 80, "protocol": "TCP"}], "externalIPs": ["192.0.2.50"]},
}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
# What an agent asks to change of that Service, and whether it may.
CHANGES = {
    "the name": ({"metadata": {"annotations": {OWNED_BY: "192.0.2.50=node-2"}}}, OK),
    "the name removed": ({"metadata": {"annotations": {OWNED_BY: None}}}, OK),
    "all annotations removed": ({"metadata": {"annotations": None}}, FORBIDDEN),
    "another annotation": ({"metadata": {"annotations": {"example.org/other": "y"}}}, FORBIDDEN),
    "an annotation removed": ({"metadata": {"annotations": {"example.org/other": None}}}, FORBIDDEN),
    "an annotation added": ({"metadata": {"annotations": {"arpguard.io/owner": "external"}}}, FORBIDDEN),
    "a label": ({"metadata": {"labels": {"app": "other"}}}, FORBIDDEN),
    "labels removed": ({"metadata": {"labels": None}}, FORBIDDEN),
    "a finalizer": ({"metadata": {"finalizers": ["example.org/kept", "example.org/more"]}}, FORBIDDEN),
    "finalizers removed": ({"metadata": {"finalizers": None}}, FORBIDDEN),
    "an owner": ({"metadata": {"ownerReferences": [OWNER]}}, FORBIDDEN),
    "the addresses": ({"spec": {"externalIPs": ["192.0.2.51"]}}, FORBIDDEN),
    "the selector": ({"spec": {"selector": {"app": "mine"}}}, FORBIDDEN),
    "the name and the addresses": (
        {"metadata": {"annotations": {OWNED_BY: "x"}}, "spec": {"externalIPs": ["192.0.2.51"]}},
        FORBIDDEN,
    ),
}


def of_services() -> list[dict]:
    return parsed((DEPLOY / "components/owned-by/policy.yaml").read_text(encoding="utf-8"))


def test_chart_has_the_policy_of_the_component_for_services():
    theirs = [each for each in parsed(charted("--set", "config.services.owned_by=true")) if each["kind"] in KINDS]
    assert theirs == of_services()
    elsewhere = charted("--set", "config.services.owned_by=true", namespace="elsewhere")
    assert "system:serviceaccount:elsewhere:arpguard" in elsewhere


def test_policy_for_services_denies_and_does_not_fail_open():
    policy, binding = (one(of_services(), kind, OWN) for kind in KINDS)
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert "namespaceSelector" not in policy["spec"]["matchConstraints"], "Services are in all namespaces"
    assert (binding["spec"]["policyName"], binding["spec"]["validationActions"]) == (OWN, ["Deny"])


@pytest.fixture(scope="module")
def services(cluster) -> Iterator[str]:
    """The path of Services in a namespace where the policy for them is in force."""
    path, name = f"/api/v1/namespaces/{cluster.namespace}/services", f"{cluster.namespace}-owned-by"
    text = json.dumps(of_services()).replace("serviceaccount:arpguard:", f"serviceaccount:{cluster.namespace}:")
    for body in json.loads(text.replace(OWN, name)):
        reply = cluster.admin.ask("POST", PATHS[body["kind"]], body)
        assert reply.code == 201, reply.body
    try:
        trial = {**SERVICE, "metadata": {"name": "trial"}}
        deadline = time.monotonic() + 30
        while cluster.as_agent("node-1", "POST", "trial", trial, services=True) in OK:  # not in force yet
            cluster.admin.ask("DELETE", f"{path}/trial")
            assert time.monotonic() < deadline
        checked = cluster.admin.ask("GET", f"{PATHS[KINDS[0]]}/{name}").body["status"]
        assert "expressionWarnings" not in checked.get("typeChecking", {}), checked
        yield path
    finally:
        for each in PATHS.values():
            cluster.admin.ask("DELETE", f"{each}/{name}")


@pytest.fixture
def web(cluster, services) -> Iterator[str]:
    """The path of a Service that others have made."""
    assert cluster.admin.ask("POST", services, SERVICE).code == 201
    yield f"{services}/web"
    cluster.admin.ask("PATCH", f"{services}/web", {"metadata": {"finalizers": None}}, MERGE)
    cluster.admin.ask("DELETE", f"{services}/web")


@on_a_cluster
@pytest.mark.parametrize("change", CHANGES)
def test_agent_may_change_nothing_of_a_service_but_its_annotation(cluster, web, change):
    body, expected = CHANGES[change]
    assert cluster.as_agent("node-1", "PATCH", "web", body, services=True) in expected
    assert cluster.admin.ask("PATCH", web, body, MERGE).code in (*OK, 422), "people may, where the object stays valid"


@on_a_cluster
def test_agent_may_neither_make_nor_delete_a_service_nor_write_its_status(cluster, web):
    other = {**SERVICE, "metadata": {"name": "other"}}
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.51"}]}}}
    assert cluster.as_agent("node-1", "POST", "other", other, services=True) in FORBIDDEN
    assert cluster.as_agent("node-1", "DELETE", "web", services=True) in FORBIDDEN
    assert cluster.as_agent("node-1", "PATCH", "web/status", status, services=True) in FORBIDDEN
    assert cluster.admin.ask("GET", web).body["status"] == {"loadBalancer": {}}


# ---- how agents are served -------------------------------------------------------------------------------------------


def flow_schemas() -> list[dict]:
    return parsed((DEPLOY / "components/flow-schema/flowschema.yaml").read_text(encoding="utf-8"))


def name_of(each: dict) -> tuple[str, str]:
    return each["kind"], each["metadata"]["name"]


def test_chart_has_the_flow_schemas_of_the_component():
    theirs = [each for each in parsed(charted("--set", "flowSchema=true")) if "flowcontrol" in each["apiVersion"]]
    assert sorted(theirs, key=name_of) == sorted(flow_schemas(), key=name_of)
    assert charted("--set", "flowSchema=true", namespace="elsewhere").count("namespaces: [elsewhere]") == 2


def test_renewals_and_nothing_else_have_a_level_of_their_own():
    schemas = {each["metadata"]["name"]: each["spec"] for each in flow_schemas() if each["kind"] == "FlowSchema"}
    verbs = {name: spec["rules"][0]["resourceRules"][0]["verbs"] for name, spec in schemas.items()}
    levels = {name: spec["priorityLevelConfiguration"]["name"] for name, spec in schemas.items()}
    own = one(flow_schemas(), "PriorityLevelConfiguration", levels["arpguard-heartbeats"])
    assert own["spec"]["limited"]["lendablePercent"] == 0
    assert "patch" in verbs["arpguard-heartbeats"]
    assert not {"create", "update", "delete"} & set(verbs["arpguard-heartbeats"])
    assert levels["arpguard"] != levels["arpguard-heartbeats"]
    granted = one(parsed(built("base")), "Role")["rules"][0]["verbs"]
    assert sorted(verbs["arpguard"] + verbs["arpguard-heartbeats"]) == sorted(granted)


@on_a_cluster
def test_renewals_are_served_at_a_level_of_their_own(cluster):
    """The server says in its answers by which FlowSchema a request was served."""
    named = json.dumps(flow_schemas()).replace('"arpguard', f'"{cluster.namespace}')
    text = named.replace(f'"serviceAccount": {{"name": "{cluster.namespace}"', '"serviceAccount": {"name": "arpguard"')
    made = []
    try:
        for body in json.loads(text):
            plural = FLOW_SCHEMAS if body["kind"] == "FlowSchema" else PRIORITY_LEVELS
            reply = cluster.admin.ask("POST", plural, body)
            assert reply.code == 201, reply.body
            made.append((f"{plural}/{body['metadata']['name']}", reply.body["metadata"]["uid"]))
        _, (_, renewals), (_, claims) = made
        deadline = time.monotonic() + 30
        while [cluster.flow_schema_of(method) for method in ("PATCH", "GET", "PUT")] != [renewals, renewals, claims]:
            assert time.monotonic() < deadline, "they are not used"
    finally:
        for path, _ in made:
            cluster.admin.ask("DELETE", path)


# ---- agents under the policy -----------------------------------------------------------------------------------------


class RealScene:
    """Stands for `agent_side.Scene`: kubeconfigs with tokens bound to Pods on nodes, as the kubelet asks for them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        self._cluster = cluster
        self._home = f"/api/v1/namespaces/{cluster.namespace}"

    def put(self, path: str, body: dict) -> dict:
        reply = self._cluster.admin.ask("POST", path, body)
        assert reply.code in (201, 409), reply.body
        return reply.body

    def kubeconfig(self, node: str, _service_account: str) -> Path:
        spec = {"nodeName": node, "serviceAccountName": "arpguard", "containers": [{"name": "agent", "image": "x"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "agent-"}, "spec": spec}
        made = self.put(f"{self._home}/pods", pod)["metadata"]
        bound = {"kind": "Pod", "apiVersion": "v1", "name": made["name"], "uid": made["uid"]}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}}
        token = self.put(f"{self._home}/serviceaccounts/arpguard/token", asked)["status"]["token"]
        config = yaml.safe_load(Path(KUBECONFIG).read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        path = self.folder / f"{node}.kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def lease(self, name: str) -> dict:
        reply = self._cluster.admin.ask("GET", f"{self._cluster.leases}/{name}")
        return reply.body if reply.code == 200 else {"metadata": {}, "spec": {}}

    def holder(self) -> str:
        return self.lease(lease_name(VIP))["spec"].get("holderIdentity", "")

    def cordon(self, node: str, *, on: bool) -> None:
        path = f"/api/v1/nodes/{node}"
        assert self._cluster.admin.ask("PATCH", path, {"spec": {"unschedulable": on}}, MERGE).code == 200


@pytest.fixture
def real(cluster, tmp_path, monkeypatch) -> Iterator[RealScene]:
    """The base's objects in the namespace of the test, two Nodes, and a Service."""
    monkeypatch.setattr("arpguard.runtime.cluster.segment.Prober", Segment)
    monkeypatch.setattr(agent_side, "HOME", cluster.namespace)
    for name, text in (("POD_NAMESPACE", cluster.namespace), ("DAEMONSET_NAME", "arpguard"), ("POD_NAME", "x")):
        monkeypatch.setenv(name, text)
    scene = RealScene(cluster, tmp_path)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    inside = f"namespaces/{cluster.namespace}"
    paths = {
        "ServiceAccount": f"/api/v1/{inside}/serviceaccounts",
        "ConfigMap": f"/api/v1/{inside}/configmaps",
        "Role": f"{rbac}/{inside}/roles",
        "RoleBinding": f"{rbac}/{inside}/rolebindings",
        "ClusterRole": f"{rbac}/clusterroles",
        "ClusterRoleBinding": f"{rbac}/clusterrolebindings",
    }
    for each in parsed(built("base")):
        if each["kind"] in paths:
            text = json.dumps(each).replace('"namespace": "arpguard"', f'"namespace": "{cluster.namespace}"')
            body = json.loads(text)
            if each["kind"].startswith("Cluster"):
                body["metadata"]["name"] = cluster.namespace
                body.get("roleRef", {})["name"] = cluster.namespace
            if each["kind"] == "ConfigMap":
                body["data"]["config.yaml"] = agent_side.CONFIG
            scene.put(paths[each["kind"]], body)
    for number, node in enumerate(NODES, 1):
        scene.put("/api/v1/nodes", objects.node(node, ip_address(f"192.0.2.{number}")))
    scene.put(f"/api/v1/{inside}/services", objects.service(cluster.namespace, "web", [VIP]))
    yield scene
    for path in (*(f"/api/v1/nodes/{node}" for node in NODES), f"{paths['ClusterRole']}/{cluster.namespace}"):
        cluster.admin.ask("DELETE", path)
    cluster.admin.ask("DELETE", f"{paths['ClusterRoleBinding']}/{cluster.namespace}")


@on_a_cluster
@with_agents
@in_loop
async def test_agents_live_under_the_policy(cluster, real):
    """They claim, hand over, revoke who is gone, take over, and remove what is theirs."""
    clear(cluster)
    async with a_side(real, NODES[0], configmap="arpguard") as first:
        await waited(lambda: real.holder() == NODES[0], "the first claim")
        async with a_side(real, NODES[1], configmap="arpguard"):
            await waited(lambda: "spec" in real.lease("node.node-2"), "its heartbeat")
            real.cordon(NODES[0], on=True)
            await waited(lambda: real.holder() == NODES[1], "the hand-over")
        real.cordon(NODES[0], on=False)
        await waited(lambda: real.holder() == NODES[0], "the takeover", 30)
        assert "arpguard.io/instance" not in real.lease("node.node-2")["metadata"]["annotations"], "it is revoked"
        assert await first.kube.leave() is End.REMOVED
        assert real.lease("node.node-1") == {"metadata": {}, "spec": {}}
        assert real.holder() == ""


@on_a_cluster
@with_agents
@in_loop
async def test_owner_names_itself_on_its_service_under_the_policy(cluster, services, real):
    clear(cluster)
    name = f"{cluster.namespace}-owned-by"
    text = (DEPLOY / "components/owned-by/rbac.yaml").read_text(encoding="utf-8").replace(OWN, name)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    for body in parsed(text.replace("namespace: arpguard", f"namespace: {cluster.namespace}")):
        real.put(f"{rbac}/{body['kind'].lower()}s", body)
    config = {"data": {"config.yaml": agent_side.CONFIG.replace("owner: elect", "owner: elect, owned_by: true")}}
    home = f"/api/v1/namespaces/{cluster.namespace}"
    assert cluster.admin.ask("PATCH", f"{home}/configmaps/arpguard", config, MERGE).code == 200

    def named() -> str:
        return cluster.admin.ask("GET", f"{services}/web").body["metadata"].get("annotations", {}).get(OWNED_BY, "")

    try:
        async with a_side(real, NODES[0], configmap="arpguard") as side:
            await waited(lambda: named() == f"{VIP}={NODES[0]}", "its name", 30)
            assert await side.kube.leave() is End.REMOVED
            assert named() == ""
    finally:
        for plural in ("clusterroles", "clusterrolebindings"):
            cluster.admin.ask("DELETE", f"{rbac}/{plural}/{name}")
