"""A SegmentFetcher over a store in memory, with made segments in it; closed with all bytes of its budget released."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from typing_extensions import Buffer

from tests.support.segments import BucketSegment, make_segment, sound_log, throwaway_keys
from tests.support.waiting import LIMIT_SECONDS
from tierlog.errors import ObjectNotFoundError
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.chunks.stored_segment import ChunkKey
from tierlog.runtime.stores.protocol.object_store import ObjectStore

MIB = 1 << 20
BATCH_BYTES = 4096


@dataclass
class MemoryBucket:
    """Objects in memory behind the reading half of ObjectStore; by default as if behind a network.

    Attributes:
        gets: (suffix, start, end) of every request.
        gate: Closed, requests wait at it.
        failures: Errors that the next requests of a suffix raise, one each.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    is_local: bool = False
    gets: list[tuple[str, int, int]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    failures: dict[str, list[BaseException]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gate.set()

    def add(self, segment: BucketSegment) -> BucketSegment:
        self.objects.update(segment.objects)
        return segment

    def asked(self, suffix: str) -> list[tuple[int, int]]:
        return [(start, end) for found, start, end in self.gets if found == suffix]

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        suffix = key.rpartition(".")[2]
        self.gets.append((suffix, start_position, end_position_exclusive))
        assert self.gate.wait(LIMIT_SECONDS)
        if self.failures.get(suffix):
            raise self.failures[suffix].pop(0)
        if key not in self.objects:
            raise ObjectNotFoundError(f"memory/{key}: not found")
        return memoryview(self.objects[key])[start_position:end_position_exclusive]

    def fetch(self, key: str) -> Buffer:
        return self.fetch_range(key, start_position=0, end_position_exclusive=1 << 40)


def chunk_key(fetcher: SegmentFetcher, metadata: RemoteLogSegmentMetadata, number: int = 0) -> ChunkKey:
    """The name of a chunk in caches, of a segment whose manifest the fetcher has."""
    found = fetcher._manifests.find(metadata)
    assert found is not None
    log = found.log
    return log.key(log.views(0, log.size_bytes)[number])


CACHES = {
    "none": {},
    "memory": {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": "200000"},
    "disk": {"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.size": "200000"},
}


@contextmanager
def fetcher_over(
    store: MemoryBucket | ObjectStore,
    *,
    keys: KeyRing | None = None,
    metrics: StorageMetrics | None = None,
    layout: str | None = None,
    **options: object,
) -> Iterator[SegmentFetcher]:
    """Options with "_" for "."."""
    config = read_storage_config({name.replace("_", "."): str(value) for name, value in options.items()})
    made = SegmentFetcher(store, config, keys or KeyRing({}), metrics=metrics, layout=layout)  # type: ignore[arg-type]
    try:
        yield made
        deadline = time.monotonic() + LIMIT_SECONDS  # what readers left behind lands in a cache
        while made._budget.held_bytes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made._budget.held_bytes == 0, "bytes of the budget are held by nobody"
    finally:
        made.close()


FORMS = {"plain": (False, False), "zstd": (True, False), "aes": (False, True), "zstd-aes": (True, True)}


def segment_of(
    data: pathlib.Path,
    form: str,
    *,
    size_bytes: int = 300_000,
    chunk_size: int = 32_768,
    prefix: str = "",
) -> tuple[BucketSegment, KeyRing]:
    """A segment of about this size in one of the forms, and the ring that opens it."""
    compression, encrypted = FORMS[form]
    keys = throwaway_keys(data)
    made = make_segment(sound_log(size_bytes // BATCH_BYTES, batch_bytes=BATCH_BYTES))
    key_ring = keys if encrypted else None
    return made.stored(chunk_size=chunk_size, compression=compression, key_ring=key_ring, prefix=prefix), keys
