"""A SegmentFetcher over a store of one made segment, closed with all bytes of its budget given back."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.tiered_segments import Bucket, Segment, make_segment, sound_log, throwaway_keys
from tests.support.waiting import LIMIT_SECONDS
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.fetch.segment_fetch import SegmentFetcher
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.stores.protocol.object_store import ObjectStore

MIB = 1 << 20


CACHES = {
    "none": {},
    "memory": {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": "200000"},
    "disk": {"fetch.chunk.cache.class": "disk", "fetch.chunk.cache.size": "200000"},
}


@contextmanager
def fetcher_over(
    store: Bucket | ObjectStore,
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
    data: pathlib.Path, form: str, *, size_bytes: int = 300_000, chunk_size: int = 32_768, **more: object
) -> tuple[Segment, KeyRing]:
    compression, encrypted = FORMS[form]
    keys = throwaway_keys(data)
    log, end_offset = sound_log(size_bytes)
    made = make_segment(
        log,
        end_offset=end_offset,
        chunk_size=chunk_size,
        compression=compression,
        key_ring=keys if encrypted else None,
        **more,  # type: ignore[arg-type]
    )
    return made, keys
