"""How an agent's side ends: what the cluster and the kernel are left with, and that it ends at all."""

import asyncio
from contextlib import asynccontextmanager
from itertools import permutations

import pytest

from arpguard.clock import boot_ns
from arpguard.runtime.cluster import ending, kubernetes
from arpguard.runtime.cluster.ending import ASK_S, Ending
from arpguard.runtime.cluster.kubernetes import LEAVE_S, PARTING_NS
from arpguard.runtime.controlplane import End
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind
from arpguard_lab.apiserver.embedded import running
from arpguard_lab.apiserver.server import Options
from arpguard_lab.cluster import objects
from support.kube.agent_side import CONFIG, CONFIGMAP, HOME, LEASES, Scene, a_side, vip
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

A, B = vip(50), vip(51)
NODE, POD, DAEMONSET = "node-1", "arpguard-x7", "arpguard"
DAEMONSET_PATH = f"/apis/apps/v1/namespaces/{HOME}/daemonsets/{DAEMONSET}"
POD_PATH = f"/api/v1/namespaces/{HOME}/pods/{POD}"
D_NS, M_NS = 3 * NS_PER_S, NS_PER_S


@pytest.fixture
def one(scene, monkeypatch):
    """An agent's Pod of a DaemonSet."""
    for name, text in (("POD_NAME", POD), ("POD_NAMESPACE", HOME), ("DAEMONSET_NAME", DAEMONSET)):
        monkeypatch.setenv(name, text)
    scene.put(objects.daemon_set(HOME, DAEMONSET))
    scene.put(objects.pod(HOME, POD, NODE))
    scene.nodes(NODE)
    scene.publish("web", [A, B])
    return scene


async def _owns(side) -> None:
    await until(lambda: side.kernel.owned() == {A, B}, 10)


def _published_s(scene) -> int:
    return scene.lease(f"node.{NODE}")["leaseDurationSeconds"]


@in_loop
async def test_agent_whose_daemonset_is_gone_gives_all_up_and_leaves_no_claims(one):
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(DAEMONSET_PATH)

        assert await side.kube.leave() is End.REMOVED

        assert {side.kernel.kind(each) for each in (A, B)} == {Kind.UNCLAIMED}
        assert [one.claim(each) for each in (A, B)] == [{}, {}]


@in_loop
async def test_agent_gives_up_what_its_last_look_showed_as_anothers(one):
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(DAEMONSET_PATH)
        side.membership._standings.holders.known[A] = "node-2"  # which handed it over since

        assert await side.kube.leave() is End.REMOVED

        assert [one.claim(each) for each in (A, B)] == [{}, {}]


@in_loop
async def test_agent_whose_pod_is_replaced_leaves_a_longer_lease(one):
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(POD_PATH)

        assert await side.kube.leave() is End.REPLACED

        control, sent_ns = side.kernel.value, side.renewals.renewed_ns
        assert _published_s(one) == PARTING_NS // NS_PER_S
        assert control.lease_ns == PARTING_NS
        assert control.fence_ns > sent_ns + D_NS
        assert control.fence_ns <= sent_ns + PARTING_NS - M_NS * PARTING_NS // D_NS
        assert side.kernel.owned() == {A, B}
        assert one.holder(A) == NODE


@in_loop
async def test_nothing_is_renewed_after_the_last_time(one):
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(POD_PATH)
        await side.kube.leave()
        version, began = one.lease(f"node.{NODE}")["resourceVersion"], one.writes(NODE)
        await asyncio.sleep(1.5)  # three times as long as it takes to the next renewal

        assert one.lease(f"node.{NODE}")["resourceVersion"] == version
        assert one.writes(NODE) == began


@pytest.mark.parametrize("pod", [True, False], ids=["as a Pod", "as no Pod"])
@in_loop
async def test_agent_that_is_told_to_end_renews_as_usual(one, monkeypatch, pod):
    if not pod:
        for name in ("POD_NAME", "DAEMONSET_NAME"):
            monkeypatch.delenv(name)
        one.delete(DAEMONSET_PATH)
    async with a_side(one, NODE) as side:
        await _owns(side)
        before = side.renewals.renewed_ns

        assert await side.kube.leave() is End.STOPPED

        assert side.renewals.renewed_ns > before
        assert _published_s(one) == 3
        assert side.kernel.value.fence_ns == side.renewals.renewed_ns + D_NS - M_NS
        assert side.kernel.owned() == {A, B}


@pytest.mark.parametrize("trouble", ["away", "silent"])
@in_loop
async def test_agent_ends_though_the_server_does_not_answer(one, caplog, trouble):
    async with a_side(one, NODE) as side:
        await _owns(side)
        fence_ns = side.kernel.value.fence_ns
        if trouble == "away":
            one.server.run(lambda it: it.go_down())
        else:
            one.fault(NODE, stall=True)

        async with asyncio.timeout(3 * ASK_S + 2):
            assert await side.kube.leave() is End.STOPPED

        assert side.kernel.value.fence_ns <= fence_ns + NS_PER_S
        assert side.kernel.owned() == {A, B}
        assert any("cannot find out why this agent is stopping" in record.getMessage() for record in caplog.records)
        one.fault(NODE)


@in_loop
async def test_giving_up_ends_though_claims_are_not_answered(one, caplog, monkeypatch):
    """The kernel is told all the same: what is given up is silent."""
    monkeypatch.setattr(kubernetes, "LEAVE_S", 0.5)
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(DAEMONSET_PATH)
        is_going = Ending._is_going

        async def look_then_stall(*asked):
            found = await is_going(*asked)
            one.fault(NODE, stall=True)
            return found

        monkeypatch.setattr(Ending, "_is_going", look_then_stall)
        async with asyncio.timeout(LEAVE_S):
            assert await side.kube.leave() is End.REMOVED

        assert side.kernel.owned() == set()
        assert any(
            "could not delete all Leases of this node in time" in record.getMessage() for record in caplog.records
        )
        one.fault(NODE)


@in_loop
async def test_agent_that_may_not_read_why_it_ends_stays_the_owner(one, caplog):
    rules = objects.access(HOME)
    for body in rules:
        body["rules"] = [
            rule for rule in body.get("rules", ()) if not {"daemonsets", "pods"} & set(rule["resources"])
        ] or body.get("rules")
        if body["rules"] is None:
            del body["rules"]
    one.put(*rules)
    one.server.do(lambda it: it.enforce_rbac())
    async with a_side(one, NODE, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await _owns(side)

        assert await side.kube.leave() is End.STOPPED
        assert side.kernel.owned() == {A, B}


# ---- everything is deleted at once ---------------------------------------------------------------------------------

RIGHTS = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/rolebindings/{objects.ACCOUNT}"
CONFIGMAP_PATH = f"/api/v1/namespaces/{HOME}/configmaps/{CONFIGMAP}"
ALL = {RIGHTS: "role", CONFIGMAP_PATH: "configmap", DAEMONSET_PATH: "daemonset"}


def in_words(paths) -> str:
    return ", ".join(ALL[path] for path in paths)


@asynccontextmanager
async def an_account(scene):
    """An agent with the rights of its ServiceAccount alone, and a ConfigMap."""
    scene.configure()
    scene.put(*objects.access(HOME))
    scene.server.do(lambda it: it.enforce_rbac())
    async with a_side(
        scene, NODE, config="{}", configmap=CONFIGMAP, service_account=f"{HOME}/{objects.ACCOUNT}"
    ) as side:
        await _owns(side)
        yield side


@pytest.mark.parametrize("order", list(permutations(ALL)), ids=in_words)
@in_loop
async def test_guard_goes_when_everything_is_deleted_in_any_order(one, order):
    async with an_account(one) as side:
        for path in order:
            one.delete(path)
        end = await side.kube.leave()

        assert end is End.RIGHTS_GONE
        assert end.removes_guard
        assert side.kernel.owned() == set(), "silent before the guard is detached"


@in_loop
async def test_configmap_may_go_after_the_agent_was_told_to_end(one):
    async with an_account(one) as side:
        one.delete(RIGHTS)
        leaving = asyncio.create_task(side.kube.leave())
        await until(lambda: one.count(NODE, "get", "daemonsets"))
        one.delete(CONFIGMAP_PATH)

        assert await leaving is End.RIGHTS_GONE


@in_loop
async def test_credentials_that_are_void_are_rights_that_are_gone(one):
    """As when its ServiceAccount is deleted."""
    async with an_account(one) as side:
        one.fault(NODE, fail=-1, code=401)
        one.delete(CONFIGMAP_PATH)

        assert await side.kube.leave() is End.RIGHTS_GONE
        one.fault(NODE)


@pytest.mark.parametrize("code", [401, 403])
@in_loop
async def test_refusal_alone_does_not_remove_the_guard(one, caplog, monkeypatch, code):
    """A role may be wrong, or the API server not ready yet, while a Pod only restarts."""
    monkeypatch.setattr(ending, "SEE_S", 0.5)
    async with an_account(one) as side:
        fence_ns = side.kernel.value.fence_ns
        one.fault(NODE, fail=-1, code=code)
        end = await side.kube.leave()

        assert end is End.STOPPED
        assert not end.removes_guard
        assert side.kernel.owned() == {A, B}
        assert side.kernel.value.fence_ns <= fence_ns + NS_PER_S, "no answer outlives the fence"
        assert any("the guard stays" in record.getMessage() for record in caplog.records)
        one.fault(NODE)


@in_loop
async def test_configmap_that_is_gone_does_not_remove_the_guard_of_a_pod_that_restarts(one):
    async with an_account(one) as side:
        one.delete(CONFIGMAP_PATH)
        await until(side.kube._ending.configmap_lost.is_set)
        one.delete(POD_PATH)

        assert await side.kube.leave() is End.REPLACED
        assert side.kernel.owned() == {A, B}


@in_loop
async def test_configmap_that_is_back_is_not_lost(one, monkeypatch):
    """As after `kubectl replace --force`."""
    monkeypatch.setattr(ending, "SEE_S", 0.5)
    async with an_account(one) as side:
        one.delete(CONFIGMAP_PATH)
        await until(side.kube._ending.configmap_lost.is_set)
        one.configure()
        await until(lambda: not side.kube._ending.configmap_lost.is_set())
        one.fault(NODE, fail=-1, code=403)

        assert await side.kube.leave() is End.STOPPED
        one.fault(NODE)


@in_loop
async def test_configmap_that_went_long_ago_does_not_remove_the_guard(one, monkeypatch):
    """The token of a Pod that is deleted by force is void at once, and another Pod follows."""
    async with an_account(one) as side:
        one.delete(CONFIGMAP_PATH)
        await until(side.kube._ending.configmap_lost.is_set)
        monkeypatch.setattr(ending, "boot_ns", lambda: boot_ns() + 3600 * NS_PER_S)
        one.fault(NODE, fail=-1, code=401)

        assert await side.kube.leave() is End.STOPPED
        one.fault(NODE)


@pytest.mark.parametrize("configmap", [CONFIGMAP, ""], ids=["with a ConfigMap", "with a file"])
@in_loop
async def test_agent_that_has_never_had_a_configmap_has_lost_none(one, monkeypatch, configmap):
    monkeypatch.setattr(ending, "SEE_S", 0.5)
    async with a_side(one, NODE, config=CONFIG, configmap=configmap) as side:
        await until(lambda: side.kube._cluster.configmap_known or not configmap)
        one.fault(NODE, fail=-1, code=403)

        assert await side.kube.leave() is End.STOPPED
        one.fault(NODE)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """Nobody empties a namespace that is deleted: its Pods go first, as kube-controller-manager does since 1.33."""
    for name, text in (("POD_NAME", POD), ("POD_NAMESPACE", HOME), ("DAEMONSET_NAME", DAEMONSET)):
        monkeypatch.setenv(name, text)
    with running(Options(tls=False, bare=True)) as embedded:
        scene = Scene(embedded, tmp_path)
        scene.put(objects.daemon_set(HOME, DAEMONSET))
        scene.nodes(NODE)
        scene.publish("web", [A, B])
        yield scene


@in_loop
async def test_guard_goes_with_the_namespace_though_the_daemonset_is_still_there(bare):
    async with an_account(bare) as side:
        bare.delete(f"/api/v1/namespaces/{HOME}")  # the Pod was never there, as one that is gone
        end = await side.kube.leave()

        assert bare.get(DAEMONSET_PATH)["kind"] == "DaemonSet"
        assert end is End.NAMESPACE_GOES
        assert end.removes_guard
        assert side.kernel.owned() == set()


@in_loop
async def test_asking_whether_the_namespace_goes_makes_nothing(bare):
    async with an_account(bare) as side:
        side.kube._ending._node = "node-9"  # whose Lease would be new
        before = {lease["metadata"]["name"] for lease in bare.get(LEASES)["items"]}

        assert await side.kube.leave() is End.REPLACED
        assert {lease["metadata"]["name"] for lease in bare.get(LEASES)["items"]} == before
