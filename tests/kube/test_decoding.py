"""JSON of servers: what is odd in one object does not keep others from being read."""

import sys

import pytest

from arpguard.kube.decoding import MAX_DEPTH, decode


def nested(depth: int) -> bytes:
    return b'{"f:a":' * depth + b"{}" + b"}" * depth


def test_as_deep_as_a_server_reads_is_read():
    """Of Python's own limit, which is one for calls, 990 levels of managedFields would be too many."""
    found = decode(b'{"items": [%s, {"name": "good"}]}' % nested(MAX_DEPTH - 3))

    assert found["items"][1] == {"name": "good"}


def test_deeper_is_no_json():
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(nested(3 * MAX_DEPTH))


def test_limit_for_calls_is_as_before():
    before = sys.getrecursionlimit()
    decode(b"{}")
    with pytest.raises(ValueError, match="Expecting"):
        decode(b"")

    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"7", 7),
        (b"-7", -7),
        (b"9" * 5000, float("inf")),
        (b"-" + b"9" * 5000, float("-inf")),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b'"\xed\xa0\x80"', "\ufffd\ufffd\ufffd"),
        (b'"\\ud800"', "\ud800"),  # refused where it is used
    ],
)
def test_numbers_and_bytes_are_read_as_go_has_them(text, value):
    assert decode(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"\x00{}", b"\xff\xfe{\x00}\x00", b"nul"])
def test_other_bytes_are_no_json(text):
    with pytest.raises(ValueError, match=r"\w"):
        decode(text)
