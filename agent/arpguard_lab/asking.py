"""A stream of requests and solicitations, each from an address of its own, which tells replies apart.

The addresses are from 10.0.0.0/8 and fd00::/104, which no host has in the lab; asking about K VIPs takes turns.
"""

import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from arpguard.addresses import Address, MacAddress
from arpguard.dataplane.neighboursocket import NeighbourSocket
from arpguard.units import NS_PER_MS, NS_PER_S
from arpguard.wire.arp import build_request
from arpguard.wire.ndp import build_solicitation
from arpguard_lab.capture import Said

INTERVAL_S = 0.001
_CATCH_UP_NS = 20 * NS_PER_MS  # what was missed for longer is not made up for
_FIRST = {4: int(IPv4Address("10.0.0.1")), 6: int(IPv6Address("fd00::1"))}
_NUMBERS = (IPv4Network("10.0.0.0/7"), IPv6Network("fd00::/15"))
_SPA = slice(28, 32)
EVER_NS = 1 << 62
ALL_ADDRESSES = 1 << 23
FEW_ADDRESSES = 100  # a kernel that answers keeps a neighbour entry for each; all namespaces have room for 1,024


@dataclass(frozen=True, slots=True)
class Silence:
    """A time without an answer: from the answered request before it to the one after it.

    Nanoseconds of the wall clock. It is measured between requests that were sent, so it holds their interval too.
    """

    length_ns: int
    began_ns: int

    @property
    def length_ms(self) -> int:
        """Rounded."""
        return round(self.length_ns / NS_PER_MS)


class Stream:
    """Asks in a thread of its own, from `start` to `stop`; `hear` gives what was answered."""

    def __init__(
        self,
        asker: NeighbourSocket,
        vips: Sequence[Address],
        interval_s: float = INTERVAL_S,
        addresses: int = ALL_ADDRESSES,
        lane: int = 0,
    ) -> None:
        """`lane`: which half of the addresses; two streams at once need one each."""
        self._asker = asker
        self._vips = list(vips)
        self._first = lane * ALL_ADDRESSES
        self._questions = [_question(asker.mac, vip) for vip in vips]
        self._interval_s = interval_s
        self._addresses = addresses
        self._count = 0
        self._sent_ns = array("q")
        self._answered = bytearray()
        self._forgotten = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lab-stream", daemon=True)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def stop(self) -> None:
        """Sends no more, and closes the socket."""
        self._stopping.set()
        self._thread.join()
        self._asker.close()

    @property
    def sent(self) -> int:
        """How many requests so far."""
        return self._forgotten + len(self._sent_ns)

    def forget(self, keep: int) -> None:
        """Forgets requests but for the last few; `lost` and its like are of those then."""
        many = (len(self._answered) - keep) // len(self._vips) * len(self._vips)
        if many > 0:
            del self._sent_ns[:many], self._answered[:many]
            self._forgotten += many

    def hear(self, said: Iterable[Said]) -> None:
        """Takes replies in."""
        count = len(self._sent_ns)
        self._answered.extend(bytes(count - len(self._answered)))
        for each in said:
            number = self.request_of(each)
            if number is not None:
                self._answered[number - self._forgotten] = 1

    def request_of(self, said: Said) -> int | None:
        """The number of the request that a reply answers: of those with its address, the last one before it."""
        offset = int(said.asked_by) - _FIRST[said.vip.version] - self._first
        if said.is_announcement or not 0 <= offset < self._addresses:
            return None
        rounds = (self.sent - 1 - offset) // self._addresses
        for number in range(offset + rounds * self._addresses, self._forgotten - 1, -self._addresses):
            if self._sent_ns[number - self._forgotten] <= said.time_ns:
                return number
        return None

    def lost(self, vip: Address, since_ns: int = 0, until_ns: int = EVER_NS) -> int:
        """Requests about a VIP without an answer, sent in a span of time."""
        return sum(not answered for sent_ns, answered in self._about(vip) if since_ns <= sent_ns < until_ns)

    def requests(self, vip: Address) -> dict[int, int]:
        """The requests about a VIP that are not forgotten: when each was sent, by its number."""
        first, step = self._vips.index(vip), len(self._vips)
        return {self._forgotten + number: self._sent_ns[number] for number in range(first, len(self._sent_ns), step)}

    def silence(self, vip: Address, since_ns: int = 0) -> Silence:
        """The longest one since a time; one that lasts still counts up to the last request."""
        return max(self.silences(vip, since_ns), key=lambda each: each.length_ns, default=Silence(0, since_ns))

    def silences(self, vip: Address, since_ns: int = 0) -> Iterator[Silence]:
        """From the last request that was answered before a lost one to the next that was answered, in order."""
        last_ns, latest_ns, missing = None, since_ns, False
        for sent_ns, answered in self._about(vip):
            if sent_ns < since_ns:
                continue
            last_ns = sent_ns if last_ns is None else last_ns
            latest_ns, missing = sent_ns, missing or not answered

            if answered:
                if missing:
                    yield Silence(sent_ns - last_ns, last_ns)
                last_ns, missing = sent_ns, False
        if missing and last_ns is not None:
            yield Silence(latest_ns - last_ns, last_ns)

    def _about(self, vip: Address) -> Iterable[tuple[int, int]]:
        first, step = self._vips.index(vip), len(self._vips)
        known = len(self._answered)
        return zip(self._sent_ns[first:known:step], self._answered[first::step], strict=True)

    def _run(self) -> None:
        count, interval_ns = len(self._questions), round(self._interval_s * NS_PER_S)
        due_ns = time.monotonic_ns()
        while not self._stopping.is_set():
            number = self._count
            frame = self._questions[number % count](self._first + number % self._addresses)
            self._sent_ns.append(time.time_ns())
            self._asker.send(frame)
            self._count += 1
            due_ns = max(due_ns + interval_ns, time.monotonic_ns() - _CATCH_UP_NS)
            time.sleep(max(0.0, (due_ns - time.monotonic_ns()) / NS_PER_S))


def is_number(address: Address) -> bool:
    """Whether nobody asks from this address twice: it is one of a stream's, or of the lab's single questions."""
    return any(address in network for network in _NUMBERS)


def _question(mac: MacAddress, vip: Address) -> Callable[[int], bytes]:
    """What makes the frames that ask about a VIP, by the number of their sender's address."""
    if isinstance(vip, IPv6Address):
        return lambda number: build_solicitation(mac, IPv6Address(_FIRST[6] + number), vip)
    frame = bytearray(build_request(mac, IPv4Address(0), vip))

    def ask(number: int) -> bytes:
        frame[_SPA] = (_FIRST[4] + number).to_bytes(4, "big")
        return bytes(frame)

    return ask


def answered_by(said: Iterable[Said], vip: Address, since_ns: int) -> set[MacAddress]:
    """Who has answered for a VIP since a time."""
    return {each.mac for each in said if each.vip == vip and since_ns <= each.time_ns}
