"""BPF programs of a few instructions, written out: floors to measure against, a request generator, a reply counter.

Instructions are those of the kernel's Documentation/bpf/standardization/instruction-set.rst.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from arpguard.dataplane import syscall
from arpguard.dataplane.syscall import Fd

XDP, SCHED_CLS = 6, 3  # enum bpf_prog_type
XDP_DROP, XDP_PASS, TC_ACT_UNSPEC = 1, 2, -1
KTIME_GET_BOOT_NS, GET_PRANDOM_U32, REDIRECT, MAP_LOOKUP = 125, 7, 23, 1  # helpers

_MAP_CREATE, _PROG_LOAD = 0, 5
_PERCPU_ARRAY = 6
_LOG_SIZE = 1 << 16
_PSEUDO_MAP_FD = 1

# opcodes
_LDX_H, _LDX_W, _LDX_DW, _ST_W, _STX_H, _STX_DW = 0x69, 0x61, 0x79, 0x62, 0x6B, 0x7B
_MOV, _MOV_REG, _ADD, _AND, _XOR, _TO_BE, _LD_DW = 0xB7, 0xBF, 0x07, 0x57, 0xA7, 0xDC, 0x18
_JGT_REG, _JEQ, _JNE, _JNE32, _CALL, _EXIT = 0x2D, 0x15, 0x55, 0x56, 0x85, 0x95

Step = tuple[int, int, int, int | str, int]  # opcode, destination, source, offset or label, immediate


def _assemble(steps: list[Step | str]) -> bytes:
    """Strings are labels; a jump names one in place of its offset."""
    labels: dict[str, int] = {}
    code: list[Step] = []
    for step in steps:
        if isinstance(step, str):
            labels[step] = len(code)
        else:
            code.append(step)
    words = []
    for at, (opcode, dst, src, off, imm) in enumerate(code):
        offset = labels[off] - at - 1 if isinstance(off, str) else off
        words.append(struct.pack("=BBhi", opcode, dst | src << 4, offset, imm))
    return b"".join(words)


def _signed(octets: bytes) -> int:
    """Four bytes of a frame as an immediate."""
    return int(struct.unpack("=i", octets)[0])


def load(kind: int, steps: list[Step | str]) -> Fd:
    """BPF_PROG_LOAD; OSError with the verifier's words when it is refused."""
    code = syscall.ctypes.create_string_buffer(_assemble(steps))
    licence = syscall.ctypes.create_string_buffer(b"GPL")
    log = syscall.ctypes.create_string_buffer(_LOG_SIZE)
    attr = struct.pack(
        "=IIQQIIQII16sII",
        kind,
        len(code) // 8,
        syscall._address(code),
        syscall._address(licence),
        1,
        _LOG_SIZE,
        syscall._address(log),
        0,
        0,
        b"bench",
        0,
        syscall.ATTACH_XDP if kind == XDP else 0,
    )
    try:
        return Fd(syscall._bpf(_PROG_LOAD, attr)[0])
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}: {log.value.decode()}") from error


def bare(kind: int) -> Fd:
    """A program that lets everything pass: the floor."""
    return load(kind, [(_MOV, 0, 0, 0, XDP_PASS if kind == XDP else TC_ACT_UNSPEC), (_EXIT, 0, 0, 0, 0)])


def clock_reader() -> Fd:
    """An XDP program that reads the boot clock, and lets everything pass."""
    return load(XDP, [(_CALL, 0, 0, 0, KTIME_GET_BOOT_NS), (_MOV, 0, 0, 0, XDP_PASS), (_EXIT, 0, 0, 0, 0)])


def _bounds(length: int, otherwise: str) -> list[Step | str]:
    """r2 = the frame, of which `length` bytes are there."""
    return [
        (_LDX_W, 2, 1, 0, 0),
        (_LDX_W, 3, 1, 4, 0),
        (_MOV_REG, 4, 2, 0, 0),
        (_ADD, 4, 0, 0, length),
        (_JGT_REG, 4, 3, otherwise, 0),
    ]


def generator(frame: bytes, ifindex: int) -> Fd:
    """Writes `frame` anew, since the pages of live frames are used again as they come back, and sends it out."""
    return load(XDP, [*_bounds(len(frame), "drop"), *_sent_out(frame, [], ifindex)])


class Word(IntEnum):
    """What 16 bits of a frame become, by the register that holds it: two random numbers, or what is asked for."""

    RANDOM = 7
    ANOTHER = 8
    TARGET = 9


@dataclass(frozen=True)
class Patch:
    """16 bits of a frame that are others each time; `inverted`: the complement, with which a checksum stays right."""

    at: int
    word: Word
    inverted: bool = False


def random_generator(frame: bytes, ifindex: int, patches: Sequence[Patch], first: int, bits: int) -> Fd:
    """Sends `frame` with other words each time; targets are numbers of 16 bits, one of 2**bits from `first` on."""
    draw: list[Step | str] = [(_MOV_REG, 6, 1, 0, 0)]
    for word in Word:
        draw += [(_CALL, 0, 0, 0, GET_PRANDOM_U32), (_MOV_REG, word, 0, 0, 0)]
    draw += [
        (_AND, Word.TARGET, 0, 0, (1 << bits) - 1),
        (_ADD, Word.TARGET, 0, 0, first),
        (_TO_BE, Word.TARGET, 0, 0, 16),
        (_MOV_REG, 1, 6, 0, 0),
    ]
    return load(XDP, [*draw, *_bounds(len(frame), "drop"), *_sent_out(frame, patches, ifindex)])


def _sent_out(frame: bytes, patches: Sequence[Patch], ifindex: int) -> list[Step | str]:
    """r2 = the frame's place."""
    if len(frame) % 4:
        raise ValueError("a frame is written in words of four bytes")
    stores: list[Step | str] = [(_ST_W, 2, 0, at, _signed(frame[at : at + 4])) for at in range(0, len(frame), 4)]
    for patch in patches:
        stores += [(_MOV_REG, 3, patch.word, 0, 0), *([(_XOR, 3, 0, 0, -1)] if patch.inverted else [])]
        stores.append((_STX_H, 2, 3, patch.at, 0))
    return [
        *stores,
        (_MOV, 1, 0, 0, ifindex),
        (_MOV, 2, 0, 0, 0),
        (_CALL, 0, 0, 0, REDIRECT),
        (_EXIT, 0, 0, 0, 0),
        "drop",
        (_MOV, 0, 0, 0, XDP_DROP),
        (_EXIT, 0, 0, 0, 0),
    ]


@dataclass(frozen=True)
class ReplyCounter:
    """An XDP program that counts and drops ARP replies for one address."""

    program: Fd
    counts: Fd

    def read(self) -> int:
        """Replies so far, on all CPUs."""
        cpus = syscall.possible_cpus()
        raw = syscall.map_lookup(self.counts, bytes(4), 8 * cpus) or bytes(8 * cpus)
        return sum(struct.unpack(f"={cpus}Q", raw))


def reply_counter(address: bytes) -> ReplyCounter:
    """Counts replies whose sender protocol address is `address` (4 bytes)."""
    attr = struct.pack("=IIIII", _PERCPU_ARRAY, 4, 8, 1, 0)
    counts = Fd(syscall._bpf(_MAP_CREATE, attr)[0])
    program = load(
        XDP,
        [
            *_bounds(42, "pass"),
            (_LDX_H, 5, 2, 12, 0),
            (_JNE, 5, 0, "pass", 0x0608),
            (_LDX_H, 5, 2, 20, 0),
            (_JNE, 5, 0, "pass", 0x0200),
            (_LDX_W, 5, 2, 28, 0),
            (_JNE32, 5, 0, "pass", _signed(address)),
            (_ST_W, 10, 0, -4, 0),
            (_LD_DW, 1, _PSEUDO_MAP_FD, 0, counts.number),
            (0, 0, 0, 0, 0),
            (_MOV_REG, 2, 10, 0, 0),
            (_ADD, 2, 0, 0, -4),
            (_CALL, 0, 0, 0, MAP_LOOKUP),
            (_JEQ, 0, 0, "drop", 0),
            (_LDX_DW, 1, 0, 0, 0),
            (_ADD, 1, 0, 0, 1),
            (_STX_DW, 0, 1, 0, 0),
            "drop",
            (_MOV, 0, 0, 0, XDP_DROP),
            (_EXIT, 0, 0, 0, 0),
            "pass",
            (_MOV, 0, 0, 0, XDP_PASS),
            (_EXIT, 0, 0, 0, 0),
        ],
    )
    return ReplyCounter(program, counts)
