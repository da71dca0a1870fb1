"""ctypes mirrors of the structs in bpf/arpguard.h; tests/bpf/test_layout.py compares sizes and offsets."""

from ctypes import Structure, c_uint8, c_uint16, c_uint32, c_uint64

from arpguard.verdict import REASON_COUNT, Vouched

ENTRY_HOLD = 0x01
MAX_RANGES = 256
MAX_VOUCHING = 64


class EntryKeyStruct(Structure):
    """Which VIP on which link: 20 bytes, the address in network order and v4-mapped."""

    _fields_ = (("ifindex", c_uint32), ("addr", c_uint8 * 16))


class RangeKeyStruct(Structure):
    """Which addresses of a link: `prefixlen` counts the 32 bits of the ifindex, too."""

    _fields_ = (("prefixlen", c_uint32), ("at", EntryKeyStruct))


class EntryStruct(Structure):
    """Who may answer for the VIP, and with what."""

    _fields_ = (
        ("epoch", c_uint64),
        ("slot", c_uint32),
        ("kind", c_uint8),
        ("mode", c_uint8),
        ("flags", c_uint8),
        ("pad", c_uint8 * 3),
        ("link_mac", c_uint8 * 6),
        ("answer_mac", c_uint8 * 6),
        ("owner_mac", c_uint8 * 6),
        ("primary", c_uint8 * 16),
        ("pad2", c_uint8 * 4),
    )


class ControlStruct(Structure):
    """The node's mode and fence; times in nanoseconds of CLOCK_BOOTTIME."""

    _fields_ = (
        ("fence_ns", c_uint64),
        ("epoch", c_uint64),
        ("lease_ns", c_uint64),
        ("mode", c_uint8),
        ("strictest", c_uint8),
        ("strictest6", c_uint8),
        ("closed", c_uint8),
        ("generation", c_uint32),
        ("vips4", c_uint64),
        ("term", c_uint64),
        ("ethertype", c_uint8 * 2),
        ("pad", c_uint8 * 6),
    )


class VouchingStruct(Structure):
    """The term in which a link takes frames of vouching."""

    _fields_ = (("term", c_uint64), ("key", c_uint64 * 2), ("window_ns", c_uint64))


class GrantsStruct(Structure):
    """The state after grants and pings; times in nanoseconds of CLOCK_BOOTTIME. Only programs write it."""

    _fields_ = (("fence_ns", c_uint64), ("bound_term", c_uint64), ("window_ns", c_uint64), ("pinged_ns", c_uint64))


class CountersStruct(Structure):
    """One CPU's counts of an entry: frames[0] carried out, frames[1] observed, by reason."""

    _fields_ = (
        ("frames", (c_uint64 * REASON_COUNT) * 2),
        ("window", c_uint64),
        ("reported", c_uint64),
    )


class Totals(Structure):
    """One CPU's counts of the node, its events (produced = sent + limited + lost), and frames of vouching."""

    _fields_ = (
        ("frames", (c_uint64 * REASON_COUNT) * 2),
        ("sent", c_uint64),
        ("limited", c_uint64),
        ("lost", c_uint64),
        ("reported", c_uint64 * REASON_COUNT),
        ("vouched", c_uint64 * len(Vouched)),
    )


class EventValue(Structure):
    """A decision as it comes out of the ring buffer."""

    _fields_ = (
        ("time_ns", c_uint64),
        ("ifindex", c_uint32),
        ("vip", c_uint8 * 16),
        ("spa", c_uint8 * 16),
        ("tpa", c_uint8 * 16),
        ("sha", c_uint8 * 6),
        ("tha", c_uint8 * 6),
        ("eth_src", c_uint8 * 6),
        ("eth_dst", c_uint8 * 6),
        ("op", c_uint16),
        ("verdict", c_uint8),
        ("reason", c_uint8),
        ("hook", c_uint8),
        ("mode", c_uint8),
        ("kind", c_uint8),
        ("pad", c_uint8 * 5),
    )
