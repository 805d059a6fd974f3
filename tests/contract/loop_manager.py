"""The awaited storage manager as a blocking one, for the suite of those: each call runs on a loop of its own."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from tests.support.loops import run_on
from tierlog.aio import AsyncSegmentStream, AsyncStorageManager
from tierlog.remote import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    SegmentStream,
)


class LoopStream:
    """A stream, each of its calls on a loop of its own."""

    def __init__(self, stream: AsyncSegmentStream, loop: str) -> None:
        self._stream = stream
        self._loop = loop

    def read(self, size: int | None = -1, /) -> bytes:
        return run_on(self._loop, lambda: self._stream.read(size))

    def readinto(self, buffer: Buffer, /) -> int:
        return run_on(self._loop, lambda: self._stream.readinto(buffer))

    def tell(self) -> int:
        return self._stream.tell()

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        left = -1 if max_bytes is None else max_bytes
        while left:
            view = run_on(self._loop, lambda most=left: self._stream.next_view(most))  # type: ignore[misc]
            if view is None:
                return
            left -= len(view) if left > 0 else 0
            yield view

    def close(self) -> None:
        run_on(self._loop, self._stream.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class LoopStorageManager(RemoteStorageManager):
    def __init__(self, loop: str) -> None:
        self._loop = loop
        self._manager = AsyncStorageManager()

    def configure(self, configs: Mapping[str, object]) -> None:
        run_on(self._loop, lambda: self._manager.configure(configs))

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        return run_on(self._loop, lambda: self._manager.copy_log_segment_data(metadata, data))

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        stream = self._manager.fetch_log_segment(metadata, start_position, end_position)
        return LoopStream(stream, self._loop)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        data = run_on(self._loop, lambda: self._manager.fetch_index(metadata, index_type))
        return io.BytesIO(data)  # type: ignore[return-value]

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        run_on(self._loop, lambda: self._manager.delete_log_segment_data(metadata))

    def close(self) -> None:
        run_on(self._loop, self._manager.aclose)
