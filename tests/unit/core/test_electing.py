"""Which VIPs this node wants, and when."""

from dataclasses import replace
from ipaddress import ip_address, ip_network
from weakref import ref

import pytest

from arpguard.core.balancing import to_move
from arpguard.core.electing import (
    BACKUP_NS,
    BATCH_NS,
    FOLLOW_AT_ONCE,
    GIVE_UP_NS,
    SETTLE_NS,
    SHUN_NS,
    STEADY_NS,
    Election,
)
from arpguard.core.members import Member, Pools
from arpguard.core.rendezvous import ranked
from arpguard.model import Owner, OwnerKind, Vip
from arpguard.units import NS_PER_S
from support.protocol.elections import wishes_of

LAN = ip_network("198.51.100.0/24")
ADDRESS = ip_address("198.51.100.50")
ELECT = Owner(OwnerKind.ELECT)
VIPS = {ADDRESS: Vip(ADDRESS, ELECT)}
NAMES = ("n1", "n2", "n3")
FIRST, SECOND, THIRD = ranked(str(ADDRESS), NAMES)
START = 100 * NS_PER_S
LATER = START + SETTLE_NS
ABSENT = Member("absent", alive=False)  # one that is still to come: the others wait for it


def members(**changes):
    """Three nodes on one segment; keywords by name: what is different of them."""
    usual = (replace(Member(name, links=(("eth0", LAN),)), **changes.get(name, {})) for name in NAMES)
    return (*usual, ABSENT)


def wanted(me, holders, now_ns=LATER, vips=VIPS, seen=None, **changes):
    return wishes_of(Election(me, START), vips, members(**changes), holders, now_ns, **(seen or {})).wanted


def test_first_choice_wants_what_is_free():
    assert [wanted(name, {ADDRESS: ""}) for name in (FIRST, SECOND, THIRD)] == [{ADDRESS}, set(), set()]


def test_vips_that_are_not_elected_are_wanted_by_nobody():
    vips = {ADDRESS: Vip(ADDRESS, Owner(OwnerKind.NODE, node=FIRST))}

    assert wanted(FIRST, {ADDRESS: ""}, vips=vips) == set()


@pytest.mark.parametrize("holder", [FIRST, SECOND, THIRD])
def test_holder_that_may_own_it_keeps_it(holder):
    assert [name for name in NAMES if wanted(name, {ADDRESS: holder})] == [holder]


@pytest.mark.parametrize(
    "change", [{"ready": False}, {"excluded": True}, {"deleting": True}, {"exists": False}, {"links": ()}], ids=str
)
def test_holder_that_must_not_answer_lets_go_even_where_nobody_else_could(change):
    nobody_else = {name: {"alive": False} for name in NAMES if name != FIRST}
    election = Election(FIRST, START)

    wishes = wishes_of(election, VIPS, members(**{FIRST: change}, **nobody_else), {ADDRESS: FIRST}, LATER)

    assert (wishes.wanted, wishes.nobody) == (frozenset(), {ADDRESS})


def test_holder_without_endpoints_lets_go():
    vips = {ADDRESS: replace(VIPS[ADDRESS], nodes=frozenset({SECOND}))}

    assert wanted(FIRST, {ADDRESS: FIRST}, vips=vips) == set()
    assert wanted(SECOND, {ADDRESS: ""}, vips=vips) == {ADDRESS}


def test_cordoned_holder_lets_go_only_for_another():
    assert wanted(FIRST, {ADDRESS: FIRST}, **{FIRST: {"cordoned": True}}) == set()
    assert wanted(FIRST, {ADDRESS: FIRST}, **{name: {"cordoned": True} for name in NAMES}) == {ADDRESS}
    assert wanted(SECOND, {ADDRESS: ""}, **{FIRST: {"cordoned": True}}) == {ADDRESS}


def test_next_choices_step_in_one_after_the_other():
    for place, name in enumerate((FIRST, SECOND, THIRD)):
        election, due_ns = Election(name, START), LATER + place * BACKUP_NS
        early = wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER)
        if place:
            assert (early.wanted, early.next_ns) == (frozenset(), due_ns)
            assert not wishes_of(election, VIPS, members(), {ADDRESS: ""}, due_ns - 1).wanted
        assert wishes_of(election, VIPS, members(), {ADDRESS: ""}, due_ns).wanted == {ADDRESS}


def test_time_in_which_it_was_held_does_not_count():
    election = Election(SECOND, START)
    wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER)
    wishes_of(election, VIPS, members(), {ADDRESS: FIRST}, LATER + BACKUP_NS - 1)

    wishes = wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER + BACKUP_NS)

    assert (wishes.wanted, wishes.next_ns) == (frozenset(), LATER + 2 * BACKUP_NS)


def test_when_the_first_choice_dies_the_next_one_is_first():
    assert wanted(SECOND, {ADDRESS: ""}, **{FIRST: {"alive": False}}) == {ADDRESS}


def test_next_choices_wait_again_when_the_first_choice_has_changed():
    """All others have waited for long, and would step in at once."""
    election = Election(THIRD, START)
    wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER)

    wishes = wishes_of(election, VIPS, members(**{FIRST: {"alive": False}}), {ADDRESS: ""}, LATER + 2 * BACKUP_NS)

    assert (wishes.wanted, wishes.next_ns) == (frozenset(), LATER + 3 * BACKUP_NS)


def test_vip_that_was_never_held_waits_until_this_node_has_looked_around():
    election = Election(FIRST, START)

    early = wishes_of(election, VIPS, members(), {}, START)

    assert (early.wanted, early.next_ns) == (frozenset(), START + SETTLE_NS)
    assert wishes_of(election, VIPS, members(), {}, START + SETTLE_NS).wanted == {ADDRESS}
    assert wanted(FIRST, {ADDRESS: ""}, now_ns=START) == {ADDRESS}, "one that is released need not wait"


@pytest.mark.parametrize("unfit", [{"ready": False}, {"excluded": True}], ids=str)
def test_nobody_waits_where_all_who_could_come_are_there(unfit):
    seen = (*members()[:3], replace(ABSENT, **unfit))

    assert wishes_of(Election(FIRST, START), VIPS, seen, {}, START).wanted == {ADDRESS}


def test_undecided_vip_is_kept_and_not_taken():
    seen = {"undecided": frozenset({ADDRESS})}

    assert wanted(FIRST, {ADDRESS: ""}, seen=seen) == set()
    assert wanted(SECOND, {ADDRESS: SECOND}, seen=seen) == {ADDRESS}


def test_vip_without_anybody_is_named():
    vips = {ADDRESS: replace(VIPS[ADDRESS], nodes=frozenset())}

    assert wishes_of(Election(FIRST, START), vips, members(), {}, LATER).nobody == {ADDRESS}


def test_vip_that_is_gone_is_wanted_no_more():
    election = Election(FIRST, START)
    wishes_of(election, VIPS, members(), {ADDRESS: FIRST}, LATER)

    assert wishes_of(election, {}, members(), {ADDRESS: FIRST}, LATER).wanted == set()


# ---- balance ----

MANY = {ADDRESS + n: Vip(ADDRESS + n, ELECT) for n in range(60)}
QUIET = LATER + STEADY_NS


def one_has_all(holder=FIRST):
    return dict.fromkeys(MANY, holder)


def given_up(election, holders, now_ns, **changes):
    return set(holders) - wishes_of(election, MANY, members(**changes), holders, now_ns).wanted


def test_batch_is_given_up_once_all_has_been_quiet():
    election = Election(FIRST, START)

    assert given_up(election, one_has_all(), LATER) == set()
    assert given_up(election, one_has_all(), QUIET - 1) == set()
    moved = given_up(election, one_has_all(), QUIET)

    assert len(moved) == 10
    assert FIRST not in {ranked(str(each), NAMES)[0] for each in moved}


def test_next_batch_waits():
    election, holders = Election(FIRST, START), one_has_all()
    given_up(election, holders, LATER)
    for address in given_up(election, holders, QUIET):
        holders[address] = ranked(str(address), NAMES)[0]

    assert given_up(election, holders, QUIET + 1) == {each for each in holders if holders[each] != FIRST}
    assert wishes_of(election, MANY, members(), holders, QUIET + 1).next_ns == QUIET + BATCH_NS
    assert len(given_up(election, holders, QUIET + BATCH_NS)) == 20


def test_it_is_asked_again_when_something_is_due():
    election = Election(FIRST, START)
    ask = lambda now_ns: wishes_of(election, MANY, members(), one_has_all(), now_ns).next_ns  # noqa: E731

    assert ask(LATER) == QUIET
    assert ask(QUIET) == QUIET + GIVE_UP_NS
    assert ask(QUIET + GIVE_UP_NS) == QUIET + BATCH_NS
    spread = {address: ranked(str(address), NAMES)[0] for address in MANY} | {ADDRESS: THIRD}
    election = Election(FIRST, START)
    wishes_of(election, MANY, members(), spread, LATER)
    assert wishes_of(election, MANY, members(), spread, QUIET).next_ns == QUIET + BATCH_NS


def test_given_up_vip_is_wanted_again_when_it_could_not_be_released():
    election, holders = Election(FIRST, START), one_has_all()
    given_up(election, holders, LATER)
    moved = given_up(election, holders, QUIET)

    assert given_up(election, holders, QUIET + GIVE_UP_NS - 1) == moved
    assert given_up(election, holders, QUIET + GIVE_UP_NS) == set()


def test_given_up_vip_that_came_back_is_kept():
    election, holders = Election(FIRST, START), one_has_all()
    given_up(election, holders, LATER)
    moved = given_up(election, holders, QUIET)

    assert given_up(election, holders | dict.fromkeys(moved, ""), QUIET + 1) == moved
    assert given_up(election, holders, QUIET + 2) == set()


@pytest.mark.parametrize("unrest", ["free", "member", "preference", "unfit", "undecided"])
def test_nothing_is_given_up_in_unrest(unrest):
    election, holders, vips, seen = Election(FIRST, START), one_has_all(), MANY, {}
    wishes_of(election, MANY, members(), holders, LATER)
    if unrest == "free":
        holders[ADDRESS] = ""
        wishes_of(election, MANY, members(), holders, QUIET - STEADY_NS + 1)
    elif unrest == "unfit":
        holders[ADDRESS] = ABSENT.name
    elif unrest == "undecided":
        seen = {"undecided": frozenset(MANY)}
    elif unrest == "member":
        wishes_of(election, MANY, members(n1={"cordoned": True}), holders, LATER + 1)
        wishes_of(election, MANY, members(), holders, LATER + 2)
    else:
        vips = {address: replace(vip, nodes=frozenset({FIRST})) for address, vip in MANY.items()}
        wishes_of(election, vips, members(), holders, LATER + 1)
        vips = {address: replace(vip, nodes=frozenset(NAMES)) for address, vip in MANY.items()}
        wishes_of(election, vips, members(), holders, LATER + 2)

    kept = wishes_of(election, vips, members(), holders, QUIET, **seen).wanted

    assert kept >= {address for address in MANY if holders[address] == FIRST}


def test_vip_that_nobody_takes_for_long_is_no_unrest():
    election, holders = Election(FIRST, START), one_has_all() | {ADDRESS: ""}

    kept = [wishes_of(election, MANY, members(), holders, now_ns).wanted for now_ns in (LATER, QUIET - 1, QUIET)]

    assert [len(wanted - {ADDRESS}) for wanted in kept] == [59, 59, 49]


def test_who_does_not_take_what_it_is_given_gets_nothing_for_a_while():
    election, holders, now_ns = Election(FIRST, START), one_has_all(), QUIET
    given_up(election, holders, LATER)
    others = set()
    for _ in range(3):
        others |= {ranked(str(each), NAMES)[0] for each in given_up(election, holders, now_ns)}
        now_ns += BATCH_NS

    assert others == {SECOND, THIRD}
    assert GIVE_UP_NS < BATCH_NS
    assert given_up(election, holders, now_ns) == set()
    assert given_up(election, holders, now_ns + SHUN_NS) != set()


def test_only_the_node_with_the_most_to_move_moves():
    placed = [(ADDRESS + n, "n1" if n < 30 else "n2", "n3") for n in range(50)]

    assert len(to_move(placed, "n1", lambda _: True)) == 10
    assert to_move(placed, "n2", lambda _: True) == ()


def test_larger_share_moves_where_there_are_many():
    placed = [(ADDRESS + n, "n1", "n2") for n in range(1000)]

    assert len(to_move(placed, "n1", lambda _: True)) == 50


@pytest.mark.parametrize(("mine", "theirs", "moves"), [(2, 2, 0), (3, 2, 0), (4, 2, 1), (5, 2, 1), (6, 2, 2)])
def test_vip_moves_only_where_that_lessens_the_imbalance(mine, theirs, moves):
    placed = [(ADDRESS + n, "n1", "n2") for n in range(mine)]
    placed += [(ADDRESS + 100 + n, "n2", "n2") for n in range(theirs)]

    assert len(to_move(placed, "n1", lambda _: True)) == moves


# ---- both families of a Service ----

LAN6 = ip_network("2001:db8::/64")
SIX = ip_address("2001:db8::50")
PAIR = {**VIPS, SIX: Vip(SIX, ELECT, lead=ADDRESS)}
BOTH = {name: {"links": (("eth0", LAN), ("eth0", LAN6))} for name in NAMES}


def pair_wishes(election, holders, now_ns=LATER, vips=PAIR, undecided=frozenset(), **changes):
    nodes = members(**{name: {**BOTH[name], **changes.get(name, {})} for name in NAMES})
    return wishes_of(election, vips, nodes, holders, now_ns, undecided)


def pair_wanted(me, holders, **more):
    return pair_wishes(Election(me, START), holders, **more).wanted


def test_first_choice_of_the_lead_wants_both():
    free = dict.fromkeys(PAIR, "")

    assert [pair_wanted(name, free) for name in (FIRST, SECOND, THIRD)] == [{ADDRESS, SIX}, set(), set()]


def test_next_choices_for_a_pair_are_the_leads():
    """Not those of the address itself: the two would part whenever the first choice is slow."""
    vips = {ADDRESS: VIPS[ADDRESS]} | {SIX + n: Vip(SIX + n, ELECT, lead=ADDRESS) for n in range(20)}
    for place, name in enumerate((FIRST, SECOND, THIRD)):
        election, due_ns = Election(name, START), LATER + place * BACKUP_NS
        free = dict.fromkeys(vips, "")
        pair_wishes(election, free, vips=vips)
        assert not place or not pair_wishes(election, free, due_ns - 1, vips=vips).wanted
        assert pair_wishes(election, free, due_ns, vips=vips).wanted == set(vips)


@pytest.mark.parametrize("holder", [FIRST, SECOND, THIRD])
def test_whoever_has_the_lead_wants_what_goes_with_it_and_others_step_in_after_it(holder):
    holders = {ADDRESS: holder, SIX: ""}

    assert [name for name in NAMES if SIX in pair_wanted(name, holders)] == [holder]
    others = [name for name in (FIRST, SECOND, THIRD) if name != holder]
    for place, name in enumerate(others, 1):
        election, due_ns = Election(name, START), LATER + place * BACKUP_NS
        pair_wishes(election, holders)
        assert not pair_wishes(election, holders, due_ns - 1).wanted
        assert pair_wishes(election, holders, due_ns).wanted == {SIX}


def test_address_apart_from_its_lead_is_given_up_at_once():
    election = Election(SECOND, START)

    wishes = pair_wishes(election, {ADDRESS: FIRST, SIX: SECOND})

    assert (wishes.wanted, wishes.next_ns) == (frozenset(), LATER + GIVE_UP_NS)
    assert pair_wanted(FIRST, {ADDRESS: FIRST, SIX: SECOND}) == {ADDRESS}
    assert pair_wanted(FIRST, {ADDRESS: FIRST, SIX: ""}) == {ADDRESS, SIX}


@pytest.mark.parametrize("lead_holder", [{}, {ADDRESS: ""}], ids=["never held", "free"])
def test_address_stays_while_nobody_has_the_lead(lead_holder):
    """A host outside may have the lead, for long."""
    assert pair_wanted(SECOND, {**lead_holder, SIX: SECOND}, now_ns=START) >= {SIX}


@pytest.mark.parametrize("undecided", [ADDRESS, SIX], ids=["the lead", "the address"])
def test_nothing_is_given_up_while_one_of_both_is_undecided(undecided):
    assert pair_wanted(SECOND, {ADDRESS: FIRST, SIX: SECOND}, undecided=frozenset({undecided})) == {SIX}


def test_who_has_the_lead_and_does_not_take_what_goes_with_it_is_left_in_peace_for_a_while():
    """One that is alive and cannot, say: two addresses with two owners are better than one that nobody has."""
    election, apart = Election(SECOND, START), {ADDRESS: FIRST, SIX: SECOND}
    assert not pair_wishes(election, apart).wanted
    pair_wishes(election, {ADDRESS: FIRST, SIX: ""}, LATER + 1)
    back_ns = LATER + 1 + BACKUP_NS
    assert pair_wishes(election, {ADDRESS: FIRST, SIX: ""}, back_ns).wanted == {SIX}

    wishes = pair_wishes(election, apart, back_ns)

    assert (wishes.wanted, wishes.next_ns) == ({SIX}, back_ns + SHUN_NS)
    assert pair_wishes(election, apart, back_ns + SHUN_NS - 1).wanted == {SIX}
    assert not pair_wishes(election, apart, back_ns + SHUN_NS).wanted


def test_who_does_not_take_what_goes_with_the_lead_again_and_again_is_left_in_peace_for_longer_until_it_does():
    election, apart = Election(SECOND, START), {ADDRESS: FIRST, SIX: SECOND}
    now_ns, waits = LATER, []
    for takes in (False,) * 7 + (True, False):
        assert not pair_wishes(election, apart, now_ns).wanted
        pair_wishes(election, {ADDRESS: FIRST, SIX: ""}, now_ns + 1)
        if takes:
            pair_wishes(election, {ADDRESS: FIRST, SIX: FIRST}, now_ns + 2)
            now_ns += 2
            continue
        back_ns = now_ns + 1 + BACKUP_NS
        now_ns = pair_wishes(election, apart, back_ns).next_ns
        waits.append((now_ns - back_ns) / NS_PER_S)

    assert waits == [30, 60, 120, 240, 480, 600, 600, 30]


def test_nobody_is_blamed_where_the_lead_has_moved_on_meanwhile():
    election = Election(SECOND, START)
    pair_wishes(election, {ADDRESS: FIRST, SIX: SECOND})
    pair_wishes(election, {ADDRESS: THIRD, SIX: ""}, LATER + 1)
    pair_wishes(election, {ADDRESS: THIRD, SIX: THIRD}, LATER + 2)

    assert not pair_wishes(election, {ADDRESS: FIRST, SIX: SECOND}, LATER + 3).wanted, "given to the first again"


def test_only_some_are_given_up_before_others_have_been_taken():
    vips = {**VIPS, **{SIX + n: Vip(SIX + n, ELECT, lead=ADDRESS) for n in range(2 * FOLLOW_AT_ONCE)}}
    holders = {address: SECOND if address.version == 6 else FIRST for address in vips}
    election = Election(SECOND, START)

    kept = pair_wishes(election, holders, vips=vips).wanted
    assert len(kept) == FOLLOW_AT_ONCE
    taken = {address: holder if address in kept else FIRST for address, holder in holders.items()}
    pair_wishes(election, taken, LATER + 1, vips=vips)
    assert not pair_wishes(election, taken, LATER + 2, vips=vips).wanted


def test_pair_is_for_nodes_with_both_families_where_there_are_any():
    holders = dict.fromkeys(PAIR, FIRST)
    only4 = {"links": (("eth0", LAN),)}

    assert pair_wanted(FIRST, holders, **{FIRST: only4}) == set()
    assert pair_wanted(SECOND, dict.fromkeys(PAIR, ""), **{FIRST: only4}) == {ADDRESS, SIX}


def test_cordoned_node_that_has_both_families_goes_before_two_nodes_with_one_each():
    changes = {
        FIRST: {"links": (("eth0", LAN),)},
        SECOND: {"links": (("eth0", LAN6),)},
        THIRD: {"cordoned": True},
    }

    assert pair_wanted(THIRD, dict.fromkeys(PAIR, ""), **changes) == {ADDRESS, SIX}


def test_where_no_node_has_both_each_is_elected_by_itself_and_that_is_told():
    changes = {name: {"links": (("eth0", LAN6 if name == FIRST else LAN),)} for name in NAMES}
    free = dict.fromkeys(PAIR, "")

    wishes = pair_wishes(Election(FIRST, START), free, **changes)

    assert (wishes.wanted, wishes.apart, wishes.nobody) == ({SIX}, {SIX}, frozenset())
    assert pair_wanted(SECOND, free, **changes) == {ADDRESS}


def test_address_that_nobody_may_own_is_not_called_apart():
    changes = {name: {"links": (("eth0", LAN),)} for name in NAMES}
    vips = {**PAIR, SIX: replace(PAIR[SIX], nodes=frozenset())}

    wishes = pair_wishes(Election(FIRST, START), dict.fromkeys(PAIR, ""), vips=vips, **changes)

    assert (wishes.wanted, wishes.apart, wishes.nobody) == ({ADDRESS}, frozenset(), {SIX})


@pytest.mark.parametrize("change", ["settings", "gone"])
def test_address_that_no_longer_goes_with_a_lead_is_not_called_apart(change):
    """Some node may own both, or there is nothing to own with it."""
    strange = Vip(SIX + 1, ELECT, lead=ADDRESS, nodes=frozenset({SECOND}), unfenced=change == "settings")
    pinned = PAIR | {SIX: replace(PAIR[SIX], nodes=frozenset({FIRST}))}
    election, free = Election(FIRST, START), dict.fromkeys(pinned, "")
    before = pair_wishes(election, free, vips=pinned | {strange.address: strange}).apart
    without = {address: vip for address, vip in pinned.items() if address != ADDRESS}

    assert before == (set() if change == "settings" else {strange.address})
    assert pair_wishes(election, free, vips=without | {strange.address: strange}).apart == set()


@pytest.mark.parametrize(
    "lead", [{}, {ADDRESS: Vip(ADDRESS, Owner(OwnerKind.NODE, node=FIRST))}], ids=["gone", "static"]
)
def test_lead_that_is_not_elected_leads_nobody(lead):
    first = ranked(str(SIX), NAMES)[0]

    assert pair_wanted(first, {SIX: ""}, vips={**lead, SIX: PAIR[SIX]}) == {SIX}


def test_service_that_loses_its_second_family_leaves_the_first_where_it_is():
    election = Election(THIRD, START)
    holders = dict.fromkeys(PAIR, THIRD)
    pair_wishes(election, holders)

    assert pair_wishes(election, holders, vips={SIX: replace(PAIR[SIX], lead=None)}).wanted == {SIX}


def test_pair_counts_as_one_for_balance():
    """Four pairs here and four single VIPs there are balanced, though all of them are preferred there."""
    leads = [each for each in (ADDRESS + n for n in range(200)) if ranked(str(each), NAMES)[0] == SECOND][:8]
    vips = {lead: Vip(lead, ELECT) for lead in leads}
    vips |= {SIX + n: Vip(SIX + n, ELECT, lead=lead) for n, lead in enumerate(leads[:4])}
    singles = leads[4:]
    holders = {address: SECOND if address in singles else FIRST for address in vips}
    election = Election(FIRST, START)
    pair_wishes(election, holders, vips=vips)

    assert pair_wishes(election, holders, QUIET, vips=vips).wanted == vips.keys() - set(singles)
    fewer = {address: vip for address, vip in vips.items() if address not in singles[2:]}
    kept = pair_wishes(election, holders, QUIET + BATCH_NS, vips=fewer).wanted
    assert len(vips.keys() - set(singles) - kept) == 1, "the lead alone: what goes with it goes after it"


def test_what_takes_long_is_done_in_steps_and_comes_to_the_same():
    """One for each VIP that is new, or whose nodes are others, and one for all groups and all pools; none where all is
    as it was.
    """
    at_once, in_steps = Election(SECOND, START), Election(SECOND, START)
    fewer = members(**{FIRST: {"alive": False}})

    first, again = 2 + len(MANY), 1 + len(MANY)
    for now_ns, present, steps in ((LATER, members(), first), (QUIET, fewer, again), (QUIET + 1, fewer, 0)):
        assert len(list(in_steps.sit_down(MANY, present, now_ns))) == steps
        assert not list(in_steps.sit_down(MANY, present, now_ns))
        asked = MANY, present, {}, now_ns
        assert wishes_of(in_steps, *asked) == wishes_of(at_once, *asked)


def test_what_changes_of_a_node_that_may_own_nothing_takes_no_step():
    election, unready = Election(SECOND, START), {THIRD: {"ready": False}}
    list(election.sit_down(MANY, members(**unready), LATER))

    assert not list(election.sit_down(MANY, members(**{THIRD: {"ready": False, "cordoned": True}}), LATER))


def test_who_may_own_a_group_is_found_out_once(monkeypatch):
    """A Service may have a thousand addresses."""
    vips = {**VIPS, **{SIX + n: Vip(SIX + n, ELECT, lead=ADDRESS) for n in range(1000)}}
    looked_up = []
    subnets = Pools.subnets
    monkeypatch.setattr(Pools, "subnets", lambda pools, vip: looked_up.append(vip) or subnets(pools, vip))

    wishes = pair_wishes(Election(FIRST, START), dict.fromkeys(vips, ""), vips=vips)

    assert wishes.wanted == vips.keys()
    assert len(looked_up) < 2 * len(vips)


def test_members_that_come_and_go_leave_nothing_behind():
    election = Election(FIRST, START)
    pools = set()
    for number in range(50):
        wishes_of(election, VIPS, members(**{THIRD: {"cordoned": number % 2 == 0}}), {}, LATER + number)
        pools.add(ref(election._seats[ADDRESS].pool))

    assert [pool() for pool in pools if pool() is not None] == [election._seats[ADDRESS].pool]


# ---- why ----


def why(me, holders, now_ns=LATER, vips=VIPS, **changes):
    return wishes_of(Election(me, START), vips, members(**changes), holders, now_ns).why


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ready": False}, "its Node is not ready"),
        ({"excluded": True}, "excluded by the label node.kubernetes.io/exclude-from-external-load-balancers"),
        ({"links": ()}, f"its link with {LAN} is down or missing"),
        ({"cordoned": True}, "cordoned, and another node is available"),
    ],
    ids=str,
)
def test_why_a_node_gives_a_vip_up_and_another_waits_for_it(change, said):
    assert why(FIRST, {ADDRESS: FIRST}, **{FIRST: change}) == {ADDRESS: said}
    assert why(SECOND, {ADDRESS: FIRST}, **{FIRST: change}) == {ADDRESS: f"{FIRST} cannot own the VIP: {said}"}


def test_why_a_node_gives_a_vip_up_that_no_node_may_own():
    nobody = {name: {"ready": False} for name in NAMES}

    assert why(FIRST, {ADDRESS: FIRST}, **nobody) == {ADDRESS: "its Node is not ready"}


def test_no_word_about_what_stays_and_what_others_take():
    assert why(FIRST, {ADDRESS: FIRST}) == {}
    assert why(THIRD, {ADDRESS: ""}) == {}


def test_why_a_node_takes_a_free_vip():
    assert why(FIRST, {ADDRESS: ""}) == {ADDRESS: "no node has it; this node is its first choice"}


def test_why_the_second_choice_takes_a_free_vip():
    election = Election(SECOND, START)
    wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER)

    wishes = wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER + BACKUP_NS)

    assert wishes.why == {ADDRESS: f"no node has it; the VIP's first choice, {FIRST}, has not taken it"}


SILENT = "its agent has not renewed its lease in time"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"alive": False}, f"{FIRST} cannot own the VIP: {SILENT}; this node is its first choice"),
        ({}, f"{FIRST} no longer has it; the VIP's first choice, {FIRST}, has not taken it"),
    ],
    ids=["silent", "handed over"],
)
def test_why_a_node_takes_what_another_one_had(change, said):
    election = Election(SECOND, START)
    wishes_of(election, VIPS, members(), {ADDRESS: FIRST}, LATER)
    wishes_of(election, VIPS, members(**{FIRST: change}), {ADDRESS: ""}, LATER)

    wishes = wishes_of(election, VIPS, members(**{FIRST: change}), {ADDRESS: ""}, LATER + BACKUP_NS)

    assert wishes.why == {ADDRESS: said}


def test_why_a_node_takes_what_a_node_had_that_is_gone():
    election = Election(FIRST, START)
    wishes_of(election, VIPS, members(), {ADDRESS: "other"}, LATER)

    wishes = wishes_of(election, VIPS, members(), {ADDRESS: ""}, LATER)

    assert wishes.why == {ADDRESS: "other cannot own the VIP: no Node has that name; this node is its first choice"}


def test_why_a_vip_moves_for_balance():
    election, holders = Election(FIRST, START), one_has_all()
    wishes_of(election, MANY, members(), holders, LATER)

    wishes = wishes_of(election, MANY, members(), holders, QUIET)

    assert wishes.why.keys() == MANY.keys() - wishes.wanted
    assert {said.split(" ", 1)[1] for said in wishes.why.values()} == {
        "is the VIP's first choice, and owns at least 2 fewer VIPs than this node"
    }


def test_why_an_address_goes_with_its_lead():
    apart = {ADDRESS: FIRST, SIX: SECOND}

    assert pair_wishes(Election(SECOND, START), apart).why == {
        SIX: f"{FIRST} owns {ADDRESS}, which must have the same owner"
    }
    assert pair_wishes(Election(FIRST, START), apart | {SIX: ""}).why == {
        SIX: f"no node has it; it must have the same owner as {ADDRESS}"
    }


def test_why_a_node_gives_one_address_up_for_the_other_family():
    why = pair_wishes(Election(FIRST, START), dict.fromkeys(PAIR, FIRST), **{FIRST: {"links": (("eth0", LAN),)}}).why

    said = f"its link with {LAN6} is down or missing"
    assert why == {ADDRESS: f"{SIX}, which must have the same owner, cannot go to this node: {said}", SIX: said}
