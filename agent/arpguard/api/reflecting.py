"""grpc.reflection.v1alpha: lets clients such as grpcurl ask without the proto file."""

from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection


class _Symbols:
    """The descriptor pool, with methods: clients ask for these too, and the pool finds services at most."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802
        """The file that defines a symbol; KeyError when there is none."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            service, _, method = symbol.rpartition(".")
            found: FileDescriptor = (
                self._pool.FindServiceByName(service).methods_by_name[method].containing_service.file
            )
            return found


def add_reflection(server: grpc.aio.Server, *services: str) -> None:
    """Makes a server tell of its services, and of this one."""
    pool: Any = _Symbols()  # it asks no more of a DescriptorPool
    reflection.enable_server_reflection((*services, reflection.SERVICE_NAME), server, pool)
