"""A mapping of many items, for who changes a few at a time."""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Overlay(Generic[K, V]):
    """A mapping of which little changes at a time: that lies over the rest until somebody asks for the whole."""

    def __init__(self, whole: dict[K, V] | None = None) -> None:
        self._below: dict[K, V] = whole or {}
        self._above: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """The item of one key, if there is one."""
        return self._above[key] if key in self._above else self._below.get(key)

    def change(self, writes: Mapping[K, V], gone: Iterable[K] = ()) -> None:
        """Sets some items, and takes others away."""
        self._above.update(writes)
        self._above.update(dict.fromkeys(gone))

    def replace(self, whole: dict[K, V]) -> None:
        """Has all items be others, unless they are the same: then `whole` stays the same object."""
        if whole != self.whole:
            self._below = whole

    @property
    def whole(self) -> dict[K, V]:
        """All items: the same object while nothing changes, and not to be changed."""
        if self._above:
            together = self._below | self._above
            self._below = {key: item for key, item in together.items() if item is not None}
            self._above = {}
        return self._below
