"""Types as the kernel wants to be told of them; that it takes them is in tests/bpf/test_loader.py."""

import ctypes
import struct

from arpguard.dataplane.btf import Types


class Inner(ctypes.Structure):
    _fields_ = (("a", ctypes.c_uint8), ("b", ctypes.c_uint16))


class Outer(ctypes.Structure):
    _fields_ = (("inner", Inner), ("rows", ctypes.c_uint8 * 3))


def names_and_types(encoded: bytes) -> tuple[bytes, bytes]:
    magic, version, flags, header, types_at, types, names_at, names = struct.unpack_from("=HBBIIIII", encoded)
    assert (magic, version, flags, header) == (0xEB9F, 1, 0, 24)
    assert (types_at, names_at) == (0, types)
    assert len(encoded) == header + types + names
    return encoded[header + names_at :], encoded[header : header + types]


def test_a_structure_comes_after_what_it_consists_of():
    types = Types()
    assert types.number_of(Outer) == 6
    names, encoded = names_and_types(types.encoded())
    words = struct.unpack(f"={len(encoded) // 4}I", encoded)

    def name(at: int) -> str:
        return names[at:].split(b"\0")[0].decode()

    assert [name(words[0]), *words[1:4]] == ["u8", 1 << 24, 1, 8]
    assert [name(words[4]), *words[5:8]] == ["u16", 1 << 24, 2, 16]
    assert [name(words[8]), *words[9:11]] == ["Inner", 4 << 24 | 2, 4]
    assert [name(words[11]), *words[12:14]] == ["a", 1, 0]
    assert [name(words[14]), *words[15:17]] == ["b", 2, 16]
    assert [name(words[17]), *words[18:21]] == ["u32", 1 << 24, 4, 32]
    assert [name(words[21]), *words[22:27]] == ["", 3 << 24, 0, 1, 4, 3]
    assert [name(words[27]), *words[28:30]] == ["Outer", 4 << 24 | 2, 8]
    assert [name(words[30]), *words[31:33]] == ["inner", 3, 0]
    assert [name(words[33]), *words[34:]] == ["rows", 5, 32]


def test_each_type_is_there_once():
    types = Types()
    first = types.number_of(Inner)
    before = types.encoded()
    assert types.number_of(Inner) == first
    assert types.encoded() == before
