"""JSON from the API server, read tolerantly: in a list or a stream, one bad object must not hide the others.

Anybody who may write some object can put odd things into it that servers keep: managedFields a thousand
levels deep, say. If agents could not read that, none of them would see any object of the kind.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MAX_DEPTH = 10_000  # as deep as a server reads (sigs.k8s.io/json); Python's stack of 8 MB has room for four times that
_MAX_DIGITS = 400  # of a whole number; 309 are more than a float can be


def decode(data: bytes) -> object:
    """Decodes JSON. Bytes that are not UTF-8 become U+FFFD, as in Go. ValueError if it is not JSON."""
    with _room():
        try:
            return _DECODER.decode(data.decode("utf-8", "replace"))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@contextmanager
def _room() -> Iterator[None]:
    """Raises the recursion limit, which Python's JSON reader obeys, and which is 1,000."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(usual + MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(usual)


def _whole(text: str) -> int | float:
    """A whole number, or infinity as in Go if it is too large; int() refuses more than 4,300 digits."""
    return int(text) if len(text) < _MAX_DIGITS else float(text)


_DECODER = json.JSONDecoder(parse_int=_whole)
