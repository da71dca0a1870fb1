"""Since when this node has owned its VIPs, according to the entries in its kernel."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from arpguard.addresses import Address
from arpguard.model import EntryKey, VipEntry
from arpguard.verdict import Kind

_OWNING = (Kind.OWNED, Kind.DELEGATED)


class Tenures:
    """One tenure for each VIP for which this node answers; a new epoch begins a new one. Times are of the boot clock.

    What the kernel had when the agent started counts from then: no entry says when it was written.
    `changes` counts VIPs that this node began or ceased to own.
    """

    def __init__(self) -> None:
        self._begun: dict[Address, tuple[int, int]] = {}  # the epoch, and the moment
        self._seen: Mapping[EntryKey, VipEntry] = {}
        self.changes = 0

    @property
    def vips(self) -> AbstractSet[Address]:
        """The VIPs that are answered for here now."""
        return self._begun.keys()

    def since_ns(self, vip: Address) -> int | None:
        """Since when this node has a VIP; None if it does not."""
        epoch_and_moment = self._begun.get(vip)
        return epoch_and_moment[1] if epoch_and_moment else None

    def follow(self, entries: Mapping[EntryKey, VipEntry], now_ns: int) -> None:
        """Takes the kernel's entries. While they are the same object, nothing has changed."""
        if entries is not self._seen:
            self._seen = entries
            epochs = _epochs(entries)
            self._settle([*self._begun, *epochs], epochs, now_ns)

    def change(self, vips: Iterable[Address], entries: Mapping[EntryKey, VipEntry], now_ns: int) -> None:
        """Entries of some VIPs have changed; of these VIPs the kernel has `entries`."""
        self._settle(vips, _epochs(entries), now_ns)

    def _settle(self, vips: Iterable[Address], epochs: Mapping[Address, int], now_ns: int) -> None:
        for vip in vips:
            epoch, begun = epochs.get(vip), self._begun.get(vip)
            self.changes += (epoch is None) != (begun is None)
            if epoch is None:
                self._begun.pop(vip, None)
            elif begun is None or begun[0] != epoch:
                self._begun[vip] = epoch, now_ns


def _epochs(entries: Mapping[EntryKey, VipEntry]) -> dict[Address, int]:
    """The epoch of each VIP that is answered for here."""
    return {key.vip: entry.epoch for key, entry in entries.items() if entry.kind in _OWNING}
