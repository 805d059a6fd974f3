"""A store whose errors show keys without their prefix (``key.prefix.mask``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.stores.protocol.object_store import (
    FolderListing,
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
)
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

MASK = "<prefix>/"


class MaskedStore(PassingStore):
    """Passes everything on; in messages the prefix becomes ``<prefix>/``."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        super().__init__(store)
        self._prefix = prefix

    @contextmanager
    def masked(self) -> Iterator[None]:
        """Errors of the block without the prefix."""
        try:
            yield
        except StoreError as error:
            if self._prefix not in str(error):
                raise
            # The cause would print the prefix again.
            raise type(error)(str(error).replace(self._prefix, MASK)) from None

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self.masked():
            yield from self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        with self.masked():
            return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        with self.masked():
            return self._store.fetch(key)

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        with self.masked():
            return self._store.fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            )

    def find(self, key: str) -> ObjectInfo | None:
        with self.masked():
            return self._store.find(key)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        with self.masked():
            return self._store.put(key, data, expected_etag=expected_etag)

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        with self.masked():
            return _MaskedUpload(self._store.begin_upload(key, part_bytes=part_bytes), self)

    def delete(self, keys: Sequence[str]) -> None:
        with self.masked():
            self._store.delete(keys)

    def iter_uploads(self, prefix: str = "") -> Iterator[UnfinishedUpload]:
        with self.masked():
            yield from self._store.iter_uploads(prefix)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        with self.masked():
            self._store.abort_upload(upload)


class _MaskedUpload:
    """See Upload."""

    def __init__(self, upload: Upload, store: MaskedStore) -> None:
        self.key = upload.key
        self._upload = upload
        self._store = store

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        with self._store.masked():
            self._upload.put_part(number, data)

    def complete(self) -> StoredObject:
        with self._store.masked():
            return self._upload.complete()

    def abort(self) -> None:
        with self._store.masked():
            self._upload.abort()
