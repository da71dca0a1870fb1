"""Whose an address is, by the bids for it and by nothing else."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.core.bids import ANNOTATED, CONFIGURED, SELECTED, Award, Bid, Complaint, decide
from arpguard.core.reporting import Subject
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.verdict import Mode

VIP = ip_address("2001:db8::50")
LEAD, OTHER_LEAD = ip_address("198.51.100.50"), ip_address("198.51.100.51")


def a_bid(name="a", precedence=SELECTED, namespace="shop", made="", undecided=False, **terms):
    vip = Vip(VIP, terms.pop("owner", Owner(OwnerKind.ELECT)), source=f"service {namespace}/{name}", **terms)
    subject = Subject("v1", "Service", namespace, name)
    return Bid((precedence, namespace, name), vip, vip.source, subject, made, undecided=undecided)


ITEM = Bid((CONFIGURED, "", ""), Vip(VIP, Owner(OwnerKind.EXTERNAL)), "vips[0]")


def test_nobody_asks():
    assert decide([]) == Award()


def test_one_that_is_alone_gets_what_it_asks_for():
    bid = a_bid(nodes=frozenset({"n1"}), lead=LEAD)

    award = decide([bid])

    assert (award.vip, award.undecided, award.disputed) == (bid.vip, False, ())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ITEM, a_bid(precedence=ANNOTATED)),
        (a_bid("z", ANNOTATED), a_bid("a", mode=Mode.OBSERVE)),
        (a_bid("a"), a_bid("b", mode=Mode.OBSERVE)),
        (
            a_bid("z", made="2026-01-01T00:00:00Z"),
            a_bid("a", ANNOTATED, "other", "2026-02-01T00:00:00Z", unfenced=True),
        ),
    ],
    ids=["the configuration", "an annotation", "by name", "the older namespace"],
)
def test_first_has_the_say_and_the_other_a_complaint_in_whatever_order_they_come(first, second):
    why = f"{first.name} takes precedence for {VIP}, but has other settings: give both the same settings"
    award = Award(first.vip, disputed=(replace(second, complaint=Complaint("VIPConflictingSources", why)),))

    assert decide([first, second]) == award
    assert decide([second, first]) == award


def test_those_that_share_it_are_for_the_nodes_of_all():
    bids = [a_bid("a", nodes=frozenset({"n1", "n2"})), a_bid("b", nodes=frozenset({"n2", "n3"})), a_bid("c")]

    assert decide(bids) == Award(replace(bids[0].vip, nodes=frozenset({"n2"})))


def test_one_that_has_no_node_in_common_hears_of_it():
    bids = [a_bid("a", nodes=frozenset({"n1"})), a_bid("b", nodes=frozenset({"n2"}))]

    award = decide(bids)

    assert award.vip == bids[0].vip
    assert [bid.complaint.reason for bid in award.disputed] == ["VIPWithoutCommonNode"]


def test_it_goes_with_the_lead_of_the_first_that_has_one():
    bids = [a_bid("a"), a_bid("b", lead=LEAD), a_bid("c", lead=OTHER_LEAD)]

    award = decide(bids)

    assert award.vip.lead == LEAD
    assert [(bid.name, bid.complaint.reason) for bid in award.disputed] == [("service shop/c", "VIPPairDivided")]


def test_it_is_undecided_while_one_that_shares_it_is():
    first, later = a_bid("a", nodes=frozenset({"n1"})), a_bid("b", undecided=True)

    assert decide([first, later]) == Award(first.vip, undecided=True)
    assert not decide([first, replace(later, order=(SELECTED, "other", "b"), made="2026-02-01T00:00:00Z")]).undecided
