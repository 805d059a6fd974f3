"""The write half of a bucket: each kind of store has its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tierlog.runtime.stores.protocol.object_store import StoredObject, UnfinishedUpload, Upload, UploadLimits
from tierlog.runtime.stores.protocol.store_capabilities import StoreCapabilities


class StoreWriter(Protocol):
    """What writes to a bucket: see ObjectStore for the methods of the same names. Any number of threads.

    Keys are relative to the store's root.
    """

    checksum_name: str
    """The checksum that bodies carry, where ``capabilities`` does not find out: "md5", "crc32c" or "none"."""

    @property
    def limits(self) -> UploadLimits: ...
    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject: ...
    def begin_upload(self, key: str, *, part_bytes: int) -> Upload: ...
    def delete(self, keys: Sequence[str]) -> None: ...
    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]: ...
    def abort_upload(self, upload: UnfinishedUpload) -> None: ...
    def identity(self) -> str:
        """See ProbedStore."""

    def capabilities(self, key: str) -> StoreCapabilities | None:
        """See ProbedStore; None where nothing differs between stores of the kind."""

    def close(self) -> None:
        """Cancel what runs; its callers get a StoreError. Idempotent."""
