"""A store around a store that passes everything on: what others are made of by changing a method or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import Buffer

from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
    UploadLimits,
)


class PassingStore:
    """See the module, and ObjectStore for the methods. Thread safety: as the store's.

    Args:
        store: What answers.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def inner(self) -> ObjectStore:
        """What answers."""
        return self._store

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    @property
    def upload_limits(self) -> UploadLimits:
        return self._store.upload_limits

    @property
    def requests(self) -> Mapping[str, int]:
        return self._store.requests

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        return self._store.fetch(key)

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        return self._store.fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive
        )

    def find(self, key: str) -> ObjectInfo | None:
        return self._store.find(key)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        return self._store.put(key, data, expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        return self._store.begin_upload(key, part_bytes=part_bytes)

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        return self._store.iter_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self._store.abort_upload(upload)

    def describe(self) -> str:
        return self._store.describe()

    def close(self) -> None:
        self._store.close()
