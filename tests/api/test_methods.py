"""What every method answers, against a node whose state is known."""

import socket
import time
import uuid
from collections import Counter
from ipaddress import IPv4Address

import pytest

from api.apitools import UNARY, a_node, an_api, ended, seconds, served
from api.conftest import CONFIG, DELEGATED, ELECT, EXTERNAL, FOREIGN, OBSERVED, OWNED, PEER_MAC, PINNED
from arpguard import __version__
from arpguard.addresses import MacAddress
from arpguard.config.model import AgentConfig
from arpguard.core.ownership.lease import Times
from arpguard.core.ownership.records import Holder
from arpguard.dataplane import loader, syscall
from arpguard.model import EntryKey, Owner, OwnerKind, Vip, VipEntry
from arpguard.node import ConfigInForce
from arpguard.units import NS_PER_S
from arpguard.v1 import agent_pb2 as pb
from arpguard.verdict import Hook, Kind
from arpguard.wire.arp import parse_arp_frame
from support.frames.builders import an_announcement
from support.kube.cluster_states import a_cluster, an_elected
from support.netns.cable import address
from support.netns.foreign import lacks_tcx, programs_at
from support.netns.waiting import until
from support.netns.wire import a_wire

pytestmark = [pytest.mark.bpf, pytest.mark.netns]

VIPS = {
    OWNED: ("node-1", pb.KIND_OWNED),
    FOREIGN: ("node-2", pb.KIND_FOREIGN),
    EXTERNAL: ("external", pb.KIND_EXTERNAL),
    PINNED: (f"external {PEER_MAC}", pb.KIND_EXTERNAL),
    ELECT: ("elect", pb.KIND_UNCLAIMED),
    DELEGATED: ("node-1 (delegated)", pb.KIND_DELEGATED),
    OBSERVED: ("node-2", pb.KIND_FOREIGN),
}
STRANGER = MacAddress.parse("02:00:00:00:00:77")


# ---- GetStatus ---------------------------------------------------------------------------------------------------


def test_status_tells_who_the_node_is_and_what_is_in_force(api, agent):
    status = api.GetStatus()

    assert (status.node, status.version, status.mode) == ("node-1", __version__, pb.MODE_ENFORCE)
    assert (status.config.source, status.config.generation) == (str(agent.config), 1)
    assert list(status.config.problems) == []
    assert 0 < time.time() - seconds(status.start_time) < 300
    assert 0 < time.time() - seconds(status.config.load_time) < 300
    assert status.kubernetes.state == pb.Kubernetes.STATE_NOT_USED
    assert not status.HasField("fence_left")
    assert [getattr(status.lease, name).seconds for name in ("duration", "renew_interval", "margin")] == [3, 1, 1]
    assert (status.drift.entries, status.drift.programs, status.drift.control) == (0, 0, 0)


def test_status_tells_the_links_and_the_programs_on_them(api, pair):
    links = {link.name: link for link in api.GetStatus().links}

    assert set(links) == {"eth0", "eth1"}
    assert {
        name: (link.mac, list(link.addresses), link.up, link.device_kind, link.vips) for name, link in links.items()
    } == {
        "eth0": ("02:00:00:00:00:01", ["198.51.100.1/24"], True, "veth", 7),
        "eth1": ("02:00:00:00:01:01", ["203.0.113.1/24"], True, "veth", 7),
    }
    for name, link in links.items():
        index = pair.node.netns.call(lambda name=name: socket.if_nametoindex(name))
        attached = {item.hook: item for item in link.attachments}
        assert link.ifindex == index
        assert set(attached) == {pb.HOOK_TC_INGRESS, pb.HOOK_TC_EGRESS}
        assert [attached[pb.HOOK_TC_INGRESS].program_id] == programs_at(pair.node, Hook.TC_INGRESS, name)
        assert {item.how for item in link.attachments} == {"clsact" if lacks_tcx() else "tcx"}


def test_status_counts_the_entries_by_kind(api):
    """The owned and the delegated VIP are foreign on eth1: they are answered on eth0 only."""
    status = api.GetStatus()

    assert (status.entries, status.entries_capacity) == (14, 1024)
    assert {item.kind: item.count for item in status.kinds} == {
        pb.KIND_OWNED: 1,
        pb.KIND_DELEGATED: 1,
        pb.KIND_FOREIGN: 6,
        pb.KIND_EXTERNAL: 4,
        pb.KIND_UNCLAIMED: 2,
    }


def test_status_lists_what_is_not_as_it_was_asked_for(api):
    assert [problem for problem in api.GetStatus().problems if f"no node answers for {ELECT}" in problem]


def test_status_counts_decisions_and_accounts_for_the_events(api, pair):
    def counted() -> tuple[int, int, int]:
        status = api.GetStatus()
        counts = {item.reason: item.enforced for item in status.reasons}
        events = status.events
        return counts.get(pb.REASON_FOREIGN, 0), counts.get(pb.REASON_ANSWERED, 0), events.delivered + events.limited

    foreign, answered, events = counted()
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN)] * 5, OWNED)

    until(lambda: counted()[0] == foreign + 5)
    assert counted()[1] == answered + 1
    assert counted()[2] >= events + 6
    until(lambda: (events := api.GetStatus().events).received == events.delivered)
    assert api.GetStatus().events.lost == 0


def test_status_is_told_however_much_is_wrong(loaded, tmp_path):
    """A file with a wrong item in each of its lines is one problem of many megabytes."""
    node = a_node(loaded)
    endless = "é" * 5_000_000
    node.in_force = ConfigInForce("config.yaml", AgentConfig(), problem=endless)
    node.state.problems = (endless, *(f"problem {number}" for number in range(1000)))
    with served(node, tmp_path) as made, an_api(made.address) as api:
        status = api.GetStatus()

    assert status.config.problems == ["é" * 2000 + "..."]
    assert len(status.problems) == 101
    assert (status.problems[0], status.problems[1]) == ("é" * 2000 + "...", "problem 0")
    assert status.problems[-1] == "and 901 more"


# ---- ListVips, GetVip --------------------------------------------------------------------------------------------


def test_vips_are_listed_for_each_link_in_order(api):
    answer = api.ListVips()

    assert [(vip.link, vip.address) for vip in answer.vips] == [
        (link, str(vip)) for link in ("eth0", "eth1") for vip in VIPS
    ]
    assert (answer.total_size, answer.next_page_token) == (14, "")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"link": "eth1"}, [("eth1", str(vip)) for vip in VIPS]),
        ({"kind": pb.KIND_OWNED}, [("eth0", str(OWNED))]),
        ({"kind": pb.KIND_EXTERNAL, "link": "eth0"}, [("eth0", str(EXTERNAL)), ("eth0", str(PINNED))]),
        ({"kind": pb.KIND_OWNED, "link": "eth1"}, []),
        ({"link": "eth9"}, []),
    ],
    ids=str,
)
def test_vips_are_filtered(api, fields, found):
    answer = api.ListVips(**fields)

    assert [(vip.link, vip.address) for vip in answer.vips] == found
    assert answer.total_size == len(found)


@pytest.mark.parametrize("vip", VIPS, ids=str)
def test_vip_is_shown_as_the_kernel_has_it_on_every_link(api, vip):
    here, there = api.GetVip(address=str(vip)).vips
    owner, kind = VIPS[vip]
    elsewhere = pb.KIND_FOREIGN if kind in (pb.KIND_OWNED, pb.KIND_DELEGATED) else kind

    assert [(shown.address, shown.link, shown.kind) for shown in (here, there)] == [
        (str(vip), "eth0", kind),
        (str(vip), "eth1", elsewhere),
    ]
    assert {shown.owner for shown in (here, there)} == {owner}
    assert here.source == f"vips[{list(VIPS).index(vip)}]"
    assert here.mode == (pb.MODE_OBSERVE if vip == OBSERVED else pb.MODE_ENFORCE)
    assert (here.hold, here.answer_mac) == ((True, "02:00:00:00:00:01") if vip == OWNED else (False, ""))
    assert here.owner_mac == (PEER_MAC if vip == PINNED else "")


def test_vip_counts_its_frames_by_reason_carried_out_or_only_observed(api, pair):
    def counts(vip: object) -> dict[int, tuple[int, int]]:
        return {item.reason: (item.enforced, item.observed) for item in api.GetVip(address=str(vip)).vips[0].reasons}

    before = counts(PINNED).get(pb.REASON_EXTERNAL, (0, 0))
    observed = counts(OBSERVED).get(pb.REASON_FOREIGN, (0, 0))
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(PINNED)] * 3 + [wire.request(OBSERVED)] * 2, OWNED)

    assert counts(PINNED)[pb.REASON_EXTERNAL] == (before[0] + 3, 0)
    assert counts(OBSERVED)[pb.REASON_FOREIGN] == (0, observed[1] + 2)


def test_owner_and_source_follow_the_configuration(api, agent):
    """The file is read within a second; the generation counts."""
    generation = api.GetStatus().config.generation
    agent.configure(
        CONFIG.replace(f"address: {FOREIGN}, owner: {{node: node-2}}", f"address: {FOREIGN}, owner: external")
    )
    until(lambda: api.GetVip(address=str(FOREIGN)).vips[0].kind == pb.KIND_EXTERNAL)
    assert api.GetVip(address=str(FOREIGN)).vips[0].owner == "external"
    until(lambda: api.GetStatus().config.generation == generation + 1)  # the status is kept for a moment

    agent.configure(CONFIG)
    until(lambda: api.GetVip(address=str(FOREIGN)).vips[0].kind == pb.KIND_FOREIGN)
    assert api.GetVip(address=str(FOREIGN)).vips[0].owner == "node-2"
    until(lambda: api.GetStatus().config.generation == generation + 2)


def test_wrong_edit_is_a_problem_of_the_configuration_and_changes_nothing(api, agent):
    before = api.GetStatus().config
    agent.configure("mode: fast\n")
    until(lambda: any("mode: must be observe or enforce, not fast" in each for each in api.GetStatus().problems))
    after = api.GetStatus()

    assert (after.config.generation, after.config.load_time) == (before.generation, before.load_time)
    assert after.config.problems[0] in after.problems

    agent.configure(CONFIG)
    until(lambda: after.config.problems[0] not in api.GetStatus().problems)
    assert not api.GetStatus().config.problems


# ---- ExplainVip --------------------------------------------------------------------------------------------------

IN = [pb.OPERATION_REQUEST, pb.OPERATION_PROBE, pb.OPERATION_REPLY, pb.OPERATION_ANNOUNCEMENT]
OUT = [pb.OPERATION_OUT_REQUEST, pb.OPERATION_OUT_REPLY, pb.OPERATION_OUT_ANNOUNCEMENT]
ANSWERED, DROPPED, PASSED, CHANGED = pb.FATE_ANSWERED, pb.FATE_DROPPED, pb.FATE_PASSED, pb.FATE_CHANGED
FATES = {
    OWNED: [ANSWERED, ANSWERED, DROPPED, DROPPED, PASSED, PASSED, PASSED],
    FOREIGN: [DROPPED, DROPPED, CHANGED, CHANGED, CHANGED, DROPPED, DROPPED],
    DELEGATED: [PASSED, PASSED, PASSED, PASSED, PASSED, PASSED, PASSED],
    OBSERVED: [PASSED, PASSED, PASSED, PASSED, PASSED, PASSED, PASSED],
    address(60): [PASSED, PASSED, PASSED, PASSED, PASSED, PASSED, PASSED],
}


def test_every_operation_is_explained_on_every_link(api):
    links = api.ExplainVip(address=str(OWNED)).links

    assert [link.link for link in links] == ["eth0", "eth1"]
    for link in links:
        assert [frame.operation for frame in link.frames] == IN + OUT
        assert [frame.hook for frame in link.frames] == [pb.HOOK_TC_INGRESS] * 4 + [pb.HOOK_TC_EGRESS] * 3


@pytest.mark.parametrize("vip", FATES, ids=str)
def test_fate_of_each_frame_is_the_programs(api, vip):
    (link,) = api.ExplainVip(address=str(vip), link="eth0").links

    fates = [frame.fate for frame in link.frames]
    allowed = [{fate, PASSED} if fate is CHANGED and vip == FOREIGN else {fate} for fate in FATES[vip]]
    assert [fate for fate, expected in zip(fates, allowed, strict=True) if fate not in expected] == [], fates
    for frame in link.frames:
        assert frame.HasField("result") == (frame.fate != DROPPED)
        assert (frame.result.hex == frame.frame.hex) == (frame.fate == PASSED)


def test_answer_is_shown_as_bytes_and_decoded(api):
    (link,) = api.ExplainVip(address=str(OWNED), link="eth0", operations=[pb.OPERATION_REQUEST]).links
    (story,) = link.frames
    packet = parse_arp_frame(bytes.fromhex(story.result.hex))

    assert (story.verdict, story.reason, story.mode) == (pb.VERDICT_ANSWER, pb.REASON_ANSWERED, pb.MODE_ENFORCE)
    assert (
        story.meaning == "this node owns the VIP and may answer: its fence has not expired, or the VIP needs no fence"
    )
    assert story.frame.text == f"who-has {OWNED} tell 192.0.0.8"
    assert story.result.text == f"{OWNED} is-at 02:00:00:00:00:01"
    assert packet is not None
    shown = story.result
    assert (shown.op, shown.sha, shown.spa, shown.tha, shown.tpa) == (
        "reply",
        str(packet.sha),
        str(packet.spa),
        str(packet.tha),
        str(packet.tpa),
    )
    assert (shown.eth_dst, shown.eth_src) == ("02:ff:ff:ff:ff:fe", "02:00:00:00:00:01")


def test_sender_is_the_callers_choice(api):
    """The owner's own claim passes, a stranger's is a conflict."""

    def claim(mac: str) -> pb.FrameExplanation:
        fields = {"address": str(PINNED), "link": "eth0", "operations": [pb.OPERATION_REPLY]}
        return api.ExplainVip(**fields, sender_mac=mac, sender_address="198.51.100.99").links[0].frames[0]

    assert (claim(PEER_MAC).reason, claim(PEER_MAC).frame.sha) == (pb.REASON_OWNER_CLAIM, PEER_MAC)
    assert claim(str(STRANGER)).reason == pb.REASON_CONFLICT
    assert claim(PEER_MAC).frame.tpa == "198.51.100.99"


def test_operations_are_explained_once_in_the_order_asked_for(api):
    asked = [pb.OPERATION_OUT_REPLY, pb.OPERATION_REQUEST, pb.OPERATION_OUT_REPLY]
    (link,) = api.ExplainVip(address=str(OWNED), link="eth0", operations=asked).links

    assert [frame.operation for frame in link.frames] == asked[:2]


def test_ownership_leads_from_the_file_to_the_entry(api, agent):
    (link,) = api.ExplainVip(address=str(OWNED), link="eth0").links
    own = link.ownership

    assert link.summary == "owned, this node answers"
    assert link.entry == api.GetVip(address=str(OWNED)).vips[0]
    assert own.source == f"vips[0] in {agent.config}"
    assert [(who.node, who.eligible, who.chosen) for who in own.candidates] == [("node-1", True, True)]
    assert (own.HasField("claim"), own.HasField("fence_left")) == (False, False)
    assert own.steps[0] == f"{own.source} makes {OWNED} a VIP with the owner node-1"
    assert own.steps[-1].endswith("does not expire (no fence)")


def test_address_that_is_not_guarded_is_explained_too(api):
    (link,) = api.ExplainVip(address=str(address(60)), link="eth0").links

    assert link.summary.startswith("not guarded")
    assert (link.HasField("entry"), link.ownership.source, list(link.ownership.candidates)) == (False, "", [])
    assert {frame.reason for frame in link.frames} == {pb.REASON_NOT_GUARDED}


# ---- ListDecisions, ListConflicts --------------------------------------------------------------------------------


def test_decision_on_the_wire_is_listed_with_all_its_addresses(api, pair):
    vip, began = EXTERNAL, time.time()
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(vip, address(88))], OWNED)

    def listed() -> list[pb.Decision]:
        decisions = api.ListDecisions(filter={"vip": str(vip)}).decisions
        return [item for item in decisions if item.spa == str(address(88))]

    until(listed)
    (found,) = listed()

    expected = pb.Decision(
        vip=str(vip),
        link="eth0",
        hook=pb.HOOK_TC_INGRESS,
        verdict=pb.VERDICT_SUPPRESS,
        reason=pb.REASON_EXTERNAL,
        mode=pb.MODE_ENFORCE,
        kind=pb.KIND_EXTERNAL,
        op="request",
        sha="02:00:00:00:00:64",
        spa=str(address(88)),
        tha="00:00:00:00:00:00",
        tpa=str(vip),
        eth_src="02:00:00:00:00:64",
        eth_dst="ff:ff:ff:ff:ff:ff",
        count=1,
        first_time=found.first_time,
        last_time=found.last_time,
    )
    assert found == expected
    assert found.first_time == found.last_time
    assert began - 0.1 < seconds(found.last_time) < time.time() + 0.1


def test_foreign_claim_is_a_conflict_with_whoever_made_it(api, pair):
    began = time.time()
    with a_wire(pair.client) as wire:
        wire.exchange([an_announcement(STRANGER, OWNED)], OWNED)
    until(lambda: api.ListConflicts(vip=str(OWNED)).conflicts)
    (found,) = api.ListConflicts(vip=str(OWNED)).conflicts

    assert (found.vip, found.link, found.mac) == (str(OWNED), "eth0", str(STRANGER))
    assert (found.reason, found.dropped) == (pb.REASON_CONFLICT, True)
    assert found.count >= 1
    assert began - 0.1 < seconds(found.first_time) <= seconds(found.last_time) < time.time() + 0.1
    assert api.GetVip(address=str(OWNED)).vips[0].last_conflict == found
    assert not api.GetVip(address=str(OWNED)).vips[1].HasField("last_conflict")
    assert list(api.ListConflicts(vip=str(FOREIGN)).conflicts) == []
    assert list(api.ListConflicts(link="eth1").conflicts) == []
    assert list(api.ListConflicts(vip=str(OWNED), link="eth0").conflicts) == [found]
    assert found.claimant == pb.Claimant(kind=pb.Claimant.KIND_OUTSIDE)
    assert list(api.ListConflicts(vip=str(OWNED), claimant=pb.Claimant.KIND_OUTSIDE).conflicts) == [found]
    assert list(api.ListConflicts(vip=str(OWNED), claimant=pb.Claimant.KIND_CLUSTER_NODE).conflicts) == []


# ---- reading only ------------------------------------------------------------------------------------------------


def everything(agent) -> dict[str, object]:
    """All bytes of all maps."""
    maps = loader.open_maps(agent.pin_dir)
    info = {name: syscall.map_info(fd) for name, fd in maps.items() if name != "events"}
    whole: dict[str, object] = {}
    for name, kind in info.items():
        if name in ("entries", "ranges"):
            whole[name] = dict(syscall.map_items(maps[name], kind.key_size, kind.value_size))
        else:
            size = (kind.value_size + 7) // 8 * 8 * syscall.possible_cpus()
            keys = (index.to_bytes(4, "little") for index in range(kind.max_entries))
            whole[name] = [syscall.map_lookup(maps[name], key, size) for key in keys]
    return whole


def test_no_method_changes_anything_in_the_kernel(api, agent, pair):
    """Not even a counter, also of frames that are explained; a frame on the wire does, so the comparison can fail.

    In observe mode the agent announces nothing, so all is quiet."""
    agent.configure(CONFIG.replace("mode: enforce", "mode: observe\naudit: {every: off}"))
    until(lambda: api.GetStatus().mode == pb.MODE_OBSERVE)
    before = everything(agent)
    assert set(before) == {"entries", "ranges", "counters", "totals", "control", "vouching", "grants"}
    for vip in (*VIPS, address(60)):
        api.ExplainVip(address=str(vip), sender_mac=str(STRANGER))
        ended(lambda: api.GetVip(address="203.0.113.9"))
        api.GetVip(address=str(OWNED))
    for method in ("GetStatus", "ListVips", "ListDecisions", "ListConflicts", "ListAudits"):
        getattr(api, method)()
    ended(lambda: api.AuditVip(address="203.0.113.9"))  # of a VIP that is guarded it would ask, and be answered
    with pytest.raises(Exception, match="DEADLINE_EXCEEDED"):
        list(api.WatchDecisions(timeout=0.3, include_recent=True))

    assert Counter(UNARY) == Counter(
        [
            *("GetStatus", "ListVips", "GetVip", "ExplainVip", "ListDecisions", "ListConflicts"),
            *("ListAudits", "AuditVip"),
        ]
    )
    assert everything(agent) == before
    with a_wire(pair.client) as wire:
        wire.exchange([wire.request(FOREIGN)], pair.node.address)
    assert everything(agent) != before


# ---- in a cluster ------------------------------------------------------------------------------------------------

ITEM, ELECTED_VIP = IPv4Address("192.0.2.100"), IPv4Address("192.0.2.101")


@pytest.fixture
def clustered(loaded, tmp_path):
    """A node that guards an item of `vips:` and a Service's VIP."""
    keys = [EntryKey(1, ITEM), EntryKey(1, ELECTED_VIP)]
    node = a_node(loaded, dict.fromkeys(keys, VipEntry(Kind.FOREIGN)), links=1)
    item = Vip(ITEM, Owner(OwnerKind.NODE, node="node-2"))
    node.in_force = ConfigInForce("ConfigMap a/b", AgentConfig(vips=(Vip(OWNED, item.owner), item)))
    held = Holder("node-2", str(uuid.UUID(int=5)), alive=True, void=False, known=True, exists=True)
    times = Times(9 * NS_PER_S, 3 * NS_PER_S, 2 * NS_PER_S, NS_PER_S)
    node.cluster = a_cluster([item, an_elected(ELECTED_VIP)], held, times=times)
    with served(node, tmp_path) as made, an_api(made.address) as api:
        yield api


def test_source_is_the_item_or_the_service(clustered):
    found = {vip.address: vip for vip in clustered.ListVips().vips}

    assert (found[str(ITEM)].source, found[str(ITEM)].owner) == ("vips[1]", "node-2")
    assert (found[str(ELECTED_VIP)].source, found[str(ELECTED_VIP)].owner) == ("service shop/web", "elect")


def test_only_an_elected_vip_has_a_claim(clustered):
    found = {vip.address: vip for vip in clustered.ListVips().vips}

    assert found[str(ELECTED_VIP)].claim.holder == "node-2"
    assert not found[str(ITEM)].HasField("claim")


def test_explanation_names_the_file_of_an_item_only(clustered):
    sources = [clustered.ExplainVip(address=str(vip)).links[0].ownership.source for vip in (ITEM, ELECTED_VIP)]

    assert sources == ["vips[1] in ConfigMap a/b", "service shop/web"]


@pytest.mark.parametrize(("waits", "said"), [(False, "so this node is silent"), (True, "did before the agent started")])
def test_explanation_knows_whether_the_agent_changes_anything_yet(loaded, tmp_path, waits, said):
    node = a_node(loaded, {EntryKey(1, ITEM): VipEntry(Kind.DELEGATED)}, links=1)
    item = Vip(ITEM, Owner(OwnerKind.KEEPALIVED, instance="lab"))
    node.in_force, node.waits = ConfigInForce("config.yaml", AgentConfig(vips=(item,))), waits
    with served(node, tmp_path) as made, an_api(made.address) as api:
        steps = api.ExplainVip(address=str(ITEM)).links[0].ownership.steps

    assert [said in step for step in steps if "the state of lab" in step] == [True]


def test_item_that_the_cluster_refuses_makes_no_vip(clustered):
    """It is in the configuration, and not among the VIPs: it is a node's address, say."""
    story = clustered.ExplainVip(address=str(OWNED)).links[0].ownership

    assert (story.source, story.steps[0]) == (
        "",
        f"nothing in ConfigMap a/b makes {OWNED} a VIP, and no Service has this address",
    )


def test_lease_is_that_in_force(clustered):
    lease = clustered.GetStatus().lease

    assert [getattr(lease, name).seconds for name in ("duration", "renew_interval", "margin")] == [9, 3, 2]
    assert lease.stretched
