"""Checks of requests: every refusal names the field, its value, and what is allowed."""

import base64
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import ip_address
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from arpguard.addresses import Address, MacAddress, vip_refusal
from arpguard.errors import ArpguardError
from arpguard.units import NS_PER_S

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000
_MAX_IFNAME = 15  # linux/if.h: IFNAMSIZ with its zero
_MAX_SECONDS = 253402300799  # timestamp.proto: the end of the year 9999

Choice = TypeVar("Choice", bound=IntEnum)


class RequestError(ArpguardError):
    """A call that cannot be answered, with the status code that says so."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def stopping() -> RequestError:
    """The status of a stream that the agent ends, not its caller."""
    return RequestError(grpc.StatusCode.UNAVAILABLE, "the agent is stopping; the guard stays in the kernel")


def wrong(field: str, value: object, allowed: str) -> RequestError:
    """INVALID_ARGUMENT for a field."""
    text = str(value)
    shown = text if len(text) <= 60 and text.isprintable() else ascii(text[:57]) + "..."
    return RequestError(grpc.StatusCode.INVALID_ARGUMENT, f"{field}: {shown or '(empty)'}: must be {allowed}")


class PagedRequest(Protocol):
    """What requests for lists have in common."""

    page_size: int
    page_token: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """How many items are wanted, and after which position: some whole numbers, none at the start."""

    size: int
    after: tuple[int, ...]
    _digest: int

    def token(self, *position: int) -> str:
        """The token for the page behind a position."""
        text = ".".join(map(str, (self._digest, *position)))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read_cursor(request: PagedRequest, numbers: int) -> Cursor:
    """The page that a request asks for, whose positions have so many numbers."""
    if request.page_size < 0:
        raise wrong("page_size", request.page_size, "0 to 1000 (0 means 100)")
    digest = _digest(request)
    after = _position(request.page_token, digest, numbers) if request.page_token else ()
    return Cursor(min(request.page_size or PAGE_SIZE, MAX_PAGE_SIZE), after, digest)


def _position(token: str, digest: int, numbers: int) -> tuple[int, ...]:
    """The position in a token, after which its page begins; RequestError if it is for another filter, or made up."""
    padded = token + "=" * (-len(token) % 4)
    try:
        found, *position = map(int, base64.b64decode(padded, altchars=b"-_", validate=True).decode().split("."))
    except ValueError:
        found, position = -1, []

    if found != digest or len(position) != numbers:
        allowed = "the next_page_token of the previous page for the same filter, or empty for the first page"
        raise wrong("page_token", token, allowed)
    return tuple(position)


def _digest(request: PagedRequest) -> int:
    """Which list is paged through: the request without size and token."""
    assert isinstance(request, Message)  # noqa: S101 - for the type checker
    same = type(request)()
    same.CopyFrom(request)
    same.ClearField("page_size")
    same.ClearField("page_token")
    return zlib.crc32(type(request).__name__.encode() + same.SerializeToString(deterministic=True))


def read_choice(field: str, value: int, choices: Iterable[Choice]) -> Choice | None:
    """The member of an enum, or of a part of it; None when it is not set."""
    if not value:
        return None
    found = {member.value: member for member in choices}
    if value not in found:
        raise wrong(field, value, f"one of {', '.join(member.name for member in found.values())}")
    return found[value]


def read_address(field: str, text: str) -> Address:
    """An IP address; one with a zone (RFC 4007), which may be any text, names no VIP."""
    with suppress(ValueError):
        address = ip_address(text)
        if getattr(address, "scope_id", None) is None:
            return address
    raise wrong(field, text, "an IP address such as 192.0.2.10")


def read_host(field: str, text: str) -> Address:
    """The address of a host: what ARP and neighbour discovery can be about."""
    address = read_address(field, text)
    refusal = vip_refusal(address)
    if refusal:
        raise wrong(field, text, f"a host's address, but {refusal}")
    return address


def read_mac(field: str, text: str) -> MacAddress:
    """A MAC address."""
    try:
        return MacAddress.parse(text)
    except ValueError:
        raise wrong(field, text, "a MAC address such as 02:00:00:00:00:aa") from None


def read_link(field: str, text: str) -> str | None:
    """The name of a link; None when it is not set."""
    if len(text.encode()) > _MAX_IFNAME or not text.isprintable() or set(text) & set(" /"):
        raise wrong(field, text, "the name of a network interface, at most 15 bytes")
    return text or None


def read_time(field: str, timestamp: Timestamp) -> int:
    """CLOCK_REALTIME nanoseconds."""
    if not 0 <= timestamp.seconds <= _MAX_SECONDS or not 0 <= timestamp.nanos < NS_PER_S:
        raise wrong(field, f"{timestamp.seconds} s, {timestamp.nanos} ns", "a time from 1970 to 9999")
    return timestamp.seconds * NS_PER_S + timestamp.nanos
