"""Who has an elected VIP, word for word."""

from dataclasses import replace
from ipaddress import ip_address

import pytest

from arpguard.core.claimwords import Candidate, ClaimState, claim_state, claim_steps
from arpguard.core.explaining import InCluster, Viewpoint, explain_ownership
from arpguard.core.origins import Origin
from arpguard.core.ownership.records import Holder
from arpguard.model import Link, NodeControl, Owner, OwnerKind, Surroundings, Vip, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Mode
from support.frames.builders import GUARD

VIP = ip_address("192.0.2.50")
NOW_NS = 1000 * NS_PER_S
HELD = Holder("n1", "e1", alive=True, void=False, known=True, exists=True)
FIRST, SECOND = Candidate("n1", True, True, "choice 1"), Candidate("n2", True, False, "choice 2")
DOWN = Candidate("n3", False, False, "its Node is not ready")
MAC = "02:00:00:00:00:50"
NO_EPOCH = "annotation arpguard.io/holder-epoch is not a UUID ('x')"
UNCHANGED = "this node has seen the claim unchanged"
MOVED_ONCE = "the VIP has moved once so far"
GOING = "the claim is being deleted by hand: first n1 falls silent, then the claim disappears; after that "
FREE = "any eligible node may take the VIP, in order of preference"


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({}, ClaimState.VALID),
        ({"alive": False}, ClaimState.VALID),
        ({"void": True}, ClaimState.VOID),
        ({"void": None}, ClaimState.UNKNOWN),
        ({"node": ""}, ClaimState.RELEASED),
        ({"node": "", "external": MAC}, ClaimState.EXTERNAL),
        ({"external": MAC, "void": True}, ClaimState.EXTERNAL),
        ({"deleting": True, "void": True}, ClaimState.DELETING),
        ({"unreadable": "epoch: x", "deleting": True}, ClaimState.UNREADABLE),
        ({"exists": False, "node": ""}, ClaimState.NONE),
        ({"known": False}, ClaimState.UNKNOWN),
    ],
    ids=str,
)
def test_claim_is_worth_what_keeps_others_from_it_first(changes, state):
    assert claim_state(replace(HELD, **changes)) is state


@pytest.mark.parametrize(
    ("holder", "steps"),
    [
        (HELD, ["n1 holds the claim", "n1 renews its lease in time"]),
        (
            replace(HELD, seen_ns=NOW_NS - 90 * NS_PER_S),
            ["n1 holds the claim (this node has seen the claim unchanged for 90 s)", "n1 renews its lease in time"],
        ),
        (
            replace(HELD, seen_ns=NOW_NS, transitions=2),
            [
                "n1 holds the claim (this node has seen the claim unchanged for 0 s; the VIP has moved 2 times so far)",
                "n1 renews its lease in time",
            ],
        ),
        (
            replace(HELD, alive=False),
            [
                "n1 holds the claim",
                (
                    "n1 has not renewed its lease in time: another eligible node declares n1 dead (ends its epoch), "
                    "and takes the VIP"
                ),
            ],
        ),
        (
            replace(HELD, node="n2"),
            [
                "n2 holds the claim",
                "n2 renews its lease in time",
                "n1 is preferred, but the owner keeps the VIP until a minute passes without changes",
            ],
        ),
        (
            replace(HELD, node="n3"),
            [
                "n3 holds the claim",
                "n3 renews its lease in time",
                "n3 is no longer eligible, and hands the VIP over: its Node is not ready",
            ],
        ),
        (
            replace(HELD, node="n9"),
            ["n9 holds the claim", "n9 renews its lease in time", "n9 is no longer eligible, and hands the VIP over"],
        ),
        (replace(HELD, void=True), [f"the claim names n1, but is void, because the epoch in it has ended: {FREE}"]),
        (
            replace(HELD, node="", seen_ns=NOW_NS - NS_PER_S, transitions=1),
            [
                f"the last holder has released the claim ({UNCHANGED} for 1 s; {MOVED_ONCE}): {FREE}",
            ],
        ),
        (
            replace(HELD, node="", external=MAC),
            [f"{MAC}, a host outside the cluster, has {VIP}: no node takes the VIP until that host falls silent"],
        ),
        (
            replace(HELD, unreadable=NO_EPOCH),
            [f"agents cannot read the claim, so no node takes the VIP: {NO_EPOCH}"],
        ),
        (
            replace(HELD, deleting=True),
            [f"{GOING}{FREE}"],
        ),
        (replace(HELD, node="", deleting=True), [f"the claim is being deleted by hand: after that {FREE}"]),
        (Holder(known=True), [f"no node has claimed 192.0.2.50 yet: {FREE}"]),
        (Holder(), ["the agent does not know yet whether the claim is valid"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_claim_is_told_of_in_words(holder, steps):
    assert claim_steps(VIP, holder, (FIRST, SECOND, DOWN), NOW_NS)[2:] == steps


@pytest.mark.parametrize(
    ("candidates", "steps"),
    [
        ((), [f"no node is eligible to own {VIP}, so none answers"]),
        ((FIRST,), ["n1 may own the VIP"]),
        ((SECOND, FIRST), ["n2, n1 may own the VIP, in this order of preference"]),
        (
            (FIRST, DOWN, Candidate("n4", False, False, "cordoned"), replace(DOWN, node="n5")),
            [
                "n1 may own the VIP",
                "n3, n5 cannot own the VIP: its Node is not ready",
                "n4 cannot own the VIP: cordoned",
            ],
        ),
        (
            tuple(Candidate(f"n{number}", True, False, "") for number in range(100)),
            ["n0, n1, n2, n3, n4 and 95 more may own the VIP, in this order of preference"],
        ),
    ],
    ids=["nobody", "one", "two", "refused", "many"],
)
def test_candidates_are_told_of_by_preference_and_reason(candidates, steps):
    assert claim_steps(VIP, Holder(), candidates, NOW_NS)[:-1] == steps


def test_vip_that_is_apart_from_the_one_it_goes_with_is_about_to_move():
    leading = Candidate("n1", eligible=True, chosen=False, why="has it all", leads=True)
    holding = Candidate("n2", eligible=True, chosen=True, why="choice 2")

    steps = claim_steps(VIP, replace(HELD, node="n2"), (leading, holding), NOW_NS)

    assert steps[-1] == "n1 should have the VIP, and takes it over immediately"


# ---- the whole chain ---------------------------------------------------------------------------------------------

ETH0 = Link(2, "eth0", GUARD, up=True)
SCENE = Viewpoint("n1", ETH0, (ETH0,), Surroundings((ETH0,)), NodeControl(Mode.ENFORCE, 1), NOW_NS)


def explain(owner: Owner | None, cluster: InCluster | None, entry: VipEntry | None = None):
    vip = Vip(VIP, owner, source="service shop/web") if owner else None
    return explain_ownership(VIP, vip.source if vip else "ConfigMap a/b", vip, entry, SCENE, cluster)


ELECT, FOLLOW = Owner(OwnerKind.ELECT), Owner(OwnerKind.FOLLOW, node="n2")


def test_chain_of_an_elected_vip_begins_with_why_it_is_one_and_who_else_wanted_it():
    origin = Origin("its annotation makes it one", ("service shop/other asks for it too",))
    found = explain(ELECT, InCluster(origin, (FIRST,), HELD))

    assert list(found.steps[:4]) == [
        f"service shop/web makes {VIP} a VIP with the owner elect: its annotation makes it one",
        "service shop/other asks for it too",
        "n1 may own the VIP",
        "n1 holds the claim",
    ]
    assert found.candidates == (FIRST,)


def test_chain_says_why_this_node_is_silent():
    steps = explain(ELECT, InCluster(holder=HELD, renewal_lost="timed out", yielding=True)).steps

    assert "n1 is this node, and cannot renew its lease: timed out" in steps
    assert "another agent uses the node name n1, so this one is silent" in steps


def test_held_vip_is_told_from_one_whose_owner_is_named():
    entry = VipEntry(Kind.OWNED, unfenced=True, epoch=3)
    held = (
        "hold is set, so the right to answer does not expire: while the API server is unreachable, two nodes can answer"
    )

    assert explain(ELECT, InCluster(holder=HELD), entry).steps[-1] == held
    assert explain(Owner(OwnerKind.NODE, node="n1"), InCluster(), entry).steps[-1] != held


@pytest.mark.parametrize(
    ("owner", "origin", "step"),
    [
        (FOLLOW, Origin(follows="Lease a/b"), "the VIP follows another announcer (Lease a/b), so n2 has it"),
        (
            Owner(OwnerKind.FOLLOW),
            Origin(),
            (
                "the VIP follows another announcer (nothing is known about that announcer), so all nodes suppress "
                "answers for the VIP"
            ),
        ),
    ],
    ids=["somebody", "nobody"],
)
def test_announcer_that_is_followed_is_named(owner, origin, step):
    assert explain(owner, InCluster(origin)).steps[1] == step


def test_candidates_of_a_followed_vip_are_who_was_chosen_and_this_node():
    assert [(found.node, found.chosen) for found in explain(FOLLOW, InCluster()).candidates] == [
        ("n2", True),
        ("n1", False),
    ]
    assert explain(Owner(OwnerKind.FOLLOW), InCluster()).candidates == ()


@pytest.mark.parametrize(
    ("cluster", "steps"),
    [
        (None, [f"nothing in ConfigMap a/b makes {VIP} a VIP"]),
        (InCluster(), [f"nothing in ConfigMap a/b makes {VIP} a VIP, and no Service has this address"]),
        (InCluster(Origin(refusals=("r1", "r2"))), [f"nothing in ConfigMap a/b makes {VIP} a VIP", "r1", "r2"]),
        (
            InCluster(complete=False),
            [f"nothing in ConfigMap a/b makes {VIP} a VIP, and the agent is still reading from the API server"],
        ),
    ],
    ids=["standalone", "nobody asks", "refused", "not read"],
)
def test_address_that_is_not_guarded_has_a_reason(cluster, steps):
    assert list(explain(None, cluster).steps[: len(steps)]) == steps
