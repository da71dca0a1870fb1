"""BTF of the maps' keys and values, by which `bpftool map dump` shows fields instead of bytes.

Made of the ctypes mirrors in layout.py, in the encoding of the kernel's Documentation/bpf/btf.rst.
"""

import ctypes
import struct
from typing import Any

CType = type[Any]
_MAGIC, _VERSION, _HEADER_BYTES = 0xEB9F, 1, 24
_INT, _ARRAY, _STRUCT = 1, 3, 4


class Types:
    """Types and their names, each of them once; `number_of` gives the number that the kernel knows a type by."""

    def __init__(self) -> None:
        self._numbers: dict[CType, int] = {}
        self._encoded: list[bytes] = []
        self._names = bytearray(1)

    def number_of(self, kind: CType) -> int:
        """The number of a type, which is added, after those that it consists of, if it is not there."""
        if kind not in self._numbers:
            encoded = self._encode(kind)
            self._encoded.append(encoded)
            self._numbers[kind] = len(self._encoded)  # 0 is void
        return self._numbers[kind]

    def encoded(self) -> bytes:
        """All of it, for BPF_BTF_LOAD."""
        types = b"".join(self._encoded)
        header = struct.pack(
            "=HBBIIIII", _MAGIC, _VERSION, 0, _HEADER_BYTES, 0, len(types), len(types), len(self._names)
        )
        return header + types + bytes(self._names)

    def _encode(self, kind: CType) -> bytes:
        size, declared = ctypes.sizeof(kind), vars(kind)
        if issubclass(kind, ctypes.Array):
            element, index = self.number_of(declared["_type_"]), self.number_of(ctypes.c_uint32)
            return self._head("", _ARRAY, 0) + struct.pack("=III", element, index, declared["_length_"])
        if not issubclass(kind, ctypes.Structure):
            return self._head(f"u{8 * size}", _INT, size) + struct.pack("=I", 8 * size)
        members = b"".join(
            struct.pack("=III", self._name(name), self.number_of(member), 8 * getattr(kind, name).offset)
            for name, member in declared["_fields_"]
        )
        return self._head(kind.__name__, _STRUCT, size, len(declared["_fields_"])) + members

    def _head(self, name: str, kind: int, size: int, members: int = 0) -> bytes:
        return struct.pack("=III", self._name(name), kind << 24 | members, size)

    def _name(self, text: str) -> int:
        if not text:
            return 0
        at = len(self._names)
        self._names += text.encode() + b"\0"
        return at
