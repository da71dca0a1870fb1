"""JSON of the API server, read as tolerantly as it may be: in a list, or on a stream, a bad object is not alone.

Whoever may write some object may put much into it that servers keep: managedFields a thousand levels deep, say.
An answer that could not be read for that would hide all other objects of the kind, from all agents.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MAX_DEPTH = 10_000  # as deep as a server reads (sigs.k8s.io/json); Python's stack of 8 MB has room for four times that
_MAX_DIGITS = 400  # of a whole number; 309 are more than a float can be


def decode(data: bytes) -> object:
    """What JSON says. Bytes that are no UTF-8 become U+FFFD, as Go has them. ValueError for all that is no JSON."""
    with _room():
        try:
            return json.loads(data.decode("utf-8", "replace"), parse_int=_whole)
        except RecursionError as error:
            raise ValueError("nested too deep") from error


@contextmanager
def _room() -> Iterator[None]:
    """Python's JSON reader takes the limit that is meant for calls: 1,000."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(usual + MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def _whole(text: str) -> int | float:
    """As Go has numbers that are too large; int() refuses those of more than 4,300 digits."""
    return int(text) if len(text) < _MAX_DIGITS else float(text)
