"""Who may own which VIP, in which order, and why not."""

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from arpguard.addresses import ZERO_MAC
from arpguard.core.cluster import EXCLUDE_LABEL, Node
from arpguard.core.members import (
    CORDONED,
    DOUBTED,
    Member,
    Pools,
    candidates,
    is_alone,
    members_of,
    speaker,
)
from arpguard.core.ownership.records import PublishedLink
from arpguard.core.rendezvous import ranked
from arpguard.core.reporting import Subject
from arpguard.model import Owner, OwnerKind, Vip

LAN, FAR = ip_network("198.51.100.0/24"), ip_network("203.0.113.0/24")
VIP = Vip(ip_address("198.51.100.50"), Owner(OwnerKind.ELECT))


def a_member(name="n1", **changes) -> Member:
    return replace(Member(name, links=(("eth0", LAN),)), **changes)


def verdicts(vip, *members, holder=""):
    return {each.node: (each.eligible, each.why) for each in asked(vip, members, {vip.address: holder})}


def asked(vip, members, holders=None, group=()):
    return candidates(vip, {each.address: each for each in group or (vip,)}, members, holders or {})


def test_members_are_those_with_a_node_or_a_heartbeat():
    nodes = {"n1": Node("n1", ready=True), "n2": Node("n2", ready=True, unschedulable=True, excluded=True)}
    links = {"n1": [PublishedLink("eth0", ZERO_MAC, (LAN, ip_network("198.51.100.7/32")))], "gone": []}

    assert members_of(nodes, links, {"n1"}) == (
        Member("gone", alive=False, exists=False, ready=False),
        Member("n1", links=(("eth0", LAN),)),
        Member("n2", alive=False, excluded=True, cordoned=True),
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"alive": False}, "its agent has not renewed its lease in time"),
        ({"exists": False, "ready": False}, "no Node has that name"),
        ({"deleting": True}, "its Node is being deleted"),
        ({"ready": False}, "its Node is not ready"),
        ({"excluded": True}, f"excluded by the label {EXCLUDE_LABEL}"),
        ({"cordoned": True}, CORDONED),
        ({"doubted": True}, DOUBTED),
        ({"doubted": True, "cordoned": True}, DOUBTED),
        ({"links": ()}, "its link with 198.51.100.0/24 is down or missing"),
        ({"links": (("eth1", FAR),)}, "its link with 198.51.100.0/24 is down or missing"),
    ],
)
def test_node_that_may_not_own_it_comes_after_those_that_may_and_says_why(changes, why):
    found = verdicts(VIP, a_member("n1", **changes), a_member("n2"))

    assert found == {"n2": (True, "choice 1"), "n1": (False, why)}
    assert list(found) == ["n2", "n1"]


def test_only_nodes_with_endpoints_may_own_a_local_one():
    vip = replace(VIP, nodes=frozenset({"n2"}))

    assert verdicts(vip, a_member("n1"), a_member("n2"))["n1"] == (
        False,
        "no ready endpoint on the node (externalTrafficPolicy: Local)",
    )


def test_vip_with_an_interface_needs_that_one():
    vip = replace(VIP, interface="eth1")
    two = a_member("n2", links=(("eth0", LAN), ("eth1", LAN)))

    assert verdicts(vip, a_member("n1"), two) == {
        "n2": (True, "choice 1"),
        "n1": (False, "its link eth1 with 198.51.100.0/24 is down or missing"),
    }


def test_interface_is_taken_at_its_word_where_nobody_has_the_subnet_on_it():
    vip = replace(VIP, interface="eth1")
    two = a_member("n2", links=(("eth0", LAN), ("eth1", FAR)))

    assert verdicts(vip, a_member("n1"), two) == {
        "n2": (True, "choice 1"),
        "n1": (False, "its link eth1 is down or missing"),
    }


def test_vips_of_other_subnets_and_interfaces_are_for_others():
    pools = Pools((a_member("n1", links=(("eth0", FAR), ("eth1", LAN))), a_member("n2"), a_member("n3", links=())))
    vips = (VIP, replace(VIP, interface="eth1"), replace(VIP, address=FAR[9]), replace(VIP, nodes=frozenset({"n2"})))

    owners = [{name for name in ("n1", "n2", "n3") if name in pools.of(vip)} for vip in vips]

    assert owners == [{"n1", "n2"}, {"n1"}, {"n1"}, {"n2"}]


def test_vip_in_nobodys_subnet_is_for_anybody_with_a_link():
    vip = replace(VIP, address=ip_address("192.0.2.1"))

    found = verdicts(vip, a_member("n1"), a_member("n2", links=()))

    assert found == {"n1": (True, "choice 1"), "n2": (False, "every guarded link is down or missing")}


def test_subnet_of_a_node_that_is_away_is_still_a_subnet():
    """Else the VIP would go to a node that nobody in that subnet can hear."""
    found = verdicts(VIP, a_member("n1", alive=False), a_member("n2", links=(("eth0", FAR),)))

    assert found["n2"] == (False, "its link with 198.51.100.0/24 is down or missing")


def test_cordoned_nodes_are_better_than_nobody():
    found = verdicts(VIP, a_member("n1", cordoned=True), a_member("n2", ready=False))

    assert found["n1"] == (True, "choice 1")


def test_a_node_that_others_may_not_hear_comes_after_cordoned_ones_and_before_nobody():
    cordoned, doubted, away = a_member("n1", cordoned=True), a_member("n2", doubted=True), a_member("n3", ready=False)

    assert [name for name, (may, _) in verdicts(VIP, cordoned, doubted, away).items() if may] == ["n1"]
    assert [name for name, (may, _) in verdicts(VIP, doubted, away).items() if may] == ["n2"]


def test_members_are_doubted_by_name():
    links = {name: (PublishedLink("eth0", ZERO_MAC, (LAN,)),) for name in ("n1", "n2")}

    assert {each.name: each.doubted for each in members_of({}, links, {"n1", "n2"}, {"n2"})} == {
        "n1": False,
        "n2": True,
    }


def test_holder_is_chosen_and_else_the_first():
    members = [a_member(f"n{n}") for n in range(3)]
    order = ranked(str(VIP.address), [member.name for member in members])

    free, held = asked(VIP, members), asked(VIP, members, {VIP.address: order[2]})

    assert [each.node for each in free] == order
    assert [each.chosen for each in free] == [True, False, False]
    assert [each.chosen for each in held] == [False, False, True]
    assert held[2].why == "choice 3; it is the current owner, and keeps the VIP"


def test_pools_are_the_same_while_those_who_matter_are():
    members = (a_member("n1"), a_member("n2", ready=False))

    assert Pools(members) == Pools((a_member("n1"), a_member("n2", ready=False, cordoned=True)))
    assert Pools(members) != Pools((a_member("n1"), a_member("n2")))
    assert Pools(members) != Pools((a_member("n1"), a_member("n2", ready=False, links=(("eth0", FAR),))))


def test_one_that_is_alive_speaks_of_an_object():
    members = [a_member(f"n{n}") for n in range(5)]
    subjects = [Subject("v1", "Service", "shop", f"web{n}") for n in range(100)]

    first = {subject: speaker(subject, members) for subject in subjects}
    without = [replace(member, alive=member.name != "n3") for member in members]

    assert set(first.values()) == {member.name for member in members}
    for subject, name in first.items():
        assert speaker(subject, without) == name or name == "n3"
        assert speaker(subject, without) != "n3"
    assert speaker(subjects[0], []) == ""


# ---- VIPs that go together ----

LAN6 = ip_network("2001:db8::/64")
SIX = Vip(ip_address("2001:db8::50"), VIP.owner, lead=VIP.address)
PAIR = (VIP, SIX)


def dual(name, **changes):
    return a_member(name, **{"links": (("eth0", LAN), ("eth0", LAN6)), **changes})


def test_those_that_may_be_owned_together_are_one_and_each_of_the_rest_is_by_itself():
    far = replace(SIX, address=SIX.address + 1, nodes=frozenset({"n3"}))
    pools = Pools([dual("n1"), dual("n2"), dual("n3", links=(("eth0", LAN6),))])

    divided = [
        (vips, {name for name in ("n1", "n2", "n3") if name in pool}) for vips, pool in pools.divided((*PAIR, far))
    ]

    assert divided == [(PAIR, {"n1", "n2"}), ((far,), {"n3"})]
    assert [vips for vips, _ in pools.divided((SIX,))] == [(SIX,)]


def test_group_that_has_changed_is_looked_at_again():
    pools = Pools([dual("n1"), dual("n2"), a_member("n3")])
    pinned = (VIP, replace(SIX, nodes=frozenset({"n2"})))

    assert ["n1" in pools.divided(group)[0][1] for group in (PAIR, pinned, PAIR)] == [True, False, True]


def test_candidates_of_a_pair_are_those_who_may_own_both():
    members = [dual("n1"), dual("n2"), a_member("n3")]

    found = {vip: {each.node: each for each in asked(vip, members, group=PAIR)} for vip in PAIR}

    order = [*ranked(str(VIP.address), ["n1", "n2"]), "n3"]
    assert [list(found[vip]) for vip in PAIR] == [order, order]
    why = "its link with 2001:db8::/64 is down or missing"
    assert found[VIP]["n3"].why == f"2001:db8::50, which must have the same owner, cannot go to this node: {why}"
    assert found[SIX]["n3"].why == why


def test_whoever_has_the_lead_is_preferred_for_what_goes_with_it():
    members = [dual(f"n{n}") for n in range(3)]
    last = ranked(str(VIP.address), [member.name for member in members])[-1]

    first, *others = asked(SIX, members, {SIX.address: others_than(last), VIP.address: last}, PAIR)

    assert (first.node, first.leads, first.why) == (
        last,
        True,
        f"owns {VIP.address}, and 2001:db8::50 must have the same owner",
    )
    assert not any(each.leads for each in others)
    assert not any(each.leads for each in asked(VIP, members, {VIP.address: last}, PAIR))


def others_than(name):
    return "n0" if name != "n0" else "n1"


def test_candidates_are_each_familys_own_where_nobody_may_own_both():
    members = [a_member("n1"), dual("n2", links=(("eth0", LAN6),))]

    assert [each.node for each in asked(SIX, members, group=PAIR) if each.eligible] == ["n2"]
    assert [each.node for each in asked(VIP, members, group=PAIR) if each.eligible] == ["n1"]


SECOND = replace(VIP, address=ip_address("198.51.100.51"))


@pytest.mark.parametrize(
    ("others", "vips", "alone"),
    [
        ([], [VIP], True),
        ([a_member("n2")], [VIP], False),
        ([a_member("n2", cordoned=True)], [VIP], False),
        ([a_member("n2", doubted=True)], [VIP], False),
        ([a_member("n2", ready=False), a_member("n3", alive=False)], [VIP], True),
        ([a_member("n2", links=())], [VIP], True),
        ([a_member("n2", links=(("eth1", FAR),))], [VIP], True),
        ([a_member("n2")], [SECOND, replace(VIP, nodes=frozenset({"n1"}))], True),
        ([a_member("n2")], [replace(VIP, nodes=frozenset({"n2"}))], False),
        ([], [replace(VIP, owner=Owner(OwnerKind.EXTERNAL))], False),
        ([], [], False),
    ],
    ids=[
        "no other",
        "another",
        "cordoned",
        "doubted",
        "may not",
        "no link",
        "other subnet",
        "own endpoint",
        "not",
        "not elected",
        "no VIP",
    ],
)
def test_node_is_alone_with_what_no_other_may_own(others, vips, alone):
    assert is_alone("n1", [a_member(), *others], vips) is alone


def test_node_that_may_not_own_is_not_alone():
    assert not is_alone("n1", [a_member(excluded=True)], [VIP])
