"""grpc.reflection.v1alpha: lets clients such as grpcurl ask without the proto file.

The package serves what the generated code carries. It lacks two things that clients rely on: look-up of methods by
name, and JSON names of fields, without which clients print names that differ from protobuf's JSON mapping.
"""

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_reflection.v1alpha import reflection


class _File:
    """A file as protoc would describe it."""

    def __init__(self, file: FileDescriptor) -> None:
        self._file = file
        self.name = file.name

    @property
    def dependencies(self) -> list["_File"]:
        return [_File(file) for file in self._file.dependencies]

    def CopyToProto(self, proto: FileDescriptorProto) -> None:  # noqa: N802
        self._file.CopyToProto(proto)
        _add_json_names(proto.message_type)


def _add_json_names(messages: Iterable[DescriptorProto]) -> None:
    for message in messages:
        for field in message.field:
            head, *words = field.name.split("_")
            field.json_name = head + "".join(word[:1].upper() + word[1:] for word in words)
        _add_json_names(message.nested_type)


class _Symbols:
    """The descriptor pool, with such files, and with methods: the pool finds services at most."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileByName(self, name: str) -> _File:  # noqa: N802
        """A file; KeyError when there is none."""
        return _File(self._pool.FindFileByName(name))

    def FindFileContainingSymbol(self, symbol: str) -> _File:  # noqa: N802
        """The file that defines a symbol; KeyError when there is none."""
        try:
            return _File(self._pool.FindFileContainingSymbol(symbol))
        except KeyError:
            service, _, method = symbol.rpartition(".")
            return _File(self._pool.FindServiceByName(service).methods_by_name[method].containing_service.file)


def add_reflection(server: grpc.aio.Server, *services: str) -> None:
    """Makes a server tell of its services, and of this one."""
    pool: Any = _Symbols()  # it asks no more of a DescriptorPool
    reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server, pool)
