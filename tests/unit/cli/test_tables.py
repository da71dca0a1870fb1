"""Pages that a person grasps: what stands on them, and that nothing an agent says breaks them."""

import re

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from rich.cells import cell_len

from arpguard.cli import audit, everywhere, tables, words
from arpguard.cli.explanation import explanation
from arpguard.cli.render import Styled, bad, careful
from arpguard.v1 import agent_pb2 as pb
from support.cli import DECISION, HOSTILE, VIP, lines_of

PAGES = {
    "status": (pb.GetStatusResponse, tables.status),
    "vips": (pb.ListVipsResponse, tables.vips),
    "vip": (pb.GetVipResponse, tables.vip_details),
    "decisions": (pb.ListDecisionsResponse, tables.decisions),
    "stream": (pb.WatchDecisionsResponse, tables.DecisionLines().text),
    "conflicts": (pb.ListConflictsResponse, tables.conflicts),
    "audit": (pb.ListAuditsResponse, audit.audits),
    "explain": (pb.ExplainVipResponse, lambda answer: explanation(HOSTILE, answer)),
}


def filled(message: Message, text: str, number: int) -> Message:
    """Every field set, as far as a type lets it: three items in each list."""
    for field in message.DESCRIPTOR.fields:
        for _ in range(3 if field.is_repeated else 1):
            value = _value(field, text, number)
            if isinstance(value, Message):
                target = getattr(message, field.name)
                (target.add() if field.is_repeated else target).CopyFrom(value)
            elif field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
    return message


def _value(field: FieldDescriptor, text: str, number: int):
    if field.message_type is not None:
        return filled(field.message_type._concrete_class(), text, number)
    kinds = {
        FieldDescriptor.CPPTYPE_STRING: text,
        FieldDescriptor.CPPTYPE_BOOL: True,
        FieldDescriptor.CPPTYPE_UINT64: number,
        FieldDescriptor.CPPTYPE_INT64: min(number, 2**63 - 1),
        FieldDescriptor.CPPTYPE_UINT32: min(number, 2**32 - 1),
        FieldDescriptor.CPPTYPE_INT32: min(number, 2**31 - 1),
        FieldDescriptor.CPPTYPE_ENUM: min(number, 99),
    }
    return kinds[field.cpp_type]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("text", "number"), [(HOSTILE, 2**64 - 1), ("", 0), ("a", 1), ("\n\r\t\x9b", 7)])
def test_whatever_an_agent_says_fits_100_columns_and_is_printable(name, text, number):
    message, page = PAGES[name]

    for line in lines_of(page(filled(message(), text, number))):
        assert cell_len(line) <= 100, line


@pytest.mark.parametrize("name", PAGES)
def test_empty_message_makes_a_page(name):
    message, page = PAGES[name]

    lines_of(page(message()))


def test_status_tells_the_essentials(ago):
    text = tables.status(
        pb.GetStatusResponse(
            node="node-1",
            version="1.2.3",
            start_time=ago(3700),
            mode=pb.MODE_ENFORCE,
            fence_left={"seconds": 2, "nanos": 400_000_000},
            lease={"duration": {"seconds": 3}, "renew_interval": {"seconds": 1}, "margin": {"nanos": 500_000_000}},
            kubernetes={"state": pb.Kubernetes.STATE_NOT_USED},
            config={"source": "/etc/a.yaml", "generation": 2, "load_time": ago(5), "problems": ["mode: fast: wrong"]},
            problems=["mode: fast: wrong", "eth0: somebody else's program " + "x " * 60],
            drift={"entries": 3},
            events={"delivered": 5, "limited": 6, "lost": 7, "received": 4},
            reasons=[{"reason": pb.REASON_FOREIGN, "enforced": 8, "observed": 9}],
            entries=2,
            entries_capacity=1024,
            kinds=[{"kind": pb.KIND_OWNED, "count": 1}, {"kind": pb.KIND_FOREIGN, "count": 1}],
            links=[
                pb.Link(
                    name="eth0",
                    mac="02:00:00:00:00:01",
                    up=True,
                    addresses=["192.0.2.1/24"],
                    vips=2,
                    attachments=[
                        {"hook": pb.HOOK_TC_EGRESS, "how": "tcx", "program_id": 12},
                        {"hook": pb.HOOK_XDP, "how": "xdp", "program_id": 11},
                    ],
                ),
                pb.Link(name="eth1", device_kind="veth"),
            ],
        )
    )
    lines = lines_of(text)
    cells = [line.split() for line in lines]

    assert lines[0] == "node-1: mode enforce, 2 of 1024 entries, 2 problems"
    assert "(1h 1m ago), arpguard 1.2.3" in text
    assert "config      /etc/a.yaml, generation 2, loaded 5s ago" in lines
    assert "fence       2.4s left" in lines
    assert "kubernetes  not used" in lines
    assert not any(line.startswith("lease") for line in lines)  # no node renews anything here
    assert "drift       repaired changes by other programs: 3 x entry" in lines
    assert "reports     5 delivered, 6 held back by the rate limit, 7 lost, 4 read by this agent" in lines
    assert "VIPs        1 owned, 1 foreign" in lines
    assert ["eth0", "up", "02:00:00:00:00:01", "hardware", "2", "xdp", "11", "tcx", "12", "192.0.2.1/24"] in cells
    assert ["eth1", "down", "veth", "0", "none", "none", "-"] in cells
    assert ["foreign", "suppress", "8", "9"] in cells
    assert lines.count("problem: mode: fast: wrong") == 1
    assert lines[-2].startswith("problem: eth0: somebody else's program x x")
    assert lines[-1].startswith("         x")


def test_status_without_an_agent_leaves_out_what_only_an_agent_knows():
    text = tables.status(pb.GetStatusResponse(node="node-1", version="1", mode=pb.MODE_OBSERVE))

    assert "pinned objects, read by arpguard" in text
    assert "only a running agent knows of problems" in text
    assert "problems unknown" in text.splitlines()[0]
    assert "no problems" not in text
    assert re.search("^fence +not needed$", text, re.MULTILINE)
    assert not any(word in text for word in ("config", "lease", "kubernetes", "drift", "this agent"))


def test_status_tells_the_fence_of_the_voucher_too_where_the_kernel_is_bound_to_one():
    answer = pb.GetStatusResponse(fence_left={"seconds": 41}, voucher_fence_left={"nanos": 550_000_000})

    assert "fence    API server 41s, voucher 0.55s left" in lines_of(tables.status(answer))
    assert tables.fence(answer) == "0.55s"
    answer.kubernetes.vouching.voucher = "node-3"
    assert "fence    API server 41s, voucher node-3 0.55s left" in lines_of(tables.status(answer))


def test_explanation_tells_whose_fence_the_second_one_is():
    left = {
        "fence_left": {"seconds": 41},
        "voucher_fence_left": {"nanos": 550_000_000},
        "voucher": "node-3",
        "steps": ["so"],
    }
    answer = pb.ExplainVipResponse(links=[pb.LinkExplanation(link="eth0", ownership=left)])
    assert "fence: API server 41s, voucher node-3 0.55s left" in lines_of(explanation("x", answer))


def test_vips_count_all_frames_the_most_frequent_reason_first():
    vip = pb.Vip()
    vip.CopyFrom(VIP)
    vip.reasons.add(reason=pb.REASON_EGRESS_OWNER, observed=9)
    line = lines_of(tables.vips(pb.ListVipsResponse(vips=[vip])))[1]

    assert line.split() == ["192.0.2.10", "eth0", "owned", "enforce", "node-1", "16", "egress_owner=9", "answered=7"]


def test_vips_name_the_service_of_each_where_there_is_any_and_room_for_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    ours = pb.Vip(address="192.0.2.11", link="eth0", owner="elect", source="service shop/web")
    head, *rows = [line.split() for line in lines_of(tables.vips(pb.ListVipsResponse(vips=[VIP, ours])))]
    alone = lines_of(tables.vips(pb.ListVipsResponse(vips=[VIP])))
    monkeypatch.setenv("COLUMNS", "80")
    narrow = lines_of(tables.vips(pb.ListVipsResponse(vips=[VIP, ours])))

    assert head == ["VIP", "LINK", "KIND", "MODE", "OWNER", "SERVICE", "FRAMES", "DECISIONS"]
    assert rows == [
        ["192.0.2.10", "eth0", "owned", "enforce", "node-1", "7", "answered=7"],
        ["192.0.2.11", "eth0", "-", "-", "elect", "shop/web", "0", "-"],
    ]
    assert "SERVICE" not in alone[0]
    assert "SERVICE" not in narrow[0]


def test_vip_in_detail_tells_the_last_claim(ago):
    vip = pb.Vip()
    vip.CopyFrom(VIP)
    vip.last_conflict.CopyFrom(pb.Conflict(mac="02:00:00:00:00:99", last_time=ago(130), count=1, dropped=True))
    lines = lines_of(tables.vip_details(pb.GetVipResponse(vips=[vip, VIP])))

    assert lines.count("192.0.2.10 on eth0: owned, mode enforce") == 2
    assert "  last claim     02:00:00:00:00:99, 2m ago, 1 report, dropped" in lines
    assert "  fence          none needed: the owner is fixed" in lines


def test_claim_that_is_perhaps_the_owners_says_so(ago):
    claim = pb.Conflict(mac="02:00:00:00:00:99", last_time=ago(0), count=2, reason=pb.REASON_UNVERIFIED_CLAIM)
    text = tables.vip_details(pb.GetVipResponse(vips=[pb.Vip(last_conflict=claim)]))

    assert "  last claim  02:00:00:00:00:99, 0s ago, 2 reports, perhaps the owner's" in lines_of(text)


@pytest.mark.parametrize(("kind", "shown"), [(pb.KIND_OWNED, True), (pb.KIND_FOREIGN, False)], ids=["owned", "foreign"])
def test_fence_is_told_of_owned_vips_only(kind, shown):
    text = tables.vip_details(pb.GetVipResponse(vips=[pb.Vip(address="192.0.2.10", link="eth0", kind=kind)]))

    assert ("fence" in text) is shown


def test_decision_that_was_only_observed_says_what_would_have_been():
    observed = pb.Decision()
    observed.CopyFrom(DECISION)
    observed.mode = pb.MODE_OBSERVE

    assert words.outcome(DECISION) == "answer"
    assert words.outcome(observed) == "would answer"
    observed.verdict = pb.VERDICT_PASS
    assert words.outcome(observed) == "pass"


def test_lines_of_a_stream_make_room_for_what_comes(ago, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    lines = tables.DecisionLines()
    long, short = pb.Decision(), pb.Decision()
    for decision, link in ((long, "a-link-with-15c"), (short, "eth0")):
        decision.CopyFrom(DECISION)
        decision.last_time.CopyFrom(ago(0))
        decision.link = link
    first, second = (lines.text(pb.WatchDecisionsResponse(decision=decision)) for decision in (long, short))

    assert "  a-link-with-15c  192.0.2.10 " in first
    assert first.index("answered") == second.index("answered")


def test_lines_of_a_stream_stand_below_their_titles_whichever_family_comes(ago, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    decision = pb.Decision()
    decision.CopyFrom(DECISION)
    decision.last_time.CopyFrom(ago(0))
    decision.vip, decision.op = "2001:db8:1234:5678::10", "advertisement"
    lines = tables.DecisionLines([decision])
    head = lines.head()
    text = lines.text(pb.WatchDecisionsResponse(decision=decision))
    unforeseen = tables.DecisionLines()

    assert text.index(decision.sha) == head.index("FROM")
    decision.vip = "2001:db8::10"
    head = unforeseen.head()
    assert unforeseen.text(pb.WatchDecisionsResponse(decision=decision)).index(decision.sha) == head.index("FROM")


@pytest.mark.parametrize("mode", [pb.MODE_OBSERVE, pb.MODE_ENFORCE])
def test_lines_of_a_stream_stand_below_their_titles_in_both_modes(mode, ago):
    lines, decision = tables.DecisionLines(), pb.Decision()
    decision.CopyFrom(DECISION)
    decision.mode, decision.verdict, decision.reason = mode, pb.VERDICT_SUPPRESS, pb.REASON_EGRESS_NOT_OWNER
    decision.last_time.CopyFrom(ago(0))
    text = lines.text(pb.WatchDecisionsResponse(decision=decision))

    assert text.index("egress_not_owner") == lines.head().index("REASON")
    assert text.index(decision.sha) == lines.head().index("FROM")


def test_explanation_tells_frames_meanings_and_the_chain():
    answer = pb.ExplainVipResponse(
        links=[
            pb.LinkExplanation(
                link="eth0",
                summary="owned by another node, silent here",
                entry=VIP,
                frames=[
                    {
                        "operation": pb.OPERATION_OUT_REQUEST,
                        "verdict": pb.VERDICT_REWRITE,
                        "reason": pb.REASON_EGRESS_REWRITTEN,
                        "meaning": "a request with the VIP as spa; " + "spa becomes the link's primary address " * 4,
                        "mode": pb.MODE_ENFORCE,
                        "fate": pb.FATE_CHANGED,
                        "result": {"text": "who-has 192.0.0.8 tell 192.0.2.1"},
                    },
                    {
                        "operation": pb.OPERATION_REQUEST,
                        "verdict": pb.VERDICT_SUPPRESS,
                        "mode": pb.MODE_OBSERVE,
                        "fate": 1,
                    },
                ],
                ownership={
                    "steps": ["vips[0] names node-2", "so this node is silent"],
                    "candidates": [{"node": "node-2", "eligible": True, "chosen": True, "why": "named"}],
                    "claim": {"holder": "node-2", "epoch": 7, "state": 1, "alive": True, "transitions": 2},
                    "fence_left": {"seconds": 1},
                },
            )
        ]
    )
    lines = lines_of(explanation("192.0.2.10", answer))

    assert lines[0] == "192.0.2.10 on eth0: owned by another node, silent here"
    assert "  entry  epoch 0, answered with 02:00:00:00:00:01, no fence needed" in lines
    assert (
        "out: request sent from it  rewrite         egress_rewritten  sent: who-has 192.0.0.8 tell 192.0.2.1" in lines
    )
    assert "in: request for it         would suppress  -                 passes" in lines
    assert any(line.startswith("  egress_rewritten  a request with the VIP as spa; spa becomes") for line in lines)
    assert "  1.  vips[0] names node-2" in lines
    assert ["node-2", "yes", "yes", "named"] in [line.split() for line in lines]
    start = lines.index("claim")
    assert lines[start + 1 : start + 5] == [
        "  holder  node-2",
        "  epoch   7",
        "  state   valid: no other node may take the VIP",
        "  moved   2 times",
    ]
    assert "fence: 1s left until the right to answer ends" in lines


def test_explanation_tells_the_owners_mac_and_that_a_fence_is_needed():
    foreign = pb.Vip(kind=pb.KIND_EXTERNAL, epoch=7, owner_mac="02:00:00:00:00:50")
    owned = pb.Vip(kind=pb.KIND_OWNED, epoch=7)
    links = [pb.LinkExplanation(link="eth0", entry=entry) for entry in (foreign, owned)]
    lines = lines_of(explanation("192.0.2.10", pb.ExplainVipResponse(links=links)))

    assert "  entry  epoch 7, the owner's MAC is 02:00:00:00:00:50" in lines
    assert "  entry  epoch 7, fence needed" in lines


@pytest.mark.parametrize(
    ("fate", "facts", "said"),
    [
        (
            pb.FATE_ANSWERED,
            {"op": "advertisement", "spa": "2001:db8::10", "sha": "02:00:00:00:00:01", "tpa": "100::1"},
            "reply: is-at 02:00:00:00:00:01",
        ),
        (
            pb.FATE_CHANGED,
            {"op": "solicitation", "spa": "2001:db8::1", "sha": "02:00:00:00:00:01", "tpa": "100::1"},
            "sent: who-has 100::1 tell 2001:db8::1",
        ),
    ],
)
def test_frames_of_neighbour_discovery_are_told_as_shortly_as_arp(fate, facts, said):
    frame = {"operation": pb.OPERATION_REQUEST, "fate": fate, "result": {"text": "neighbor ...", **facts}}
    answer = pb.ExplainVipResponse(links=[pb.LinkExplanation(link="eth0", frames=[frame])])

    assert any(line.endswith(said) for line in lines_of(explanation("2001:db8::10", answer)))


def test_what_an_owner_answers_is_whole_on_a_narrow_page(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    frame = {
        "operation": pb.OPERATION_REQUEST,
        "verdict": pb.VERDICT_ANSWER,
        "reason": pb.REASON_ANSWERED,
        "fate": pb.FATE_ANSWERED,
        "result": {"text": "198.51.100.50 is-at 02:00:00:00:00:01", "spa": "198.51.100.50"},
    }
    sent = {"operation": pb.OPERATION_OUT_REQUEST, "reason": pb.REASON_EGRESS_OWNER, "fate": pb.FATE_PASSED}
    answer = pb.ExplainVipResponse(links=[pb.LinkExplanation(link="eth0", frames=[frame, sent])])

    assert "reply: is-at 02:00:00:00:00:01" in explanation("198.51.100.50", answer)


def test_on_a_narrow_page_an_address_and_a_figure_are_whole_or_not_there(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    how = [{"hook": hook, "how": "tcx", "program_id": 19287} for hook in (pb.HOOK_TC_INGRESS, pb.HOOK_TC_EGRESS)]
    addresses = ["198.51.100.1/24", "2001:db8:51::1/64", "fe80::ff:fe00:1/64"]
    link = {"name": "eth0", "up": True, "mac": "02:00:00:00:00:01", "vips": 3, "attachments": how}
    (_, line) = lines_of(tables.links([pb.Link(**link, addresses=addresses)]))
    counts = [
        {"reason": pb.REASON_ANSWERED, "enforced": 16},
        {"reason": pb.REASON_EGRESS_OWNER, "enforced": 15},
        {"reason": pb.REASON_UNVERIFIED_CLAIM, "enforced": 12},
    ]
    (_, row) = lines_of(
        tables.vips(pb.ListVipsResponse(vips=[pb.Vip(address="198.51.100.50", owner="node-1", reasons=counts)]))
    )

    assert line.endswith("  198.51.100.1/24 …")
    assert row.endswith("answered=16 egress_owner=15 …")


def test_no_claims_is_told_in_lines_that_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    assert max(map(len, lines_of(tables.no_conflicts("")))) <= 80


def test_times_in_words(ago):
    assert words.age(ago(0)) == "0s ago"
    assert words.age(ago(-100)) == "0s ago"
    assert words.age(ago(59.5)) == "59s ago"
    assert words.age(ago(2 * 86400 + 5)) == "2d ago"
    assert [words.span(seconds) for seconds in (0, 61, 3600, 90000, 864000)] == [
        "0s",
        "1m 1s",
        "1h 0s",
        "1d 1h",
        "10d 0s",
    ]
    assert words.time_of_day(ago(0)).count(":") == 2
    assert len(words.time_of_day(ago(3 * 86400))) == len("2026-01-01 00:00:00")


def test_value_of_a_newer_agent_is_shown_as_its_number():
    assert words.word(pb.Vip(kind=99), "kind") == "#99"


# ---- the cluster -------------------------------------------------------------------------------------------------

KUBERNETES = pb.Kubernetes(
    state=pb.Kubernetes.STATE_LOST,
    server="https://192.0.2.1:6443",
    namespace="arpguard",
    sources=[
        {"name": "nodes", "lists": 1, "streams": 2},
        {"name": "services", "lost": "403 Forbidden", "lists": 3, "streams": 4, "failures": 5, "unreadable": 6},
    ],
    nodes=[
        {"name": "node-1", "alive": True},
        {"name": "node-2", "refusal": "its agent has not renewed its lease in time"},
    ],
    writes=[
        {"kind": "claim", "outcome": "applied", "count": 3},
        {"kind": "heartbeat", "outcome": "unknown", "count": 2},
    ],
    events_written=4,
    events_dropped=1,
)


def status_lines(ago, **changes) -> list[str]:
    found = pb.GetStatusResponse(
        node="node-1", start_time=ago(10), lease={"duration": {"seconds": 6}, "stretched": True}
    )
    found.kubernetes.CopyFrom(KUBERNETES)
    found.kubernetes.MergeFrom(pb.Kubernetes(**changes))
    return lines_of(tables.status(found))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, " (longer while this node neither holds nor claims a VIP)"),
        ({"fence_left": {"seconds": 2}}, ""),
        (
            {"fence_left": {"seconds": 41}, "kubernetes": {"vouching": {"voucher": "node-3", "bound": True}}},
            " (longer while this node is bound to a voucher)",
        ),
    ],
    ids=["at rest", "ordinary", "bound"],
)
def test_status_says_why_the_last_renewal_may_be_older_than_the_ordinary_lease(ago, fields, why):
    lease = {"duration": {"seconds": 3}, "renew_interval": {"seconds": 1}, "margin": {"seconds": 1}}
    found = pb.GetStatusResponse(start_time=ago(10), lease=lease, **fields)
    found.kubernetes.server = "https://192.0.2.1:6443"
    lines = [" ".join(line.split()) for line in lines_of(tables.status(found))]

    assert f"lease 3s{why}, renewed every 1s, margin 1s" in lines


def test_status_tells_of_the_cluster(ago):
    lines = status_lines(ago, renewal_time=ago(5))
    rows = [line.split() for line in lines]

    assert "kubernetes  lost https://192.0.2.1:6443, Leases in namespace arpguard" in lines
    many = "renewed every 0s, margin 0s, longer than configured because there are many nodes"
    assert many in " ".join(line.strip() for line in lines)
    assert "renewal     last sent 5s ago" in lines
    assert "nodes       1 of 2 nodes alive; node-2: its agent has not renewed its lease in time" in lines
    assert "writes      claim: 3 applied, heartbeat: 2 unknown" in lines
    assert "Events      4 written, 1 dropped" in lines
    assert ["services", "lost", "3", "4", "5", "6", "403", "Forbidden"] in rows
    assert ["nodes", "ok", "1", "2", "0", "0", "-"] in rows


def test_status_tells_who_vouches_for_whom(ago):
    tried = {"node": "node-4", "trial": True, "since_time": ago(5), "timeout": {"seconds": 1}}
    vouched = {"node": "node-3", "bound": True, "since_time": ago(65), "timeout": {"seconds": 1}, "pongs": 3}
    gaps = {"usual_interval": {"nanos": 60_000_000}, "longest_interval": {"nanos": 80_000_000}}
    voucher = {"voucher": "node-2", "bound": True, "since_time": ago(60), "timeout": {"nanos": 600_000_000}}
    vouching = voucher | {"vouched_nodes": [vouched | gaps, tried], "unbinds": 1, "found_dead": 2}
    lines = status_lines(ago, vouching=vouching)

    assert "voucher      node-2, for 1m 0s, timeout 0.6s" in lines
    assert (
        "vouches for  node-3, for 1m 5s, timeout 1s; gaps between grants: 99.9 % within 0.06s, longest 0.08s" in lines
    )
    assert "testing      node-4, for 5s, timeout 1s; no reply to a ping yet" in lines
    assert "vouching     this node left 1 voucher, was revoked 0 times, found 2 nodes dead" in lines


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "none"),
        ({"seeks": "node-2"}, "none yet; node-2 is testing whether it can vouch for this node"),
        ({"isolated": True}, "none: no other node on the segment hears this node"),
        ({"voucher": "node-2", "timeout": {"seconds": 1}}, "timeout 1s; this node is not bound yet"),
    ],
)
def test_status_tells_why_a_node_has_no_voucher_yet(ago, changes, text):
    (line,) = [line for line in status_lines(ago, vouching=changes) if line.startswith("voucher ")]
    assert line.endswith(text)


def test_a_node_that_only_observes_needs_no_voucher(ago):
    status = pb.GetStatusResponse(node="node-1", start_time=ago(10), mode=pb.MODE_OBSERVE)
    status.kubernetes.CopyFrom(KUBERNETES)
    status.kubernetes.vouching.SetInParent()
    assert ["voucher", "none: this node only observes"] in [
        line.split(maxsplit=1) for line in lines_of(tables.status(status))
    ]


def test_status_says_nothing_of_vouching_where_it_is_off(ago):
    assert not any("vouch" in line for line in status_lines(ago))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "none yet"),
        ({"renewal_problem": "timed out"}, "none yet: timed out"),
        ({"yielding": True}, "another agent uses the node name node-1: this agent is silent"),
    ],
    ids=["none", "problem", "yielding"],
)
def test_status_tells_how_the_lease_is(changes, text, ago):
    assert f"renewal     {text}" in status_lines(ago, **changes)


@pytest.mark.parametrize(
    ("claim", "owner"),
    [
        (None, "elect"),
        ({"state": pb.Claim.STATE_VALID, "holder": "n1", "alive": True}, "n1"),
        ({"state": pb.Claim.STATE_VALID, "holder": "n1"}, "n1 (silent)"),
        ({"state": pb.Claim.STATE_VOID, "holder": "n1"}, "nobody"),
        ({"state": pb.Claim.STATE_RELEASED}, "nobody"),
        ({"state": pb.Claim.STATE_NONE}, "nobody"),
        ({"state": pb.Claim.STATE_EXTERNAL, "external_mac": "02:00:00:00:00:50"}, "outside: 02:00:00:00:00:50"),
        ({"state": pb.Claim.STATE_DELETING, "holder": "n1"}, "n1 (deleted)"),
        ({"state": pb.Claim.STATE_UNREADABLE, "holder": "n1"}, "unreadable"),
        ({"state": pb.Claim.STATE_UNKNOWN}, "not known yet"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_vip_shows_who_has_it(claim, owner):
    vip = pb.Vip(address="192.0.2.10", link="eth0", owner="elect", source="service a/b")
    if claim:
        vip.claim.CopyFrom(pb.Claim(**claim))
    line = lines_of(tables.vips(pb.ListVipsResponse(vips=[vip])))[1]
    details = lines_of(tables.vip_details(pb.GetVipResponse(vips=[vip])))

    assert f"  {owner}  " in line
    assert (f"  held by  {owner}" in details) is (claim is not None)


@pytest.mark.parametrize("state", [value for value in pb.Claim.State.values() if value], ids=pb.Claim.State.Name)
def test_claim_is_told_of_in_words(state, ago):
    claim = pb.Claim(state=state, holder="n1", external_mac="02:00:00:00:00:50", seen_time=ago(65), voucher="n2")
    ownership = pb.Ownership(steps=["s"], claim=claim)
    lines = lines_of(explanation("192.0.2.10", pb.ExplainVipResponse(links=[{"link": "eth0", "ownership": ownership}])))
    word = pb.Claim.State.Name(state).removeprefix("STATE_").lower()

    assert any(line.startswith(("  state      " + word, "  state      not known")) for line in lines), lines
    assert "  holder     n1 (its last renewal is older than its lease)" in lines
    assert "  outside    02:00:00:00:00:50 has the address" in lines
    assert "  voucher    n2 vouches for the holder" in lines
    assert any(line.endswith("(1m ago)") for line in lines)


@pytest.mark.parametrize(
    ("claimant", "text"),
    [
        (pb.Claimant(kind="KIND_OUTSIDE"), "outside"),
        (pb.Claimant(kind="KIND_CLUSTER_NODE", node="node-2"), "node-2 (node)"),
        (pb.Claimant(kind="KIND_CLUSTER_NODE_WITHOUT_AGENT", node="node-2"), "node-2 (node, no agent)"),
        (pb.Claimant(kind="KIND_VRRP_ROUTER", router=51), "VRRP router 51"),
        (pb.Claimant(kind="KIND_GLBP_ROUTER", router=1023), "GLBP router 1023"),
        (pb.Claimant(kind=77), "#77"),
        (None, "-"),
    ],
)
def test_conflict_says_who_it_is_in_words_that_fit(claimant, text, ago):
    found = pb.Conflict(
        vip="198.51.100.250",
        link="eth0",
        mac="02:00:00:00:00:64",
        last_time=ago(9),
        count=1,
        reason=pb.REASON_CONFLICT,
        dropped=True,
        claimant=claimant,
    )
    head, line = tables.conflicts(pb.ListConflictsResponse(conflicts=[found])).splitlines()

    assert line[head.index("WHO") : head.index("LAST")].strip() == text
    assert len(line) <= 100


@pytest.mark.parametrize(
    ("verdict", "style"), [("VERDICT_CONFLICT", bad("")), ("VERDICT_REPORT", careful("")), ("VERDICT_PASS", Styled(""))]
)
def test_decision_is_red_only_if_it_is_certainly_about_another_host_than_the_owner(verdict, style):
    assert tables.decision_row(pb.Decision(verdict=verdict, reason=1))[3].style == style.style


VIP6, MAC = "2001:db8:51::1234:5678", "02:00:00:00:00:99"


@pytest.mark.parametrize("vip", ["198.51.100.250", VIP6])
@pytest.mark.parametrize("width", [80, 120])
def test_lists_show_addresses_whole_at_any_width(vip, width, ago, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    who = pb.Claimant(kind="KIND_CLUSTER_NODE_WITHOUT_AGENT", node="node-2")
    claim = pb.Conflict(
        vip=vip, link="eth0", mac=MAC, last_time=ago(9), count=1, reason="REASON_UNVERIFIED_CLAIM", claimant=who
    )
    decision = pb.Decision(
        vip=vip,
        link="eth0",
        sha=MAC,
        mode="MODE_OBSERVE",
        verdict="VERDICT_SUPPRESS",
        reason="REASON_EGRESS_NOT_OWNER",
        last_time=ago(9),
        op="advertisement",
    )
    pages = [
        tables.conflicts(pb.ListConflictsResponse(conflicts=[claim])),
        everywhere._conflicts([("node-1", pb.ListConflictsResponse(conflicts=[claim]))], ""),
        tables.decisions(pb.ListDecisionsResponse(decisions=[decision])),
        tables.DecisionLines().text(pb.WatchDecisionsResponse(decision=decision)),
    ]

    for page in pages:
        assert f"{vip} " in page
        assert MAC in page
        assert max(map(cell_len, page.splitlines())) <= width
    assert ("REASON" in pages[0], " OP " in pages[2]) == (width == 120, width == 120)


def test_host_whose_claim_is_perhaps_the_owners_is_not_said_to_be_outside(ago):
    found = pb.Conflict(
        vip="198.51.100.50", mac=MAC, last_time=ago(9), reason="REASON_UNVERIFIED_CLAIM", claimant=pb.Claimant(kind=1)
    )
    text = tables.conflicts(pb.ListConflictsResponse(conflicts=[found]))

    assert "perhaps the owner's" in text
    assert "unknown" in text
    assert "outside" not in text


def test_claim_of_a_node_is_a_conflict_whatever_is_known_of_the_owner():
    claim = pb.Conflict(reason=pb.REASON_UNVERIFIED_CLAIM, claimant=pb.Claimant(kind="KIND_CLUSTER_NODE", node="n2"))

    assert tables.is_conflict(claim)
    assert not tables.is_conflict(pb.Conflict(reason=pb.REASON_UNVERIFIED_CLAIM, claimant=pb.Claimant(kind=1)))
