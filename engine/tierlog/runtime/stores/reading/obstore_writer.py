"""Writing through obstore: whole objects and deletions, and all that a bucket in memory needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import obstore
from obstore.store import ObjectStore as ObstoreStore

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.cancelling import is_cancellable
from tierlog.runtime.stores.protocol.object_store import (
    ABSENT,
    RequestCounts,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
)
from tierlog.runtime.stores.protocol.store_writer import PartedUpload, StoreWriter, deletion_error
from tierlog.runtime.stores.reading.cancellable_reads import read_cancellable
from tierlog.runtime.stores.reading.obstore_errors import translated

if TYPE_CHECKING:
    from obstore import PutMode
import threading
from dataclasses import dataclass, field
from typing import Final

from obstore.store import MemoryStore

from tierlog.runtime.machine.clock import Clock, SystemClock


class ObstoreWriter(StoreWriter):
    """A StoreWriter over obstore.

    Args:
        store: obstore's, rooted where keys begin.
        name: The URL, without secrets.
        limits: Of the kind of store.
    """

    def __init__(self, store: ObstoreStore, name: str, limits: UploadLimits, counts: RequestCounts) -> None:
        self._store = store
        self.name = name
        self.limits = limits
        self._counts = counts

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        self._counts.add("PUT")
        mode: PutMode = "overwrite"
        if expected_etag is not None:
            mode = "create" if expected_etag == ABSENT else {"e_tag": expected_etag}
        with translated(f"{self.name}/{key}"):
            done = obstore.put(self._store, key, list(data) or b"", mode=mode, use_multipart=False)
        return StoredObject(sum(len(view) for view in data), done["e_tag"])

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Raise StoreError: obstore has no parts that can be put one by one."""
        raise StoreError(f"{self.name}/{key}: this store takes no uploads in parts of {part_bytes} bytes")

    def delete(self, keys: Sequence[str]) -> None:
        failed: dict[str, StoreError] = {}
        for key in keys:
            self._counts.add("DELETE")
            try:
                with translated(f"{self.name}/{key}"):
                    if is_cancellable():
                        read_cancellable(lambda key=key: obstore.delete_async(self._store, key))  # type: ignore[misc]
                    else:
                        obstore.delete(self._store, key)
            except ObjectNotFoundError:
                continue
            except StoreError as error:
                failed[key] = error
        if failed:
            raise deletion_error(self.name, failed)

    def identity(self) -> str:
        return "this process"

    def close(self) -> None:
        """Nothing is held."""


_LIMITS: Final = UploadLimits(part_bytes_min=1, part_bytes_max=1 << 31, parts_max=10_000, put_bytes_max=1 << 31)


@dataclass(slots=True)
class MemoryBucket:
    """The objects and uploads behind one name of ``memory://``."""

    store: MemoryStore = field(default_factory=MemoryStore)
    uploads: dict[str, MemoryUpload] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    upload_count: int = 0


class MemoryWriter(ObstoreWriter):
    """The StoreWriter of memory."""

    def __init__(self, bucket: MemoryBucket, name: str, counts: RequestCounts, clock: Clock | None = None) -> None:
        super().__init__(bucket.store, name, _LIMITS, counts)
        self._bucket = bucket
        self._clock = clock or SystemClock()

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """Put a copy: obstore's store would hold the caller's buffers themselves, which change again."""
        return super().put(key, [memoryview(b"".join(data))], expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        self._counts.add("POST")
        bucket = self._bucket
        with bucket.lock:
            bucket.upload_count += 1
            upload = MemoryUpload(self, bucket, key, part_bytes, f"{bucket.upload_count}", self._clock.time_ms())
            bucket.uploads[upload.upload_id] = upload
        return upload

    def count(self, verb: str) -> None:
        """Count a request of an upload."""
        self._counts.add(verb)

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        self._counts.add("LIST")
        with self._bucket.lock:
            found = [u for u in self._bucket.uploads.values() if u.key.startswith(prefix)]
        return (UnfinishedUpload(u.key, u.upload_id, u.started_ms) for u in found)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self._counts.add("DELETE")
        with self._bucket.lock:
            self._bucket.uploads.pop(upload.upload_id, None)


class MemoryUpload(PartedUpload):
    """An Upload to memory; it is unfinished as long as the bucket knows it."""

    def __init__(
        self, writer: MemoryWriter, bucket: MemoryBucket, key: str, part_bytes: int, upload_id: str, started_ms: int
    ) -> None:
        super().__init__(key, part_bytes, place=key, lock=bucket.lock)
        self.upload_id = upload_id
        self.started_ms = started_ms
        self._writer = writer
        self._bucket = bucket

    def _check_open(self) -> None:
        super()._check_open()
        if self.upload_id not in self._bucket.uploads:
            raise StoreError(f"{self.key}: the upload was aborted")

    def _send(self, number: int, views: list[memoryview]) -> bytes:  # noqa: ARG002 - the base stores it by its number
        self._writer.count("PUT")
        return b"".join(views)

    def _finish(self, parts: list[bytes]) -> StoredObject:
        self._writer.count("POST")
        with self._bucket.lock:
            self._check_open()
            stored = self._writer.put(self.key, [memoryview(part) for part in parts], expected_etag=None)
            self._forget()
        return stored

    def _drop(self) -> None:
        self._writer.count("DELETE")
        with self._bucket.lock:
            self._forget()

    def _forget(self) -> None:
        self._bucket.uploads.pop(self.upload_id, None)
        self._parts.clear()
