"""Verdicts, reasons, kinds, modes and hooks: the numbers of bpf/arpguard.h with their meaning.

tests/bpf/test_layout.py compares every member with the C enums; docs/reasons.md is generated from here.
"""

from enum import IntEnum
from typing import Self


class Verdict(IntEnum):
    """What happens to a frame; in observe mode, what would have happened."""

    PASS = 1
    ANSWER = 2
    SUPPRESS = 3
    REWRITE = 4
    CONFLICT = 5
    REPORT = 6


class Kind(IntEnum):
    """Who may answer for a VIP on a link; CLOSED and OPEN belong to ranges, for addresses without an entry."""

    OWNED = 1
    FOREIGN = 2
    EXTERNAL = 3
    UNCLAIMED = 4
    DELEGATED = 5
    CLOSED = 6
    OPEN = 7


VIP_KINDS = tuple(kind for kind in Kind if kind < Kind.CLOSED)


class Mode(IntEnum):
    """Whether verdicts are carried out; INHERIT stands in entries only and means the node's mode."""

    INHERIT = 0
    OBSERVE = 1
    ENFORCE = 2


class Hook(IntEnum):
    """Which program judged the frame."""

    TC_INGRESS = 1
    XDP = 2
    TC_EGRESS = 3


class Reason(IntEnum):
    """Why a frame got its verdict, which follows from it. One list for C, Python, API, metrics and documentation."""

    verdict: Verdict
    meaning: str

    def __new__(cls, number: int, verdict: Verdict, meaning: str) -> Self:  # noqa: D102
        member = int.__new__(cls, number)
        member._value_ = number
        member.verdict = verdict
        member.meaning = meaning
        return member

    NOT_GUARDED = 1, Verdict.PASS, "no address in the frame is a guarded VIP on this link"
    OTHER_VLAN = 2, Verdict.PASS, "the frame carries a VLAN tag with a VID other than 0"
    NOT_ARP = 3, Verdict.PASS, "not an ARP request or reply that Linux processes (IPv4 over Ethernet)"
    UNWALKABLE = (
        4,
        Verdict.SUPPRESS,
        (
            "the frame has more nested VLAN tags (VID 0) or extension headers than the guard reads, or is a fragment; "
            "the kernel might answer it"
        ),
    )
    UNCONFIGURED = 5, Verdict.PASS, "the agent has not configured the kernel yet"
    ANSWERED = (
        6,
        Verdict.ANSWER,
        "this node owns the VIP and may answer: its fence has not expired, or the VIP needs no fence",
    )
    ANSWERED_THIRD_PARTY = (
        7,
        Verdict.ANSWER,
        "as `answered`, but the sender MAC in the request (sha) is not the frame's source MAC",
    )
    FENCED = (
        8,
        Verdict.SUPPRESS,
        "this node owns the VIP, but its fence has expired: the node did not renew its lease in time",
    )
    STALE_EPOCH = (
        9,
        Verdict.SUPPRESS,
        "this node's entry for the VIP is from an epoch other than the present one, so the entry no longer counts",
    )
    FOREIGN = 10, Verdict.SUPPRESS, "another node owns the VIP, or this node answers for it on another link"
    EXTERNAL = 11, Verdict.SUPPRESS, "a host outside the cluster owns the VIP"
    UNCLAIMED = 12, Verdict.SUPPRESS, "no node owns the VIP yet"
    DELEGATED = 13, Verdict.PASS, "another program on this node answers for the VIP"
    BAD_SENDER = (
        14,
        Verdict.SUPPRESS,
        (
            "this node owns the VIP, but cannot reply: the sender MAC is zero or a group address, or the sender IP is "
            "not a host's address"
        ),
    )
    NOT_STRICT = (
        15,
        Verdict.SUPPRESS,
        (
            "this node owns the VIP, but leaves unusual requests unanswered: ARP hardware type 6, an unusual multicast "
            "destination, nested tags or extension headers"
        ),
    )
    OTHER_HOST = (
        16,
        Verdict.SUPPRESS,
        "this node owns the VIP, but the frame is addressed to another host's MAC: a switch flooded it to this node",
    )
    NO_LINK = 17, Verdict.SUPPRESS, "this node owns the VIP, but the MAC address to answer with is unknown"
    OWN_ECHO = 18, Verdict.SUPPRESS, "this node's own frame came back"
    OWNER_CLAIM = 19, Verdict.PASS, "a claim for a VIP from its owner's known MAC"
    UNVERIFIED_CLAIM = 20, Verdict.REPORT, "a claim for a VIP whose owner's MAC is unknown"
    UNCLAIMED_CLAIM = 21, Verdict.REPORT, "a claim for a VIP without an owner"
    DELEGATED_CLAIM = 22, Verdict.REPORT, "another host claims a VIP that another program on this node answers for"
    CONFLICT = 23, Verdict.CONFLICT, "a claim for a VIP from a MAC that is not its owner's"
    EGRESS_OWNER = 24, Verdict.PASS, "sent by this node, which owns the VIP"
    EGRESS_DELEGATED = 25, Verdict.PASS, "sent by this node, where another program answers for the VIP"
    EGRESS_NOT_OWNER = 26, Verdict.SUPPRESS, "sent by this node, which is not allowed to use the VIP now"
    EGRESS_REWRITTEN = (
        27,
        Verdict.REWRITE,
        "a request from this node with the VIP as sender IP; the guard puts the link's primary address in its place",
    )
    EGRESS_NO_SOURCE = (
        28,
        Verdict.SUPPRESS,
        "as `egress_rewritten`, but the link has no primary address of the VIP's family (IPv4 or IPv6)",
    )
    NOT_ND = 29, Verdict.PASS, "a truncated neighbour solicitation or advertisement"
    ND_INVALID = (
        30,
        Verdict.SUPPRESS,
        "this node owns the VIP, but the solicitation is invalid (RFC 4861 7.1.1): hop limit, code, length or options",
    )
    ND_CHECKSUM = 31, Verdict.SUPPRESS, "this node owns the VIP, but the solicitation's ICMPv6 checksum is wrong"
    ND_INVALID_CLAIM = 32, Verdict.PASS, "a claim in an invalid message (RFC 4861 7.1), which the kernel ignores"
    UNKNOWN = 33, Verdict.SUPPRESS, "the address is in a closed range (`unknown: suppress`) and has no entry"
    EGRESS_UNKNOWN = (
        34,
        Verdict.SUPPRESS,
        "sent by this node with an address that is in a closed range and has no entry",
    )
    GUEST = (
        35,
        Verdict.PASS,
        (
            "the address is in a closed range, but the frame is to or from a guest behind this link (a VM or container "
            "with a MAC of its own)"
        ),
    )
    UNVOUCHED = (
        36,
        Verdict.SUPPRESS,
        "this node owns the VIP, but its voucher's fence has expired: no grant arrived in time",
    )


class Vouched(IntEnum):
    """The outcome of a vouching frame; only genuine pings and grants of a link's term have an effect, others pass."""

    PING = 0
    GRANT = 1
    PONG = 2
    UNREADABLE = 3
    OTHER_TERM = 4
    FORGED = 5
    BAD_STAMP = 6


REASON_COUNT = max(Reason) + 1
REASONS = {int(reason): reason for reason in Reason}
