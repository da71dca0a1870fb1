"""Packet sockets (packet(7)), and the classic BPF that chooses frames (Linux, Documentation/networking/filter.rst)."""

import ctypes
import socket
import struct
from collections.abc import Sequence

from arpguard.errors import DataPlaneError

_SO_ATTACH_FILTER = 26
_STEP = struct.Struct("HBBI")  # struct sock_filter: code, jt, jf, k

ANCILLARY = 0xFFFFF000  # SKF_AD_OFF, linux/filter.h: where loads find what is not in the frame


def open_raw() -> socket.socket:
    """A raw socket that hears nothing before it is bound. Raises DataPlaneError when raw sockets are refused."""
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    except PermissionError as error:
        raise DataPlaneError("the kernel refuses raw sockets: run as root, or with CAP_NET_RAW") from error


def attach_filter(opened: socket.socket, steps: Sequence[tuple[int, int, int, int]]) -> None:
    """Replaces the filter of a socket. OSError when the kernel refuses it."""
    code = ctypes.create_string_buffer(b"".join(_STEP.pack(*step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))  # struct sock_fprog
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
