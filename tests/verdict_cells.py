"""The verdict table of the README, cell by cell, at every hook and in every mode.

A cell says what is done in enforce mode, and the reason that is counted:
`!` answered, `-` dropped, `+` passes unchanged, `>` spa becomes the link's primary address,
`~` passes as the reply of the same meaning (a request for the VIP that must not reach a kernel that might answer it).
In observe mode every cell passes, and the same reason is counted as observed.
"""

from dataclasses import dataclass, replace

from arpguard.addresses import BROADCAST_MAC, MacAddress
from arpguard.verdict import Hook, Kind, Mode, Reason
from arpguard.wire.arp import ArpOp, ArpPacket
from builders import (
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
from prog_run import DROPPED, Outcome, Plane, assert_counted, assert_outcome, one_count, passed, sent_back

INGRESS_TABLE = """
entry          | asks       | owner_claims  | owner_announces | stranger_claims   | stranger_announces
owned          | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
held           | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
static         | !ANSWERED  | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
fenced         | -FENCED    | -CONFLICT     | -CONFLICT       | -CONFLICT         | -CONFLICT
stale          | -STALE_EPOCH | -CONFLICT   | -CONFLICT       | -CONFLICT         | -CONFLICT
held_stale     | -STALE_EPOCH | -CONFLICT   | -CONFLICT       | -CONFLICT         | -CONFLICT
foreign        | -FOREIGN   | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM
foreign_known  | -FOREIGN   | +OWNER_CLAIM  | ~OWNER_CLAIM    | -CONFLICT         | -CONFLICT
external       | -EXTERNAL  | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM | +UNVERIFIED_CLAIM | ~UNVERIFIED_CLAIM
pinned         | -EXTERNAL  | +OWNER_CLAIM  | ~OWNER_CLAIM    | -CONFLICT         | -CONFLICT
unclaimed      | -UNCLAIMED | +UNCLAIMED_CLAIM | ~UNCLAIMED_CLAIM | +UNCLAIMED_CLAIM | ~UNCLAIMED_CLAIM
delegated      | +DELEGATED | +DELEGATED_CLAIM | +DELEGATED_CLAIM | +DELEGATED_CLAIM | +DELEGATED_CLAIM
none           | +NOT_GUARDED | +NOT_GUARDED | +NOT_GUARDED   | +NOT_GUARDED      | +NOT_GUARDED
"""

EGRESS_TABLE = """
entry          | speaks            | asks                 | asks_without_address
owned          | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
held           | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
static         | +EGRESS_OWNER     | +EGRESS_OWNER        | +EGRESS_OWNER
fenced         | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
stale          | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
held_stale     | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
foreign        | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
foreign_known  | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
external       | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
pinned         | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
unclaimed      | -EGRESS_NOT_OWNER | >EGRESS_REWRITTEN    | -EGRESS_NO_SOURCE
delegated      | +EGRESS_DELEGATED | +EGRESS_DELEGATED    | +EGRESS_DELEGATED
none           | +NOT_GUARDED      | +NOT_GUARDED         | +NOT_GUARDED
"""

ENTRIES = {
    "owned": an_entry(),
    "held": an_entry(hold=True),
    "static": an_entry(epoch=0, hold=True),
    "fenced": an_entry(),
    "stale": an_entry(epoch=EPOCH - 1),
    "held_stale": an_entry(epoch=EPOCH - 1, hold=True),
    "foreign": an_entry(Kind.FOREIGN),
    "foreign_known": an_entry(Kind.FOREIGN, owner_mac=OWNER),
    "external": an_entry(Kind.EXTERNAL),
    "pinned": an_entry(Kind.EXTERNAL, owner_mac=OWNER),
    "unclaimed": an_entry(Kind.UNCLAIMED),
    "delegated": an_entry(Kind.DELEGATED),
}
NO_FENCE = ("held", "fenced")

# (the node's mode, the entry's own) -> whether verdicts are only observed
MODES = {
    "enforce": (Mode.ENFORCE, Mode.INHERIT, False),
    "observe": (Mode.OBSERVE, Mode.INHERIT, True),
    "entry_enforces": (Mode.OBSERVE, Mode.ENFORCE, False),
    "entry_observes": (Mode.ENFORCE, Mode.OBSERVE, True),
}

QUESTIONS = {
    "request": (a_packet(), BROADCAST_MAC),
    "unicast_request": (a_packet(), GUARD),
    "probe": (a_packet(spa=NOBODY), BROADCAST_MAC),
    "unicast_probe": (a_packet(spa=NOBODY), GUARD),
}


def claims(sha):
    """Every form of claiming the VIP but the announcement as a request."""
    reply = a_packet(op=ArpOp.REPLY, sha=sha, spa=VIP)
    return {
        "reply": (replace(reply, tpa=NEIGHBOUR_IP, tha=THIRD), THIRD),
        "reply_to_guard": (replace(reply, tpa=PRIMARY_IP, tha=GUARD), GUARD),
        "broadcast_reply": (replace(reply, tpa=VIP, tha=sha), BROADCAST_MAC),
        "broadcast_reply_to_all": (replace(reply, tpa=VIP, tha=BROADCAST_MAC), BROADCAST_MAC),
        "request": (a_packet(sha=sha, spa=VIP, tpa=NEIGHBOUR_IP), BROADCAST_MAC),
        "unicast_request": (a_packet(sha=sha, spa=VIP, tpa=NEIGHBOUR_IP), GUARD),
    }


def announcements(sha):
    announcement = a_packet(sha=sha, spa=VIP, tpa=VIP)
    return {"announcement": (announcement, BROADCAST_MAC), "unicast_announcement": (announcement, GUARD)}


ASKS = {name: claims(GUARD)[name] for name in ("request", "unicast_request")}
FORMS = {
    "ingress": {
        "asks": QUESTIONS,
        "owner_claims": claims(OWNER),
        "owner_announces": announcements(OWNER),
        "stranger_claims": claims(TESTER),
        "stranger_announces": announcements(TESTER),
    },
    "egress": {
        "speaks": {name: form for name, form in claims(GUARD).items() if name not in ASKS} | announcements(GUARD),
        "asks": ASKS,
        "asks_without_address": ASKS,
    },
}


def cells(table: str) -> dict[tuple[str, str], str]:
    """(entry, column) -> cell."""
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
    return {(row[0], column): cell for row in rows for column, cell in zip(head[1:], row[1:], strict=True)}


@dataclass(frozen=True)
class Case:
    """A frame of a column's forms, for an entry; `cell` is what the table says."""

    entry: str
    column: str
    packet: ArpPacket
    dst: MacAddress
    cell: str


def cases(direction: str, table: str) -> dict[str, Case]:
    """Every form of every cell, by name."""
    return {
        f"{entry}-{column}-{name}": Case(entry, column, packet, dst, cell)
        for (entry, column), cell in cells(table).items()
        for name, (packet, dst) in FORMS[direction][column].items()
    }


def situation(case: Case, mode: str):
    """(entries, control, whether only observed)."""
    node_mode, entry_mode, observed = MODES[mode]
    control = a_control(node_mode)
    if case.entry in NO_FENCE:
        control = replace(control, fence_ns=0)
    if case.entry == "none":
        return {}, control, False
    value = replace(ENTRIES[case.entry], mode=entry_mode)
    if case.column == "asks_without_address":
        value = replace(value, primary=None)
    return {VIP: value}, control, observed


def enforced_outcome(case: Case, frame: bytes) -> Outcome:
    packet = case.packet
    match case.cell[0]:
        case "!":
            return sent_back(the_answer(packet))
        case "-":
            return DROPPED
        case "+":
            return passed(frame)
        case "~":
            return passed(a_frame(replace(packet, op=ArpOp.REPLY, tha=packet.sha), case.dst, packet.sha))
        case ">":
            return passed(a_frame(replace(packet, spa=PRIMARY_IP), case.dst, packet.sha))
    raise AssertionError(case.cell)


def check_case(plane: Plane, hook: Hook, case: Case, mode: str) -> None:
    entries, control, observed = situation(case, mode)
    plane.set(entries, control)
    frame = a_frame(case.packet, case.dst, case.packet.sha)
    outcome, counted = plane.counted(hook, frame)
    assert_outcome(outcome, passed(frame) if observed else enforced_outcome(case, frame), frame)
    about = VIP if entries else None
    assert_counted(counted, one_count(Reason[case.cell[1:]], observed=observed, vip=about))


INGRESS_CASES = cases("ingress", INGRESS_TABLE)
EGRESS_CASES = cases("egress", EGRESS_TABLE)
