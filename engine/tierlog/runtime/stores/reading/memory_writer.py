"""Writing into the memory of this process, with uploads in parts: for tests, simulation and trying things out."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from obstore.store import MemoryStore
from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import Clock, SystemClock
from tierlog.runtime.stores.protocol.object_store import StoredObject, UnfinishedUpload, Upload, UploadLimits, views_of
from tierlog.runtime.stores.protocol.part_sizes import PartSizes
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.reading.obstore_writer import ObstoreWriter

_LIMITS: Final = UploadLimits(part_bytes_min=1, part_bytes_max=1 << 31, parts_max=10_000, put_bytes_max=1 << 31)


@dataclass(slots=True)
class MemoryBucket:
    """The objects and uploads behind one name of ``memory://``."""

    store: MemoryStore = field(default_factory=MemoryStore)
    uploads: dict[str, MemoryUpload] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    upload_count: int = 0


class MemoryWriter(ObstoreWriter):
    """See StoreWriter."""

    def __init__(self, bucket: MemoryBucket, name: str, counts: RequestCounts, clock: Clock | None = None) -> None:
        super().__init__(bucket.store, name, _LIMITS, counts)
        self._bucket = bucket
        self._clock = clock or SystemClock()

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """See StoreWriter. A copy: obstore's store would keep the caller's buffers themselves, which change again."""
        return super().put(key, [memoryview(b"".join(data))], expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """See StoreWriter."""
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
        """See StoreWriter."""
        self._counts.add("LIST")
        with self._bucket.lock:
            found = [u for u in self._bucket.uploads.values() if u.key.startswith(prefix)]
        return (UnfinishedUpload(u.key, u.upload_id, u.started_ms) for u in found)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See StoreWriter."""
        self._counts.add("DELETE")
        with self._bucket.lock:
            self._bucket.uploads.pop(upload.upload_id, None)


class MemoryUpload:
    """See Upload; under way as long as the bucket knows it."""

    def __init__(
        self, writer: MemoryWriter, bucket: MemoryBucket, key: str, part_bytes: int, upload_id: str, started_ms: int
    ) -> None:
        self.key = key
        self.upload_id = upload_id
        self.started_ms = started_ms
        self._writer = writer
        self._bucket = bucket
        self._sizes = PartSizes(key, part_bytes)
        self._parts: dict[int, bytes] = {}
        self._stored: StoredObject | None = None

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        """See Upload."""
        part = b"".join(views_of(data))
        self._sizes.check(number, len(part))
        self._writer.count("PUT")
        with self._bucket.lock:
            self._check_open()
            self._sizes.take(number, len(part))
            self._parts[number] = part

    def _check_open(self) -> None:
        if self.upload_id not in self._bucket.uploads:
            raise StoreError(f"{self.key}: the upload was {'aborted' if self._stored is None else 'completed'}")

    def complete(self) -> StoredObject:
        """See Upload."""
        if self._stored is not None:
            return self._stored
        self._writer.count("POST")
        with self._bucket.lock:
            self._check_open()
            parts = [memoryview(self._parts[n]) for n in range(1, self._sizes.whole() + 1)]
            self._stored = self._writer.put(self.key, parts, expected_etag=None)
            del self._bucket.uploads[self.upload_id]
            self._parts.clear()
        return self._stored

    def abort(self) -> None:
        """See Upload."""
        self._writer.count("DELETE")
        with self._bucket.lock:
            self._bucket.uploads.pop(self.upload_id, None)
            self._parts.clear()
