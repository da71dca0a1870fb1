"""The reference model on a few frames; tests/bpf compares the rest of it with the programs."""

from arpguard.core.respond import Judgement, Response, Situation, respond_egress, respond_ingress
from arpguard.model import EntryKey
from arpguard.verdict import Kind, Mode, Reason, Verdict
from arpguard.wire.arp import ArpOp, parse_arp_frame
from arpguard.wire.ethernet import VlanTag
from builders import (
    GUARD,
    NEIGHBOUR_IP,
    PRIMARY_IP,
    TESTER,
    TESTER_IP,
    VIP,
    a_control,
    a_packet,
    an_announcement,
    an_arp_request,
    an_entry,
    the_answer,
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
