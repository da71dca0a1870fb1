"""One agent as a member: what it claims and when, what the kernel is told of it, and what it does in trouble."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network

import pytest

from arpguard.addresses import ZERO_MAC
from arpguard.clock import boot_ns
from arpguard.core.cluster import EXCLUDE_LABEL
from arpguard.core.electing import BACKUP_NS, Election
from arpguard.core.ownership.records import epoch_number
from arpguard.errors import RestoredError
from arpguard.kube.claims import CLAIM, KIND_LABEL
from arpguard.model import EntryKey
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind
from arpguard_lab.apiserver import resources
from arpguard_lab.apiserver.faults import Delay
from arpguard_lab.apiserver.store import Stored
from arpguard_lab.cluster import objects
from support.kube.agent_side import CONFIG, CONFIGMAP, HOME, LEASES, Cable, a_side, mac_of, number_of, vip, waited
from support.kube.scripted_server import in_loop, until

pytestmark = pytest.mark.usefixtures("segment")

A, B, C = vip(50), vip(51), vip(52)
NODE = "node-1"
D_NS, M_NS = 3 * NS_PER_S, NS_PER_S
OTHER_UID = "00000000-0000-0000-0000-000000000000"
EPOCH, INSTANCE = "arpguard.io/epoch", "arpguard.io/instance"


@pytest.fixture
def one(scene):
    """A cluster of one node and one VIP."""
    scene.nodes(NODE)
    scene.publish("web", [A])
    return scene


async def _owns(side, *vips) -> None:
    await until(lambda: side.kernel.owned() == set(vips), 10)


@in_loop
async def test_claim_is_made_then_confirmed_then_answered_for(one):
    async with a_side(one) as side:
        await _owns(side, A)
        sent_ns = side.renewals.renewed_ns
        heartbeat, claim = one.lease(f"node.{NODE}"), one.claim(A)

        assert side.kernel.entry(A).epoch == epoch_number(heartbeat["annotations"][EPOCH])
        assert claim["annotations"]["arpguard.io/holder-epoch"] == heartbeat["annotations"][EPOCH]
        assert claim["annotations"]["arpguard.io/source"] == "service shop/web"
        assert claim["holderIdentity"] == NODE
        assert side.announcing.woken
        writes = one.server.do(lambda it: [(change.key[1], change.revision) for change in _lease_changes(it)])
        revision = next(revision for name, revision in writes if name == f"vip.{A}")
        assert any(name == f"node.{NODE}" and later > revision for name, later in writes)
        assert sent_ns is not None


def _lease_changes(it):
    return it.store.table(resources.LEASES).since(1)


@in_loop
async def test_fence_counts_from_before_the_renewal_was_sent(one):
    async with a_side(one) as side:
        await _owns(side, A)
        before = side.renewals.renewed_ns
        await until(lambda: side.renewals.renewed_ns != before)
        await until(lambda: side.kernel.value.fence_ns == side.renewals.renewed_ns + D_NS - M_NS)

        assert side.kernel.value.lease_ns == D_NS
        for _, fence_ns, _, told_ns in side.kernel.fences:
            assert fence_ns <= told_ns + D_NS - M_NS


class SlowElection(Election):
    """One with so much to do as in a cluster of thousands of nodes, once."""

    naps = iter(range(200))

    def sit_down(self, *args):
        yield from super().sit_down(*args)
        for _ in self.naps:
            time.sleep(0.02)
            yield


@in_loop
async def test_heartbeat_and_all_others_have_their_turn_while_a_decision_takes_long(one):
    async with a_side(one) as side:
        await _owns(side, A)
        election = side.membership._election = SlowElection(NODE, boot_ns())
        before = side.renewals.renewed_ns
        side.membership.wake()
        await until(lambda: side.renewals.renewed_ns >= before + NS_PER_S)

        assert next(election.naps, None) is not None, "it was done first"
        assert side.kernel.owned() == {A}


@in_loop
async def test_nothing_is_claimed_before_all_is_known(one):
    """The list of Nodes is slow: who may own a VIP is not known meanwhile."""
    one.fault(NODE, delay=(Delay(6.0, resource="nodes"),))
    async with a_side(one) as side:
        await until(lambda: A in side.kube.state.vips)
        await until(lambda: side.renewals.renewed_ns is not None)
        before = side.renewals.renewed_ns
        await until(lambda: side.renewals.renewed_ns >= before + NS_PER_S)

        assert not one.claim(A)
        assert not side.kernel.owned()
        await _owns(side, A)


@in_loop
async def test_restart_within_the_lease_keeps_what_it_has(one):
    kernel = Cable()
    async with a_side(one, kernel=kernel) as side:
        await _owns(side, A)
        first = side.kernel.entry(A)
    claimed = one.claim(A)["resourceVersion"]
    kernel.told.clear()

    async with a_side(one, kernel=kernel) as side:
        await until(lambda: side.renewals.renewed_ns is not None)
        before = side.renewals.renewed_ns
        await until(lambda: side.renewals.renewed_ns > before)
        await until(lambda: side.ready)

        assert kernel.entry(A) == first
        assert not [told for told in kernel.told if told.startswith(("entry", "delete"))]
        assert one.claim(A)["resourceVersion"] == claimed


@in_loop
async def test_restart_keeps_what_it_has_though_claims_are_heard_of_before_the_own_heartbeat(one):
    kernel = Cable()
    async with a_side(one, kernel=kernel) as side:
        await _owns(side, A)
    claimed = one.claim(A)["resourceVersion"]
    kernel.told.clear()
    one.fault(NODE, delay=(Delay(0.7, verb="get", resource="leases"),))

    async with a_side(one, kernel=kernel) as side:
        await until(lambda: list(side.kube._cluster.heartbeats))
        assert not side.joined
        await until(lambda: side.renewals.renewed_ns is not None)
        await until(lambda: side.ready)

        assert not [told for told in kernel.told if told.startswith(("entry", "delete"))]
        assert one.claim(A)["resourceVersion"] == claimed


@in_loop
async def test_restart_under_an_epoch_of_others_clears_first(one):
    """Somebody has revoked this node meanwhile: its heartbeat has another epoch."""
    kernel = Cable()
    async with a_side(one, kernel=kernel) as side:
        await _owns(side, A)
    heartbeat = one.get(f"{LEASES}/node.{NODE}")
    heartbeat["metadata"]["annotations"] = {EPOCH: "00000000-1111-4222-8333-444444444444"}
    assert one.api.ask("PUT", f"{LEASES}/node.{NODE}", heartbeat).code == 200
    old_epoch = kernel.entry(A).epoch
    kernel.told.clear()
    written, seen = one.writes(NODE), []
    write = kernel.write_entries

    def write_and_look(entries) -> None:
        write(entries)
        if entries:
            seen.append((kernel.kind(A), one.writes(NODE)))

    kernel.write_entries = write_and_look
    async with a_side(one, kernel=kernel) as side:
        await until(lambda: seen)
        assert seen[0] == (Kind.UNCLAIMED, written)
        await _owns(side, A)

        assert kernel.entry(A).epoch != old_epoch


@in_loop
async def test_peers_mac_is_in_entries_of_what_it_holds(one):
    one.nodes("node-2")
    async with a_side(one) as first:
        await _owns(first, A)
        async with a_side(one, "node-2") as second:
            await until(lambda: second.kernel.kind(A) is Kind.FOREIGN)
            await until(lambda: second.kernel.entry(A).owner_mac == mac_of(1))

            assert second.kube._is_guarded(mac_of(1))
            assert second.kube._is_guarded(mac_of(2))
            assert not second.kube._is_guarded(mac_of(3))
            assert not second.kube._is_guarded(ZERO_MAC)


@in_loop
async def test_stranger_that_has_the_vip_keeps_it(one, segment):
    segment.strangers[A] = mac_of(99)
    async with a_side(one) as side:
        await until(lambda: side.kernel.kind(A) is Kind.EXTERNAL, 10)

        assert side.kernel.entry(A).owner_mac == mac_of(99)
        assert one.claim(A)["annotations"]["arpguard.io/external"] == str(mac_of(99))
        assert one.holder(A) == ""


@in_loop
async def test_node_that_answers_without_its_agent_keeps_the_vip_however_its_heartbeat_looks(one, segment):
    """It came back, its guard did not, and another program announces there."""
    one.nodes("node-2")
    async with a_side(one, "node-2") as second:
        await _owns(second, A)
    segment.strangers[A] = mac_of(2)
    async with a_side(one) as side:
        await waited(lambda: one.events("VIPTakenOutside"), "to be told who has the VIP")

        assert not side.kernel.owned()
        assert "node-2 (cluster node without an agent)" in one.events("VIPTakenOutside")[0]["note"]

        async with a_side(one, "node-2"):  # guarded again: what was heard of it is silent
            await until(lambda: side.kernel.owned() == {A} or side.kernel.kind(A) is Kind.FOREIGN, 15)


@in_loop
@pytest.mark.parametrize("mac", [mac_of(2), mac_of(7)], ids=["its old MAC", "a new MAC"])
async def test_owner_that_only_this_node_does_not_hear_is_no_host_outside(one, segment, mac):
    """Its watch stands still, so it prepares to take the VIP over."""
    one.nodes("node-2")
    async with a_side(one, "node-2") as second:
        await _owns(second, A)
        async with a_side(one) as side:
            await until(lambda: side.kernel.kind(A) is Kind.FOREIGN, 10)
            segment.strangers[A] = mac
            segment.asked.clear()
            one.fault(NODE, freeze=True)
            await until(lambda: A in segment.asked, 10)
            await asyncio.sleep(1)

            assert not one.events("VIPTakenOutside")


@in_loop
async def test_node_that_is_cut_off_does_not_say_that_no_node_is_eligible(one):
    """All others look dead to it."""
    one.nodes("node-2")
    one.put(_excluded(NODE))
    async with a_side(one, "node-2") as second:
        await _owns(second, A)
        async with a_side(one) as side:
            await until(lambda: side.membership.alive == {NODE, "node-2"}, 10)
            one.fault(NODE, cut=True)
            await until(lambda: side.membership.wishes.nobody == {A}, 10)
            await asyncio.sleep(1)

            assert not side.says("no node is eligible")
            assert not side.kube.state.nobody
            one.fault(NODE)
        await asyncio.sleep(1)
        assert not one.events("NobodyEligible")


@in_loop
async def test_vip_with_hold_is_taken_over_from_a_kernel_that_answers_on(scene, segment):
    scene.nodes(NODE, "node-2")
    scene.publish("web", [A], {"hold": "true"})
    async with a_side(scene, "node-2") as second:
        await _owns(second, A)
    segment.strangers[A] = mac_of(2)
    async with a_side(scene) as side:
        await _owns(side, A)


@in_loop
async def test_log_says_why_a_vip_moves(scene, caplog):
    caplog.set_level("INFO")
    scene.nodes(NODE, "node-2")
    scene.publish("web", [A])
    async with a_side(scene) as first:
        await _owns(first, A)
        async with a_side(scene, "node-2") as second:
            await waited(lambda: INSTANCE in scene.lease("node.node-2").get("annotations", {}))
            scene.put(_excluded(NODE))
            await _owns(second, A)

    why = f"excluded by the label {EXCLUDE_LABEL}"
    assert f'owned: vip={A} why="no node has it; ' in caplog.text
    assert f'given up: vip={A} why="{why}"' in caplog.text
    assert f'owned: vip={A} why="{NODE} cannot own the VIP: {why}' in caplog.text


@in_loop
async def test_vip_that_is_gone_takes_its_claim_along(one, monkeypatch):
    monkeypatch.setattr("arpguard.runtime.cluster.member.TIDY_NS", NS_PER_S // 5)
    async with a_side(one) as side:
        await _owns(side, A)
        one.delete("/api/v1/namespaces/shop/services/web")
        await until(lambda: not side.kernel.entries)
        await waited(lambda: not one.claim(A))


@in_loop
async def test_claim_on_what_was_never_seen_to_be_a_vip_is_removed(one, monkeypatch):
    monkeypatch.setattr("arpguard.runtime.cluster.member.TIDY_NS", NS_PER_S // 5)
    async with a_side(one) as side:
        one.publish("more", [B])
        await _owns(side, A, B)
    one.delete("/api/v1/namespaces/shop/services/more")
    async with a_side(one) as side:
        await waited(lambda: not one.claim(B))
        await _owns(side, A)

        assert one.holder(A) == NODE


@in_loop
async def test_heartbeat_of_a_node_that_left_the_cluster_is_deleted_once_no_claim_names_it(scene, monkeypatch):
    monkeypatch.setattr("arpguard.runtime.cluster.member.TIDY_NS", NS_PER_S // 5)
    monkeypatch.setattr("arpguard.core.ownership.peers.LONG_OVER_NS", 0)
    """That of a node that is only silent stays, however long."""
    silent, owner, other = "node-2", "node-3", "node-4"
    scene.put(*(_excluded(name) for name in (NODE, silent, other)))
    scene.nodes(owner)
    scene.publish("web", [A])
    async with a_side(scene, silent), a_side(scene, other), a_side(scene, owner) as side:
        await _owns(side, A)
        await waited(lambda: all(scene.lease(f"node.{name}") for name in (silent, other)))
    scene.delete(f"/api/v1/nodes/{owner}")

    async with a_side(scene) as side:
        await waited(lambda: INSTANCE not in scene.lease(f"node.{owner}")["annotations"], "revoked", 60)
        scene.delete(f"/api/v1/nodes/{other}")
        await waited(lambda: not scene.lease(f"node.{other}"), "deleted", 60)
        assert scene.holder(A) == owner
        assert scene.lease(f"node.{owner}")

        scene.nodes(NODE)
        await _owns(side, A)
        await waited(lambda: not scene.lease(f"node.{owner}"), "deleted once no claim names it", 60)
    assert INSTANCE in scene.lease(f"node.{silent}")["annotations"]


def _excluded(name: str) -> dict:
    """A Node that may own nothing."""
    body = objects.node(name, vip(number_of(name)))
    body["metadata"]["labels"][EXCLUDE_LABEL] = ""
    return body


@pytest.mark.parametrize("count", [10, 300])
@in_loop
async def test_at_rest_only_the_heartbeat_is_written(scene, count):
    scene.nodes(NODE)
    vips = [vip(index) if count < 200 else vip(0) + index for index in range(2, 2 + count)]
    config = CONFIG.replace("192.0.2.0/24", "192.0.0.0/16")
    scene.publish("web", vips)
    async with a_side(scene, config=config) as side:
        side.surroundings = _wide(side.surroundings)
        side.wanted.wake()
        await until(lambda: side.kernel.owned() == set(vips), 30)
        claims = _claim_writes(scene)
        before, began = side.renewals.renewed_ns, scene.writes(NODE)
        await until(lambda: side.renewals.renewed_ns >= before + 2 * NS_PER_S, 10)
        renewals = (side.renewals.renewed_ns - before) / NS_PER_S * 2

        assert _claim_writes(scene) == claims
        assert scene.writes(NODE) - began <= renewals + 2


def _claim_writes(scene) -> int:
    changes = scene.server.do(_lease_changes)
    return sum(change.key[1].startswith("vip.") for change in changes)


def _wide(surroundings):
    (link,) = surroundings.links
    address = replace(link.addresses[0], network=ip_network("192.0.0.0/16"))
    return replace(surroundings, links=(replace(link, addresses=(address,)),))


# ---- nothing elected ----

SHORT = CONFIG.replace("duration: 3s, renew: 500ms, margin: 1s", "duration: 1500ms, renew: 500ms, margin: 500ms")
LONG = CONFIG.replace("duration: 3s, renew: 500ms, margin: 1s", "duration: 15s, renew: 2s, margin: 3s")
NODES = ("node-1", "node-2")


@asynccontextmanager
async def _two_at_rest(scene, config=CONFIG):
    """Two agents with nothing elected, of which nothing but the lease of a rest is published."""
    scene.nodes(*NODES)
    async with a_side(scene, NODES[0], config=config) as one, a_side(scene, NODES[1], config=config) as two:
        await waited(lambda: all(_is_resting(scene, name) for name in NODES))
        await until(lambda: all(side.membership.alive == set(NODES) for side in (one, two)))
        yield one, two


def _is_resting(scene, node) -> bool:
    return scene.lease(f"node.{node}").get("leaseDurationSeconds") == 30


@in_loop
async def test_node_that_rests_is_alive_for_the_others(scene):
    async with _two_at_rest(scene, SHORT) as (one, two):
        seen, writes = set(), [scene.writes(name) for name in NODES]
        for _ in range(40):
            seen |= {one.membership.alive, two.membership.alive}
            await asyncio.sleep(0.1)  # nothing is to happen: twice a lease and more is how long it is given to

        assert seen == {frozenset(NODES)}
        assert [scene.writes(name) - before for name, before in zip(NODES, writes, strict=True)] in (
            [0, 0], [1, 0], [0, 1], [1, 1],
        )  # fmt: skip
        assert not one.problems
        assert not two.problems


@in_loop
async def test_late_answer_at_rest_is_no_problem_and_a_lasting_failure_is(scene, caplog):
    async with _two_at_rest(scene) as (one, _):
        caplog.clear()  # on a busy machine the first read of a heartbeat may be answered late, too
        writes = len(list(one.writes.elements()))
        scene.fault(NODES[0], fail=2, code=500)
        _renew_now(one)
        await waited(lambda: len(list(one.writes.elements())) >= writes + 2)

        assert not _lines(caplog, "lease:")
        assert not one.problems
        scene.fault(NODES[0], fail=-1, code=500)
        _renew_now(one)
        await until(lambda: one.says("cannot renew the lease"), 30)
        assert len(_lines(caplog, "lease:")) == 1


def _renew_now(side) -> None:
    side.membership.leases.do(side.membership._ownership.heartbeat.hurry(boot_ns()))


@in_loop
async def test_first_elected_vips_are_claimed_once_each(scene):
    """All nodes hear of them at once, and each knows whose they are to be; a busy machine makes none look dead."""
    vips = {vip(number) for number in range(50, 90)}
    async with _two_at_rest(scene, LONG) as (one, two):
        began_ns = boot_ns()
        scene.publish("web", vips)
        await until(lambda: one.kernel.owned() | two.kernel.owned() == vips, 20)
        may_others_try = boot_ns() - began_ns > BACKUP_NS

        outcomes = _each_was_claimed_once(scene, vips, (one, two))
        assert outcomes == {"applied"} or "unknown" in outcomes or may_others_try
        assert one.kernel.owned()
        assert two.kernel.owned()


@in_loop
async def test_first_elected_vips_are_claimed_once_each_although_one_node_hears_nothing_of_claims(scene):
    """The stream of one node leads nowhere: what it knows of the others is old, and still right."""
    vips = {vip(number) for number in range(50, 90)}
    async with _two_at_rest(scene) as (one, two):
        scene.fault(NODES[0], half_open=True)
        one.kube._cluster._services._wait_at_most(0)  # of the VIPs it hears
        scene.publish("web", vips)
        await until(lambda: one.kernel.owned() | two.kernel.owned() == vips, 20)
        await until(lambda: one.kube.state.sources["leases"].streams == 2)

        _each_was_claimed_once(scene, vips, (one, two))
        assert one.kernel.owned()
        assert two.kernel.owned()


def _each_was_claimed_once(scene, vips, sides) -> set[str]:
    """On a busy machine an answer may come too late: such a claim is read back, and written again if it is missing."""
    claims = [scene.claim(address) for address in vips]
    assert {claim["leaseTransitions"] for claim in claims} == {0}
    writes = sum((side.writes for side in sides), Counter())
    assert writes["claim", "applied"] == len(vips) or writes["claim", "unknown"]
    assert not sides[0].kernel.owned() & sides[1].kernel.owned()
    assert not scene.events("OwnerChanged")
    return {outcome for kind, outcome in writes if kind == "claim"}


@in_loop
async def test_stream_of_heartbeats_that_leads_nowhere_is_replaced_before_it_is_a_loss(one, caplog):
    async with a_side(one) as side:
        await _owns(side, A)
        one.fault(NODE, half_open=True)
        await until(lambda: side.kube.state.sources["leases"].streams == 2, 10)
        await until(lambda: all(source.streams >= 2 for source in side.kube.state.sources.values()), 15)
        renewed = side.renewals.renewed_ns
        await until(lambda: side.renewals.renewed_ns > renewed + 3 * NS_PER_S, 10)

        assert side.kube.state.sources["leases"].streams == 2
        assert side.kernel.owned() == {A}
    assert not _lines(caplog, "lost")


@in_loop
async def test_server_whose_streams_stand_still_is_lost(one, caplog):
    async with a_side(one) as side:
        await _owns(side, A)
        one.fault(NODE, freeze=True)
        await until(lambda: side.kube.state.sources["leases"].lost != "", 20)
        await until(lambda: side.says("the stream does not show this node's own writes"))
        one.fault(NODE)
        await until(lambda: side.kube.state.sources["leases"].lost == "", 10)

    assert len(_lines(caplog, "lost")) == len(_lines(caplog, "watching again")) == 1


# ---- in trouble ----


def _lines(caplog, *words) -> list[str]:
    return [record.getMessage() for record in caplog.records if all(word in record.getMessage() for word in words)]


@in_loop
async def test_refused_writes_are_neither_a_flood_of_requests_nor_of_lines(scene, caplog):
    """A role that lacks writing: 403 for every write of a Lease."""
    rules = objects.access(HOME)
    for body in rules:
        for rule in body.get("rules", ()):
            if "leases" in rule["resources"]:
                rule["verbs"] = ["get", "list", "watch"]
    scene.put(*rules)
    scene.server.do(lambda it: it.enforce_rbac())
    scene.nodes(NODE)
    scene.publish("web", [A])
    async with a_side(scene, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await until(lambda: side.says("cannot renew the lease"))
        began = scene.count(NODE)
        await _while(2.0)

        assert scene.count(NODE) - began < 20
        assert len(_lines(caplog, "lease: cannot renew")) == 1
        assert len(caplog.records) < 20
        assert not side.kernel.owned()


async def _while(seconds: float) -> None:
    """A stretch of time in which something must not happen often."""
    await asyncio.sleep(seconds)


@in_loop
async def test_claims_that_are_refused_are_not_tried_in_a_loop(one, caplog):
    async with a_side(one) as side:
        await _owns(side, A)
        one.fault(NODE, fail=-1, code=500)
        one.publish("more", [B, C])
        await until(lambda: "500 " in side.renewals.lost, 10)
        began, lines = one.count(NODE), _lines(caplog, "lease: cannot renew")  # on a busy machine of late answers, too
        await _while(2.0)

        assert one.count(NODE) - began < 60
        assert _lines(caplog, "lease: cannot renew") == lines
        one.fault(NODE)
        await _owns(side, A, B, C)
        assert len(_lines(caplog, "lease: renewals work again")) == len(lines) > 0


@pytest.mark.parametrize("trouble", ["away", "silent"])
@in_loop
async def test_outage_is_told_of_once_and_is_no_busy_loop(one, caplog, trouble):
    async with a_side(one) as side:
        await _owns(side, A)
        if trouble == "away":
            one.server.run(lambda it: it.go_down())
        else:
            one.fault(NODE, stall=True)
        await until(lambda: side.says("cannot renew the lease"), 10)
        cpu_s, began = time.thread_time(), one.count(NODE)
        await _while(2.0)

        assert time.thread_time() - cpu_s < 1.0
        assert one.count(NODE) - began < 60
        assert len(_lines(caplog, "lease:", "renew")) == 1
        assert len(caplog.records) < 60
        if trouble == "away":
            one.server.run(lambda it: it.come_up())
        else:
            one.fault(NODE)
        await until(lambda: not side.says("cannot renew the lease"), 15)
        await _owns(side, A)

        assert len(_lines(caplog, "lease: renewals work again")) == 1
        assert not side.says("the lease")


async def _starts_over(side) -> None:
    """The kernel lost the right to answer, and the agent ends for that reason alone."""
    side.may_end = True
    await until(side.running.done, 15)
    restored, others = side.running.exception().split(RestoredError)
    assert restored is not None
    assert others is None
    assert side.kernel.value.fence_ns == 0
    assert not side.kernel.owned()


@in_loop
async def test_agent_starts_over_when_its_renewal_has_a_lower_version_than_its_watch_has_shown(one):
    """No Lease that it reads is older than it has seen: the backup was made after its last renewal."""
    metadata = {"namespace": HOME, "name": "other", "uid": OTHER_UID, "labels": {KIND_LABEL: CLAIM}}
    async with a_side(one) as side:
        await _owns(side, A)
        one.fault(NODE, hold=f"node.{NODE}")
        backup = one.server.do(lambda it: it.snapshot())
        for number in range(100):
            body = {"metadata": metadata, "spec": {"leaseTransitions": number}}
            revision = one.server.do(
                lambda it, body=body: it.store.write(resources.LEASES, (HOME, "other"), body).revision
            )
        await until(lambda: side.kube._cluster.leases_version == str(revision))
        one.server.do(lambda it: it.restore(backup))
        one.fault(NODE)

        await _starts_over(side)


@in_loop
async def test_agent_starts_over_when_it_checks_a_claim_and_finds_an_older_one(one):
    """As it does when another node claims the VIP on the wire."""
    async with a_side(one) as side:
        await _owns(side, A)
        stored = one.server.do(lambda it: it.store.table(resources.LEASES).live[HOME, f"vip.{A}"])
        older = replace_version(stored.body, int(stored.body["metadata"]["resourceVersion"]) - 1)
        one.server.do(lambda it: it.store.table(resources.LEASES).live.update({(HOME, f"vip.{A}"): older}))
        side.membership.recheck(A)

        await _starts_over(side)


def replace_version(body, version):
    return Stored({**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}, version)


@in_loop
async def test_claims_that_nobody_allows_are_asked_for_now_and_then(scene):
    """The heartbeat may be renewed, and nothing else be written."""
    rules = objects.access(HOME)
    for body in rules:
        for rule in body.get("rules", ()):
            if "leases" in rule["resources"]:
                rule["verbs"] = ["get", "list", "watch"]
                own = {**rule, "verbs": ["update"], "resourceNames": [f"node.{NODE}"]}
                body["rules"] = [*body["rules"], own]
                break
    heartbeat = {"namespace": HOME, "name": f"node.{NODE}"}
    scene.put(*rules, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": heartbeat, "spec": {}})
    scene.server.do(lambda it: it.enforce_rbac())
    scene.nodes(NODE)
    scene.publish("web", [A])
    async with a_side(scene, service_account=f"{HOME}/{objects.ACCOUNT}") as side:
        await until(lambda: scene.count(NODE, "create", "leases"), 10)
        await _while(2.0)

        assert scene.count(NODE, "create", "leases") <= 6
        assert not side.kernel.owned()


@in_loop
async def test_restarted_agent_publishes_its_links_before_the_configmap_is_read(one):
    """Else the others would take it for a node without links, and what it answers for a stranger's."""
    kernel = Cable()
    one.configure()
    async with a_side(one, kernel=kernel, configmap=CONFIGMAP) as side:
        await _owns(side, A)
    published = one.lease(f"node.{NODE}")["annotations"]["arpguard.io/links"]
    one.fault(NODE, delay=(Delay(3.0, resource="configmaps"),))

    async with a_side(one, kernel=kernel, configmap=CONFIGMAP) as side:
        await until(lambda: side.renewals.renewed_ns is not None)

        assert side.settings.in_force.source != f"ConfigMap {HOME}/{CONFIGMAP}"
        assert one.lease(f"node.{NODE}")["annotations"]["arpguard.io/links"] == published
        await until(lambda: side.ready, 10)


@in_loop
async def test_request_may_take_as_long_as_the_margin_of_the_configuration_in_force(one):
    one.configure(CONFIG.replace("duration: 3s", "duration: 12s").replace("margin: 1s", "margin: 4s"))
    async with a_side(one, configmap=CONFIGMAP) as side:
        await _owns(side, A)

        requests = side.membership._requests
        assert {each._writer.timeout_s for each in (requests._hearts, requests._others)} == {0.9 * 4}


@in_loop
async def test_renewal_of_another_node_is_no_news(one, monkeypatch):
    one.nodes("node-2")
    async with a_side(one) as side, a_side(one, "node-2"):
        await until(lambda: "node-2" in side.membership.alive, 10)
        woken: list[None] = []
        monkeypatch.setattr(side.membership.leases, "wake", lambda: woken.append(None))
        heartbeat = next(each for each in side.membership.heartbeats if each.node == "node-2")
        later = replace(heartbeat, version=replace(heartbeat.version, resource_version="1000000"))
        changes = [(heartbeat, later, False), (later, replace(later, links=()), True), (later, None, True)]
        for old, new, is_news in changes:
            woken.clear()
            side.membership.heartbeat_changed("node-2", old, new)
            assert bool(woken) is is_news


BOTH = CONFIG.replace("[lab0]", "[lab0, lab1]")
ON_LAB1 = {"interface": "lab1"}


def on_both_links(side):
    """Has the node be in the VIPs' subnet by two links: lab0, and lab1 with a MAC of its own."""
    (first,) = side.surroundings.links
    second = replace(first, ifindex=3, name="lab1", mac=mac_of(100 + number_of(side.node)))
    side.surroundings = replace(side.surroundings, links=(first, second))
    side.wanted.wake()


@in_loop
async def test_a_vip_is_probed_for_on_the_interface_that_it_is_to_be_on(scene, segment):
    scene.nodes(NODE)
    async with a_side(scene, config=BOTH) as side:
        on_both_links(side)
        await until(lambda: len(side.reconciler.state.links) == 2)
        scene.publish("web", [A], ON_LAB1)
        await _owns(side, A)

        assert segment.asked_on == ["lab1"]
        assert [key.ifindex for key in side.kernel.entries if key.vip == A] == [3]


@in_loop
async def test_the_owners_mac_is_that_of_the_interface_that_the_vip_is_to_be_on(scene):
    scene.nodes(NODE, "node-2")
    async with a_side(scene, config=BOTH) as one, a_side(scene, "node-2", config=BOTH) as two:
        on_both_links(one)
        on_both_links(two)
        scene.publish("web", [A])
        await waited(lambda: scene.holder(A))
        owner, other = (one, two) if scene.holder(A) == NODE else (two, one)
        await until(lambda: other.kernel.entry(A) and other.kernel.entry(A).kind is Kind.FOREIGN)
        scene.publish("web", [A], ON_LAB1)

        def told():
            return other.kernel.entries.get(EntryKey(3, A))

        await until(lambda: told() is not None and told().owner_mac == mac_of(100 + number_of(owner.node)))
