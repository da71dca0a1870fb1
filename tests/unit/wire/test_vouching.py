"""Frames of vouching: values and labelled bytes, keys, and the hash by its authors' own test vectors."""

import struct
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpguard.wire import vouching
from arpguard.wire.vouching import (
    KEY_LEN,
    VouchFrame,
    VouchTerm,
    VouchType,
    pack,
    parse,
    siphash24,
    term_key,
    term_number,
)

KEY = bytes(range(16))
OTHER_KEY = bytes(range(1, 17))

# vectors_sip64 of the reference implementation: key 00 01 .. 0f, message 00 01 .. of as many bytes as there are before.
SIP_VECTORS = """
310e0edd47db6f72 fd67dc93c539f874 5a4fa9d909806c0d 2d7efbd796666785 b7877127e09427cf 8da699cd64557618 cee3fe586e46c9cb
37d1018bf50002ab 6224939a79f5f593 b0e4a90bdf82009e f3b9dd94c5bb5d7a a7ad6b22462fb3f4 fbe50e86bc8f1e75 903d84c02756ea14
eef27a8e90ca23f7 e545be4961ca29a1 db9bc2577fcc2a3f 9447be2cf5e99a69 9cd38d96f0b3c14b bd6179a71dc96dbb 98eea21af25cd6be
c7673b2eb0cbf2d0 883ea3e395675393 c8ce5ccd8c030ca8 94af49f6c650adb8 eab8858ade92e1bc f315bb5bb835d817 adcf6b0763612e2f
a5c91da7acaa4dde 716595876650a2a6 28ef495c53a387ad 42c341d8fa92d832 ce7cf2722f512771 e37859f94623f3a7 381205bb1ab0e012
ae97a10fd434e015 b4a31508beff4d31 81396229f0907902 4d0cf49ee5d4dcca 5c73336a76d8bf9a d0a704536ba93e0e 925958fcd6420cad
a915c29bc8067318 952b79f3bc0aa6d4 f21df2e41d4535f9 87577519048f53a9 10a56cf5dfcd9adb eb75095ccd986cd0 51a9cb9ecba312e6
96afadfc2ce666c7 72fe52975a4364ee 5a1645b276d592a1 b274cb8ebf87870a 6f9bb4203de7b381 eaecb2a30b22a87f 9924a43cc1315724
bd838d3aafbf8db7 0b1a2a3265d51aea 135079a3231ce660 932b2846e4d70666 e1915f5cb1eca46c f325965ca16d629f 575ff28e60381be5
724506eb4c328a95
"""


def test_hash_is_what_its_authors_say():
    found = [struct.pack("<Q", siphash24(KEY, bytes(range(length)))) for length in range(64)]

    assert b"".join(found).hex() == "".join(SIP_VECTORS.split())


def test_length_of_a_message_is_part_of_its_hash():
    assert siphash24(KEY, bytes(256)) != siphash24(KEY, bytes(255))
    assert len({siphash24(KEY, bytes(length)) for length in range(300)}) == 300


# name -> (value, the bytes before the MAC)
FRAMES = {
    "ping": (
        VouchFrame(VouchType.PING, term=0x1122334455667788, number=7),
        (
            "01 01 00 0000000000"  # version, type, flags
            "8877665544332211 0700000000000000"  # term, number
            "0000000000000000 0000000000000000"  # stamp, right
            "0000000000000000"
        ),
    ),
    "last_ping": (
        VouchFrame(VouchType.PING, term=1, number=1 << 63, ending=True),
        "0101020000000000 0100000000000000 0000000000000080 0000000000000000 0000000000000000 0000000000000000",
    ),
    "pong": (
        VouchFrame(VouchType.PONG, term=1, number=7, stamp_ns=0x0102030405060708, right_ns=9, bound=True),
        "0102010000000000 0100000000000000 0700000000000000 0807060504030201 0900000000000000 0000000000000000",
    ),
    "grant": (
        VouchFrame(VouchType.GRANT, term=1, number=7, stamp_ns=5),
        "0103000000000000 0100000000000000 0700000000000000 0500000000000000 0000000000000000 0000000000000000",
    ),
}


@pytest.mark.parametrize(("frame", "octets"), FRAMES.values(), ids=FRAMES)
def test_frame_is_these_bytes_and_their_hash(frame, octets):
    body = bytes.fromhex(octets)

    assert pack(frame, KEY) == body + struct.pack("<Q", siphash24(KEY, body))
    assert parse(pack(frame, KEY), KEY) == frame


def sealed(body):
    return body + struct.pack("<Q", siphash24(KEY, body))


PONG = pack(FRAMES["pong"][0], KEY)
REFUSED = {
    "empty": b"",
    "a_byte_short": PONG[:-1],
    "no_version": sealed(b"\0" + PONG[1:48]),
    "next_version": sealed(b"\2" + PONG[1:48]),
    "no_type": sealed(b"\1\0" + PONG[2:48]),
    "type_behind_the_last": sealed(b"\1\4" + PONG[2:48]),
}


@pytest.mark.parametrize("payload", REFUSED.values(), ids=REFUSED)
def test_what_is_no_frame_is_none(payload):
    assert parse(payload, KEY) is None


def test_key_of_another_term_opens_nothing():
    assert parse(PONG, OTHER_KEY) is None


def test_any_changed_bit_is_noticed():
    whole = int.from_bytes(PONG, "little")
    changed = [(whole ^ 1 << bit).to_bytes(len(PONG), "little") for bit in range(8 * len(PONG))]

    assert [bit for bit, octets in enumerate(changed) if parse(octets, KEY) is not None] == []


def test_padding_is_not_read():
    assert parse(PONG + b"\xaa" * 4, KEY) == parse(PONG, KEY)


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_number_that_does_not_fit_is_refused(number):
    with pytest.raises(struct.error):
        pack(VouchFrame(VouchType.PING, term=1, number=number), KEY)


words = st.integers(0, (1 << 64) - 1)
keys = st.binary(min_size=KEY_LEN, max_size=KEY_LEN)
frames = st.builds(VouchFrame, st.sampled_from(VouchType), words, words, words, words, st.booleans(), st.booleans())


@given(frames, keys, st.binary(max_size=20))
def test_any_frame_comes_back_from_its_bytes(frame, key, padding):
    octets = pack(frame, key)

    assert len(octets) == 56
    assert parse(octets + padding, key) == frame


@given(st.binary(max_size=80), keys)
def test_no_bytes_raise_and_only_sealed_ones_are_a_frame(payload, key):
    frame = parse(payload, key)

    assert frame is None or pack(frame, key)[:3] == payload[:3]


TERM = VouchTerm(
    node="node-1",
    node_epoch="e1",
    voucher="node-2",
    instance="i2",
    voucher_epoch="e2",
    uuid="0f0e0d0c-0b0a-0908-0706-050403020100",
    d_ns=1_000_000_000,
    m_ns=400_000_000,
)


def test_key_is_an_hmac_over_fields_behind_their_lengths():
    # openssl dgst -sha256 -hmac secret
    assert term_key(b"secret", TERM).hex() == "1f4c1ffad8c910ec80b0d8dfb0e7dbd6"


OTHERS = {
    "node": "node-10",
    "node_epoch": "e10",
    "voucher": "node-20",
    "instance": "i20",
    "voucher_epoch": "e20",
    "uuid": "0f0e0d0c-0b0a-0908-0706-050403020101",
    "d_ns": 1_000_000_001,
    "m_ns": 400_000_001,
}


@pytest.mark.parametrize(("field", "value"), OTHERS.items(), ids=OTHERS)
def test_key_depends_on_each_field(field, value):
    assert term_key(b"secret", replace(TERM, **{field: value})) != term_key(b"secret", TERM)


def test_key_depends_on_the_secret_and_on_where_a_field_ends():
    assert term_key(b"secreT", TERM) != term_key(b"secret", TERM)
    assert term_key(b"s", replace(TERM, node="node-1e", node_epoch="1")) != term_key(b"s", TERM)


def test_number_of_a_term_is_of_its_bytes_however_they_are_written():
    digest = sha256(bytes(range(15, -1, -1))).digest()

    assert term_number(TERM.uuid) == int.from_bytes(digest[:8], "little") == 0x0208F1BA9692911F
    assert term_number(TERM.uuid.upper()) == term_number(TERM.uuid)


def test_no_term_has_the_number_0(monkeypatch):
    zeros = SimpleNamespace(digest=lambda: bytes(32))
    monkeypatch.setattr(vouching, "hashlib", SimpleNamespace(sha256=lambda _: zeros))

    assert term_number(TERM.uuid) == 1


def test_term_that_is_no_uuid_is_refused():
    with pytest.raises(ValueError, match="badly formed"):
        term_number("term-1")
    with pytest.raises(ValueError, match="badly formed"):
        term_key(b"secret", replace(TERM, uuid="term-1"))
