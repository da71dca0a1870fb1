"""The frames of one term, on the link over which this node vouches for another one (packet(7), docs/vouching.md)."""

import socket
import struct

from arpguard.dataplane import device, packetsocket
from arpguard.errors import DataPlaneError
from arpguard.wire.vouching import VouchType

_HEADER_LEN = 14
_TERM_AT = _HEADER_LEN + 8
_LONGEST = 256
_TC_PRIO_INTERACTIVE = 6  # linux/pkt_sched.h: the first band of pfifo_fast, and the highest that needs no capability

_LOAD_4, _LOAD_2, _LOAD_1, _JUMP_IF, _RETURN = 0x20, 0x28, 0x30, 0x15, 0x06
_PKTTYPE = packetsocket.ANCILLARY + 4  # SKF_AD_PKTTYPE
_TO_THIS_HOST = 0  # PACKET_HOST
_ALL, _NOTHING = 0x40000, 0


class VouchSocket:
    """A raw socket for one term, in the network namespace of the calling thread; it never blocks.

    It is bound to the EtherType, so it hears what the programs let pass; of that a filter in the kernel leaves the
    pongs of this term, from the node to this one. A host that floods the link must know both to be read at all.

    `peer` is the node's MAC, 6 bytes. Raises DataPlaneError when the link is not there or raw sockets are refused.
    """

    def __init__(self, ifname: str, ethertype: int, peer: bytes, term: int) -> None:
        self._ifname = ifname
        self._socket = packetsocket.open_raw()
        try:
            packetsocket.attach_filter(self._socket, _pongs(peer, term))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, _TC_PRIO_INTERACTIVE)
            self._socket.bind((ifname, ethertype))
        except OSError as error:
            self._socket.close()
            raise DataPlaneError(f"cannot vouch on interface {ifname} ({error.strerror}): does it exist?") from error

        self._socket.setblocking(False)
        self._header = peer + self._socket.getsockname()[4] + ethertype.to_bytes(2, "big")

    def fileno(self) -> int:
        """What to wait for."""
        return self._socket.fileno()

    def send(self, payload: bytes) -> bool:
        """Sends a frame to the node; False when it did not leave: the link is down or gone, or its queue full."""
        try:
            self._socket.send(self._header + payload)
        except OSError:
            return False
        return True

    def hear(self) -> bytes | None:
        """The payload of the next pong, forged ones included; None when there is none. OSError: the link went down."""
        try:
            return self._socket.recv(_LONGEST)[_HEADER_LEN:]
        except BlockingIOError:
            return None

    def frames_heard(self) -> int:
        """How many frames have ever come over the link, of whatever kind; 0 when it is gone."""
        return device.frames_heard(self._ifname)

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def _pongs(peer: bytes, term: int) -> list[tuple[int, int, int, int]]:
    """The filter. Loads are big-endian, and the number of a term is not."""
    peer_high, peer_low = struct.unpack(">IH", peer)
    term_high, term_low = struct.unpack(">II", term.to_bytes(8, "little"))
    wanted = (
        (_LOAD_1, _PKTTYPE, _TO_THIS_HOST),
        (_LOAD_4, 6, peer_high),
        (_LOAD_2, 10, peer_low),
        (_LOAD_1, _HEADER_LEN + 1, VouchType.PONG),
        (_LOAD_4, _TERM_AT, term_high),
        (_LOAD_4, _TERM_AT + 4, term_low),
    )

    steps = []
    for number, (load, at, value) in enumerate(wanted):
        to_the_end = 2 * (len(wanted) - number) - 1
        steps += [(load, 0, 0, at), (_JUMP_IF, 0, to_the_end, value)]
    return [*steps, (_RETURN, 0, 0, _ALL), (_RETURN, 0, 0, _NOTHING)]
