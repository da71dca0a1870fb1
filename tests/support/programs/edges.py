"""What only programs in user space show: the nanosecond at which a fence passes, and what a frame costs."""

from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_network

from arpguard.addresses import Address
from arpguard.model import Grants, NodeControl, VipEntry
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.ethernet import VlanTag
from arpguard.wire.ndp import solicited_node
from support.frames.builders import (
    EPOCH,
    HOUR_NS,
    NEIGHBOUR_IP,
    OTHER_VIP,
    TESTER,
    TESTER_IP,
    VIP,
    a_control,
    a_packet,
    an_arp_reply,
    an_arp_request,
    an_entry,
    patched,
    the_answer,
)
from support.frames.nd_builders import (
    HOP_BY_HOP,
    NEIGHBOUR_IP6,
    OPTIONS,
    OTHER_VIP6,
    PAYLOAD_LEN,
    PRIMARY_IP6,
    VIP6,
    a_header,
    a_solicitation,
    an_entry6,
    an_ns,
    nd_frame,
    nonce,
    slla,
)
from support.frames.vouch_builders import TERM, a_grant, a_vouching_control, sealed
from support.programs.prog_run import DROPPED, INGRESS, one_count, passed, sent_back
from support.programs.user_space import UserPlane

NOW_NS = 5 * HOUR_NS
LEASE_NS = HOUR_NS
ANSWERED = sent_back(the_answer(a_packet()))

# name -> (how far ahead the fence is, what becomes of a request)
FENCES = {
    "passed": (-1, DROPPED),
    "passes": (0, DROPPED),
    "is_ahead": (1, ANSWERED),
    "is_as_far_as_the_lease": (LEASE_NS, ANSWERED),
    "is_further": (LEASE_NS + 1, DROPPED),
}


def check_fence(plane: UserPlane, ahead_ns: int, expected: object) -> None:
    plane.set({VIP: an_entry()}, a_control(fence_ns=NOW_NS + ahead_ns, lease_ns=LEASE_NS), NOW_NS)
    assert plane.run(Hook.TC_INGRESS, an_arp_request()) == expected


WINDOW_NS = 7_000
BOUND = Grants(0, TERM.number, WINDOW_NS)

# The same of the voucher's fence.
VOUCHERS_FENCES = {
    "voucher_passed": (-1, DROPPED),
    "voucher_passes": (0, DROPPED),
    "voucher_is_ahead": (1, ANSWERED),
    "voucher_is_as_far_as_the_window": (WINDOW_NS, ANSWERED),
    "voucher_is_further": (WINDOW_NS + 1, DROPPED),
}


def check_vouchers_fence(plane: UserPlane, ahead_ns: int, expected: object) -> None:
    grants = replace(BOUND, fence_ns=NOW_NS + ahead_ns)
    plane.set({VIP: an_entry()}, _vouched_for(), NOW_NS, grants=grants)
    assert plane.run(Hook.TC_INGRESS, an_arp_request()) == expected


# name -> (how far ahead the voucher's fence is, and the stamp of a grant, and then the fence; None: that is no grant)
GRANTED = {
    "stamp_of_now": (-1, 0, WINDOW_NS),
    "stamp_of_the_next_nanosecond": (-1, 1, None),
    "stamp_of_old": (-1, -WINDOW_NS, 0),
    "first_stamp": (-1, 1 - NOW_NS, -1),
    "later_fence_stays": (5, 4 - WINDOW_NS, 5),
    "earlier_fence_does_not": (5, 6 - WINDOW_NS, 6),
    "furthest_fence_stays": (WINDOW_NS, -1, WINDOW_NS),
    "fence_too_far_does_not": (WINDOW_NS + 1, -1, WINDOW_NS - 1),
}
# The same where the fence is of a term before: it goes, also when it is later.
GRANTED_ANEW = {"fence_of_the_old_term_goes": (5, 4 - WINDOW_NS, 4)}


def check_grant(
    plane: UserPlane, ahead_ns: int, stamp_ns: int, then_ns: int | None, bound_term: int = TERM.number
) -> None:
    term = replace(TERM, window_ns=WINDOW_NS)
    before = replace(BOUND, fence_ns=NOW_NS + ahead_ns, bound_term=bound_term)
    frame = sealed(a_grant(NOW_NS + stamp_ns))
    for hook in INGRESS:
        plane.set({}, _vouched_for(), NOW_NS, term=term, grants=before)
        outcome = plane.run(hook, frame)
        assert outcome == (passed(frame) if then_ns is None else DROPPED)
        bound = before if then_ns is None else replace(BOUND, fence_ns=NOW_NS + then_ns)
        assert plane.grants == bound


def _vouched_for() -> NodeControl:
    return a_vouching_control(fence_ns=NOW_NS + HOUR_NS)


@dataclass(frozen=True)
class Cost:
    """Of a frame, with these maps: lookups of entries and ranges, and readings of the clock; `closed`: _RANGE is."""

    entry: VipEntry
    frame: bytes
    lookups: int
    clock: int
    control: NodeControl
    hook: Hook = Hook.TC_INGRESS
    closed: bool = False


def _control(first: str, last: str, **changes) -> NodeControl:
    return a_control(vips4=(IPv4Address(first), IPv4Address(last)), **changes)


_ONE = _control(str(VIP), str(VIP))
_ALL = a_control(strictest6=Mode.ENFORCE)
_STATIC = an_entry(epoch=0, unfenced=True)
_UNKNOWN = an_arp_request(tpa=OTHER_VIP)
_CLAIM = an_arp_reply(spa=OTHER_VIP)
_ONE_AND_ANOTHER = _control(str(VIP), str(OTHER_VIP))
_RANGE = ip_network("192.0.2.96/28")
_OF_NO_EPOCH = _control(str(VIP), str(VIP), epoch=0)
COSTS = {
    "fenced": Cost(an_entry(), an_arp_request(), 1, 1, _ONE),
    "fenced_outgoing": Cost(an_entry(), an_arp_request(spa=VIP, tpa=NEIGHBOUR_IP), 1, 1, _ONE, Hook.TC_EGRESS),
    "held": Cost(an_entry(unfenced=True), an_arp_request(), 1, 0, _ONE),
    "static": Cost(_STATIC, an_arp_request(), 1, 0, _ONE),
    "static_and_no_epoch": Cost(_STATIC, an_arp_request(), 1, 0, _OF_NO_EPOCH),
    "stale": Cost(an_entry(epoch=EPOCH - 1), an_arp_request(), 1, 0, _ONE),
    "foreign": Cost(an_entry(Kind.FOREIGN), an_arp_request(), 1, 0, _ONE),
    "all_addresses_are_in_the_range": Cost(an_entry(), an_arp_request(tpa=NEIGHBOUR_IP), 2, 0, a_control()),
    "first_of_the_range": Cost(an_entry(), an_arp_request(), 1, 1, _control(str(VIP), "192.0.2.200")),
    "last_of_the_range": Cost(an_entry(), an_arp_request(), 1, 1, _control("192.0.2.90", str(VIP))),
    "below_the_range": Cost(an_entry(), an_arp_request(), 0, 0, _control("192.0.2.101", "192.0.2.200")),
    "above_the_range": Cost(an_entry(), an_arp_request(), 0, 0, _control("192.0.2.90", "192.0.2.99")),
    "probe_claims_nothing": Cost(an_entry(), an_arp_request(spa=IPv4Address(0)), 1, 1, a_control()),
    "solicitation": Cost(an_entry6(), an_ns(), 3, 1, _ALL),
    "solicitation_for_another": Cost(an_entry6(), an_ns(target=NEIGHBOUR_IP6), 2, 0, _ALL),
    "no_entry_of_the_family": Cost(an_entry6(), an_ns(), 0, 0, a_control()),
    "nothing_closed": Cost(an_entry(), _UNKNOWN, 1, 0, _ONE_AND_ANOTHER),
    "closed": Cost(an_entry(), _UNKNOWN, 2, 0, replace(_ONE_AND_ANOTHER, closed=True), closed=True),
    "not_in_the_closed_range": Cost(an_entry(), _UNKNOWN, 2, 0, replace(_ONE_AND_ANOTHER, closed=True)),
    "vip_in_the_closed_range": Cost(an_entry(), an_arp_request(), 1, 1, replace(_ONE, closed=True), closed=True),
    "outside_of_all_ranges": Cost(an_entry(), _UNKNOWN, 0, 0, replace(_ONE, closed=True), closed=True),
    "claim_in_the_closed_range": Cost(an_entry(), _CLAIM, 1, 0, replace(_ONE_AND_ANOTHER, closed=True), closed=True),
}


def check_cost(plane: UserPlane, cost: Cost) -> None:
    vip = VIP6 if cost.entry.primary is not None and cost.entry.primary.version == 6 else VIP
    plane.set({vip: cost.entry}, cost.control, ranges={_RANGE: an_entry(Kind.CLOSED)} if cost.closed else {})
    assert plane.cost(cost.hook, cost.frame) == (cost.lookups, cost.clock)


_FIFTH_VERSION, _SEVENTH_VERSION = (patched(an_ns(), 14, octet) for octet in (b"\x50", b"\x70"))
_TOO_LONG = nd_frame(a_solicitation(dst=VIP6, options=(nonce(bytes(62 * 8 - 2)),)))  # a message of 520 bytes
_JUMBOGRAM = patched(an_ns(headers=[a_header(HOP_BY_HOP)]), PAYLOAD_LEN, bytes(2))  # Linux takes it for one


@dataclass(frozen=True)
class Shape:
    """What becomes of a frame that is only just not strict, or no IPv6. `about`: the VIP; None: nothing is counted."""

    frame: bytes
    about: Address | None = None

    def check(self, plane: UserPlane) -> None:
        plane.set({VIP: an_entry(), VIP6: an_entry6()}, _ALL)
        counts = one_count(Reason.NOT_STRICT, vip=self.about) if self.about else {}
        assert plane.counted(Hook.TC_INGRESS, self.frame) == (DROPPED if self.about else passed(self.frame), counts)


SHAPES = {
    "two_tags": Shape(an_arp_request(tags=(VlanTag(0), VlanTag(0)), spa=TESTER_IP), VIP),
    "two_tags_of_a_solicitation": Shape(an_ns(tags=(VlanTag(0), VlanTag(0))), VIP6),
    "longer_than_is_read": Shape(_TOO_LONG, VIP6),
    "hop_by_hop_and_no_payload_length": Shape(_JUMBOGRAM, VIP6),
    "to_the_group_without_an_address": Shape(nd_frame(a_solicitation(options=())), VIP6),
    "to_the_group_of_another": Shape(nd_frame(a_solicitation(dst=solicited_node(OTHER_VIP6))), VIP6),
    "fifth_version": Shape(_FIFTH_VERSION),
    "seventh_version": Shape(_SEVENTH_VERSION),
}


_FOREIGN = an_entry6(Kind.FOREIGN)
_ITS_OWN = nd_frame(
    a_solicitation(src=VIP6, target=NEIGHBOUR_IP6, options=(nonce(), slla(TESTER))), src=_FOREIGN.link_mac
)
_OF_NO_LENGTH = patched(_ITS_OWN, OPTIONS + 1, b"\0")


def check_option_of_no_length(plane: UserPlane) -> None:
    """The programs read no address after an option of length 0, so they still rewrite the node's own solicitation."""
    plane.set({VIP6: _FOREIGN}, _ALL)
    _, counts = plane.counted(Hook.TC_EGRESS, _OF_NO_LENGTH)
    assert counts == one_count(Reason.EGRESS_REWRITTEN, vip=VIP6)


# The address that is written in the place of the VIP -> by how much the checksum changes.
SUMS = {
    "highest_bit_of_the_difference_is_0": PRIMARY_IP6,
    "highest_bit_of_the_difference_is_1": IPv6Address("2001:db8::180"),
}


def check_sum(plane: UserPlane, primary: IPv6Address) -> None:
    """The programs take no difference for an error code, whatever its highest bit is."""
    its_own, rewritten = (nd_frame(a_solicitation(src=src, target=NEIGHBOUR_IP6)) for src in (VIP6, primary))
    plane.set({VIP6: an_entry6(Kind.FOREIGN, primary=primary, link_mac=TESTER)}, _ALL)
    assert plane.run(Hook.TC_EGRESS, its_own) == passed(rewritten)


def first_wrong_edge(plane: UserPlane) -> str | None:
    """The name of what is wrong first."""
    checks = [(name, check_fence, case) for name, case in FENCES.items()]
    checks += [(name, check_vouchers_fence, case) for name, case in VOUCHERS_FENCES.items()]
    checks += [(name, check_grant, case) for name, case in GRANTED.items()]
    checks += [(name, check_grant, (*case, TERM.number - 1)) for name, case in GRANTED_ANEW.items()]
    checks += [(name, check_cost, (cost,)) for name, cost in COSTS.items()]
    checks += [(name, shape.check, ()) for name, shape in SHAPES.items()]
    checks += [(name, check_sum, (primary,)) for name, primary in SUMS.items()]
    checks += [("option_of_no_length", check_option_of_no_length, ())]
    for name, check, arguments in checks:
        try:
            check(plane, *arguments)
        except AssertionError:
            return name
    return None
