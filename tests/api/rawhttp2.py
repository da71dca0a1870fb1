"""HTTP/2 by hand (RFC 9113): what no well-kept library sends.

Headers are literals without a table (RFC 7541 6.2.2), so every frame is what the test says.
"""

import socket
import struct
import threading
from contextlib import suppress

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 0x1, 0x4, 0x1
INITIAL_WINDOW_SIZE = 4
CALL = {
    ":method": "POST",
    ":scheme": "http",
    ":path": "/arpguard.v1.AgentService/GetStatus",
    ":authority": "localhost",
    "content-type": "application/grpc",
    "te": "trailers",
}
NO_MESSAGE = bytes(5)  # gRPC's length-prefixed message of no bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def integer(value: int, bits: int) -> bytes:
    """RFC 7541 5.1, with no bits set before it."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value, octets = value - most, [most]
    while value >= 128:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value])


def literal(name: str, value: str) -> bytes:
    return b"\0" + b"".join(integer(len(text), 7) + text.encode() for text in (name, value))


def settings(**pairs: int) -> bytes:
    numbers = {"header_table_size": 1, "initial_window_size": INITIAL_WINDOW_SIZE, "max_frame_size": 5}
    return frame(SETTINGS, payload=b"".join(struct.pack("!HI", numbers[name], value) for name, value in pairs.items()))


def request(stream: int, more: dict[str, str] | None = None, *, ended: bool = True) -> bytes:
    """A call of GetStatus, its request included."""
    block = b"".join(literal(name, value) for name, value in {**CALL, **(more or {})}.items())
    head = frame(HEADERS, END_HEADERS, stream, block)
    return head + (frame(DATA, END_STREAM, stream, NO_MESSAGE) if ended else b"")


class Connection:
    """A connection to a unix socket. What the server says is thrown away, unless `reads` is off."""

    def __init__(self, path: str, first: bytes | None = None, *, reads: bool = True) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        self._socket.connect(path)
        self.received = 0
        self._reader = threading.Thread(target=self._drain, daemon=True)
        if reads:
            self._reader.start()
        self.send(PREFACE + settings() if first is None else first)

    def send(self, data: bytes) -> bool:
        """Whether the server took it: it may end the connection, or read no more."""
        with suppress(OSError):
            self._socket.sendall(data)
            return True
        return False

    def patience(self, seconds: float) -> None:
        """How long to wait for the server to take what is sent."""
        self._socket.settimeout(seconds)

    def say_no_more(self) -> None:
        """Half of the connection ends."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _drain(self) -> None:
        with suppress(OSError):
            while data := self._socket.recv(1 << 16):
                self.received += len(data)
