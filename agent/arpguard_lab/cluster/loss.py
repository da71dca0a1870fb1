"""Frames that are lost at random: a BPF program of a few instructions, as not every kernel has netem (tc-netem(8))."""

import socket
import struct

from arpguard.dataplane import syscall
from arpguard.dataplane.syscall import Fd

_GET_PRANDOM_U32 = 7  # linux/bpf.h, enum bpf_func_id
_TC_UNSPEC, _TC_SHOT = -1, 2  # linux/pkt_cls.h
_RANGE = 1024
_PROTOCOL = 16  # linux/bpf.h, struct __sk_buff: in network order


def _step(code: int, offset: int = 0, value: int = 0, registers: int = 0) -> bytes:
    return struct.pack("=BBhi", code, registers, offset, value)


def _program(percent: int, ethertype: int) -> Fd:
    """Drops so many frames of a hundred, of one EtherType or (0) of all, and leaves the others to the next program."""
    only = [
        _step(0x61, _PROTOCOL, registers=0x10),  # r0 = skb->protocol
        _step(0x55, 3, socket.htons(ethertype)),  # if r0 != value, skip three
    ]
    steps = (only if ethertype else []) + [
        _step(0x85, value=_GET_PRANDOM_U32),  # call
        _step(0x57, value=_RANGE - 1),  # r0 &= 1023
        _step(0xA5, 2, percent * _RANGE // 100),  # if r0 < value, skip two
        _step(0xB7, value=_TC_UNSPEC),
        _step(0x95),  # exit
        _step(0xB7, value=_TC_SHOT),
        _step(0x95),
    ]
    return syscall.program_load(syscall.SCHED_CLS, b"".join(steps))


def lose(device: str, percent: int, ethertype: int = 0) -> list[Fd]:
    """From now on so many frames of a hundred are lost at a device of this namespace, until these are closed.

    Each way; with an EtherType only those of it that come in. Raises OSError where the kernel has no TCX (before 6.6).
    """
    ifindex = socket.if_nametoindex(device)
    with _program(percent, ethertype) as program:
        hooks = [syscall.ATTACH_TCX_INGRESS] + ([] if ethertype else [syscall.ATTACH_TCX_EGRESS])
        return [syscall.link_create(program, ifindex, hook, syscall.F_BEFORE) for hook in hooks]
