"""What the lab waits for, in words for people who watch it: whoever shows that says so once, and others tell it."""

from collections.abc import Callable
from contextvars import ContextVar

_SHOW: ContextVar[Callable[[str], None] | None] = ContextVar("show", default=None)


def shown_by(show: Callable[[str], None]) -> None:
    """From now on `show` gets it, in this thread."""
    _SHOW.set(show)


def waits_for(what: str) -> None:
    """Tells what comes next, and may take a while."""
    show = _SHOW.get()
    if show is not None:
        show(what)
