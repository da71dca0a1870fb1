"""Heartbeats and claims in Leases: there and back, and whatever else somebody writes into one."""

import json
import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import MacAddress
from arpguard.core.cluster import Lease, SpeakerReport
from arpguard.core.ownership.records import (
    Claim,
    Heartbeat,
    NamedVoucher,
    Published,
    PublishedLink,
    PublishedVouching,
    Version,
    WriteClaim,
    WriteHeartbeat,
)
from arpguard.kube import claims, projections
from arpguard.units import NS_PER_MS, NS_PER_S

EPOCH, INSTANCE = "0f8b1c2e-9a4d-4f6e-8b7a-1c2d3e4f5a6b", "6b5a4f3e-2d1c-4a7b-8e6f-4d9a2e1c8b0f"
V4, V6 = IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1")
MAC = MacAddress.parse("02:00:00:00:00:0a")
LINK = PublishedLink("eth0", MAC, (IPv4Network("192.0.2.0/24"), IPv6Network("2001:db8::/64")))
VERSION = Version("u", "7")
TERM = "2f1e0d3c-8b7a-4a6f-9c5d-0e1f2a3b4c5d"
VOUCHER = NamedVoucher("n2", "i-2", EPOCH, TERM, 1000 * NS_PER_MS, 400 * NS_PER_MS)
REPORT = (("shop", "web"), SpeakerReport(f"{70:020}", answers=False))


def stored(name, content) -> Lease:
    """What comes back of it from a server."""
    return projections.lease(
        {
            "metadata": {
                "namespace": "arpguard",
                "name": name,
                "uid": "u",
                "resourceVersion": "7",
                "labels": dict(content.labels),
                "annotations": dict(content.annotations),
                "finalizers": list(content.finalizers),
            },
            "spec": {
                "holderIdentity": content.holder,
                "leaseDurationSeconds": content.duration_s,
                "leaseTransitions": content.transitions,
            },
        }
    )


def test_a_heartbeat_there_and_back():
    published = Published((LINK,), (REPORT,))
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, INSTANCE, None, 2_500_000_000), published)

    found = claims.heartbeat_of(stored("node.n1", content))

    assert found == Heartbeat("n1", EPOCH, INSTANCE, 3 * NS_PER_S, VERSION, (LINK,), (REPORT,))
    assert content.holder == "n1"
    assert dict(content.labels) == {"arpguard.io/kind": "heartbeat"}


@pytest.mark.parametrize("bound", [False, True])
def test_a_heartbeat_that_names_a_voucher_there_and_back(bound):
    sent = WriteHeartbeat("n1", EPOCH, INSTANCE, None, NS_PER_S, VOUCHER, bound)
    vouching = PublishedVouching("n2", (("n3", VOUCHER.d_ns), ("n4", 1)), doubted=True)
    content = claims.heartbeat_content(sent, Published(vouching=vouching))

    found = claims.heartbeat_of(stored("node.n1", content))

    assert found == Heartbeat("n1", EPOCH, INSTANCE, NS_PER_S, VERSION, voucher=VOUCHER, bound=bound, vouching=vouching)


def test_a_revocation_there_and_back():
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, "", VERSION, 3 * NS_PER_S))

    found = claims.heartbeat_of(stored("node.n1", content))

    assert found == Heartbeat("n1", EPOCH, "", 3 * NS_PER_S, VERSION)


@pytest.mark.parametrize("early", [False, True])
def test_a_revocation_says_that_it_is_early(early):
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, "", VERSION, NS_PER_S, early=early))
    found = claims.heartbeat_of(stored("node.n1", content))
    assert found == Heartbeat("n1", EPOCH, "", NS_PER_S, VERSION, early=early)


def test_a_node_that_is_back_was_not_revoked_whatever_the_revocation_said():
    """An agent that knows no vouchers patches the heartbeat, and lets that stand."""
    early = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, "", VERSION, NS_PER_S, early=True))
    assert ("arpguard.io/early", "true") in early.annotations
    patched = replace(early, annotations=(*early.annotations, ("arpguard.io/instance", INSTANCE)))
    assert not claims.heartbeat_of(stored("node.n1", patched)).early


@pytest.mark.parametrize("node", ["n1", "n" * 57, "n" * 58, "a.b-c"])
def test_only_its_own_node_watches_a_quiet_heartbeat(node):
    quiet = claims.heartbeat_content(WriteHeartbeat(node, EPOCH, INSTANCE, VERSION, NS_PER_S, quiet=True))
    ((key, kind),) = quiet.labels

    assert key == "arpguard.io/kind"
    assert re.fullmatch("quiet[.][a-z0-9.-]*[a-z0-9]", kind)
    assert len(kind) <= 63
    assert claims.news_selector(node) == f"arpguard.io/kind in (claim,heartbeat,{kind})"
    assert kind not in claims.news_selector("another")


@pytest.mark.parametrize(("vip", "name"), [(V4, "vip.192.0.2.1"), (V6, "vip.2001-0db8-0000-0000-0000-0000-0000-0001")])
def test_a_claim_there_and_back(vip, name):
    content = claims.claim_content(WriteClaim(vip, "n1", EPOCH, None, transitions=3), "service shop/web")

    assert claims.lease_name(vip) == name
    assert claims.claim_of(stored(name, content)) == Claim(vip, "n1", EPOCH, VERSION, transitions=3)
    assert dict(content.labels) == {"arpguard.io/kind": "claim", "arpguard.io/holder": "n1"}
    assert dict(content.annotations)["arpguard.io/source"] == "service shop/web"
    assert dict(content.annotations)["arpguard.io/vip"] == str(vip)
    assert content.finalizers == ("arpguard.io/claim",)
    assert content.duration_s > 0


def test_a_released_claim_and_one_of_a_host_outside():
    released = claims.claim_content(WriteClaim(V4, "", "", VERSION))
    outside = claims.claim_content(WriteClaim(V4, "", "", VERSION, external=str(MAC)))

    assert claims.claim_of(stored("vip.192.0.2.1", released)) == Claim(V4, "", "", VERSION)
    assert claims.claim_of(stored("vip.192.0.2.1", outside)) == Claim(V4, "", "", VERSION, external=str(MAC))
    assert "arpguard.io/holder" not in dict(released.labels)


def test_what_is_let_go_has_no_finalizer():
    assert claims.claim_content(WriteClaim(V4, "", "", VERSION, let_go=True)).finalizers == ()


def test_a_number_of_transitions_that_the_server_would_refuse_is_not_written():
    assert claims.claim_content(WriteClaim(V4, "n1", EPOCH, VERSION, transitions=2**31)).transitions == 2**31 - 1


def test_a_long_node_name_has_a_label_that_is_allowed():
    node = "n" * 200

    assert len(claims.holder_label(node)) <= 63
    assert claims.own_claims_selector("n1") == "arpguard.io/holder=n1"
    assert dict(claims.claim_content(WriteClaim(V4, node, EPOCH, None)).labels)[claims.HOLDER_LABEL] in (
        claims.own_claims_selector(node)
    )


@pytest.mark.parametrize(
    "name",
    [
        "vip.",
        "vip.192.0.2",
        "vip.192.0.2.01",
        "vip.2001-db8--1",
        "vip.fe80--1%eth0",
        "node.n1",
        "x",
        "",
        "vip",
        "VIP.192.0.2.1",
    ],
)
def test_other_names_are_no_claims(name):
    assert claims.vip_of(name) is None
    assert claims.claim_of(Lease(name)) is None


@pytest.mark.parametrize(
    "name", ["node.", "node", "node.-x", "node.A", "vip.192.0.2.1", "nodes.n1", "node." + "n" * 249]
)
def test_other_names_are_no_heartbeats(name):
    assert claims.node_of(name) is None
    assert claims.heartbeat_of(Lease(name)) is None


@pytest.mark.parametrize("epoch", ["", "v2:1", EPOCH.upper(), EPOCH.replace("-", ""), "{" + EPOCH + "}", "é" * 9])
def test_an_epoch_in_an_unknown_form_voids_nothing_and_is_no_claim_either(epoch):
    heartbeat = Lease("node.n1", annotations=(("arpguard.io/epoch", epoch),))
    claim = Lease("vip.192.0.2.1", holder="n1", annotations=(("arpguard.io/holder-epoch", epoch),))

    assert claims.heartbeat_of(heartbeat).epoch == ""
    assert "holder-epoch" in claims.claim_of(claim).unreadable


def test_a_holder_that_cannot_be_read_is_not_nobody():
    raw = {"metadata": {"name": "vip.192.0.2.1"}, "spec": {"holderIdentity": 7}}

    assert "holderIdentity" in claims.claim_of(projections.lease(raw)).unreadable
    assert claims.claim_of(Lease("vip.192.0.2.1", holder="No Node")).unreadable


def test_a_claim_that_is_released_when_its_epoch_is_over_keeps_the_epoch():
    content = claims.claim_content(WriteClaim(V4, "", EPOCH, None))
    claim = claims.claim_of(stored("vip.192.0.2.1", content))

    assert claim == Claim(V4, "", EPOCH, VERSION)
    assert claims.claim_of(Lease("vip.192.0.2.1", annotations=(("arpguard.io/holder-epoch", "é"),))).unreadable == ""


def test_what_is_no_mac_still_says_that_somebody_has_the_vip():
    claim = Lease("vip.192.0.2.1", annotations=(("arpguard.io/external", "the switch"),))

    assert claims.claim_of(claim).external == "00:00:00:00:00:00"


def test_links_that_can_be_understood_are_read():
    good = {"name": "eth0", "mac": "02:00:00:00:00:0A", "networks": ["192.0.2.0/24", "garbage", 7, "2001:db8::/64"]}
    bad = [7, {}, {"name": "x"}, {"name": 1, "mac": str(MAC), "networks": []}, {"name": "x", "mac": 3, "networks": []}]

    assert claims.parse_links(json.dumps([*bad, good])) == (LINK,)


@pytest.mark.parametrize("text", ["", "{", "7", "{}", "null", "[" * 100_000, "9" * 5000])
def test_other_texts_have_no_links(text):
    assert claims.parse_links(text) == ()


def test_links_that_are_too_many_are_left_out():
    text = claims.encode_links([LINK] * 1000)

    assert 0 < len(claims.parse_links(text)) < 64
    assert len(text) <= claims.MAX_JSON


def test_renewal_takes_back_what_the_node_reported_of_its_announcer():
    """It is a patch: what it does not name stays."""
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, INSTANCE, VERSION, NS_PER_S), Published((LINK,)))
    assert dict(content.annotations)["arpguard.io/speakers"] == "{}"


def test_reports_that_can_be_understood_are_read():
    bad = {
        "web": ["7", True],
        "a/b": ["7", 1],
        "a/c": [7, True],
        "a/d": ["x", True],
        "a/e": ["9" * 21, True],
        "a/f": [],
    }
    text = json.dumps(bad | {"shop/web": ["70", False]})

    assert claims.parse_speakers(text) == (REPORT,)


@pytest.mark.parametrize("text", ["", "{", "7", "[]", "null", "[" * 100_000, "9" * 5000])
def test_other_texts_have_no_reports(text):
    assert claims.parse_speakers(text) == ()


def test_reports_that_are_too_many_are_left_out():
    text = claims.encode_speakers([(("shop", f"{number}" * 10), REPORT[1]) for number in range(1000)])

    assert 0 < len(claims.parse_speakers(text)) <= 64
    assert len(text) <= claims.MAX_JSON


# ---- vouchers ----

NAMED = claims.encode_vouchers(VOUCHER, INSTANCE, bound=True)


def test_renewal_without_a_voucher_takes_back_the_one_that_was_named():
    """It is a patch: what it does not name stays."""
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, INSTANCE, VERSION, NS_PER_S))
    naming = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, INSTANCE, VERSION, NS_PER_S, VOUCHER))

    assert set(content.absent) == {"arpguard.io/vouchers", "arpguard.io/vouching"}
    assert not set(content.absent) & dict(content.annotations).keys()
    assert naming.absent == ("arpguard.io/vouching",)
    assert "arpguard.io/vouchers" in dict(naming.annotations)


def test_renewal_of_a_node_that_takes_part_takes_back_that_it_was_revoked_early():
    content = claims.heartbeat_content(
        WriteHeartbeat("n1", EPOCH, INSTANCE, VERSION, NS_PER_S), Published(vouching=PublishedVouching())
    )
    assert set(content.absent) == {"arpguard.io/vouchers", "arpguard.io/early"}


def test_revocation_names_no_voucher():
    content = claims.heartbeat_content(WriteHeartbeat("n1", EPOCH, "", VERSION, NS_PER_S))
    assert not {"arpguard.io/vouchers", "arpguard.io/vouching"} & dict(content.annotations).keys()


@pytest.mark.parametrize("instance", ["another", ""])
def test_voucher_that_another_instance_named_counts_for_nothing(instance):
    """An agent that knows of no vouchers patches what one that does has written, and lets it stand."""
    assert claims.parse_vouchers(NAMED, INSTANCE) == (VOUCHER, True)
    assert claims.parse_vouchers(NAMED, instance) == (None, False)
    assert claims.parse_vouchers(NAMED.replace(INSTANCE, ""), "") == (None, False)


def altered(**changes: object) -> str:
    """The text with another voucher in it; None: without that."""
    whole = json.loads(NAMED)
    voucher = whole["vouchers"][0] | changes
    whole["vouchers"] = [{key: value for key, value in voucher.items() if value is not None}]
    return json.dumps(whole)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "7", "[]", "null", "{}", "[" * 100_000, "9" * 5000),
        *(altered(**{key: None}) for key in ("node", "instance", "epoch", "term", "dNs", "mNs")),
        *(altered(node=node) for node in ("", "N", "n" * 250, 7)),
        *(altered(epoch=epoch) for epoch in ("", "x", EPOCH.upper(), 7)),
        *(altered(term=term) for term in ("", "x", TERM.upper(), 7)),
        *(altered(instance=instance) for instance in ("", 7)),
        *(altered(dNs=d_ns) for d_ns in (VOUCHER.m_ns, 0, -1, 1e9, "1", claims.MAX_GRANT_NS + 1)),
        *(altered(mNs=m_ns) for m_ns in (VOUCHER.d_ns, 0, -1, 4e8, "1")),
        NAMED.replace("true", "1"),
        NAMED.replace('"by"', '"of"'),
        json.dumps({**json.loads(NAMED), "vouchers": []}),
        json.dumps({**json.loads(NAMED), "vouchers": json.loads(NAMED)["vouchers"] * 2}),
    ],
)
def test_voucher_that_cannot_be_understood_is_none_and_nobody_is_bound_to_it(text):
    assert claims.parse_vouchers(text, INSTANCE) == (None, False)


def test_whom_a_node_seeks_and_accepts_is_read_as_far_as_it_can_be_understood():
    accepts = {"n1": 7, "": 7, "N": 7, "n2": True, "n3": 7.0, "n4": 0, "n5": claims.MAX_GRANT_NS + 1, "n6": 8}
    text = json.dumps({"seeks": "", "accepts": accepts})

    assert claims.parse_vouching(text) == PublishedVouching("", (("n1", 7), ("n6", 8)))


def test_nodes_that_are_too_many_to_accept_are_left_out():
    many = PublishedVouching("n1", tuple((f"n{number}" * 30, 7) for number in range(1000)))
    text = claims.encode_vouching(many)

    assert len(text) <= claims.MAX_JSON
    assert 0 < len(claims.parse_vouching(text).accepts) < 64


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "7", "[]", "null", "{}", "[" * 100_000, "9" * 5000),
        *('{"seeks":"N","accepts":{}}', '{"seeks":7,"accepts":{}}', '{"seeks":""}', '{"seeks":"","accepts":[]}'),
    ],
)
def test_who_says_something_else_takes_no_part_in_vouching(text):
    assert claims.parse_vouching(text) is None


def test_claim_names_the_uid_of_its_holders_heartbeat_there_and_back():
    content = claims.claim_content(WriteClaim(V4, "n1", EPOCH, None, holder_uid="u-1"))
    released = claims.claim_content(WriteClaim(V4, "", "", VERSION))

    assert claims.claim_of(stored("vip.192.0.2.1", content)) == Claim(V4, "n1", EPOCH, VERSION, holder_uid="u-1")
    assert "arpguard.io/holder-uid" not in dict(released.annotations)


KEYS = (
    *("epoch", "instance", "links", "speakers", "vouchers", "vouching"),
    *("holder-epoch", "holder-uid", "vip", "source", "external"),
)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3)


@given(
    name=st.sampled_from(["node.n1", "vip.192.0.2.1", "vip.x", "node."]) | st.text(),
    annotations=st.dictionaries(st.sampled_from([f"arpguard.io/{key}" for key in KEYS]), JSON),
    spec=st.dictionaries(st.sampled_from(["holderIdentity", "leaseDurationSeconds", "leaseTransitions"]), JSON) | JSON,
)
def test_nothing_that_anybody_writes_raises(name, annotations, spec):
    lease = projections.lease({"metadata": {"name": name, "annotations": annotations}, "spec": spec})

    heartbeat, claim = claims.heartbeat_of(lease), claims.claim_of(lease)

    assert heartbeat is None or heartbeat.duration_ns >= 0
    assert claim is None or claim.holder == "" or claim.epoch or claim.unreadable


@pytest.mark.parametrize(("name", "node"), [("n" * 248, "n" * 248), ("n" * 249, None), (".n", None), ("", None)])
def test_node_is_one_whose_lease_can_be_called_so(name, node):
    assert claims.node_of(f"node.{name}") == node
