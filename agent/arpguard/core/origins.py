"""Where an address comes from: which sources ask for it, which of them has the say, and why others are left alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of one address, in words.

    `follows`: which object of another announcer names the node, where one is followed.
    `why`: why the first source has the say; empty when the address is no VIP. `others` are the sources that ask for it
    and do not have the say; `refusals` say why an address is guarded nowhere, a sentence for each source, or none for
    an address that nobody asks for and anybody might.
    """

    why: str = ""
    others: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    follows: str = ""
