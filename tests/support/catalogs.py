"""Catalogs of buckets that tests change underneath: partitions are what the catalog hands to their readers, bare."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from tests.support.batches import message
from tests.support.buckets import Bucket
from tests.support.waiting import ENDLESS_SECONDS, until
from tierlog import open_tier
from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog, CatalogSettings
from tierlog.broker.replica.catalog.cached_history import CachedHistory
from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.metadata.metadata_view import MetadataView
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore
from tierlog.scan.history import PartitionHistory

#: A pause between listings that no test outlives: what is listed is listed because the test asks.
NEVER_SECONDS = 3600.0


@dataclass(eq=False)
class BarePartition:
    """A partition that serves nothing, and has offsets once it was loaded."""

    history: CachedHistory
    loaded: PartitionHistory | None = None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.history.topic_id_partition

    @property
    def offsets(self) -> PartitionHistory | None:
        return self.loaded if self.loaded is self.history.current else None

    async def load(self) -> PartitionHistory:
        self.loaded = await self.history.resolve()
        return self.loaded


@contextlib.asynccontextmanager
async def opened_catalog(
    path: pathlib.Path | str,
    settings: CatalogSettings | None = None,
    *,
    layout: str = "auto",
    config: dict[str, str] | None = None,
    wrap_store: Callable[[ObjectStore], ObjectStore] = lambda store: store,
    machine: Machine | None = None,
    read_metadata: Callable[[], MetadataView] | None = None,
) -> AsyncIterator[BucketCatalog]:
    """A catalog that follows a bucket; by default nothing is listed again or resolved ahead unless a test asks."""
    settings = settings or CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=0)
    known = None if read_metadata is None else read_metadata()
    with open_tier(str(path), layout=layout, config=config, wrap_store=wrap_store, known=known) as tier:
        catalog = BucketCatalog(tier, BarePartition, settings, read_metadata=read_metadata, machine=machine)  # type: ignore[arg-type]
        try:
            await catalog.start()
            yield catalog
        finally:
            await catalog.close()


def history_of(catalog: BucketCatalog, topic: str, partition: int = 0) -> CachedHistory:
    """The history of a partition that is there."""
    found = catalog.partition(topic, partition)
    assert found is not None, f"{topic}-{partition} is not served"
    assert isinstance(found, BarePartition)
    return found.history


def spans_of(history: PartitionHistory) -> list[tuple[int, int]]:
    return [(span.first_offset, span.end_offset_exclusive) for span in history.spans]


async def relisted(catalog: BucketCatalog) -> None:
    """Have the bucket listed now, and wait for its end."""
    before = catalog.listings
    catalog.refresh_soon()
    await until(lambda: catalog.listings > before)


def segment(bucket: Bucket, first: int, count: int = 2, epoch: int = 0, **options: object) -> str:
    """A segment of ``count`` records."""
    lineage = options.pop("lineage", {epoch: 0})
    batches = [message(offset, "m", epoch) for offset in range(first, first + count)]
    return bucket.segment(f"s{first}e{epoch}", batches, lineage=lineage, **options)  # type: ignore[arg-type]


def remove(bucket: Bucket, name: str, *suffixes: str) -> None:
    for suffix in suffixes or ("log", "indexes", "rsm-manifest"):
        bucket.path(name, suffix).unlink()


class Watched(PassingStore):
    """Counts what is fetched, and fails or holds back what the test says."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.fetched: list[str] = []
        self.lists = 0
        self.broken: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.unreadable: set[str] = set()
        #: Listed, and not there.
        self.missing: set[str] = set()

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        self.lists += 1
        self.gate.wait(ENDLESS_SECONDS)
        if self.broken:
            raise self.broken
        yield from self._store.iter_objects(prefix)

    def fetch(self, key: str) -> bytes:
        self.fetched.append(key)
        if any(each in key for each in self.unreadable):
            raise StoreUnavailableError(f"{key}: 503")
        if key in self.missing:
            raise ObjectNotFoundError(key)
        return bytes(self._store.fetch(key))


class Watching:
    """Makes a Watched store for a tier, and keeps it for the test."""

    store: Watched

    def __call__(self, store: ObjectStore) -> ObjectStore:
        self.store = Watched(store)
        return self.store
