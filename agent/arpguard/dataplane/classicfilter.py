"""Classic BPF on a socket: which frames the kernel puts into it (Linux, Documentation/networking/filter.rst)."""

import ctypes
import socket
import struct
from collections.abc import Sequence

_SO_ATTACH_FILTER = 26
_STEP = struct.Struct("HBBI")  # struct sock_filter: code, jt, jf, k

ANCILLARY = 0xFFFFF000  # SKF_AD_OFF, linux/filter.h: where loads find what is not in the frame


def attach(opened: socket.socket, steps: Sequence[tuple[int, int, int, int]]) -> None:
    """Replaces the filter of a socket. OSError when the kernel refuses it."""
    code = ctypes.create_string_buffer(b"".join(_STEP.pack(*step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))  # struct sock_fprog
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
