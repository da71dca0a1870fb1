"""The latest result of a function, for as long as its arguments stay the same."""

from collections.abc import Callable
from typing import Generic, TypeVar, TypeVarTuple

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Latest(Generic[*Args, Result]):
    """Calls a pure function only when an argument has changed; until then returns the same object.

    Arguments must not be changed in place. Comparing those that are the same objects costs nothing.
    """

    def __init__(self, function: Callable[[*Args], Result]) -> None:
        self._function = function
        self._known: tuple[tuple[*Args], Result] | None = None

    def __call__(self, *args: *Args) -> Result:
        """The function's result."""
        if self._known is None or self._known[0] != args:
            self._known = args, self._function(*args)
        return self._known[1]
