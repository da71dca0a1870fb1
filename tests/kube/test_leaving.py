"""How an agent's side ends: what the cluster and the kernel are left with, and that it ends at all."""

import asyncio

import pytest

from arpguard.runtime.cluster import ending, kubernetes
from arpguard.runtime.cluster.ending import ASK_S
from arpguard.runtime.cluster.kubernetes import LEAVE_S, PARTING_NS
from arpguard.runtime.controlplane import End
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind
from arpguard_lab.cluster import objects
from support.kube.agent_side import HOME, a_side, vip
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
        assert any("cannot find out why this agent has to stop" in record.getMessage() for record in caplog.records)
        one.fault(NODE)


@in_loop
async def test_giving_up_ends_though_claims_are_not_answered(one, caplog, monkeypatch):
    """The kernel is told all the same: what is given up is silent."""
    monkeypatch.setattr(kubernetes, "LEAVE_S", 0.5)
    async with a_side(one, NODE) as side:
        await _owns(side)
        one.delete(DAEMONSET_PATH)
        is_going = ending._is_going

        async def look_then_stall(*asked):
            found = await is_going(*asked)
            one.fault(NODE, stall=True)
            return found

        monkeypatch.setattr(ending, "_is_going", look_then_stall)
        async with asyncio.timeout(LEAVE_S):
            assert await side.kube.leave() is End.REMOVED

        assert side.kernel.owned() == set()
        assert any(
            "not all claims of this node were removed in time" in record.getMessage() for record in caplog.records
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
