"""Decisions from the ring buffer, by libbpf.

libbpf is called through ctypes: ring_buffer__new(), __consume(), __epoll_fd(), __free() (libbpf 1.0, libbpf.h).
"""

import ctypes
from collections.abc import Callable

from arpguard.addresses import BROADCAST_MAC, ZERO_MAC, MacAddress, from_mapped
from arpguard.dataplane.layout import EventValue
from arpguard.dataplane.syscall import Fd
from arpguard.errors import DataPlaneError
from arpguard.model import Decision, EntryKey
from arpguard.verdict import REASONS, Hook, Kind, Mode, Verdict

BATCH = 256
_ENOUGH = -1  # libbpf: a negative value ends the round, and the sample counts as read
_COMMON = {mac.octets: mac for mac in (ZERO_MAC, BROADCAST_MAC)}
_SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class EventReader:
    """Hands every decision in the ring buffer to `receive`; `fileno()` is readable as long as there are some."""

    def __init__(self, events: Fd, receive: Callable[[Decision], None]) -> None:
        try:
            self._lib = ctypes.CDLL("libbpf.so.1")
        except OSError as error:
            raise DataPlaneError("libbpf.so.1 is missing: apt-get install libbpf1") from error
        self._lib.ring_buffer__new.restype = ctypes.c_void_p
        self._receive = receive
        self._taken = 0
        self._callback = _SAMPLE(self._sample)  # kept: libbpf calls it as long as the reader lives
        self._ring: int | None = self._lib.ring_buffer__new(events.number, self._callback, None, None)
        if not self._ring:
            raise DataPlaneError("cannot read the event ring buffer: stop other programs that read it")

    def fileno(self) -> int:
        """A descriptor for select(2) and friends."""
        return int(self._lib.ring_buffer__epoll_fd(ctypes.c_void_p(self._ring)))

    def consume(self) -> int:
        """Takes what is there now, BATCH at most: a flood must not keep the caller from its other work."""
        self._taken = 0
        self._lib.ring_buffer__consume(ctypes.c_void_p(self._ring))
        return self._taken

    def close(self) -> None:
        """Lets go of the ring buffer; what is left in it stays for the next reader."""
        if self._ring:
            self._lib.ring_buffer__free(ctypes.c_void_p(self._ring))
            self._ring = None

    def _sample(self, _context: int, data: int, size: int) -> int:
        if size >= ctypes.sizeof(EventValue):
            self._receive(decode_event(ctypes.string_at(data, ctypes.sizeof(EventValue))))
        self._taken += 1
        return _ENOUGH if self._taken == BATCH else 0


def decode_event(raw: bytes) -> Decision:
    """A decision from the bytes of a struct event. Equal addresses become one object: thousands are remembered."""
    value = EventValue.from_buffer_copy(raw)
    vip, sha = from_mapped(bytes(value.vip)), MacAddress(bytes(value.sha))
    spa, tpa = from_mapped(bytes(value.spa)), from_mapped(bytes(value.tpa))
    eth_src = MacAddress(bytes(value.eth_src))

    return Decision(
        time_ns=value.time_ns,
        key=EntryKey(value.ifindex, vip),
        verdict=Verdict(value.verdict),
        reason=REASONS[value.reason],
        hook=Hook(value.hook),
        mode=Mode(value.mode),
        kind=Kind(value.kind),
        op=value.op,
        spa=vip if spa == vip else spa,
        tpa=vip if tpa == vip else tpa,
        sha=sha,
        tha=_shared(bytes(value.tha)),
        eth_src=sha if eth_src == sha else eth_src,
        eth_dst=_shared(bytes(value.eth_dst)),
    )


def _shared(octets: bytes) -> MacAddress:
    """Interns addresses, because nearly all frames share them."""
    return _COMMON.get(octets) or MacAddress(octets)
