"""The shortest list that still fails, as far as so many tries find it: first the last steps alone, then fewer."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Shrinking(Generic[T]):
    """`fails`: whether a list does. `simpler`: other forms of one of its items, the simplest first."""

    def __init__(self, fails: Callable[[Sequence[T]], bool], simpler: Callable[[T], Iterator[T]], tries: int) -> None:
        self._fails = fails
        self._simpler = simpler
        self._left = tries

    def shortest(self, items: Sequence[T]) -> list[T]:
        found = self._ending(list(items))
        before = None
        while found != before and self._left:
            before = found
            found = self._each_simpler(self._fewer(found))
        return found

    def _does(self, items: Sequence[T]) -> bool:
        if not self._left:
            return False
        self._left -= 1
        return self._fails(items)

    def _ending(self, items: list[T]) -> list[T]:
        """Most failures need only what happened just before: the last item, the last two, four, and so on."""
        size = 1
        while size < len(items):
            if self._does(items[-size:]):
                return items[-size:]
            size *= 2
        return items

    def _fewer(self, items: list[T]) -> list[T]:
        """Leaves out halves, quarters, and so on to single ones, as long as it fails without them."""
        size = max(1, len(items) // 2)
        while True:
            place = 0
            while place < len(items):
                less = items[:place] + items[place + size :]
                if self._does(less):
                    items = less
                else:
                    place += size
            if size == 1:
                return items
            size = max(1, size // 2)

    def _each_simpler(self, items: list[T]) -> list[T]:
        for place in range(len(items)):
            for form in self._simpler(items[place]):
                if self._does([*items[:place], form, *items[place + 1 :]]):
                    items = [*items[:place], form, *items[place + 1 :]]
                    break
        return items
