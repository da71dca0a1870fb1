"""The verdict table of docs/verdicts.md, cell by cell, in both families, at every hook and in every mode.

A cell says what is done in enforce mode, and the reason that is counted:
`!` answered, `-` dropped, `+` passes unchanged, `>` spa becomes the link's primary address,
`~` passes as the reply of the same meaning (a request for the VIP that must not reach a kernel that might answer it);
of neighbour discovery unchanged, which has a message of its own for that.
`=` hidden from this node's kernel; at XDP dropped.
In observe mode every cell passes, and the same reason is counted as observed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_network

from arpguard.addresses import BROADCAST_MAC, Address, MacAddress, Network
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.arp import ArpOp, ArpPacket
from arpguard.wire.ndp import ALL_NODES, NdFlag, NdMessage, solicited_node
from support.frames.builders import (
    EPOCH,
    GUARD,
    NEIGHBOUR_IP,
    NOBODY,
    OWNER,
    PRIMARY_IP,
    TESTER,
    THIRD,
    VIP,
    a_control,
    a_frame,
    a_packet,
    an_entry,
    the_answer,
)
from support.frames.nd_builders import (
    NEIGHBOUR_IP6,
    PRIMARY_IP6,
    TESTER_LINK_LOCAL,
    VIP6,
    a_dad_solicitation,
    a_solicitation,
    an_advertisement,
    na6,
    nd_frame,
    nonce,
    slla,
    tlla,
)
from support.frames.vouch_builders import TERM, some_grants
from support.programs.prog_run import (
    DROPPED,
    Outcome,
    Plane,
    assert_counted,
    assert_outcome,
    hidden,
    one_count,
    passed,
    sent_back,
)

INGRESS_TABLE = """
entry          | asks       | owner_claims  | owner_announces | stranger_claims   | stranger_announces
owned          | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
held           | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
static         | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
fenced         | -FENCED    | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
unvouched      | -UNVOUCHED | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
stale          | -STALE_EPOCH | -CONFLICT   | -CONFLICT       | -CONFLICT         | -CONFLICT
held_stale     | -STALE_EPOCH | -CONFLICT   | -CONFLICT       | -CONFLICT         | -CONFLICT
foreign        | -FOREIGN   | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM
foreign_known  | -FOREIGN   | +OWNER_CLAIM  | ~OWNER_CLAIM    | -CONFLICT         | -CONFLICT
external       | -EXTERNAL  | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM
pinned         | -EXTERNAL  | +OWNER_CLAIM  | ~OWNER_CLAIM    | -CONFLICT         | -CONFLICT
unclaimed      | -UNCLAIMED | +UNCLAIMED_CLAIM | ~UNCLAIMED_CLAIM | +UNCLAIMED_CLAIM | ~UNCLAIMED_CLAIM
delegated      | +DELEGATED | +DELEGATED_CLAIM | +DELEGATED_CLAIM | +DELEGATED_CLAIM | +DELEGATED_CLAIM
none           | +NOT_GUARDED | +NOT_GUARDED | +NOT_GUARDED   | +NOT_GUARDED      | +NOT_GUARDED
closed         | =UNKNOWN   | +NOT_GUARDED  | +NOT_GUARDED    | +NOT_GUARDED      | +NOT_GUARDED
open           | +NOT_GUARDED | +NOT_GUARDED | +NOT_GUARDED   | +NOT_GUARDED      | +NOT_GUARDED
"""

EGRESS_TABLE = """
entry          | speaks            | asks                 | asks_without_address
owned          | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
held           | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
static         | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
fenced         | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
unvouched      | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
stale          | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
held_stale     | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
foreign        | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
foreign_known  | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
external       | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
pinned         | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
unclaimed      | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
delegated      | +EGRESS_DELEGATED | +EGRESS_DELEGATED    | +EGRESS_DELEGATED
none           | +NOT_GUARDED      | +NOT_GUARDED         | +NOT_GUARDED
closed         | -EGRESS_UNKNOWN   | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
open           | +NOT_GUARDED      | +NOT_GUARDED         | +NOT_GUARDED
"""

ENTRIES = {
    "owned": an_entry(),
    "held": an_entry(unfenced=True),
    "static": an_entry(epoch=0, unfenced=True),
    "fenced": an_entry(),
    "unvouched": an_entry(),
    "stale": an_entry(epoch=EPOCH - 1),
    "held_stale": an_entry(epoch=EPOCH - 1, unfenced=True),
    "foreign": an_entry(Kind.FOREIGN),
    "foreign_known": an_entry(Kind.FOREIGN, owner_mac=OWNER),
    "external": an_entry(Kind.EXTERNAL),
    "pinned": an_entry(Kind.EXTERNAL, owner_mac=OWNER),
    "unclaimed": an_entry(Kind.UNCLAIMED),
    "delegated": an_entry(Kind.DELEGATED),
}
NO_FENCE = ("held", "fenced")
BOUND = ("held", "static", "unvouched")  # to a voucher whose fence has passed; the others have none
GRANTS = some_grants(0)
# What is closed, and the exceptions in it, where no entry is about the VIP; lengths of prefixes by IP version.
WITHOUT_ENTRY = ("none", "closed", "open")
CLOSED_BITS, OPEN_BITS = {4: 26, 6: 120}, {4: 32, 6: 128}

# (the node's mode, the entry's own) -> whether verdicts are only observed
MODES = {
    "enforce": (Mode.ENFORCE, Mode.INHERIT, False),
    "observe": (Mode.OBSERVE, Mode.INHERIT, True),
    "entry_enforces": (Mode.OBSERVE, Mode.ENFORCE, False),
    "entry_observes": (Mode.ENFORCE, Mode.OBSERVE, True),
}


@dataclass(frozen=True)
class Form:
    """A frame about a VIP, and what may become of it."""

    frame: bytes
    vip: Address = VIP
    primary: Address = PRIMARY_IP
    answered: bytes = b""
    disarmed: bytes = b""
    rewritten: bytes = b""


Forms = Mapping[str, Form]


# ---- ARP ---------------------------------------------------------------------------------------------------------


def arp(packet: ArpPacket, dst: MacAddress) -> Form:
    def framed(another: ArpPacket) -> bytes:
        return a_frame(another, dst, packet.sha)

    return Form(
        framed(packet),
        answered=the_answer(packet),
        disarmed=framed(replace(packet, op=ArpOp.REPLY, tha=packet.sha)),
        rewritten=framed(replace(packet, spa=PRIMARY_IP)),
    )


QUESTIONS = {
    "request": arp(a_packet(), BROADCAST_MAC),
    "unicast_request": arp(a_packet(), GUARD),
    "probe": arp(a_packet(spa=NOBODY), BROADCAST_MAC),
    "unicast_probe": arp(a_packet(spa=NOBODY), GUARD),
}


def claims(sha: MacAddress) -> Forms:
    """Every form of claiming the VIP but the announcement as a request."""
    reply = a_packet(op=ArpOp.REPLY, sha=sha, spa=VIP)
    return {
        "reply": arp(replace(reply, tpa=NEIGHBOUR_IP, tha=THIRD), THIRD),
        "reply_to_guard": arp(replace(reply, tpa=PRIMARY_IP, tha=GUARD), GUARD),
        "broadcast_reply": arp(replace(reply, tpa=VIP, tha=sha), BROADCAST_MAC),
        "broadcast_reply_to_all": arp(replace(reply, tpa=VIP, tha=BROADCAST_MAC), BROADCAST_MAC),
        **requests(sha),
    }


def requests(sha: MacAddress) -> Forms:
    """Ordinary requests in the name of the VIP."""
    request = a_packet(sha=sha, spa=VIP, tpa=NEIGHBOUR_IP)
    return {"request": arp(request, BROADCAST_MAC), "unicast_request": arp(request, GUARD)}


def announcements(sha: MacAddress) -> Forms:
    announcement = a_packet(sha=sha, spa=VIP, tpa=VIP)
    return {"announcement": arp(announcement, BROADCAST_MAC), "unicast_announcement": arp(announcement, GUARD)}


# ---- neighbour discovery -----------------------------------------------------------------------------------------


def nd(message: NdMessage, sha: MacAddress = TESTER, dst: MacAddress | None = None) -> Form:
    frame = nd_frame(message, dst, sha)
    return Form(
        frame,
        VIP6,
        PRIMARY_IP6,
        answered=na6(message, sha),
        disarmed=frame,
        rewritten=nd_frame(replace(message, src=PRIMARY_IP6), dst, sha),
    )


ND_QUESTIONS = {
    "solicitation": nd(a_solicitation()),
    "solicitation_of_a_link_local_address": nd(a_solicitation(src=TESTER_LINK_LOCAL)),
    "unicast_solicitation": nd(a_solicitation(dst=VIP6)),
    "unicast_solicitation_without_option": nd(a_solicitation(dst=VIP6, options=())),
    "solicitation_to_the_guards_mac": nd(a_solicitation(), dst=GUARD),
    "solicitation_of_all_nodes": nd(a_solicitation(dst=ALL_NODES)),
    "dad": nd(a_dad_solicitation()),
    "dad_with_nonce": nd(a_dad_solicitation(options=(nonce(),))),
}


def nd_claims(sha: MacAddress) -> Forms:
    """Every form of claiming the VIP but to everybody."""
    told = an_advertisement(dst=NEIGHBOUR_IP6, flags=NdFlag.SOLICITED | NdFlag.OVERRIDE, options=(tlla(sha),))
    return {
        "advertisement": nd(told, sha, THIRD),
        "advertisement_to_guard": nd(replace(told, dst=PRIMARY_IP6), sha, GUARD),
        "advertisement_without_option": nd(replace(told, options=()), sha, GUARD),
        "advertisement_from_another_address": nd(replace(told, src=NEIGHBOUR_IP6), sha, GUARD),
        **nd_solicitations(sha),
    }


def nd_solicitations(sha: MacAddress) -> Forms:
    """Solicitations in the name of the VIP."""
    asked = a_solicitation(src=VIP6, target=NEIGHBOUR_IP6, options=(slla(sha),))
    return {"solicitation": nd(asked, sha), "unicast_solicitation": nd(replace(asked, dst=NEIGHBOUR_IP6), sha, GUARD)}


def nd_announcements(sha: MacAddress) -> Forms:
    told = an_advertisement(options=(tlla(sha),))
    return {
        "announcement": nd(told, sha),
        "announcement_to_routers": nd(replace(told, dst=IPv6Address("ff02::2"), flags=NdFlag.NONE), sha),
        "announcement_to_its_own_group": nd(replace(told, dst=solicited_node(VIP6), flags=NdFlag.ROUTER), sha),
        "unicast_announcement": nd(replace(told, dst=PRIMARY_IP6), sha, GUARD),
    }


def in_both_families(arp_forms: Forms, nd_forms: Forms) -> Forms:
    return {**arp_forms, **{f"nd_{name}": form for name, form in nd_forms.items()}}


ASKS = in_both_families(requests(GUARD), nd_solicitations(GUARD))
FORMS: Mapping[str, Mapping[str, Forms]] = {
    "ingress": {
        "asks": in_both_families(QUESTIONS, ND_QUESTIONS),
        "owner_claims": in_both_families(claims(OWNER), nd_claims(OWNER)),
        "owner_announces": in_both_families(announcements(OWNER), nd_announcements(OWNER)),
        "stranger_claims": in_both_families(claims(TESTER), nd_claims(TESTER)),
        "stranger_announces": in_both_families(announcements(TESTER), nd_announcements(TESTER)),
    },
    "egress": {
        "speaks": {
            name: form
            for name, form in in_both_families(
                {**claims(GUARD), **announcements(GUARD)}, {**nd_claims(GUARD), **nd_announcements(GUARD)}
            ).items()
            if name not in ASKS
        },
        "asks": ASKS,
        "asks_without_address": ASKS,
    },
}


# ---- cases -------------------------------------------------------------------------------------------------------


def cells(table: str) -> dict[tuple[str, str], str]:
    """(entry, column) -> cell."""
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}


@dataclass(frozen=True)
class Case:
    """A frame of a column's forms, for an entry; `cell` is what the table says."""

    entry: str
    column: str
    form: Form
    cell: str


def cases(direction: str, table: str) -> dict[str, Case]:
    """Every form of every cell, by name."""
    return {
        f"{entry}-{column}-{name}": Case(entry, column, form, cell)
        for (entry, column), cell in cells(table).items()
        for name, form in FORMS[direction][column].items()
    }


def around(address: Address, bits: Mapping[int, int]) -> Network:
    return ip_network((address, bits[address.version]), strict=False)


def situation(case: Case, mode: str):
    """(entries, ranges, control, whether only observed)."""
    node_mode, entry_mode, observed = MODES[mode]
    control = a_control(node_mode, strictest6=Mode.ENFORCE)
    if case.entry in NO_FENCE:
        control = replace(control, fence_ns=0)
    if case.entry in BOUND:
        control = replace(control, term=TERM.number)
    vip, primary = case.form.vip, None if case.column == "asks_without_address" else case.form.primary
    if case.entry not in WITHOUT_ENTRY:
        return {vip: replace(ENTRIES[case.entry], mode=entry_mode, primary=primary)}, {}, control, observed
    closed = an_entry(Kind.CLOSED, mode=entry_mode, primary=primary)
    ranges = {"closed": {around(vip, CLOSED_BITS): closed}}
    ranges["open"] = ranges["closed"] | {around(vip, OPEN_BITS): an_entry(Kind.OPEN)}
    found = ranges.get(case.entry, {})
    return {}, found, replace(control, closed=bool(found)), observed and "NOT_GUARDED" not in case.cell


def what_is_counted(case: Case) -> Address | Network | None:
    """What has a row of counters for a decision: the VIP's entry, or the range."""
    if "NOT_GUARDED" in case.cell:
        return None
    return around(case.form.vip, CLOSED_BITS) if case.entry == "closed" else case.form.vip


def enforced_outcome(case: Case, hook: Hook) -> Outcome:
    form = case.form
    return {
        "=": DROPPED if hook is Hook.XDP else hidden(form.frame),
        "!": sent_back(form.answered),
        "-": DROPPED,
        "+": passed(form.frame),
        "~": passed(form.disarmed),
        ">": passed(form.rewritten),
    }[case.cell[0]]


def check_case(plane: Plane, hook: Hook, case: Case, mode: str) -> None:
    entries, ranges, control, observed = situation(case, mode)
    plane.set(entries, control, ranges=ranges, grants=GRANTS)
    frame = case.form.frame
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, plane.shown(passed(frame) if observed else enforced_outcome(case, hook)), frame)
    counts = one_count(Reason[case.cell[1:]], observed=observed, vip=what_is_counted(case))
    assert_counted(counted, counts)


def check_row(plane: Plane, hook: Hook, entry: str, mode: str) -> None:
    """Every form of every cell in a row of the hook's table; says of all that are wrong how they are."""
    wrong = []
    for name, case in (EGRESS_CASES if hook is Hook.TC_EGRESS else INGRESS_CASES).items():
        if case.entry == entry:
            try:
                check_case(plane, hook, case, mode)
            except AssertionError as error:
                wrong.append(f"{name}: {error}")
    if wrong:
        raise AssertionError("\n".join(wrong))


INGRESS_CASES = cases("ingress", INGRESS_TABLE)
EGRESS_CASES = cases("egress", EGRESS_TABLE)
ROWS = (*ENTRIES, *WITHOUT_ENTRY)
