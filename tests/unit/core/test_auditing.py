"""Which node asks the wire for which VIP, when, and what the answers mean."""

from collections import Counter
from ipaddress import ip_address, ip_network
from itertools import islice, pairwise

import pytest

from arpguard.addresses import ZERO_MAC, MacAddress
from arpguard.core.auditing import (
    AGAIN_NS,
    CONFIRMATIONS,
    MAX_PROBLEMS,
    AuditBook,
    Audited,
    AuditFinding,
    Auditors,
    Expected,
    Walk,
    expected_of,
    judge,
    replied,
)
from arpguard.core.claimants import OUTSIDE, Claimant, ClaimantKind
from arpguard.core.conflicts import GRACE_NS, KnownOwner
from arpguard.core.decisions import ConflictLog, Report
from arpguard.core.members import Member
from arpguard.model import EntryKey, Link, Owner, OwnerKind, Vip, VipEntry
from arpguard.units import NS_PER_S
from arpguard.verdict import Kind, Mode, Reason, Verdict

NETWORK, OTHER = ip_network("192.0.2.0/24"), ip_network("198.51.100.0/24")
VIP, VIP6 = ip_address("192.0.2.50"), ip_address("2001:db8::50")
KEY = EntryKey(2, VIP)
M, STRANGER, ROUTER = map(MacAddress.parse, ("02:00:00:00:00:01", "02:00:00:00:00:99", "00:00:5e:00:01:07"))
N1, N2 = Claimant(ClaimantKind.CLUSTER_NODE, "n1"), Claimant(ClaimantKind.CLUSTER_NODE, "n2")
VRRP = Claimant(ClaimantKind.VRRP_ROUTER, router=7)
ROUND_NS = 60 * NS_PER_S


def a_member(name: str, *networks, **changes) -> Member:
    return Member(name, links=tuple(("eth0", network) for network in networks or (NETWORK,)), **changes)


# ---- whose turn it is --------------------------------------------------------------------------------------------


def keys(count: int, ifindex: int = 2) -> list[EntryKey]:
    return [EntryKey(ifindex, VIP + number) for number in range(count)]


def walked(walk: Walk, vips: list[EntryKey], seconds: int, start: int = 0) -> list[tuple[int, EntryKey]]:
    """Each VIP whose turn came, and in which second."""
    return [
        (second, key)
        for second in range(start + 1, start + seconds + 1)
        for key in walk.due(vips, ROUND_NS, second * NS_PER_S)
    ]


@pytest.mark.parametrize("count", [1, 7, 60, 150])
def test_all_vips_have_their_turn_once_in_a_round_at_an_even_pace(count):
    turns = walked(Walk(0), keys(count), 180)

    assert set(Counter(key for _, key in turns).values()) <= {2, 3}
    assert abs(len(turns) - 3 * count) <= 1
    assert max(Counter(second for second, _ in turns).values()) <= count // 60 + 1
    assert max(after - before for (before, _), (after, _) in pairwise(turns)) <= 60 // count + 1


def test_walk_goes_on_where_it_was_when_vips_come_and_go():
    walk = Walk(0)
    first = [key for _, key in walked(walk, keys(60), 10)]
    rest = [key for key in keys(60) if key not in first[5:]]

    assert next(key for _, key in walked(walk, rest, 10, start=10)) == keys(60)[10]


def test_walk_goes_on_where_it_was_left_early():
    walk = Walk(0)
    assert len(list(islice(walk.due(keys(600), ROUND_NS, 2 * NS_PER_S), 5))) == 5
    assert next(walk.due(keys(600), ROUND_NS, 2 * NS_PER_S)) == keys(600)[5]


def test_long_pause_is_not_made_up_for():
    assert len(list(Walk(0).due(keys(600), ROUND_NS, 3600 * NS_PER_S))) == 30


def test_without_vips_nobody_has_a_turn():
    assert walked(Walk(0), [], 10) == []


# ---- who asks ----------------------------------------------------------------------------------------------------


def auditors(vip, members, owner="", interface="") -> list[str]:
    return [member.name for member in members if Auditors(member.name, members).is_mine(vip, interface, owner)]


def test_one_node_that_does_not_own_a_vip_asks_for_it_and_all_do_their_share():
    members = [a_member(f"n{number}") for number in range(5)]
    shares: Counter[str] = Counter()
    for number in range(200):
        (name,) = auditors(VIP + number % 200, members, owner="n3")
        shares[name] += 1

    assert "n3" not in shares
    assert len(shares) == 4
    assert min(shares.values()) > 25


def test_owner_that_is_alone_asks_itself():
    assert auditors(VIP, [a_member("n1")], owner="n1") == ["n1"]
    assert auditors(VIP, [a_member("n1"), a_member("n2", OTHER)], owner="n1") == ["n1"]


def test_nodes_without_a_link_in_the_subnet_or_of_that_name_do_not_ask():
    members = [a_member("n1"), a_member("n2", OTHER)]

    assert auditors(VIP, members) == ["n1"]
    assert auditors(ip_address("203.0.113.1"), members) == []
    assert auditors(VIP, members, interface="eth1") == []


def test_node_that_is_not_heard_of_does_not_ask_but_each_hears_itself():
    members = [a_member("n1", alive=False), a_member("n2")]

    assert all(Auditors("n2", members).is_mine(VIP + number, "", "") for number in range(20))
    assert {Auditors("n1", members).is_mine(VIP + number, "", "") for number in range(20)} == {True, False}


def test_without_a_cluster_each_node_asks_and_before_the_nodes_are_known_none_does():
    assert Auditors("n1", None).is_mine(VIP, "", "")
    assert not Auditors("n1", ()).is_mine(VIP, "", "")


def test_vips_of_one_subnet_share_what_was_worked_out():
    found = Auditors("n1", [a_member("n1")])
    for number in range(10):
        found.is_mine(VIP + number, "", "")

    assert len(found._pools) == 1


# ---- what the answers mean ---------------------------------------------------------------------------------------

ELSEWHERE = Expected("n1", M)


@pytest.mark.parametrize(
    ("expected", "heard", "finding", "right"),
    [
        (ELSEWHERE, {M: OUTSIDE}, AuditFinding.OWNER, True),
        (ELSEWHERE, {STRANGER: N1}, AuditFinding.OWNER, True),
        (ELSEWHERE, {}, AuditFinding.NONE, False),
        (ELSEWHERE, {STRANGER: OUTSIDE}, AuditFinding.ANOTHER, False),
        (ELSEWHERE, {STRANGER: N2}, AuditFinding.ANOTHER, False),
        (ELSEWHERE, {M: N1, STRANGER: OUTSIDE}, AuditFinding.SEVERAL, False),
        (ELSEWHERE, {M: N1, STRANGER: N1}, AuditFinding.SEVERAL, False),
        (ELSEWHERE, {ROUTER: VRRP}, AuditFinding.ANOTHER, False),
        (Expected("n1", delegated=True), {ROUTER: VRRP}, AuditFinding.OWNER, True),
        (Expected("n1", is_sure=False), {STRANGER: OUTSIDE}, AuditFinding.OWNER, True),
        (Expected("n1", is_sure=False), {M: OUTSIDE, STRANGER: OUTSIDE}, AuditFinding.SEVERAL, False),
        (Expected("n1"), {ZERO_MAC: OUTSIDE}, AuditFinding.ANOTHER, False),
        (Expected(outside=True), {STRANGER: OUTSIDE}, AuditFinding.OWNER, True),
        (Expected(outside=True), {ROUTER: VRRP}, AuditFinding.OWNER, True),
        (Expected(outside=True), {M: N1}, AuditFinding.ANOTHER, False),
        (Expected(outside=True), {}, AuditFinding.NONE, False),
        (Expected(outside=True, mac=M), {M: OUTSIDE}, AuditFinding.OWNER, True),
        (Expected(outside=True, mac=M), {STRANGER: OUTSIDE}, AuditFinding.ANOTHER, False),
        (Expected(may_be_silent=True, is_sure=False), {}, AuditFinding.NONE, True),
        (Expected("n1", here=True), {}, AuditFinding.OWNER, True),
        (Expected("n1", here=True), {M: N1}, AuditFinding.OWNER, True),
        (Expected("n1", here=True), {STRANGER: OUTSIDE}, AuditFinding.SEVERAL, False),
    ],
    ids=str,
)
def test_what_answers_mean(expected, heard, finding, right):
    found = judge(KEY, "eth0", expected, heard, 7)

    assert (found.finding, found.is_right) == (finding, right)
    assert found.asked_ns == 7


def test_answers_are_counted_with_the_asking_nodes_own():
    assert judge(KEY, "eth0", ELSEWHERE, {M: N1, STRANGER: OUTSIDE}, 0).macs == 2
    assert judge(KEY, "eth0", ELSEWHERE, {}, 0).macs == 0
    assert judge(KEY, "eth0", Expected("n1", here=True), {M: N1}, 0).macs == 1
    assert judge(KEY, "eth0", Expected("n1", here=True), {STRANGER: OUTSIDE}, 0).macs == 2


ELECTED = Vip(VIP, Owner(OwnerKind.ELECT))
NAMED = Vip(VIP, Owner(OwnerKind.NODE, "n2"))
OWNED_BY_N2 = KnownOwner("n2")


@pytest.mark.parametrize(
    ("entry", "vip", "owner", "expected"),
    [
        (VipEntry(Kind.OWNED), NAMED, OWNED_BY_N2, Expected("n1", here=True)),
        (VipEntry(Kind.OWNED, epoch=1), ELECTED, KnownOwner("n1", is_here=True), Expected("n1", here=True)),
        # Cut off from the API server: another node may have taken the VIP.
        (VipEntry(Kind.OWNED, epoch=1), ELECTED, KnownOwner(""), Expected(may_be_silent=True, is_sure=False)),
        (VipEntry(Kind.OWNED, epoch=1, unfenced=True), ELECTED, KnownOwner(""), Expected("n1", here=True)),
        (VipEntry(Kind.DELEGATED), NAMED, OWNED_BY_N2, Expected("n1", here=True, delegated=True)),
        (VipEntry(Kind.EXTERNAL, owner_mac=M), None, KnownOwner(""), Expected(mac=M, outside=True)),
        (VipEntry(Kind.FOREIGN, owner_mac=M), NAMED, OWNED_BY_N2, Expected("n2", M)),
        (VipEntry(Kind.FOREIGN), NAMED, OWNED_BY_N2, Expected("n2")),
        (VipEntry(Kind.FOREIGN), None, KnownOwner("n9"), Expected("n9", is_sure=False)),
        (VipEntry(Kind.FOREIGN, owner_mac=M), None, KnownOwner("n9"), Expected("n9", M)),
        (VipEntry(Kind.FOREIGN), NAMED, KnownOwner("n1"), Expected("n1", may_be_silent=True)),
        (VipEntry(Kind.UNCLAIMED), NAMED, KnownOwner(""), Expected(may_be_silent=True, is_sure=False)),
        (
            VipEntry(Kind.FOREIGN),
            NAMED,
            KnownOwner("n2", is_sure=False),
            Expected(may_be_silent=True, is_sure=False),
        ),
        (
            VipEntry(Kind.FOREIGN),
            Vip(VIP, Owner(OwnerKind.NODE, "n2", delegated=True)),
            OWNED_BY_N2,
            Expected("n2", delegated=True),
        ),
        (
            VipEntry(Kind.FOREIGN),
            Vip(VIP, Owner(OwnerKind.FOLLOW, "n2")),
            OWNED_BY_N2,
            Expected("n2", delegated=True),
        ),
    ],
    ids=str,
)
def test_who_is_to_answer(entry, vip, owner, expected):
    assert expected_of(entry, Mode.ENFORCE, vip, owner, "n1", {"n1", "n2"}) == expected


@pytest.mark.parametrize(
    ("own", "node", "may_be_silent"),
    [
        (Mode.INHERIT, Mode.OBSERVE, True),
        (Mode.INHERIT, Mode.ENFORCE, False),
        (Mode.OBSERVE, Mode.ENFORCE, True),
        (Mode.ENFORCE, Mode.OBSERVE, False),
    ],
    ids=str,
)
def test_owner_that_only_observes_may_be_silent_but_not_where_others_answer(own, node, may_be_silent):
    """Hosts outside and the programs that a VIP is delegated to answer in each mode."""

    def is_right(kind: Kind, vip: Vip) -> bool:
        expected = expected_of(VipEntry(kind, own, owner_mac=M), node, vip, OWNED_BY_N2, "n1", {"n2"})
        return judge(KEY, "eth0", expected, {}, 0).is_right

    delegated = Vip(VIP, Owner(OwnerKind.NODE, "n2", delegated=True))
    assert is_right(Kind.FOREIGN, NAMED) == may_be_silent
    assert not is_right(Kind.FOREIGN, delegated)
    assert not is_right(Kind.EXTERNAL, NAMED)


@pytest.mark.parametrize(
    ("expected", "who"),
    [(ELSEWHERE, "n1"), (Expected(), ""), (Expected(outside=True), "a host outside"), (Expected("", M, True), str(M))],
    ids=str,
)
def test_owner_in_words(expected, who):
    assert expected.who == who


# ---- what was found ----------------------------------------------------------------------------------------------


def a_finding(heard=None, vip=VIP, expected=ELSEWHERE, asked_ns=0, seen_ns=None) -> Audited:
    return judge(EntryKey(2, vip), "eth0", expected, {} if heard is None else heard, asked_ns, seen_ns)


RIGHT, SILENT = a_finding({M: N1}), a_finding()
STOLEN = {STRANGER: OUTSIDE}


def test_what_is_right_counts_at_once():
    book = AuditBook()
    book.note(RIGHT)

    assert list(book.found) == [KEY]
    assert book.again(AGAIN_NS) == []


def test_what_is_wrong_counts_when_several_questions_found_the_same():
    book = AuditBook()
    for number in range(1, CONFIRMATIONS):
        assert not book.note(a_finding(asked_ns=number)).is_known
        assert book.again(number + AGAIN_NS - 1) == []
        assert book.again(number + AGAIN_NS) == [KEY]
    assert (book.found, book.problems) == ({}, [])

    assert book.note(a_finding(asked_ns=9)).is_known
    assert book.again(9 + AGAIN_NS) == []
    assert book.wrong() == [book.found[KEY]]


@pytest.mark.parametrize(
    ("heard", "count"),
    [
        ({STRANGER: N2}, CONFIRMATIONS),
        ({M: N1, STRANGER: OUTSIDE}, 2),
        ({M: N1, ROUTER: VRRP}, 2),
        ({ROUTER: VRRP}, 2),
        ({M: N1, STRANGER: N2}, CONFIRMATIONS),
    ],
    ids=str,
)
def test_host_outside_cannot_be_the_next_owner_and_counts_sooner(heard, count):
    book = AuditBook()

    assert [book.note(a_finding(heard)).is_known for _ in range(count)] == [*[False] * (count - 1), True]


def test_stranger_that_answers_alone_may_be_the_owner_with_a_new_mac_until_its_lease_is_over():
    book = AuditBook()

    assert [book.note(a_finding(STOLEN)).is_known for _ in range(5)] == [*[False] * 4, True]
    assert 4 * AGAIN_NS > GRACE_NS


def test_host_outside_that_is_not_the_one_that_owns_a_vip_counts_after_two_questions():
    book, outside = AuditBook(), Expected(mac=M, outside=True)

    assert [book.note(a_finding(STOLEN, expected=outside)).is_known for _ in range(2)] == [False, True]


def test_question_adds_up_only_if_the_watch_has_shown_who_owns_the_vip_since_the_last_one():
    book, times = AuditBook(), [(10, 9), (20, 10), (30, 19), (40, 29), (50, 40)]
    noted = [book.note(a_finding({M: N1, STRANGER: N2}, asked_ns=asked, seen_ns=seen)) for asked, seen in times]

    assert [(audited.count, audited.is_known) for audited in noted] == [
        (1, False),
        (2, False),
        (2, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    "other", [RIGHT, a_finding(STOLEN), a_finding(expected=Expected("n2", M))], ids=["right", "other hosts", "owner"]
)
def test_questions_that_find_different_things_do_not_add_up(other):
    book = AuditBook()
    for _ in range(5):
        book.note(SILENT)
        book.note(SILENT)
        book.note(other)

    assert book.wrong() == []


def test_what_is_known_stays_until_something_else_is():
    book = AuditBook()
    book.settle(SILENT)
    book.note(a_finding(STOLEN))
    assert book.found[KEY].finding is AuditFinding.NONE

    book.note(SILENT)
    assert [book.note(SILENT).is_known for _ in range(2)] == [False, True]
    book.note(RIGHT)
    assert (book.wrong(), book.found[KEY].finding) == ([], AuditFinding.OWNER)


def test_what_is_wrong_is_not_asked_for_again_and_again():
    book = AuditBook()
    book.settle(SILENT)

    assert book.note(a_finding(asked_ns=7)).is_known
    assert book.again(10**12) == []


def test_vips_that_are_others_to_ask_for_are_forgotten():
    book = AuditBook()
    book.settle(SILENT)
    book.note(a_finding(STOLEN, vip=VIP + 1))
    book.keep({EntryKey(2, VIP + 2)})

    assert (book.found, book.wrong(), book.again(10**12)) == ({}, [], [])


def test_findings_are_counted_and_the_oldest_is_known():
    book = AuditBook()
    assert book.oldest_ns() is None
    book.note(a_finding({M: N1}, asked_ns=5))
    book.settle(a_finding(vip=VIP + 1, asked_ns=3))
    book.note(a_finding(vip=VIP + 2, expected=Expected(may_be_silent=True), asked_ns=4))

    assert +book.findings() == {AuditFinding.OWNER: 2, AuditFinding.NONE: 1}
    assert book.oldest_ns() == 3


def test_problems_name_each_host_and_each_silent_owner_once():
    book = AuditBook()
    for number in range(7):
        book.settle(a_finding(STOLEN | {M: N1}, vip=VIP + number))
    book.settle(a_finding({STRANGER: N2}, vip=VIP6))
    book.settle(a_finding(vip=VIP + 9))
    book.settle(a_finding({M: OUTSIDE, STRANGER: OUTSIDE}, vip=VIP + 8, expected=Expected("n1", is_sure=False)))

    first = "192.0.2.50, 192.0.2.51, 192.0.2.52, 192.0.2.53, 192.0.2.54 and 2 more"
    outside = f"{STRANGER} (a host outside the cluster)"
    assert book.problems == [
        f"audit: {outside} answers for {first}, and so does another host; see `arpguard audit`",
        f"audit: {M} answers for 192.0.2.58, and so does another host; see `arpguard audit`",
        f"audit: {STRANGER} answers for 192.0.2.58, and so does another host; see `arpguard audit`",
        "audit: no host answers for 192.0.2.59, although n1 should; see `arpguard explain`",
        f"audit: {STRANGER} (n2 (cluster node)) answers for 2001:db8::50, but the owner does not; see `arpguard audit`",
    ]


def test_problems_are_few_however_many_hosts_there_are():
    book = AuditBook()
    for number in range(100):
        book.settle(a_finding({MacAddress(b"\x02" + bytes(4) + bytes([number])): OUTSIDE}, vip=VIP + number))

    assert len(book.problems) == MAX_PROBLEMS + 1


def test_vip_in_no_subnet_is_a_problem_until_it_is_in_one_or_gone():
    book = AuditBook()
    for vip in (VIP6, VIP):
        book.place(vip, astray=True)
    (problem,) = book.problems
    assert problem.startswith("audit: 192.0.2.50, 2001:db8::50: in no guarded link's subnet, so no host ")
    book.place(VIP6, astray=False)
    assert "2001:db8::50" not in book.problems[0]
    book.keep(())
    assert book.problems == []


@pytest.mark.parametrize(
    ("vip", "found"), [("192.0.2.50", True), ("198.51.100.9", True), ("203.0.113.1", False), ("2001:db8::50", False)]
)
def test_vip_is_on_a_link_that_has_its_subnet(vip, found):
    links = [Link(2, "eth0", M, up=True, on_link=(NETWORK,)), Link(3, "eth1", M, up=False, on_link=(OTHER,))]

    assert any(link.reaches(ip_address(vip)) for link in links) is found


@pytest.mark.parametrize(("vip", "op"), [(VIP, 2), (VIP6, 136)], ids=["ARP", "neighbour discovery"])
def test_strangers_reply_is_listed_as_a_conflict(vip, op):
    entry = VipEntry(Kind.FOREIGN, Mode.ENFORCE, link_mac=M, owner_mac=M, primary=vip + 1)
    found = replied(EntryKey(2, vip), entry, Mode.OBSERVE, STRANGER, 7)

    assert (found.reason, found.verdict, found.mode, found.op) == (Reason.CONFLICT, Verdict.CONFLICT, Mode.ENFORCE, op)
    assert (found.spa, found.tpa, found.sha, found.tha, found.time_ns) == (vip, vip + 1, STRANGER, M, 7)


@pytest.mark.parametrize(
    ("entry", "mode", "dropped"),
    [
        (VipEntry(Kind.OWNED), Mode.ENFORCE, True),
        (VipEntry(Kind.OWNED), Mode.OBSERVE, False),
        (VipEntry(Kind.OWNED, Mode.OBSERVE), Mode.ENFORCE, False),
        (VipEntry(Kind.OWNED, Mode.ENFORCE), Mode.OBSERVE, True),
        (VipEntry(Kind.FOREIGN, owner_mac=M), Mode.ENFORCE, True),
        (VipEntry(Kind.FOREIGN), Mode.ENFORCE, False),
        (VipEntry(Kind.DELEGATED, owner_mac=M), Mode.ENFORCE, False),
    ],
    ids=str,
)
def test_strangers_reply_is_listed_as_dropped_where_the_kernel_drops_it(entry, mode, dropped):
    log = ConflictLog()
    log.add(Report(1, "eth0", replied(KEY, entry, mode, STRANGER, 7), 1, 7))

    assert [(claim.dropped, claim.is_certain) for claim in log.newest()] == [(dropped, True)]
