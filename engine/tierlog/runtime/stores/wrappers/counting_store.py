"""A store around a store that counts what is asked of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from typing_extensions import Buffer

from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
    views_of,
)


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Calls so far.

    Args:
        bytes: That came back.
        puts: Whole objects, and parts of uploads.
        posts: Uploads begun and completed.
        deletes: Objects asked to be removed, and uploads aborted.
        put_bytes: That were sent and taken.
    """

    gets: int = 0
    bytes: int = 0
    lists: int = 0
    puts: int = 0
    heads: int = 0
    posts: int = 0
    deletes: int = 0
    put_bytes: int = 0


class CountingStore:
    """Passes everything on and counts it. Thread-safe; a listing counts once, however many pages it takes."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counts = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        return self._counts

    @property
    def inner(self) -> ObjectStore:
        """What answers."""
        return self._store

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    def reset(self) -> StoreCounts:
        """The counts so far, which begin again at zero."""
        with self._lock:
            counts, self._counts = self._counts, StoreCounts()
        return counts

    def add(self, **more: int) -> None:
        """Count; names of StoreCounts."""
        with self._lock:
            now = self._counts
            self._counts = replace(now, **{name: getattr(now, name) + count for name, count in more.items()})

    @property
    def upload_limits(self) -> UploadLimits:
        """Of the store inside."""
        return self._store.upload_limits

    @property
    def requests(self) -> Mapping[str, int]:
        """Of the store inside."""
        return self._store.requests

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """See ObjectStore."""
        self.add(lists=1)
        return self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        """See ObjectStore."""
        self.add(lists=1)
        return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        """See ObjectStore."""
        found = self._store.fetch(key)
        self.add(gets=1, bytes=memoryview(found).nbytes)
        return found

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        """See ObjectStore."""
        found = self._store.fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive
        )
        self.add(gets=1, bytes=memoryview(found).nbytes)
        return found

    def find(self, key: str) -> ObjectInfo | None:
        """See ObjectStore."""
        self.add(heads=1)
        return self._store.find(key)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        """See ObjectStore."""
        self.add(puts=1)
        stored = self._store.put(key, data, expected_etag=expected_etag)
        self.add(put_bytes=stored.size_bytes)
        return stored

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """See ObjectStore."""
        self.add(posts=1)
        return _CountingUpload(self._store.begin_upload(key, part_bytes=part_bytes), self)

    def delete(self, keys: Sequence[str]) -> None:
        """See ObjectStore."""
        self.add(deletes=len(keys))
        self._store.delete(keys)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        """See ObjectStore."""
        self.add(lists=1)
        return self._store.iter_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """See ObjectStore."""
        self.add(deletes=1)
        self._store.abort_upload(upload)

    def describe(self) -> str:
        """Of the store inside."""
        return self._store.describe()

    def close(self) -> None:
        """Of the store inside."""
        self._store.close()


class _CountingUpload:
    """See Upload."""

    def __init__(self, upload: Upload, store: CountingStore) -> None:
        self.key = upload.key
        self._upload = upload
        self._store = store

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        self._store.add(puts=1)
        self._upload.put_part(number, data)
        self._store.add(put_bytes=sum(len(view) for view in views_of(data)))

    def complete(self) -> StoredObject:
        self._store.add(posts=1)
        return self._upload.complete()

    def abort(self) -> None:
        self._store.add(deletes=1)
        self._upload.abort()
