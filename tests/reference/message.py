"""What both families have in common: a message says who somebody is, or asks who somebody is."""

from abc import ABC, abstractmethod

from arpguard.addresses import Address, MacAddress
from arpguard.model import VipEntry
from arpguard.verdict import Reason


class Message(ABC):
    """An ARP packet, or a neighbour solicitation or advertisement, in its frame.

    `claimed` is the address whose owner the sender says it is, `sha` the MAC that this would be at, and `believed`
    whether a receiver may take it from this message. `asked` is the address whose owner it asks for. Either may be
    None. `tells`: it says whose an address is, and does not ask anything. `third_party`: its answer goes to somebody
    else than the sender of the frame. `to` is the MAC that the frame is sent to.
    """

    claimed: Address | None
    asked: Address | None
    sha: MacAddress
    believed: bool
    tells: bool
    third_party: bool
    to: MacAddress

    @abstractmethod
    def objection(self, entry: VipEntry) -> Reason | None:
        """Why even an owner does not answer this question."""

    @abstractmethod
    def answer(self, mac: MacAddress) -> bytes:
        """The frame that answers this question."""

    @abstractmethod
    def disarmed(self) -> bytes:
        """A frame that claims the same, and that no kernel answers."""

    @abstractmethod
    def rewritten(self, primary: Address) -> bytes:
        """A frame that asks the same in the name of another address."""


def is_own(mac: MacAddress, entry: VipEntry) -> bool:
    """Whether a MAC is this node's, on the link of the entry."""
    return mac in (entry.answer_mac, entry.link_mac)


def first_broken(rules: tuple[tuple[bool, Reason], ...]) -> Reason | None:
    """The reason of the first rule that is broken."""
    return next((reason for broken, reason in rules if broken), None)
