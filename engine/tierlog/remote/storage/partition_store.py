"""A store that counts its calls by topic and partition (``metrics.recording.level=DEBUG``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from typing_extensions import Buffer

from tierlog.remote.storage.layouts.aiven import MANIFEST
from tierlog.remote.storage.layouts.kafka import DESCRIPTION
from tierlog.remote.storage.metrics.partition_metrics import PartitionMetrics
from tierlog.remote.storage.objects.object_keys import PARSERS
from tierlog.runtime.stores.protocol.direct_reads import find_direct_reads
from tierlog.runtime.stores.protocol.object_store import (
    ObjectInfo,
    ObjectStore,
    StoredObject,
    UnfinishedUpload,
    Upload,
)
from tierlog.runtime.stores.protocol.started_reads import Cancel, OnAnswer, find_started_reads
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

#: What a part counts as, by the suffix of its key.
_KINDS: Final = {"log": "log", MANIFEST: "manifest", DESCRIPTION: "manifest"}


class PartitionStore(PassingStore):
    """Passes all calls on, and counts those whose key names a partition.

    Args:
        store: The store behind this one.
        layout: The layout of the store's keys.
        metrics: Where calls are counted.

    Thread safety: that of the store.
    """

    def __init__(self, store: ObjectStore, layout: str, metrics: PartitionMetrics) -> None:
        super().__init__(store)
        self._parse = PARSERS[layout]
        self._metrics = metrics

    def count(self, verb: str, key: str) -> None:
        """Count one call about an object."""
        if (found := self._parse(key)) is not None:
            self._metrics.add(found.topic_id_partition, "store_requests_total", label=verb)

    def _took(self, key: str, data: Buffer) -> Buffer:
        if (found := self._parse(key)) is not None:
            self._metrics.add(found.topic_id_partition, "fetch_bytes_total", memoryview(data).nbytes)
        return data

    def stored(self, key: str, found: StoredObject) -> StoredObject:
        """Count one object that was stored completely."""
        if (parsed := self._parse(key)) is not None:
            kind = _KINDS.get(parsed.suffix, "indexes")
            self._metrics.add(parsed.topic_id_partition, "upload_objects_total", label=kind)
            self._metrics.add(parsed.topic_id_partition, "upload_bytes_total", found.size_bytes, label=kind)
        return found

    @property
    def starts_reads(self) -> bool:
        """Whether the store behind this one starts reads (``find_started_reads``)."""
        return find_started_reads(self._store) is not None

    def start_fetch_range(
        self, key: str, *, start_position: int, end_position_exclusive: int, on_answer: OnAnswer
    ) -> Cancel:
        """Start a read, as StartedReads does, and count it."""
        inner = find_started_reads(self._store)
        assert inner is not None, "starts_reads said so"
        self.count("GET", key)
        return inner.start_fetch_range(
            key,
            start_position=start_position,
            end_position_exclusive=end_position_exclusive,
            on_answer=lambda answer: on_answer(
                answer if isinstance(answer, BaseException) else self._took(key, answer)
            ),
        )

    @property
    def reads_directly(self) -> bool:
        """Whether the store behind this one reads directly (``find_direct_reads``)."""
        return find_direct_reads(self._store) is not None

    def fetch_range_into(self, key: str, out: memoryview, *, start_position: int) -> int:
        """Read into the caller's memory, as DirectReads does, and count it."""
        inner = find_direct_reads(self._store)
        assert inner is not None, "reads_directly said so"
        self.count("GET", key)
        size = inner.fetch_range_into(key, out, start_position=start_position)
        self._took(key, out[:size])
        return size

    def fetch(self, key: str) -> Buffer:
        self.count("GET", key)
        return self._took(key, self._store.fetch(key))

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        self.count("GET", key)
        found = self._store.fetch_range(
            key, start_position=start_position, end_position_exclusive=end_position_exclusive
        )
        return self._took(key, found)

    def find(self, key: str) -> ObjectInfo | None:
        self.count("HEAD", key)
        return self._store.find(key)

    def put(self, key: str, data: Sequence[Buffer] | Buffer, *, expected_etag: str | None = None) -> StoredObject:
        self.count("PUT", key)
        return self.stored(key, self._store.put(key, data, expected_etag=expected_etag))

    def begin_upload(self, key: str, *, part_bytes: int) -> Upload:
        self.count("POST", key)
        return _CountedUpload(self._store.begin_upload(key, part_bytes=part_bytes), self)

    def delete(self, keys: Sequence[str]) -> None:
        if keys:  # of one segment, all of them
            self.count("DELETE", keys[0])
        self._store.delete(keys)

    def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.count("DELETE", upload.key)
        self._store.abort_upload(upload)


class _CountedUpload:
    """An Upload whose parts and end are counted."""

    def __init__(self, upload: Upload, store: PartitionStore) -> None:
        self.key = upload.key
        self._upload = upload
        self._store = store

    def put_part(self, number: int, data: Sequence[Buffer]) -> None:
        self._store.count("PUT", self.key)
        self._upload.put_part(number, data)

    def complete(self) -> StoredObject:
        self._store.count("POST", self.key)
        return self._store.stored(self.key, self._upload.complete())

    def abort(self) -> None:
        self._store.count("DELETE", self.key)
        self._upload.abort()
