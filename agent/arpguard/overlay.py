"""A mapping of many items that change a few at a time."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Item(Enum):
    GONE = "gone"


class Overlay(Generic[K, V]):
    """A mapping that changes little at a time: that lies over the rest until somebody asks for the whole."""

    def __init__(self, whole: dict[K, V] | None = None) -> None:
        self._below: dict[K, V] = whole or {}
        self._above: dict[K, V | _Item] = {}

    def get(self, key: K) -> V | None:
        """The item of one key, if there is one."""
        item = self._above.get(key)
        if item is None:
            return self._below.get(key)
        return None if item is _Item.GONE else item

    def change(self, writes: Mapping[K, V], gone: Iterable[K] = ()) -> None:
        """Sets some items, and takes others away."""
        self._above.update(writes)
        self._above.update(dict.fromkeys(gone, _Item.GONE))

    def replace(self, whole: dict[K, V]) -> None:
        """Has all items be others, unless they are the same: then `whole` stays the same object."""
        if whole != self.whole:
            self._below = whole

    @property
    def whole(self) -> dict[K, V]:
        """All items: the same object while nothing changes, and not to be changed."""
        if self._above:
            self._below = self._below.copy()
            for key, item in self._above.items():
                if item is _Item.GONE:
                    self._below.pop(key, None)
                else:
                    self._below[key] = item
            self._above = {}
        return self._below
