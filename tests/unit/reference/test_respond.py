"""The reference model on a few frames; tests/bpf compares the rest of it with the programs."""

from dataclasses import replace
from ipaddress import IPv6Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.addresses import MacAddress
from arpguard.model import EntryKey, RangeKey
from arpguard.verdict import Kind, Mode, Reason, Verdict
from arpguard.wire.arp import ArpOp, parse_arp_frame
from arpguard.wire.ethernet import VlanTag
from reference import Judgement, Response, Situation, respond_egress, respond_ingress
from support.frames.builders import (
    GUARD,
    NEIGHBOUR_IP,
    PRIMARY_IP,
    TESTER,
    TESTER_IP,
    VIP,
    a_control,
    a_packet,
    an_announcement,
    an_arp_reply,
    an_arp_request,
    an_entry,
    the_answer,
)
from support.frames.nd_builders import (
    DESTINATION,
    HOP_BY_HOP,
    NEIGHBOUR_IP6,
    PRIMARY_IP6,
    VIP6,
    a_control6,
    a_dad_ns,
    a_dad_solicitation,
    a_fragment_header,
    a_header,
    a_routing_header,
    a_solicitation,
    an_entry6,
    an_na,
    an_ns,
    na6,
    nd_frame,
    slla,
)

LINK = 3
NOW = 1_000_000_000_000
LEASE = 3_000_000_000


def a_situation(entry, mode=Mode.ENFORCE, fence_ns=NOW + 1, ifindex=LINK) -> Situation:
    control = a_control(mode, fence_ns=fence_ns, lease_ns=LEASE)
    return Situation(control, {EntryKey(LINK, VIP): entry}, ifindex, NOW)


def about_vip(verdict, reason) -> tuple[Judgement, ...]:
    return (Judgement(VIP, verdict, reason),)


def reason_of(response: Response) -> Reason:
    (judgement,) = response.judgements
    return judgement.reason


def test_owner_answers():
    response = respond_ingress(an_arp_request(), a_situation(an_entry()))
    assert response == Response(True, the_answer(a_packet()), about_vip(Verdict.ANSWER, Reason.ANSWERED))


def test_last_nanosecond_before_the_fence_is_answered():
    assert respond_ingress(an_arp_request(), a_situation(an_entry(), fence_ns=NOW + 1)).answered


def test_fence_itself_is_not_answered():
    assert reason_of(respond_ingress(an_arp_request(), a_situation(an_entry(), fence_ns=NOW))) is Reason.FENCED


def test_fence_a_whole_lease_ahead_is_answered():
    assert respond_ingress(an_arp_request(), a_situation(an_entry(), fence_ns=NOW + LEASE)).answered


def test_fence_beyond_the_lease_is_a_mistake():
    situation = a_situation(an_entry(), fence_ns=NOW + LEASE + 1)
    assert reason_of(respond_ingress(an_arp_request(), situation)) is Reason.FENCED


def test_observed_frame_passes_with_the_verdict_it_would_have_had():
    frame = an_arp_request()
    response = respond_ingress(frame, a_situation(an_entry(Kind.FOREIGN), Mode.OBSERVE))
    assert response == Response(False, frame, about_vip(Verdict.SUPPRESS, Reason.FOREIGN))


def test_entry_of_another_link_does_not_matter():
    frame = an_arp_request()
    response = respond_ingress(frame, a_situation(an_entry(Kind.FOREIGN), ifindex=LINK + 1))
    assert response == Response(False, frame, (Judgement(None, Verdict.PASS, Reason.NOT_GUARDED),))


def test_owners_announcement_goes_on_as_the_reply_of_the_same_meaning():
    response = respond_ingress(an_announcement(), a_situation(an_entry(Kind.FOREIGN, owner_mac=TESTER)))
    packet = parse_arp_frame(response.frame)
    assert (packet.op, packet.sha, packet.spa, packet.tha, packet.tpa) == (ArpOp.REPLY, TESTER, VIP, TESTER, VIP)


def test_request_with_a_foreign_vip_leaves_with_the_links_address():
    frame = an_arp_request(src=GUARD, sha=GUARD, spa=VIP, tpa=NEIGHBOUR_IP)
    response = respond_egress(frame, a_situation(an_entry(Kind.FOREIGN)))
    assert response.frame == an_arp_request(src=GUARD, sha=GUARD, spa=PRIMARY_IP, tpa=NEIGHBOUR_IP)


def test_request_for_a_vip_may_leave():
    frame = an_arp_request(spa=TESTER_IP)
    assert respond_egress(frame, a_situation(an_entry(Kind.FOREIGN))).frame == frame


def test_tags_are_read_through_as_deep_as_is_said():
    situation = a_situation(an_entry(Kind.FOREIGN))
    assert reason_of(respond_ingress(an_arp_request(tags=(VlanTag(0),) * 8), situation)) is Reason.FOREIGN
    assert reason_of(respond_ingress(an_arp_request(tags=(VlanTag(0),) * 9), situation)) is Reason.UNWALKABLE


@pytest.mark.parametrize("claim", [an_announcement(sha=GUARD), an_arp_reply(sha=GUARD)], ids=["announcement", "reply"])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [(Kind.OWNED, Reason.OWN_ECHO), (Kind.FOREIGN, Reason.OWN_ECHO), (Kind.DELEGATED, Reason.DELEGATED)],
)
def test_claim_with_this_nodes_mac_is_no_conflict(kind, reason, claim):
    assert reason_of(respond_ingress(claim, a_situation(an_entry(kind)))) is reason


OTHER_TAG = an_arp_request(tags=(VlanTag(0), VlanTag(9)))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (OTHER_TAG, Reason.OTHER_VLAN),
        (OTHER_TAG[:22], Reason.OTHER_VLAN),
        (OTHER_TAG[:21], Reason.NOT_ARP),
        (an_arp_request()[:41], Reason.NOT_ARP),
    ],
    ids=["tag", "only tags", "tag cut off", "packet cut off"],
)
@pytest.mark.parametrize("respond", [respond_ingress, respond_egress])
def test_what_says_nothing_about_a_vip_passes(respond, frame, reason):
    expected = Response(False, frame, (Judgement(None, Verdict.PASS, reason),))

    assert respond(frame, a_situation(an_entry(Kind.FOREIGN))) == expected


def test_primary_address_of_the_other_family_is_a_mistake_of_whoever_made_the_entry():
    asked = an_arp_request(src=GUARD, sha=GUARD, spa=VIP, tpa=NEIGHBOUR_IP)
    with pytest.raises(TypeError, match=f"{PRIMARY_IP6} is no IPv4 address"):
        respond_egress(asked, a_situation(an_entry(Kind.FOREIGN, primary=PRIMARY_IP6)))


# ---- neighbour discovery -----------------------------------------------------------------------------------------


def a_situation6(entry, **control) -> Situation:
    return Situation(a_control6(fence_ns=NOW + 1, lease_ns=LEASE, **control), {EntryKey(LINK, VIP6): entry}, LINK, NOW)


def about_vip6(reason) -> tuple[Judgement, ...]:
    return (Judgement(VIP6, reason.verdict, reason),)


def test_owner_answers_a_solicitation():
    response = respond_ingress(an_ns(), a_situation6(an_entry6()))
    assert response == Response(True, na6(a_solicitation()), about_vip6(Reason.ANSWERED))


def test_owner_answers_everybody_when_nobody_asks():
    response = respond_ingress(a_dad_ns(), a_situation6(an_entry6()))
    assert response == Response(True, na6(a_dad_solicitation()), about_vip6(Reason.ANSWERED))


def test_solicitation_that_claims_what_it_asks_for_is_judged_as_both():
    """Unlike an announcement in ARP, it is answered by Linux."""
    frame = nd_frame(a_solicitation(src=VIP6))
    response = respond_ingress(frame, a_situation6(an_entry6(Kind.FOREIGN, owner_mac=TESTER)))
    assert response.frame is None
    assert [judgement.reason for judgement in response.judgements] == [Reason.OWNER_CLAIM, Reason.FOREIGN]


def test_solicitation_with_a_foreign_vip_leaves_with_the_links_address():
    asked = a_solicitation(src=VIP6, options=(slla(GUARD),), target=NEIGHBOUR_IP6)
    response = respond_egress(nd_frame(asked, src=GUARD), a_situation6(an_entry6(Kind.FOREIGN)))
    assert response == Response(
        False, nd_frame(replace(asked, src=PRIMARY_IP6), src=GUARD), about_vip6(Reason.EGRESS_REWRITTEN)
    )


def test_what_cannot_be_read_is_dropped_where_an_ipv6_entry_enforces():
    frame = an_ns(headers=[a_header(DESTINATION)] * 9)
    for strictest6, left in ((Mode.ENFORCE, None), (Mode.OBSERVE, frame), (Mode.INHERIT, frame)):
        response = respond_ingress(frame, a_situation6(an_entry6(Kind.FOREIGN), strictest6=strictest6))
        assert response == Response(False, left, (Judgement(None, Verdict.SUPPRESS, Reason.UNWALKABLE),))


@pytest.mark.parametrize(
    "frame",
    [
        an_ns(headers=[a_header(DESTINATION)]),
        an_ns(tags=(VlanTag(0), VlanTag(0))),
        an_ns(options=()),
    ],
    ids=["extension header", "two tags", "no address to answer to"],
)
def test_solicitation_that_no_host_sends_is_not_answered(frame):
    response = respond_ingress(frame, a_situation6(an_entry6()))

    assert response == Response(False, None, about_vip6(Reason.NOT_STRICT))


@pytest.mark.parametrize("kind", Kind)
def test_claim_that_every_receiver_discards_is_no_conflict(kind):
    frame = an_na(hop_limit=254)
    response = respond_ingress(frame, a_situation6(an_entry6(kind)))

    assert response == Response(False, frame, about_vip6(Reason.ND_INVALID_CLAIM))


def test_other_ipv6_is_not_even_looked_at():
    frame = nd_frame(a_solicitation(), last=17)
    assert respond_ingress(frame, a_situation6(an_entry6())) == Response(False, frame, ())


any_header = st.sampled_from([a_header(HOP_BY_HOP), a_header(DESTINATION), a_routing_header(), a_fragment_header()])
any_address = st.integers(0, 2**128 - 1).map(IPv6Address)
any_mac = st.binary(min_size=6, max_size=6).map(MacAddress)


@given(
    src=any_address,
    dst=any_address,
    macs=st.tuples(any_mac, any_mac),
    headers=st.lists(any_header, max_size=8),
    fields=st.fixed_dictionaries({"hop_limit": st.integers(0, 255), "code": st.integers(0, 255)}),
    rest=st.binary(max_size=600),
)
def test_whatever_asks_for_anothers_vip_is_dropped(src, dst, macs, headers, fields, rest):
    message = a_solicitation(src=src, dst=dst, **fields)
    frame = nd_frame(message, *macs, headers=headers, body=message.build()[:24] + rest)
    response = respond_ingress(frame, a_situation6(an_entry6(Kind.FOREIGN)))
    assert (response.frame, response.judgements[-1].reason) == (None, Reason.FOREIGN)


@given(st.binary(max_size=40), st.binary(max_size=600))
def test_any_bytes_get_a_response(head, rest):
    for data in (head + rest, an_ns()[:54] + rest, an_ns(headers=[a_header(DESTINATION)])[: 40 + len(head)] + rest):
        for respond in (respond_ingress, respond_egress):
            respond(data, a_situation6(an_entry6()))


# ---- closed ranges -----------------------------------------------------------------------------------------------

POOL = ip_network("192.0.2.0/24")
CLOSED = an_entry(Kind.CLOSED)


def a_closed_situation(ranges, *, closed=True, entries=None) -> Situation:
    return Situation(a_control(closed=closed), entries or {}, LINK, NOW, ranges)


def test_address_without_an_entry_is_hidden_in_a_closed_range():
    response = respond_ingress(an_arp_request(), a_closed_situation({RangeKey(LINK, POOL): CLOSED}))
    assert response == Response(False, None, about_vip(Verdict.SUPPRESS, Reason.UNKNOWN), hidden=True)


@pytest.mark.parametrize(
    "situation",
    [
        a_closed_situation({RangeKey(LINK, POOL): CLOSED}, closed=False),
        a_closed_situation({RangeKey(LINK + 1, POOL): CLOSED}),
        a_closed_situation({RangeKey(LINK, ip_network("198.51.100.0/24")): CLOSED}),
        a_closed_situation({RangeKey(LINK, ip_network("2001:db8::/32")): CLOSED}),
        a_closed_situation({RangeKey(LINK, POOL): CLOSED, RangeKey(LINK, ip_network(VIP)): an_entry(Kind.OPEN)}),
        a_closed_situation({}),
    ],
    ids=["nothing_is_closed", "another_link", "another_network", "another_family", "an_exception", "no_range"],
)
def test_address_outside_of_closed_ranges_is_not_guarded(situation):
    assert reason_of(respond_ingress(an_arp_request(), situation)) is Reason.NOT_GUARDED


def test_entry_goes_before_its_range():
    situation = a_closed_situation(
        {RangeKey(LINK, POOL): CLOSED}, entries={EntryKey(LINK, VIP): an_entry(Kind.DELEGATED)}
    )
    assert reason_of(respond_ingress(an_arp_request(), situation)) is Reason.DELEGATED


def test_guests_on_the_link_are_asked_and_speak():
    situation = a_closed_situation({RangeKey(LINK, POOL): CLOSED})
    asked, told = an_arp_request(dst=TESTER), an_announcement(sha=TESTER)
    guests = about_vip(Verdict.PASS, Reason.GUEST)
    assert respond_ingress(asked, situation) == Response(False, asked, guests)
    assert respond_egress(told, situation) == Response(False, told, guests)
    assert reason_of(respond_ingress(an_arp_request(dst=GUARD), situation)) is Reason.UNKNOWN
