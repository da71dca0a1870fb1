"""What the loaded programs would do with a frame: BPF_PROG_TEST_RUN of their twins.

A twin (`try_*` in bpf/arpguard.c) is the same code over the same maps, from the same build; it counts and
reports nothing, and returns what was decided. tests/bpf/test_explain.py proves that the two agree.
"""

import struct
from dataclasses import dataclass

from arpguard.dataplane import syscall
from arpguard.dataplane.build import TWIN_AT
from arpguard.dataplane.syscall import Fd
from arpguard.verdict import REASONS, Hook, Reason, Verdict

_SKB_SIZE, _SKB_MARK_AT = 192, 8  # struct __sk_buff, linux/bpf.h
_TC_UNSPEC, _TC_REDIRECT, _XDP_PASS, _XDP_TX = 0xFF, 7, 2, 3
_PASSED = {(Hook.XDP, _XDP_PASS), (Hook.TC_INGRESS, _TC_UNSPEC), (Hook.TC_EGRESS, _TC_UNSPEC)}
_ANSWERED = {(Hook.XDP, _XDP_TX), (Hook.TC_INGRESS, _TC_REDIRECT)}
_DECISION_BITS, _REASON_BITS = 9, 6


@dataclass(frozen=True, slots=True)
class Trial:
    """The result for a frame: `frame` is what passes or is sent back, None when it is dropped.

    Up to two decisions: about the sender's address, then about the target's.
    """

    answered: bool
    frame: bytes | None
    decisions: tuple[tuple[Verdict, Reason], ...]

    def fate(self, given: bytes) -> str:
        """The frame's fate, as the API names it."""
        if self.frame is None:
            return "FATE_DROPPED"
        if self.answered:
            return "FATE_ANSWERED"
        return "FATE_PASSED" if self.frame == given else "FATE_CHANGED"


def try_frame(programs: dict[str, Fd], hook: Hook, ifindex: int, frame: bytes) -> Trial:
    """Runs the twin of a hook's program on a frame, as if it were on the link `ifindex`.

    `frame` has at least 14 bytes. Raises OSError when the kernel refuses the test run.
    """
    program = programs[TWIN_AT[hook]]
    if hook is Hook.XDP:
        metadata = struct.pack("=I", ifindex)
        xdp_md = struct.pack("=IIIIII", len(metadata), len(metadata) + len(frame), 0, 0, 0, 0)
        run = syscall.program_test_run(program, metadata + frame, context=xdp_md)
        left = run.frame[len(metadata) :]
    else:
        sk_buff = struct.pack("=I", ifindex).rjust(_SKB_MARK_AT + 4, b"\0").ljust(_SKB_SIZE, b"\0")
        run = syscall.program_test_run(program, frame, context=sk_buff)
        left = run.frame
    return _trial(hook, run.retval, left)


def _trial(hook: Hook, retval: int, left: bytes) -> Trial:
    """The result that a twin returned and left."""
    outcome = (hook, retval & 0xFF)
    return Trial(outcome in _ANSWERED, left if outcome in _ANSWERED | _PASSED else None, _decisions(retval >> 8))


def _decisions(trace: int) -> tuple[tuple[Verdict, Reason], ...]:
    found = []
    while trace:
        packed = trace & (1 << _DECISION_BITS) - 1
        found.append((Verdict(packed >> _REASON_BITS), REASONS[packed & (1 << _REASON_BITS) - 1]))
        trace >>= _DECISION_BITS
    return tuple(reversed(found))
