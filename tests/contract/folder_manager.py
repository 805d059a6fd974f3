"""A storage manager that shares no line with ours: plain files in a folder, as a third party would begin."""

from __future__ import annotations

import io
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from tierlog.remote.api import (
    CustomMetadata,
    IndexType,
    InvalidRangeError,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageManager,
    SegmentFileError,
    SegmentStream,
)


class FileStream:
    """A SegmentStream over bytes at hand."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int | None = -1, /) -> bytes:
        return self._file.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        return self._file.readinto(buffer)  # type: ignore[arg-type]

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        data = self._file.read(max_bytes)
        if data:
            yield memoryview(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class FolderStorageManager(RemoteStorageManager):
    """One folder a segment, renamed into its place when it is whole."""

    def __init__(self) -> None:
        self._root: pathlib.Path | None = None

    def configure(self, configs: Mapping[str, object]) -> None:
        self._root = pathlib.Path(str(configs["folder"]))

    def _folder(self, metadata: RemoteLogSegmentMetadata) -> pathlib.Path:
        if self._root is None:
            raise RemoteStorageException("closed, or not configured")
        return self._root / str(metadata.remote_log_segment_id.id)

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        folder = self._folder(metadata)
        if folder.exists():
            return None
        new = folder.with_suffix(".new")
        new.mkdir()
        files = {
            "log": data.log_segment,
            IndexType.OFFSET.value: data.offset_index,
            IndexType.TIMESTAMP.value: data.time_index,
            IndexType.PRODUCER_SNAPSHOT.value: data.producer_snapshot,
            IndexType.TRANSACTION.value: data.transaction_index,
        }
        try:
            for name, path in files.items():
                if path is not None:
                    (new / name).write_bytes(_local_file(path))
            (new / IndexType.LEADER_EPOCH.value).write_bytes(data.leader_epoch_index)
            new.rename(folder)
        except RemoteStorageException:
            shutil.rmtree(new)
            raise
        except OSError as cause:
            shutil.rmtree(new)
            raise RemoteStorageException(str(cause)) from cause
        return None

    def _read(self, metadata: RemoteLogSegmentMetadata, name: str) -> bytes:
        try:
            return (self._folder(metadata) / name).read_bytes()
        except FileNotFoundError as cause:
            raise RemoteResourceNotFoundException(str(cause)) from cause

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> SegmentStream:
        size = metadata.segment_size_in_bytes
        end = size if end_position is None else end_position + 1
        if not 0 <= start_position < min(end, size):
            raise InvalidRangeError(f"{start_position} … {end_position} is no range of {size} bytes")
        return FileStream(self._read(metadata, "log")[start_position:end])

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        return FileStream(self._read(metadata, index_type.value))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        shutil.rmtree(self._folder(metadata), ignore_errors=True)

    def close(self) -> None:
        self._root = None


def _local_file(path: str) -> bytes:
    try:
        return pathlib.Path(path).read_bytes()
    except (OSError, ValueError) as cause:
        raise SegmentFileError(f"{path!r}: {cause}") from cause
