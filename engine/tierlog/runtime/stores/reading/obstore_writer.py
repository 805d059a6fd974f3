"""Writing through obstore: whole objects and deletions. What has parts is for those who inherit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import obstore
from obstore.store import ObjectStore as ObstoreStore

from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.cancelling import is_cancellable
from tierlog.runtime.stores.protocol.failed_deletes import deletion_error
from tierlog.runtime.stores.protocol.object_store import ABSENT, StoredObject, UnfinishedUpload, Upload, UploadLimits
from tierlog.runtime.stores.protocol.request_counts import RequestCounts
from tierlog.runtime.stores.protocol.store_capabilities import StoreCapabilities
from tierlog.runtime.stores.reading.cancellable_reads import read_cancellable
from tierlog.runtime.stores.reading.obstore_errors import translated

if TYPE_CHECKING:
    from obstore import PutMode


class ObstoreWriter:
    """See StoreWriter.

    Args:
        store: obstore's, rooted where keys begin.
        name: The URL, without secrets.
        limits: Of the kind of store.
    """

    checksum_name = "none"

    def __init__(self, store: ObstoreStore, name: str, limits: UploadLimits, counts: RequestCounts) -> None:
        self._store = store
        self._name = name
        self._limits = limits
        self._counts = counts

    @property
    def limits(self) -> UploadLimits:
        """See StoreWriter."""
        return self._limits

    def put(self, key: str, data: Sequence[memoryview], *, expected_etag: str | None) -> StoredObject:
        """See StoreWriter."""
        self._counts.add("PUT")
        mode: PutMode = "overwrite"
        if expected_etag is not None:
            mode = "create" if expected_etag == ABSENT else {"e_tag": expected_etag}
        with translated(f"{self._name}/{key}"):
            done = obstore.put(self._store, key, list(data) or b"", mode=mode, use_multipart=False)
        return StoredObject(sum(len(view) for view in data), done["e_tag"])

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        """Raises StoreError: obstore has no parts that can be put one by one."""
        raise StoreError(f"{self._name}/{key}: this store takes no uploads in parts of {part_bytes} bytes")

    def delete(self, keys: Sequence[str]) -> None:
        """See StoreWriter."""
        failed: dict[str, StoreError] = {}
        for key in keys:
            self._counts.add("DELETE")
            try:
                with translated(f"{self._name}/{key}"):
                    if is_cancellable():
                        read_cancellable(lambda key=key: obstore.delete_async(self._store, key))  # type: ignore[misc]
                    else:
                        obstore.delete(self._store, key)
            except ObjectNotFoundError:
                continue
            except StoreError as error:
                failed[key] = error
        if failed:
            raise deletion_error(self._name, failed)

    def iter_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:  # noqa: ARG002 - none of any prefix
        """None."""
        return iter(())

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Raises StoreError: there are none."""
        raise StoreError(f"{self._name}/{upload.key}: this store has no unfinished uploads")

    def identity(self) -> str:
        """See ProbedStore."""
        return "this process"

    def capabilities(self, key: str) -> StoreCapabilities | None:  # noqa: ARG002 - nothing to ask
        """See StoreWriter."""
        return None

    def close(self) -> None:
        """Nothing is held."""
