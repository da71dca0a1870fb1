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
    """Who may answer for a VIP on a link; CLOSED and OPEN are of ranges, for addresses that no entry is about."""

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
    NOT_ARP = 3, Verdict.PASS, "not an ARP request or reply for IPv4 over Ethernet that Linux would read"
    UNWALKABLE = (
        4,
        Verdict.SUPPRESS,
        "more nested VID-0 tags or extension headers than are read through, or a fragment; the kernel might answer it",
    )
    UNCONFIGURED = 5, Verdict.PASS, "the agent has not configured the kernel yet"
    ANSWERED = 6, Verdict.ANSWER, "this node owns the VIP, and its fence lies ahead or is not needed"
    ANSWERED_THIRD_PARTY = 7, Verdict.ANSWER, "as answered; sha in the request differs from the Ethernet source"
    FENCED = 8, Verdict.SUPPRESS, "this node owns the VIP, but its fence has passed"
    STALE_EPOCH = 9, Verdict.SUPPRESS, "the entry's epoch is not the node's"
    FOREIGN = 10, Verdict.SUPPRESS, "another node owns the VIP"
    EXTERNAL = 11, Verdict.SUPPRESS, "a host outside the cluster owns the VIP"
    UNCLAIMED = 12, Verdict.SUPPRESS, "no node owns the VIP yet"
    DELEGATED = 13, Verdict.PASS, "another program on this node answers for the VIP"
    BAD_SENDER = (
        14,
        Verdict.SUPPRESS,
        "owned, but the sender cannot be replied to: sha zero or a group address, or spa special",
    )
    NOT_STRICT = (
        15,
        Verdict.SUPPRESS,
        "owned, but no host has to answer such a frame: htype 6, odd destinations, nested tags, extension headers",
    )
    OTHER_HOST = (
        16,
        Verdict.SUPPRESS,
        "owned, but the frame was sent to another host's MAC and only flooded to this one",
    )
    NO_LINK = 17, Verdict.SUPPRESS, "owned, but the MAC address to answer with is not known"
    OWN_ECHO = 18, Verdict.SUPPRESS, "this node's own frame came back"
    OWNER_CLAIM = 19, Verdict.PASS, "a claim from the known MAC of the owner"
    UNVERIFIED_CLAIM = 20, Verdict.REPORT, "a claim for a VIP whose owner's MAC is not known"
    UNCLAIMED_CLAIM = 21, Verdict.REPORT, "a claim for a VIP without an owner"
    DELEGATED_CLAIM = 22, Verdict.REPORT, "a claim from outside for a VIP that another program on this node answers for"
    CONFLICT = 23, Verdict.CONFLICT, "a claim from a MAC that is not the owner's"
    EGRESS_OWNER = 24, Verdict.PASS, "this node speaks for a VIP that it owns"
    EGRESS_DELEGATED = 25, Verdict.PASS, "another program on this node speaks for its VIP"
    EGRESS_NOT_OWNER = 26, Verdict.SUPPRESS, "this node may not speak for the VIP now"
    EGRESS_REWRITTEN = 27, Verdict.REWRITE, "a request with the VIP as spa; spa becomes the link's primary address"
    EGRESS_NO_SOURCE = 28, Verdict.SUPPRESS, "as above, but the link has no primary address of that family"
    NOT_ND = 29, Verdict.PASS, "a neighbour solicitation or advertisement that is cut off"
    ND_INVALID = (
        30,
        Verdict.SUPPRESS,
        "owned, but not a solicitation that may be answered (RFC 4861 7.1.1): hop limit, code, length, options",
    )
    ND_CHECKSUM = 31, Verdict.SUPPRESS, "owned, but the ICMPv6 checksum of the solicitation is wrong"
    ND_INVALID_CLAIM = (
        32,
        Verdict.PASS,
        "a claim in a message that is not valid (RFC 4861 7.1), which the kernel does not believe either",
    )
    UNKNOWN = 33, Verdict.SUPPRESS, "no entry is about the address, and its range is closed (`unknown: suppress`)"
    EGRESS_UNKNOWN = (
        34,
        Verdict.SUPPRESS,
        "this node may not speak for an address that its closed range has no entry for",
    )
    GUEST = (
        35,
        Verdict.PASS,
        "an address in a closed range, but the frame is to or from a guest on the link: another MAC",
    )
    UNVOUCHED = 36, Verdict.SUPPRESS, "this node owns the VIP, but the fence of the node that vouches for it has passed"


class Vouched(IntEnum):
    """What came of a frame of vouching; only genuine pings and grants of a link's term do anything, others pass on."""

    PING = 0
    GRANT = 1
    PONG = 2
    UNREADABLE = 3
    OTHER_TERM = 4
    FORGED = 5
    BAD_STAMP = 6


REASON_COUNT = max(Reason) + 1
REASONS = {int(reason): reason for reason in Reason}
