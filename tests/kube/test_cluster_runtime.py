"""What an agent follows in the cluster, what it makes of it, and what it tells."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from arpguard.core.steering import MOST
from arpguard.kube.client import Client
from arpguard.kube.resources import LEASES
from arpguard.verdict import Kind, Mode, Reason
from arpguard_lab.cluster import objects
from support.kube.agent_side import CONFIG, CONFIGMAP, HOME, PASS_S, Cable, a_side, mac_of, vip, waited
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

NODE = "worker-1"
A, FOLLOWED = vip(50), vip(40)
FOLLOWING = {"owner": "follow"}
RECORDED = Path(__file__).with_name("recorded")
OBSERVE = CONFIG.replace("enforce", "observe")
L2_STATUSES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicel2statuses.metallb.io"},
    "spec": {
        "group": "metallb.io",
        "names": {"plural": "servicel2statuses", "kind": "ServiceL2Status"},
        "scope": "Namespaced",
        "versions": [{"name": "v1beta1", "served": True, "storage": True}],
    },
}


@pytest.fixture
def one(scene):
    scene.nodes(NODE)
    return scene


def a_reader(namespace: str, group: str, plural: str) -> list[dict]:
    """The right of the agents' account to follow a kind in a namespace."""
    rbac = "rbac.authorization.k8s.io"
    metadata = {"name": "follow", "namespace": namespace}
    rule = {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}
    return [
        objects.namespace(namespace),
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "follow"},
            "subjects": [{"kind": "ServiceAccount", "name": objects.ACCOUNT, "namespace": HOME}],
        },
    ]


def recorded(name: str, **annotations: str) -> dict:
    """An object as its announcer wrote it; Services with annotations of this program's, too."""
    body = json.loads((RECORDED / f"{name}.json").read_text())
    body["metadata"].pop("resourceVersion", None)
    body["metadata"].pop("uid", None)
    known = body["metadata"].setdefault("annotations", {})
    known.update({f"arpguard.io/{key}": text for key, text in annotations.items()})
    return body


# ---- the ConfigMap ----


@in_loop
async def test_mode_of_the_configmap_reaches_the_kernel_within_a_second(one):
    one.configure(OBSERVE)
    async with a_side(one, NODE, configmap=CONFIGMAP) as side:
        await until(lambda: side.kernel.value and side.kernel.value.mode is Mode.OBSERVE)
        await until(lambda: not side.settings.awaited)
        for text, mode in ((CONFIG, Mode.ENFORCE), (OBSERVE, Mode.OBSERVE)):
            one.configure(text)
            await until(lambda mode=mode: side.kernel.value.mode is mode, 1.0)

        assert side.settings.in_force.source == f"ConfigMap {HOME}/{CONFIGMAP}"


@in_loop
@pytest.mark.parametrize(
    ("config", "streams"), [("{mode: observe, interfaces: [lab0]}", [True]), (CONFIG, [True, False])]
)
async def test_stream_of_leases_begins_anew_only_where_the_configmap_says_that_nobody_vouches(
    one, monkeypatch, config, streams
):
    """Until the agent has read it, it takes the default. Each item: whether that stream has the news only."""
    asked = []

    def stream(client, request, *times):
        if request.resource is LEASES:
            asked.append("labelSelector" in request.query)
        return begin(client, request, *times)

    begin = Client.stream
    monkeypatch.setattr(Client, "stream", stream)
    one.configure(config)
    async with a_side(one, NODE, config=config, configmap=CONFIGMAP) as side:
        await until(lambda: side.ready and len(asked) == len(streams))
        await asyncio.sleep(2 * PASS_S)

    assert asked == streams


@in_loop
async def test_wrong_configmap_is_told_of_and_changes_nothing(one):
    one.configure(CONFIG)
    async with a_side(one, NODE, configmap=CONFIGMAP) as side:
        await until(lambda: not side.settings.awaited)
        one.configure("mode: perhaps")
        await until(lambda: side.says("configuration: change rejected"))
        await waited(lambda: one.events("BadConfiguration"))
        (event,) = one.events("BadConfiguration")

        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("ConfigMap", CONFIGMAP)
        assert "perhaps" in event["note"]
        assert side.settings.config.mode is Mode.ENFORCE
        assert side.settings.in_force.problem
        one.configure(CONFIG)
        await until(lambda: not side.problems)
        assert not side.settings.in_force.problem


@in_loop
async def test_configmap_that_goes_away_leaves_its_configuration(one):
    one.configure(CONFIG)
    async with a_side(one, NODE, config=OBSERVE, configmap=CONFIGMAP) as side:
        await until(lambda: not side.settings.awaited)
        one.delete(f"/api/v1/namespaces/{HOME}/configmaps/{CONFIGMAP}")
        await until(lambda: side.says("does not exist"))

        assert side.settings.config.mode is Mode.ENFORCE


@in_loop
async def test_configmap_decides_for_a_kernel_that_has_a_guard_already(one):
    """The file may be older than what the agent before this one was told."""
    one.configure(CONFIG)
    kernel = Cable()
    async with a_side(one, NODE, kernel, configmap=CONFIGMAP) as side:
        await until(lambda: not side.settings.awaited and kernel.value.mode is Mode.ENFORCE)
    one.fault(NODE, stall=True)
    async with a_side(one, NODE, kernel, config=OBSERVE, configmap=CONFIGMAP) as side:
        await until(lambda: side.says("has not been read yet"))
        assert kernel.value.mode is Mode.ENFORCE
        one.fault(NODE)


# ---- other announcers ----


@in_loop
async def test_announcer_that_is_not_installed_is_no_problem(one):
    one.put(recorded("metallb/service", **FOLLOWING))
    async with a_side(one, NODE) as side:
        await waited(lambda: one.count(NODE, "list", "leases"))
        await until(lambda: side.ready)

        assert not side.problems


@in_loop
async def test_announcer_that_may_not_be_read_is_a_problem(one):
    rules = objects.access(HOME)
    one.put(*rules)
    one.server.do(lambda it: it.enforce_rbac())
    one.put(recorded("cilium/service", **FOLLOWING))
    async with a_side(one, NODE, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await until(lambda: side.says("cannot be followed"))


@in_loop
async def test_announcer_that_may_not_be_read_is_no_problem_beside_one_that_may(one):
    one.put(*objects.access(HOME), *a_reader("metallb-system", "metallb.io", "servicel2statuses"))
    one.server.do(lambda it: it.enforce_rbac())
    one.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/status"))
    one.put(recorded("metallb/service", **FOLLOWING))
    async with a_side(one, NODE, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await until(lambda: side.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        assert not side.problems

    one.fault(NODE, fail=-1, group="metallb.io")
    async with a_side(one, NODE, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await until(lambda: side.says("MetalLB's ServiceL2Status cannot be followed now: "), 10)
        await waited(lambda: one.count(NODE, "list", "leases"))
        assert not side.says("Cilium's Lease")
        one.fault(NODE)
        await until(lambda: not side.problems, 15)

        other = recorded("cilium/service", **FOLLOWING)
        other["spec"]["loadBalancerClass"] = "io.cilium/l2-announcer"
        one.delete("/api/v1/namespaces/shop/services/web")
        one.put(other)
        await until(lambda: side.says("Cilium's Lease cannot be followed: "))


@in_loop
async def test_look_that_failed_found_nothing_out_and_is_tried_again_soon(one):
    kernel = Cable()
    one.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/status"))
    one.put(recorded("metallb/service", **FOLLOWING))
    async with a_side(one, NODE, kernel):
        await until(lambda: kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
    one.fault(NODE, fail=-1, group="metallb.io")
    kernel.told.clear()
    async with a_side(one, NODE, kernel) as side:
        await until(lambda: side.says("MetalLB's ServiceL2Status cannot be followed now: "), 10)
        asked = one.count(NODE)
        await until(lambda: one.count(NODE) >= asked + 2)  # again, and no minute later
        assert not side.kube.state.complete

        one.fault(NODE)
        await until(lambda: side.ready, 15)
        await until(lambda: not side.problems)

        assert kernel.kind(FOLLOWED) is Kind.DELEGATED
        assert not [told for told in kernel.told if told.startswith(("entry", "delete"))]


_ANNOUNCERS = {
    "kube-vip": ("kube-vip/service", "kube-vip/service"),
    "purelb": ("purelb/service-0.17", "purelb/service-0.17"),
    "cilium": ("cilium/service", "cilium/lease"),
    "metallb": ("metallb/service", "metallb/status"),
}


@pytest.mark.parametrize("name", _ANNOUNCERS)
@in_loop
async def test_followed_vip_is_delegated_where_it_is_announced_and_moves_with_it(scene, name):
    service, names_node = _ANNOUNCERS[name]
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES)
    scene.put(recorded(service, **FOLLOWING))
    extra = recorded(names_node, **(FOLLOWING if service == names_node else {}))
    scene.put(objects.namespace(extra["metadata"]["namespace"]), extra)
    async with a_side(scene, "worker-1") as here, a_side(scene, "worker-2") as there:
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.FOREIGN, 10)

        text = json.dumps(extra).replace("worker-1", "worker-2")
        scene.put(json.loads(text))

        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.FOREIGN, 10)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)


@in_loop
async def test_announcers_are_followed_where_the_configuration_has_them(one):
    """And from the moment that it says so."""
    lock = recorded("kube-vip/lock")
    lock["metadata"] |= {"namespace": "kube-vip", "name": "services-lock"}
    lock["spec"]["holderIdentity"] = NODE
    service = recorded("kube-vip/service-of-its-class", **FOLLOWING)
    one.put(objects.namespace("kube-vip"), lock, service)
    one.configure(CONFIG)
    async with a_side(one, NODE, configmap=CONFIGMAP) as side:
        await until(lambda: side.ready, 10)
        assert side.kernel.kind(FOLLOWED) is Kind.UNCLAIMED

        one.configure(CONFIG[:-1] + ", follow: {kube_vip: {namespace: kube-vip, lease: services-lock}}}")
        await until(lambda: side.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        assert "kube-vip/services-lock" in side.kube.state.origin(FOLLOWED).follows


def labelled(node: str, status: str) -> dict:
    """MetalLB to 0.15: the label is the leader's now, the status that of the first leader for ever."""
    body = recorded("metallb/status")
    body["metadata"]["labels"]["metallb.io/node"] = node
    body["status"]["node"] = status
    return body


def announced(scene, node: str, name: str = "") -> None:
    """The Event that a speaker of MetalLB writes when it begins to announce."""
    body = recorded("metallb/event")
    service = scene.get("/api/v1/namespaces/shop/services/web")
    body["metadata"]["name"] = f"web.{name or node}"
    body["involvedObject"]["uid"] = service["metadata"]["uid"]
    body["message"] = f'announcing from node "{node}" with protocol "layer2"'
    scene.put(body)


@in_loop
async def test_leader_of_metallb_that_comes_back_is_let_through_though_no_object_names_it(scene):
    """metallb#2930: the interim leader takes the object along, and the one that announces again writes none."""
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/service", **FOLLOWING))
    scene.put(labelled("worker-1", "worker-1"))
    kernel = Cable()
    async with a_side(scene, "worker-1", kernel) as here, a_side(scene, "worker-2") as there:
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        announced(scene, "worker-2")
        scene.put(labelled("worker-2", "worker-1"))
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)

        announced(scene, "worker-1")
        scene.delete("/apis/metallb.io/v1beta1/namespaces/metallb-system/servicel2statuses/l2-gjzc2")
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.FOREIGN, 10)
        assert "MetalLB's Event shop/web.worker-1" in here.kube.state.origin(FOLLOWED).follows

    for event in ("worker-1", "worker-2"):  # after an hour
        scene.delete(f"/api/v1/namespaces/shop/events/web.{event}")
    async with a_side(scene, "worker-1", kernel) as here:
        await until(lambda: here.ready, 10)
        await until(lambda: scene.count("worker-1", "list", "events") > 3)
        assert here.kernel.kind(FOLLOWED) is Kind.DELEGATED
        assert "the agents still follow worker-1" in here.kube.state.origin(FOLLOWED).follows


@in_loop
async def test_kernel_keeps_followed_vips_until_events_tell_who_announces(scene):
    """An agent starts while label and status of the object differ: the labelled node is let through at no time."""
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/service", **FOLLOWING))
    kernel = Cable()
    async with a_side(scene, "worker-1", kernel) as here:
        announced(scene, "worker-2")
        scene.put(labelled("worker-2", "worker-1"))
        announced(scene, "worker-1")
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
    kernel.told.clear()
    async with a_side(scene, "worker-1", kernel) as here:
        await until(lambda: "MetalLB's Event" in here.kube.state.origin(FOLLOWED).follows, 10)
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED)

        assert not [told for told in kernel.told if told.startswith(("entry", "delete"))]


@in_loop
async def test_leader_of_metallb_that_comes_back_is_let_through_though_the_object_names_a_dead_one(scene):
    """Of the leader between only its label is left; the status names the one that announces all the time."""
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/service", **FOLLOWING))
    async with a_side(scene, "worker-1") as here, a_side(scene, "worker-2") as there:
        announced(scene, "worker-2")
        scene.put(labelled("worker-2", "worker-1"))
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)

        announced(scene, "worker-1")
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.FOREIGN, 10)

        scene.delete("/api/v1/namespaces/shop/events/web.worker-1")  # after an hour
        scene.put(labelled("worker-1", "worker-1"))
        await until(lambda: "ServiceL2Status" in here.kube.state.origin(FOLLOWED).follows)
        assert here.kernel.kind(FOLLOWED) is Kind.DELEGATED


@in_loop
async def test_vip_returns_to_the_speaker_that_goes_on_when_the_one_named_last_is_silent(scene):
    """A speaker that began alone found the others, and ceased without a word: Event and label are its own."""
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/service", **FOLLOWING))

    def reported(node: str) -> str:
        # On a busy machine a node may have to begin anew, and publishes nothing meanwhile.
        return scene.lease(f"node.{node}").get("annotations", {}).get("arpguard.io/speakers", "")

    async with a_side(scene, "worker-1") as here, a_side(scene, "worker-2") as there:
        announced(scene, "worker-1")
        announced(scene, "worker-2")
        scene.put(labelled("worker-2", "worker-1"))
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.DELEGATED and there.joined, 10)
        assert reported("worker-2") == "{}"

        def given_back() -> bool:
            there.kernel.counts[Reason.DELEGATED] += 2  # clients go on asking: its agent may just have begun to look
            return here.kernel.kind(FOLLOWED) is Kind.DELEGATED

        await until(given_back, 10)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.FOREIGN)
        assert "reports no answer from the announcer there" in here.kube.state.origin(FOLLOWED).follows

        def reports_answers() -> bool:
            here.kernel.counts += Counter((Reason.DELEGATED, Reason.EGRESS_DELEGATED))
            return "true" in reported("worker-1")

        await until(reports_answers, 10)
        assert "false" in reported("worker-2")


@in_loop
async def test_speakers_that_delete_each_others_objects_move_a_vip_a_few_times_only(scene):
    """MetalLB 0.16 in a partition."""
    scene.nodes("worker-1", "worker-2")
    scene.put(L2_STATUSES, objects.namespace("metallb-system"), recorded("metallb/service", **FOLLOWING))
    async with a_side(scene, "worker-1") as here, a_side(scene, "worker-2") as there:
        for number in range(60):
            node = ("worker-1", "worker-2")[number % 2]
            scene.put(labelled(node, node))
            await asyncio.sleep(0.02)
            scene.delete("/apis/metallb.io/v1beta1/namespaces/metallb-system/servicel2statuses/l2-gjzc2")
        await until(lambda: here.kernel.kind(FOLLOWED) is Kind.DELEGATED)
        await until(lambda: there.kernel.kind(FOLLOWED) is Kind.FOREIGN)
        await until(lambda: here.says("name worker-1 and worker-2 in turn; the agents follow worker-1 until"))

        writes = [told for told in there.kernel.told if told.startswith("entry")]
        assert len(writes) <= 2 * (MOST + 2), writes


@in_loop
async def test_kernel_keeps_followed_vips_until_their_announcer_was_read(one):
    kernel = Cable()
    one.put(recorded("cilium/service", **FOLLOWING), recorded("cilium/lease"))
    async with a_side(one, NODE, kernel) as side:
        await until(lambda: kernel.kind(FOLLOWED) is Kind.DELEGATED, 10)
    one.fault(NODE, stall=True)
    kernel.told.clear()
    async with a_side(one, NODE, kernel) as side:
        await until(lambda: side.reconciler.state.control is not None)
        assert kernel.kind(FOLLOWED) is Kind.DELEGATED
        one.fault(NODE)
        await until(lambda: side.ready, 15)
        await until(lambda: kernel.kind(FOLLOWED) is Kind.DELEGATED)

        assert not [told for told in kernel.told if told.startswith(("entry", "delete"))]


# ---- EndpointSlices ----


@in_loop
async def test_endpoint_slices_are_read_only_while_they_decide(one):
    one.publish("web", [A])
    async with a_side(one, NODE) as side:
        await until(lambda: side.kernel.owned() == {A}, 10)
        assert one.count(NODE, resource="endpointslices") == 0

        one.put(objects.endpoint_slice("shop", "web", {NODE: True}))
        one.publish("web", [A], local=True)
        await until(lambda: "endpointslices" in side.kube.state.sources)
        await waited(lambda: one.count(NODE, "list", "endpointslices") == 1)

        one.publish("web", [A])
        await until(lambda: "endpointslices" not in side.kube.state.sources)


@in_loop
async def test_vip_is_given_up_when_its_last_endpoint_leaves(one):
    one.put(objects.endpoint_slice("shop", "web", {NODE: True}))
    one.publish("web", [A], local=True)
    async with a_side(one, NODE) as side:
        await until(lambda: side.kernel.owned() == {A}, 10)
        one.put(objects.endpoint_slice("shop", "web", {NODE: False}))
        await until(lambda: side.kernel.kind(A) is Kind.UNCLAIMED, 10)
        await waited(lambda: one.claim(A) and not one.holder(A))
        await until(lambda: side.says(f"no node is eligible to own {A}"))
        await waited(lambda: one.events("NobodyEligible"))


# ---- Events ----


@in_loop
async def test_map_that_is_full_is_told_of_once_and_guards_what_fits(one):
    kernel = Cable()
    kernel.room = 1
    one.publish("web", [vip(51), vip(50)])
    async with a_side(one, NODE, kernel) as side:
        await until(lambda: side.kernel.owned() == {vip(50)}, 10)
        await waited(lambda: one.events("MapFull"))
        (event,) = one.events("MapFull")
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Node", NODE)
        assert "bpf.max_entries" in event["note"]
        assert side.says(f"not guarded: {vip(51)}")
        one.delete("/api/v1/namespaces/shop/services/web")
        one.publish("other", [vip(51)])
        await until(lambda: side.kernel.owned() == {vip(51)} and not side.says("the entries map is full"), 10)


@in_loop
async def test_service_with_a_nodes_address_is_told_of_by_one_node(one):
    one.nodes("worker-2")
    one.publish("good", [A])
    async with a_side(one, NODE) as here, a_side(one, "worker-2") as there:
        await until(lambda: len(here.membership.alive) == 2 and len(there.membership.alive) == 2)
        one.publish("web", [vip(2)])
        await until(lambda: here.says(str(vip(2))) and there.says(str(vip(2))))
        await waited(lambda: one.events("VIPIsNodeAddress"))
        one.publish("last", [vip(51)])  # and what is told of the first is told when this is known
        await until(lambda: all(vip(51) in side.kube.state.vips for side in (here, there)))
        await waited(lambda: here.kube._reports.events._queue.empty() and there.kube._reports.events._queue.empty())

        events = one.events("VIPIsNodeAddress")
        assert {event["regarding"]["name"] for event in events} == {"web"}
        assert len(events) == 1
        assert here.kernel.kind(vip(2)) is None


@in_loop
async def test_address_of_a_node_that_is_no_ip_address_is_a_problem(one):
    """No API server checks the status of a Node, and this address is not kept from being a VIP."""
    spoilt = objects.node("worker-2", vip(2))
    spoilt["status"]["addresses"][0]["address"] = "worker-2.example"
    one.put(spoilt)
    async with a_side(one, NODE) as side:
        await until(lambda: side.says("node worker-2: status.addresses[0]: is not an IP address ('worker-2.example')"))


@in_loop
async def test_wrong_configmap_is_told_of_by_one_node(one):
    one.nodes("worker-2")
    one.publish("good", [A])
    one.configure(CONFIG)
    async with a_side(one, NODE, configmap=CONFIGMAP) as here, a_side(one, "worker-2", configmap=CONFIGMAP) as there:
        await until(lambda: len(here.membership.alive) == 2 and len(there.membership.alive) == 2)
        one.configure("mode: perhaps")
        await until(
            lambda: here.says("configuration: change rejected") and there.says("configuration: change rejected")
        )
        await waited(lambda: one.events("BadConfiguration"))
        await waited(lambda: here.kube._reports.events._queue.empty() and there.kube._reports.events._queue.empty())
        one.publish("web", [vip(2)])  # what is told of the first is there when this is told
        await waited(lambda: one.events("VIPIsNodeAddress"))

        assert len(one.events("BadConfiguration")) == 1


@in_loop
async def test_one_node_tells_also_where_no_vip_is_elected(one):
    one.nodes("worker-2")
    async with a_side(one, NODE) as here, a_side(one, "worker-2") as there:
        sides = here, there
        await until(lambda: all(side.kube.state.members and len(side.membership.alive) == 2 for side in sides), 10)
        one.publish("web", [vip(2)])
        await until(lambda: all(side.says(str(vip(2))) for side in sides))
        await waited(lambda: one.events("VIPIsNodeAddress"))
        await waited(lambda: all(side.kube._reports.events._queue.empty() for side in sides))

        assert len(one.events("VIPIsNodeAddress")) == 1


@in_loop
async def test_service_that_was_wrong_before_the_agent_came_is_told_of(one):
    one.publish("web", [vip(1)])
    async with a_side(one, NODE):
        await waited(lambda: one.events("VIPIsNodeAddress"))


@in_loop
async def test_new_owner_is_told_of(one):
    """The first owner is not: there may be thousands, and nothing has changed."""
    one.nodes("worker-2")
    one.publish("web", [A])
    async with a_side(one, "worker-2") as side:
        await until(lambda: side.kernel.owned() == {A}, 10)
        assert not one.events("OwnerChanged")
    async with a_side(one, NODE):
        await waited(lambda: one.events("OwnerChanged"))
        (event,) = one.events("OwnerChanged")

        assert event["type"] == "Normal"
        assert event["note"] == f"{NODE} now answers for {A}"
        assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Service", "web")


@in_loop
async def test_stranger_that_has_a_vip_is_told_of_once(one, segment):
    segment.strangers[A] = mac_of(99)
    one.publish("web", [A])
    async with a_side(one, NODE) as side:
        await waited(lambda: one.events("VIPTakenOutside"))
        await until(lambda: side.kernel.kind(A) is Kind.EXTERNAL, 10)
        (event,) = one.events("VIPTakenOutside")

        assert str(mac_of(99)) in event["note"]
        assert event["regarding"]["name"] == "web"
