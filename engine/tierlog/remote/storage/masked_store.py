"""A store whose errors show keys without their prefix (``key.prefix.mask``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from typing_extensions import Buffer

from tierlog.errors import StoreError
from tierlog.runtime.object_store import FolderListing, ObjectInfo, ObjectStore

MASK = "<prefix>/"


class MaskedStore:
    """Passes everything on; in messages the prefix becomes ``<prefix>/``."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    @property
    def is_local(self) -> bool:
        return self._store.is_local

    @contextmanager
    def _masked(self) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            if self._prefix not in str(error):
                raise
            # The cause would print the prefix again.
            raise type(error)(str(error).replace(self._prefix, MASK)) from None

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self._masked():
            yield from self._store.iter_objects(prefix)

    def list_folder(self, prefix: str = "") -> FolderListing:
        with self._masked():
            return self._store.list_folder(prefix)

    def fetch(self, key: str) -> Buffer:
        with self._masked():
            return self._store.fetch(key)

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        with self._masked():
            return self._store.fetch_range(
                key, start_position=start_position, end_position_exclusive=end_position_exclusive
            )

    def put(self, key: str, data: Buffer) -> None:
        with self._masked():
            self._store.put(key, data)

    def describe(self) -> str:
        return self._store.describe()

    def close(self) -> None:
        self._store.close()
