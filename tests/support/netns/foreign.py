"""Other people's BPF programs on a host's device."""

import asyncio
import contextlib
import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from arpguard.dataplane import clsact, syscall
from arpguard.dataplane.inspecting import has_tcx
from arpguard.verdict import Hook
from arpguard_lab.topology import Host

_PROG_LOAD = 5
_SCHED_CLS, _XDP = 3, 6
_EXIT = struct.pack("=BBhi", 0x95, 0, 0, 0)
_TCX = {Hook.TC_INGRESS: syscall.ATTACH_TCX_INGRESS, Hook.TC_EGRESS: syscall.ATTACH_TCX_EGRESS}
TC_OK, TC_UNSPEC, TC_SHOT, XDP_PASS = 0, -1, 2, 2


def _mov(register: int, value: int) -> bytes:
    return struct.pack("=BBhi", 0xB7, register, 0, value)


def _load(kind: int, code: bytes) -> syscall.Fd:
    text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
    attr = struct.pack("=IIQQ", kind, len(code) // 8, ctypes.addressof(text), ctypes.addressof(licence))
    return syscall.Fd(syscall._bpf(_PROG_LOAD, attr)[0])


def a_tc_program(action: int) -> syscall.Fd:
    """A tc program that does the same with every frame."""
    return _load(_SCHED_CLS, _mov(0, action) + _EXIT)


def an_xdp_program(action: int = XDP_PASS) -> syscall.Fd:
    return _load(_XDP, _mov(0, action) + _EXIT)


def a_program_that_drops_linear_frames(length: int) -> syscall.Fd:
    """Drops what has `length` bytes in the linear part of the skb, and leaves the rest to the next program."""
    data, data_end = 76, 80  # struct __sk_buff
    code = struct.pack("=BBhi", 0x61, 1 << 4 | 2, data, 0)  # r2 = skb->data
    code += struct.pack("=BBhi", 0x61, 1 << 4 | 3, data_end, 0)  # r3 = skb->data_end
    code += struct.pack("=BBhi", 0x07, 2, 0, length)  # r2 += length
    code += _mov(0, TC_UNSPEC)
    code += struct.pack("=BBhi", 0x2D, 3 << 4 | 2, 1, 0)  # if r2 > r3 goto exit
    code += _mov(0, TC_SHOT)
    return _load(_SCHED_CLS, code + _EXIT)


@contextmanager
def attached(host: Host, program: syscall.Fd, attach_type: int, flags: int, device: str = "eth0") -> Iterator[None]:
    """Somebody else's program on a device, by a bpf_link."""
    link = host.netns.call(
        lambda: syscall.link_create(program, socket.if_nametoindex(device), attach_type, flags),
    )
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            syscall.link_detach(link)
        link.close()


def programs_at(host: Host, hook: Hook, device: str = "eth0") -> list[int]:
    """Ids of the programs at a tc hook of a device, in the order they run; of a filter of somebody else's 0."""

    def look() -> list[int]:
        ifindex = socket.if_nametoindex(device)
        if not lacks_tcx():
            return syscall.program_query(ifindex, _TCX[hook])
        return [each.program_id for each in asyncio.run(clsact.read_filters(ifindex, hook))]

    return host.netns.call(look)


def lacks_tcx() -> bool:
    """Whether this kernel is older than TCX (6.6), so that the guard is attached by clsact."""
    return has_tcx() is False


def a_program_that_tags(length: int, tpid: int, tci: int) -> syscall.Fd:
    """Puts a VLAN tag beside frames of `length` bytes, in skb->vlan_tci, as a NIC that strips tags does."""
    skb_vlan_push = 18
    code = struct.pack("=BBhi", 0x61, 1 << 4 | 2, 0, 0)  # r2 = skb->len
    code += struct.pack("=BBhi", 0x55, 2, 3, length)  # if r2 != length goto exit
    code += _mov(2, socket.htons(tpid)) + _mov(3, tci)
    code += struct.pack("=BBhi", 0x85, 0, 0, skb_vlan_push)
    code += _mov(0, TC_UNSPEC)
    return _load(_SCHED_CLS, code + _EXIT)
