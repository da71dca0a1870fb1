"""The rights that the manifests give are those that agents use: from the first start to the removal, on the lab's API
server with these roles in force. Nothing is refused, and nothing is granted that nobody asked for.
"""

import pytest
import yaml

from arpguard.config.model import VouchingConfig
from arpguard.core.cluster import OPENELB_BRAND, OPENELB_NEXT_HOP, OWNED_BY
from arpguard.kube.client import Client
from arpguard.kube.clustersecret import ClusterSecretError, cluster_secret
from arpguard.kube.connecting import find_access
from arpguard.kube.errors import ForbiddenError
from arpguard.kube.resources import SECRETS, Request
from arpguard.runtime.controlplane import End
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.kube.agent_side import HOME, Scene, Segment, a_side, vip, waited
from support.kube.manifests import DEPLOY, built, composed, one, parsed
from support.kube.plain_http import MERGE
from support.kube.scripted_server import in_loop
from support.kube.voucher_side import Voucher

ACCOUNT = f"{HOME}/arpguard"
CONFIG = (
    "{{mode: enforce, interfaces: [lab0], ranges: [192.0.2.0/24], services: {{owned_by: {owned_by}}},"
    " lease: {{duration: 3s, renew: 500ms, margin: 1s}}}}"
)
WEB, LOCAL, FOLLOWED, OUTSIDE = vip(50), vip(51), vip(52), vip(0) + 65536
NODES = ("node-1", "node-2")
PATIENCE_S = 30.0
POD, DAEMONSET = "arpguard-x7", "arpguard"
L2_STATUSES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicel2statuses.metallb.io"},
    "spec": {
        "group": "metallb.io",
        "scope": "Namespaced",
        "names": {"plural": "servicel2statuses", "kind": "ServiceL2Status"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "subresources": {"status": {}}}],
    },
}
NAMESPACES = ("kube-system", "metallb-system", "openelb-system")


def with_components(folder, pattern: str) -> list[dict]:
    """The base with every component of such a name."""
    names = sorted(path.parent.name for path in DEPLOY.glob(f"components/{pattern}/kustomization.yaml"))
    for name in ("base", *(f"components/{name}" for name in names)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(DEPLOY / name)
    listed = ", ".join(f"components/{name}" for name in names)
    return composed(folder, f"resources: [base]\ncomponents: [{listed}]\n")


@pytest.fixture(params=["", "follow-*", "owned-by"])
def scene(request, tmp_path, monkeypatch):
    """The shipped objects, and their roles in force; agents that know their Pod and its DaemonSet."""
    monkeypatch.setattr("arpguard.runtime.cluster.segment.Prober", Segment)
    for name, text in (("POD_NAME", POD), ("POD_NAMESPACE", HOME), ("DAEMONSET_NAME", DAEMONSET)):
        monkeypatch.setenv(name, text)
    shipped = with_components(tmp_path, request.param) if request.param else parsed(built("base"))
    owned_by = request.param == "owned-by"
    one(shipped, "ConfigMap")["data"]["config.yaml"] = CONFIG.format(owned_by=str(owned_by).lower())
    roles = [each for each in shipped if each["apiVersion"].startswith("rbac.")]
    spaces = [objects.namespace(name) for name in NAMESPACES]
    rest = [L2_STATUSES, *(each for each in shipped if each not in roles and "Admission" not in each["kind"])]
    with running(Options(tls=False, rbac=[*spaces, *roles], objects=rest)) as server:
        scene = Scene(server, tmp_path)
        scene.follows, scene.owned_by = request.param == "follow-*", owned_by
        yield scene


def slice_of(service: str, node: str) -> dict:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": f"{service}-1", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.9"], "nodeName": node, "conditions": {"ready": True}}],
        "ports": [],
    }


def asked(scene) -> set[tuple[str, str, str]]:
    """What agents have asked for: verb, group and resource."""
    uses = scene.server.do(lambda it: [use for node in NODES for use in it.counters.uses.get(node, ())])
    return {(use.verb, use.group, use.resource) for use in uses}


def places(scene) -> set[str]:
    """The namespaces in which agents watch something."""
    uses = scene.server.do(lambda it: [use for node in NODES for use in it.counters.uses.get(node, ())])
    return {use.namespace for use in uses if use.verb == "watch"}


def refused(scene) -> list[object]:
    return [
        request
        for request in scene.server.do(lambda it: list(it.counters.requests))
        if request.client in NODES and request.code == 403
    ]


def unused(scene) -> list[object]:
    """Grants that no agent has used."""
    grants = [set(scene.server.do(lambda it, node=node: it.unused_grants(node))) for node in NODES]
    return sorted(set.intersection(*grants), key=str)


def move(scene, name: str, address) -> None:
    path = f"/api/v1/namespaces/shop/services/{name}"
    assert scene.api.ask("PATCH", path, {"spec": {"externalIPs": [str(address)]}}, MERGE).code == 200


def owned_by(scene, name: str) -> str:
    """The owner that a Service of one address names."""
    found = scene.get(f"/api/v1/namespaces/shop/services/{name}")["metadata"]
    return found.get("annotations", {}).get(OWNED_BY, "").partition("=")[2]


async def _live(scene) -> None:
    """What happens in a cluster's life, with two agents."""
    scene.nodes(*NODES)
    scene.put(slice_of("local", "node-2"))
    scene.publish("web", [WEB])
    scene.publish("local", [LOCAL], local=True)
    if scene.follows:
        scene.publish("followed", [FOLLOWED], {"owner": "follow"})
        of_openelb = objects.service("shop", "of-openelb", [vip(53)], {"owner": "follow"})
        of_openelb["metadata"]["annotations"] |= {OPENELB_BRAND: "openelb", OPENELB_NEXT_HOP: "node-1"}
        scene.put(of_openelb)
    async with a_side(scene, NODES[0], Voucher(), configmap="arpguard", service_account=ACCOUNT) as first:
        await waited(lambda: scene.holder(WEB) == NODES[0], "node-1 takes it", PATIENCE_S)
        async with a_side(scene, NODES[1], Voucher(), configmap="arpguard", service_account=ACCOUNT) as second:
            await waited(lambda: scene.holder(LOCAL) == NODES[1], "its endpoints are on node-2", PATIENCE_S)
            await waited(
                lambda: not scene.owned_by or (owned_by(scene, "web"), owned_by(scene, "local")) == NODES,
                "both say so on their Service",
                PATIENCE_S,
            )
            scene.publish("greedy", [OUTSIDE])
            await waited(lambda: scene.events("VIPOutsideRanges"), "an Event", PATIENCE_S)
            move(scene, "greedy", vip(60))
            await waited(lambda: scene.holder(vip(60)), "a VIP more", PATIENCE_S)
            move(scene, "greedy", OUTSIDE)
            await waited(
                lambda: ("patch", "events.k8s.io", "events") in asked(scene), "the Event is a series", PATIENCE_S
            )
            await waited(
                lambda: not scene.follows or set(NAMESPACES) <= places(scene),
                "all announcers are looked for",
                PATIENCE_S,
            )
            cordon = {"spec": {"unschedulable": True}}
            assert scene.api.ask("PATCH", f"/api/v1/nodes/{NODES[0]}", cordon, MERGE).code == 200
            await waited(lambda: scene.holder(WEB) == NODES[1], "handed over", PATIENCE_S)
            assert await first.kube.leave() is End.STOPPED
            scene.delete(f"/apis/apps/v1/namespaces/{HOME}/daemonsets/{DAEMONSET}")
            assert await second.kube.leave() is End.REMOVED
            await waited(lambda: not scene.claim(WEB), "its claim is deleted")


@in_loop
async def test_agents_use_what_they_are_granted_and_ask_for_nothing_else(scene):
    pod = {"metadata": {"name": POD, "namespace": HOME}, "spec": {"containers": [{"name": "agent", "image": "x"}]}}
    scene.put({"apiVersion": "v1", "kind": "Pod", **pod})
    await _live(scene)

    assert refused(scene) == []
    assert unused(scene) == []


def test_grant_that_nobody_uses_is_found(tmp_path):
    """The check above would tell."""
    shipped = [each for each in parsed(built("base")) if each["metadata"]["name"] != "arpguard-vouching"]
    roles = [each for each in shipped if each["apiVersion"].startswith("rbac.")]
    one(roles, "Role")["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})
    with running(Options(tls=False, rbac=roles)) as server:
        for node in NODES:
            server.do(lambda it, node=node: it.write_kubeconfig(tmp_path / node, node, ACCOUNT))
        found = [grant for grant in server.do(lambda it: it.unused_grants(NODES[0])) if grant.resource == "secrets"]
    assert [(grant.verb, grant.namespace) for grant in found] == [("get", HOME)]


@in_loop
async def test_agents_use_what_is_granted_for_vouching_and_read_no_other_secret(tmp_path):
    roles = [each for each in parsed(built("base")) if each["metadata"]["name"] == "arpguard-vouching"]
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": HOME, "name": "other"}}
    with running(Options(tls=False, rbac=[objects.namespace(HOME), *roles], objects=[other])) as server:
        server.do(lambda it: it.write_kubeconfig(tmp_path / "kubeconfig", NODES[0], ACCOUNT))
        client = Client(await find_access(tmp_path / "kubeconfig"), NODES[0])
        try:
            mine = await cluster_secret(client, HOME, VouchingConfig().secret)
            assert await cluster_secret(client, HOME, VouchingConfig().secret) == mine
            assert [grant for grant in server.do(lambda it: it.unused_grants(NODES[0])) if grant.namespace] == []

            with pytest.raises(ClusterSecretError, match="the verb 'get' on secrets arpguard/other"):
                await cluster_secret(client, HOME, "other")
            with pytest.raises(ForbiddenError):
                await client.call(Request("list", SECRETS, HOME))
        finally:
            await client.aclose()


def test_no_rule_has_a_wildcard():
    texts = [path.read_text(encoding="utf-8") for path in DEPLOY.rglob("rbac.yaml") if "helm" not in path.parts]
    rules = [rule for text in texts for each in yaml.safe_load_all(text) for rule in each.get("rules", ())]
    assert len(rules) > 5
    assert not [rule for rule in rules if "*" in str(rule)]
