"""Every accepted call passes here: it is counted, timed, bounded, and never ended by an unexpected error.

grpc.aio logs a traceback and answers UNKNOWN when a request's bytes are not a message; this answers INVALID_ARGUMENT.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from arpguard.api.requests import RequestError

log = logging.getLogger(__name__)


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a caller went away while it was answered, or was refused: grpc.aio logs a traceback for both."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, (asyncio.CancelledError, grpc.aio.InternalError))


logging.getLogger("grpc._cython.cygrpc").addFilter(_is_news)

MAX_STREAMS = 64
REQUEST_S = 10.0  # for a request to come in, once its call has begun

_Handler: TypeAlias = Any  # grpc's RpcMethodHandler has no public type
_Context: TypeAlias = Any  # grpc.aio.ServicerContext, for whatever messages the method has
_Message: TypeAlias = Any


class Meter(Protocol):
    """Counts the calls."""

    def observe(self, method: str, code: str, seconds: float) -> None:
        """A call of `method` ("ListVips") has ended with a status code ("OK")."""

    def watchers_changed(self, delta: int) -> None:
        """A reader of decisions came (1) or went (-1)."""

    def lost(self, count: int) -> None:
        """Readers of decisions were too slow for so many."""


class _Malformed:
    """Stands for a request whose bytes are not its message."""


class Calls(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # generic in the stubs only
    """Wraps the handlers of all methods."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._streams = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ended(self, timeout_s: float) -> None:
        """Waits for calls to end once the server has stopped: grpc.aio prints a traceback for those the loop ends."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]], details: grpc.HandlerCallDetails
    ) -> _Handler:
        """The method's handler, wrapped; None, which becomes UNIMPLEMENTED, for an unknown method."""
        self._note_task()
        handler = await continuation(details)
        if handler is None:
            return None
        method = str(details.method).rpartition("/")[2]
        parse = _lenient(handler.request_deserializer)
        # As streams, for grpc.aio hands others over when their request has come, and waits for it without end.
        if handler.response_streaming:
            stream = handler.stream_stream or handler.unary_stream
            wrapped = self._stream(method, stream, several=handler.request_streaming)
            return grpc.stream_stream_rpc_method_handler(wrapped, parse, handler.response_serializer)
        return grpc.stream_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary), parse, handler.response_serializer
        )

    def _note_task(self) -> None:
        """Notes a call's task: every call has its own."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _unary(self, method: str, answer: Callable[[_Message, _Context], Awaitable[_Message]]) -> _Handler:
        async def call(requests: AsyncIterator[_Message], context: _Context) -> _Message:
            with self._metered(method, context):
                try:
                    return await answer(await _only(requests), context)
                except Exception as error:  # noqa: BLE001 - the last resort of every call
                    await _refuse(context, method, error)

        return call

    def _stream(
        self, method: str, answer: Callable[[_Message, _Context], AsyncIterator[_Message]], *, several: bool
    ) -> _Handler:
        async def call(requests: AsyncIterator[_Message], context: _Context) -> AsyncIterator[_Message]:
            with self._metered(method, context), self._counted():
                try:
                    self._refuse_too_many()
                    checked = _each_sound(requests) if several else await _only(requests)
                    async for response in answer(checked, context):
                        yield response
                except Exception as error:  # noqa: BLE001 - the last resort of every call
                    await _refuse(context, method, error)

        return call

    def _refuse_too_many(self) -> None:
        if self._streams > MAX_STREAMS:
            raise RequestError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open: close one of them")

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @contextmanager
    def _metered(self, method: str, context: _Context) -> Iterator[None]:
        began, ended = time.monotonic(), ""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            ended = "CANCELLED"
            raise
        finally:
            code = context.code()
            name = code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, "OK")
            self._meter.observe(method, ended or name, time.monotonic() - began)


_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def _lenient(parse: Callable[[bytes], _Message]) -> Callable[[bytes], _Message]:
    def read(data: bytes) -> _Message:
        try:
            return parse(data)
        except DecodeError:
            return _Malformed()

    return read


def _sound(request: _Message) -> _Message:
    if isinstance(request, _Malformed):
        raise RequestError(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be parsed as the method's message")
    return request


async def _only(requests: AsyncIterator[_Message]) -> _Message:
    """The request of a call that has one; RequestError when it is not a message, or does not come in time."""
    try:
        async with asyncio.timeout(REQUEST_S):
            async for request in requests:
                return _sound(request)
    except TimeoutError:
        raise RequestError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request came within {REQUEST_S:g} s") from None
    raise RequestError(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without a request")


async def _each_sound(requests: AsyncIterator[_Message]) -> AsyncIterator[_Message]:
    async for request in requests:
        yield _sound(request)


async def _refuse(context: _Context, method: str, error: Exception) -> None:
    """Ends a call with the status that fits the error; an unforeseen error is a bug, and goes to the log."""
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, RequestError):
        await context.abort(error.code, str(error))
    log.error("bug in the API method %s; please report it", method, exc_info=error)
    await context.abort(grpc.StatusCode.INTERNAL, "internal error in the agent; its log has the details")
