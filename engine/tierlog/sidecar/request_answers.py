"""The answers to a sidecar's requests, by its storage manager."""

from __future__ import annotations

import os
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

from tierlog._version import __version__
from tierlog.aio.segment_stream import AsyncSegmentStream
from tierlog.aio.storage_manager import AsyncStorageManager
from tierlog.errors import StoreError
from tierlog.remote.api import (
    IndexType,
    InvalidRangeError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
)
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine.clock import Clock
from tierlog.serving.admission import RequestMemory
from tierlog.serving.connection import Client
from tierlog.serving.refusals import RefusedError
from tierlog.serving.response_writer import Reply
from tierlog.sidecar import protocol
from tierlog.sidecar.allowed_logs import AllowedLogs
from tierlog.sidecar.parked_pieces import ParkedPieces
from tierlog.sidecar.protocol import (
    Copy,
    Delete,
    FetchIndex,
    FetchRange,
    Health,
    Hello,
    MalformedFrameError,
    Metrics,
    RefusedRequestError,
    Request,
    Status,
)
from tierlog.sidecar.sidecar_metrics import SidecarMetrics
from tierlog.sidecar.stored_objects import StoredObjects

_HELLO: Final = struct.Struct(">h")
_PID: Final = struct.Struct(">i")
_SIZES: Final = struct.Struct(">3q")
_OPERATIONS: Final[Mapping[type[Request], str]] = {
    Hello: "hello",
    Copy: "copy",
    FetchRange: "fetch_range",
    FetchIndex: "fetch_index",
    Delete: "delete",
    Health: "health",
    Metrics: "metrics",
}


class BrokerClient(Client):
    """A broker's connection.

    Attributes:
        is_greeted: Whether its hello was answered.
    """

    __slots__ = ("is_greeted",)

    def __init__(self, host: str, connection_id: int) -> None:
        super().__init__(host, connection_id)
        self.is_greeted = False


class SidecarAnswers:
    """Answers the requests of all connections. For the loop's thread.

    Args:
        storage: The storage manager, configured.
        digest: Of its configuration; None: a client may have any.
        logs: Where segments are copied from.
        parked: Streams of the last pieces.
        indexes: Those of the last pieces that no cache has: they are not fetched for each piece.
        stored: What copies have stored.
        memory: Of all requests and pieces.
        metrics: Where requests are counted.
        clock: The time.
        mbeans: Returns the figures of MBeans as JSON; it may take long.
        unready: Says why the server is not ready; "" if it is.

    Attributes:
        digest: That a client's has to be; None: any.
    """

    def __init__(
        self,
        storage: AsyncStorageManager,
        *,
        digest: bytes | None,
        logs: AllowedLogs,
        parked: ParkedPieces[AsyncSegmentStream],
        indexes: ParkedPieces[bytes],
        stored: StoredObjects,
        memory: RequestMemory,
        metrics: SidecarMetrics,
        clock: Clock,
        mbeans: Callable[[], Awaitable[bytes]],
        unready: Callable[[], str],
    ) -> None:
        self._storage = storage
        manager = storage.manager
        self._ours = manager if isinstance(manager, TieredStorageManager) else None
        self.digest = digest
        self._logs = logs
        self._parked = parked
        self._indexes = indexes
        self._stored = stored
        self._memory = memory
        self._metrics = metrics
        self._clock = clock
        self._mbeans = mbeans
        self._unready = unready
        self.is_stopping = False

    async def answer(self, client: BrokerClient, frame: memoryview) -> Reply:
        """Return the reply to a request. Raises RefusedError: the connection is to be closed."""
        try:
            request = protocol.parse_request(frame)
        except MalformedFrameError as error:
            raise RefusedError("malformed", str(error)) from error
        except RefusedRequestError as error:
            return protocol.failed(Status.REFUSED, str(error))
        if isinstance(request, Hello) == client.is_greeted:
            raise RefusedError("malformed", "hello is the first request, and no other is")
        operation = _OPERATIONS[type(request)]
        began = self._clock.monotonic_seconds()
        with self._metrics.at_work(operation):
            reply = await self._answer(client, request)
        self._metrics.observe(operation, self._clock.monotonic_seconds() - began)
        return reply

    async def _answer(self, client: BrokerClient, request: Request) -> Reply:
        try:
            return await self._done(client, request)
        except RefusedRequestError as error:
            status, text = Status.REFUSED, str(error)
        except RemoteStorageException as error:
            status, text = _status_of(error, is_copy=isinstance(request, Copy)), _words(error)
        self._metrics.count_failed(status)
        return protocol.failed(status, text)

    async def _done(self, client: BrokerClient, request: Request) -> Reply:
        match request:
            case Hello():
                return self._greet(client, request)
            case Health():
                return protocol.done(protocol.encode_string(self._unready()))
            case Metrics():
                return protocol.done(protocol.encode_bytes(await self._mbeans()))
        if self.is_stopping:
            return protocol.failed(Status.STOPPING, "the sidecar stops")
        match request:
            case Copy():
                return await self._copy(request)
            case FetchRange():
                return await self._fetch_range(client, request)
            case FetchIndex():
                return await self._fetch_index(client, request)
            case Delete():
                await self._storage.delete_log_segment_data(request.metadata)
                return protocol.done()

    def _greet(self, client: BrokerClient, hello: Hello) -> Reply:
        lowest, highest = hello.versions
        text = ""
        if not lowest <= protocol.VERSION <= highest:
            text = f"the sidecar (release {__version__}) speaks version {protocol.VERSION} of its protocol, the plugin "
            text += f"versions {lowest} to {highest}: use both of one release"
        elif hello.digest is not None and self.digest not in (None, hello.digest):
            text = "the broker's rsm.config.* keys are not those that the sidecar was started with"
        if text:
            self._metrics.count_failed(Status.CONFIGURATION)
            return protocol.failed(Status.CONFIGURATION, text)
        client.is_greeted = True
        version = _HELLO.pack(protocol.VERSION) + protocol.encode_string(__version__)
        return protocol.done(version + _PID.pack(os.getpid()))

    async def _copy(self, copy: Copy) -> Reply:
        with ExitStack() as held:
            try:
                data = self._logs.lease(copy, held)
            except StoreError as error:
                raise RefusedRequestError(str(error)) from error
            custom = await self._storage.copy_log_segment_data(copy.metadata, data)
        sizes = self._stored.take(copy.metadata.remote_log_segment_id)
        return protocol.done(protocol.encode_bytes(custom) + _SIZES.pack(*sizes))

    # ---- pieces

    async def _fetch_range(self, client: BrokerClient, fetch: FetchRange) -> Reply:
        metadata, start = fetch.metadata, fetch.start_position
        last = metadata.segment_size_in_bytes - 1
        end = last if fetch.end_position is None else min(fetch.end_position, last)
        if not 0 <= start <= end:
            raise InvalidRangeError(f"bytes {start} … {end} of {metadata.segment_size_in_bytes}: there are none")
        size = min(_piece_bytes(fetch.max_bytes), end + 1 - start)
        held = await self._hold(client, size)
        try:
            views = None
            if self._ours is not None:
                views = self._ours.find_cached(metadata, start, start + size)
            if views is None:
                views = await self._read(fetch, end, size)
        except BaseException:
            held()
            raise
        found = sum(map(len, views))
        reply = protocol.piece(views, found, is_last=start + found > end)
        return reply._replace(release=held)

    async def _read(self, fetch: FetchRange, end: int, size: int) -> list[memoryview]:
        """Read a piece of a stream, and keep the stream for the next one."""
        metadata, start = fetch.metadata, fetch.start_position
        segment_id = metadata.remote_log_segment_id
        stream = self._parked.take((segment_id, start))
        if stream is None:
            stream = self._storage.fetch_log_segment(metadata, start, end)
        views: list[memoryview] = []
        left = size
        try:
            while left and (view := await stream.next_view(left)) is not None:
                views.append(view)
                left -= len(view)
        except BaseException:
            await stream.aclose()
            raise
        if left or start + size > end:
            await stream.aclose()
        else:
            await _close(self._parked.park((segment_id, start + size), stream))
        return views

    async def _fetch_index(self, client: BrokerClient, fetch: FetchIndex) -> Reply:
        if fetch.metadata.txn_idx_empty and fetch.index_type is IndexType.TRANSACTION:
            raise RemoteResourceNotFoundException(f"{fetch.metadata.remote_log_segment_id}: has no transaction index")
        if fetch.position < 0:
            raise InvalidRangeError(f"position {fetch.position} is negative")
        size = _piece_bytes(fetch.max_bytes)
        held = await self._hold(client, size)
        place = fetch.metadata.remote_log_segment_id, fetch.index_type
        try:
            data = None
            if self._ours is not None:
                data = self._ours.find_cached_index(fetch.metadata, fetch.index_type)
            is_fetched = data is None
            if data is None:
                data = self._indexes.take((place, fetch.position))
            if data is None:
                data = await self._storage.fetch_index(fetch.metadata, fetch.index_type)
        except BaseException:
            held()
            raise
        if fetch.position > len(data):
            held()
            raise InvalidRangeError(f"position {fetch.position} lies behind the index's {len(data)} bytes")
        view = memoryview(data)[fetch.position : fetch.position + size]
        end = fetch.position + len(view)
        if end < len(data) and is_fetched:
            self._indexes.park((place, end), data)
        return protocol.piece([view], len(view), is_last=end == len(data))._replace(release=held)

    async def _hold(self, client: BrokerClient, size: int) -> Callable[[], None]:
        """Wait for memory for a piece; return what releases it."""
        memory = self._memory
        if not memory.take_decoded(size):
            await memory.wait_decoded(client.host, size)
        return partial(memory.give_decoded, size)


async def _close(streams: list[AsyncSegmentStream]) -> None:
    for each in streams:
        await each.aclose()


def _piece_bytes(max_bytes: int) -> int:
    if max_bytes < 1:
        raise RefusedRequestError(f"at most {max_bytes} bytes are asked for")
    return min(max_bytes, protocol.PIECE_BYTES_MAX)


def _status_of(error: RemoteStorageException, *, is_copy: bool) -> Status:
    """The status of a storage manager's error. A copy of which something is left, as its notes say, is not retried."""
    if isinstance(error, RemoteResourceNotFoundException):
        return Status.NOT_FOUND
    if isinstance(error, InvalidRangeError):
        return Status.REFUSED
    has_left = is_copy and bool(getattr(error, "__notes__", ()))
    return Status.RETRIABLE if error.retriable and not has_left else Status.FAILED


def _words(error: BaseException) -> str:
    return "; ".join([str(error), *getattr(error, "__notes__", ())])
