"""Capture files, whole, broken and hostile."""

import io
import shutil
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.wire.capture import MAX_FRAME_BYTES, BrokenCaptureError, Captured, NotACaptureError, read_capture
from support.frames.captures import (
    BIG,
    ETHERNET,
    LITTLE,
    MICRO,
    NANO,
    SLL,
    SLL2,
    Packet,
    block,
    interface,
    option,
    packet,
    pcap,
    pcapng,
    section,
)
from support.netns.waiting import HUNG_S

FRAMES = (b"first frame", b"the second one", b"x" * 1514)
SECOND = 1_000_000_000
START_NS = 1_700_000_000 * SECOND
IF_TSRESOL, IF_TSOFFSET, EPB_FLAGS = 9, 14, 2


class Reader:
    """Gives a file's bytes, and remembers the most that was asked for at once."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.most = 0

    def __call__(self, size: int) -> bytes:
        self.most = max(self.most, size)
        return self._file.read(size)


def read(data: bytes) -> list[Captured]:
    return list(read_capture(Reader(data)))


def read_until_broken(data: bytes) -> tuple[list[Captured], str]:
    """The frames before the place where it breaks, and what is said of that; nothing if it does not."""
    found: list[Captured] = []
    try:
        for captured in read_capture(io.BytesIO(data).read):
            found.append(captured)  # noqa: PERF402 - what came before the error counts
    except BrokenCaptureError as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("order", [LITTLE, BIG])
@pytest.mark.parametrize(("magic", "unit_ns"), [(MICRO, 1000), (NANO, 1)])
def test_pcap_of_each_byte_order_and_unit_of_time(order, magic, unit_ns):
    assert read(pcap(FRAMES, order, magic)) == [
        Captured(number, START_NS + (number - 1) * SECOND + 7 * unit_ns, "", ETHERNET, None, frame, len(frame))
        for number, frame in enumerate(FRAMES, 1)
    ]


def test_link_type_of_pcap_is_what_is_below_its_flags():
    """draft-ietf-opsawg-pcap 4: the length of a frame check sequence stands above."""
    assert {captured.linktype for captured in read(pcap(FRAMES, linktype=SLL2 | 0x24000000))} == {SLL2}


def test_frame_that_was_cut_off_keeps_its_length():
    assert [(captured.data, captured.length) for captured in read(pcap(FRAMES, snaplen=8))] == [
        (frame[:8], len(frame)) for frame in FRAMES
    ]


@pytest.mark.parametrize("order", [LITTLE, BIG])
def test_pcapng_of_each_byte_order(order):
    assert read(pcapng(FRAMES, order)) == [
        Captured(number, START_NS + (number - 1) * SECOND, "eth0", ETHERNET, None, frame, len(frame))
        for number, frame in enumerate(FRAMES, 1)
    ]


def test_pcapng_with_several_interfaces_each_with_its_link_type_and_times():
    data = section() + b"".join(
        (
            interface("eth0", options=option(IF_TSRESOL, b"\x09")),
            interface("any", SLL, options=option(IF_TSRESOL, b"\x8a")),  # 1024 units a second
            interface("", SLL2, options=option(IF_TSOFFSET, struct.pack("<q", 5))),
            packet(Packet(b"two", 1, stamp=512)),
            packet(Packet(b"three", 2, stamp=3, length=99)),
            packet(Packet(b"one", 0, stamp=1 << 40)),
        )
    )

    assert read(data) == [
        Captured(1, SECOND // 2, "any", SLL, None, b"two", 3),
        Captured(2, 5 * SECOND + 3000, "", SLL2, None, b"three", 99),
        Captured(3, 1 << 40, "eth0", ETHERNET, None, b"one", 3),
    ]


@pytest.mark.parametrize(("flags", "outgoing"), [(0, None), (1, False), (2, True), (0x12 << 2 | 2, True)])
@pytest.mark.parametrize("order", [LITTLE, BIG])
def test_pcapng_tells_the_direction_if_it_was_noted(flags, outgoing, order):
    noted = option(EPB_FLAGS, struct.pack(order + "I", flags), order)
    data = section(order) + interface(order=order) + packet(Packet(b"frame", options=noted), order)

    assert [captured.outgoing for captured in read(data)] == [outgoing]


def test_simple_packets_are_of_the_first_interface_cut_off_at_its_snaplen_and_have_no_time():
    simple = block(3, struct.pack("<I", 11) + b"first fr")
    data = section() + interface("eth7", snaplen=8) + simple

    assert read(data) == [Captured(1, None, "eth7", ETHERNET, None, b"first fr", 11)]


def test_old_packet_blocks_are_read():
    old = block(2, struct.pack("<HHIIII", 0, 9, 0, 5, 3, 60) + b"old\0")

    assert read(section() + interface("eth0") + old) == [Captured(1, 5000, "eth0", ETHERNET, None, b"old", 60)]


def test_other_blocks_are_passed_over_however_long_they_are():
    reader = Reader(
        section() + block(0x0BAD, bytes(5_000_000)) + interface() + block(5, bytes(64)) + packet(Packet(b"frame"))
    )

    assert [captured.data for captured in read_capture(reader)] == [b"frame"]
    assert reader.most <= MAX_FRAME_BYTES


def test_sections_follow_each_other_with_byte_orders_and_interfaces_of_their_own():
    other = section(BIG) + interface("eth9", SLL, BIG) + packet(Packet(b"other"), BIG)
    frames = read(pcapng(FRAMES[:1]) + other)

    assert [(found.number, found.link, found.linktype, found.data) for found in frames] == [
        (1, "eth0", ETHERNET, FRAMES[0]),
        (2, "eth9", SLL, b"other"),
    ]


def test_frame_is_no_shorter_than_what_is_there_of_it():
    assert [found.length for found in read(section() + interface() + packet(Packet(b"frame", length=2)))] == [5]


@pytest.mark.parametrize(
    "data", [b"", b"\xd4", b"\xd4\xc3\xb2", b"#!/bin/sh\n", b"\x1f\x8b\x08\x00", bytes(100)], ids=repr
)
def test_what_is_no_capture_is_refused(data):
    with pytest.raises(NotACaptureError):
        read(data)


BROKEN = {
    "length of a frame": (
        pcap(FRAMES) + struct.pack("<IIII", 0, 0, MAX_FRAME_BYTES + 1, 60) + bytes(99),
        3,
        "a frame of 262,145 bytes",
    ),
    "length of a pcapng frame": (
        pcapng(FRAMES) + block(6, struct.pack("<IIIII", 0, 0, 0, 0xFFFFFFFF, 60) + bytes(60)),
        3,
        "a frame of 4,294,967,295 bytes",
    ),
    "frame longer than its block": (
        pcapng(FRAMES) + block(6, struct.pack("<IIIII", 0, 0, 0, 61, 61) + bytes(60)),
        3,
        "a block is shorter than its content",
    ),
    "block of no length": (pcapng(FRAMES) + struct.pack("<II", 6, 0) + bytes(60), 3, "a block of 0 bytes"),
    "block of an odd length": (pcapng(FRAMES) + struct.pack("<II", 6, 13) + bytes(60), 3, "a block of 13 bytes"),
    "block without an end": (pcapng(FRAMES) + struct.pack("<II", 7, 0xFFFFFFFC) + bytes(60), 3, "the file ends"),
    "other length at a block's end": (
        pcapng(FRAMES) + struct.pack("<III", 7, 12, 16),
        3,
        "the length at the end of a block differs",
    ),
    "unknown interface": (pcapng(FRAMES) + packet(Packet(b"frame", index=1)), 3, "a frame of interface 1"),
    "section without a byte order": (
        pcapng(FRAMES) + block(0x0A0D0D0A, bytes(16)),
        3,
        "a section without a byte order",
    ),
    "short interface": (section() + block(1, bytes(4)), 0, "a block is shorter than its content"),
    "header only begun": (pcap([])[:20], 0, "the file ends"),
}


@pytest.mark.parametrize(("data", "before", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_damage_is_told_with_its_place_and_what_came_before_is_given(data, before, why):
    frames, told = read_until_broken(data)

    assert len(frames) == before
    assert told.startswith(f"breaks off after frame {before}, at byte ")
    assert why in told


def test_interfaces_without_end_are_refused():
    frames, told = read_until_broken(section() + interface() * 65_537 + packet(Packet(b"frame")))

    assert (frames, "more than 65,536 interfaces" in told) == ([], True)


def test_error_of_the_file_is_where_it_breaks():
    whole = io.BytesIO(pcap(FRAMES))

    def failing(size: int) -> bytes:
        if whole.tell() > 60:
            raise OSError(5, "Input/output error")
        return whole.read(size)

    with pytest.raises(BrokenCaptureError, match=r"after frame 1, .*Input/output error"):
        list(read_capture(failing))


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_file_cut_off_anywhere_gives_the_frames_before_and_says_so_unless_it_was_cut_between_two(write):
    data, whole = write(FRAMES), read(write(FRAMES))
    ends = [len(write(FRAMES[:count])) for count in range(len(FRAMES))]
    for size in range(len(section()) + 1, len(data)):
        frames, told = read_until_broken(data[:size])
        assert frames == whole[: len(frames)]
        assert len(frames) >= sum(end <= size for end in ends[1:])
        assert bool(told) is (size not in ends), size


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data):
    for start in (b"", pcap([]), section(), section() + interface(), section(BIG) + interface(order=BIG)):
        try:
            read_until_broken(start + data)
        except NotACaptureError:
            assert not start


@given(st.data())
def test_any_damage_to_a_capture_is_told_and_costs_no_memory(data):
    whole = bytearray(
        data.draw(st.sampled_from([pcap(FRAMES), pcap(FRAMES, BIG, NANO), pcapng(FRAMES), pcapng(FRAMES, BIG)]))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(4, len(whole) - 1))] = data.draw(
            st.sampled_from([0, 1, 2, 3, 6, 10, 127, 128, 255])
        )
    reader = Reader(bytes(whole))
    try:
        for captured in read_capture(reader):
            assert len(captured.data) <= min(captured.length, MAX_FRAME_BYTES)
    except BrokenCaptureError:
        pass
    assert reader.most <= MAX_FRAME_BYTES


@pytest.mark.parametrize("form", ["pcap", "nsecpcap", "pcapng"])
def test_frames_are_those_that_wireshark_writes(form, tmp_path):
    """editcap knows both formats by itself."""
    if shutil.which("editcap") is None:
        pytest.skip("editcap is not installed (Debian: wireshark-common)")
    (tmp_path / "before").write_bytes(pcap(FRAMES, BIG, NANO))
    subprocess.run(
        ["editcap", "-F", form, "before", "after"], cwd=tmp_path, check=True, capture_output=True, timeout=HUNG_S
    )
    frames = read((tmp_path / "after").read_bytes())

    assert [(captured.number, captured.data, captured.length) for captured in frames] == [
        (number, frame, len(frame)) for number, frame in enumerate(FRAMES, 1)
    ]
    lost_ns = 7 if form == "pcap" else 0  # it has microseconds only
    assert [captured.time_ns for captured in frames] == [START_NS + n * SECOND + 7 - lost_ns for n in range(3)]


def test_time_before_1970_is_none():
    early = interface("lab0", ETHERNET, options=option(IF_TSOFFSET, struct.pack("<q", -(2**60))))

    assert [captured.time_ns for captured in read(section() + early + packet(Packet(FRAMES[0])))] == [None]


def test_interface_with_an_endless_name_takes_little_memory():
    """A capture may name 65,536 of them."""
    long = interface("x" * 60_000, ETHERNET)

    (captured,) = read(section() + long + packet(Packet(FRAMES[0])))

    assert captured.link == "x" * 256
