"""Catalogs of buckets that tests change underneath: partitions are what the catalog hands to their readers, bare."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tierlog import open_tier
from tierlog.broker.replica.catalog.bucket_catalog import BucketCatalog, CatalogSettings
from tierlog.broker.replica.catalog.known_partitions import ReadsMetadata
from tierlog.broker.replica.partition_histories import PartitionHistories
from tierlog.remote.api import TopicIdPartition
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import PartitionHistory

#: A pause between listings that no test outlives: what is listed is listed because the test asks.
NEVER_SECONDS = 3600.0
PATIENCE_SECONDS = 20.0


@dataclass(eq=False)
class BarePartition:
    """A partition that serves nothing, and has offsets once it was loaded."""

    histories: PartitionHistories
    loaded: PartitionHistory | None = None

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.histories.topic_id_partition

    @property
    def offsets(self) -> PartitionHistory | None:
        return self.loaded if self.loaded is self.histories.current else None

    async def load(self) -> PartitionHistory:
        self.loaded = await self.histories.resolve()
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
    metadata: ReadsMetadata | None = None,
) -> AsyncIterator[BucketCatalog]:
    """A catalog that follows a bucket; by default nothing is listed again or resolved ahead unless a test asks."""
    settings = settings or CatalogSettings(refresh_seconds=NEVER_SECONDS, segments_ahead_max=0)
    known = None if metadata is None else metadata.read()
    with open_tier(str(path), layout=layout, config=config, wrap_store=wrap_store, known=known) as tier:
        catalog = BucketCatalog(tier, BarePartition, settings, metadata=metadata, machine=machine)  # type: ignore[arg-type]
        try:
            await catalog.start()
            yield catalog
        finally:
            await catalog.close()


def histories_of(catalog: BucketCatalog, topic: str, partition: int = 0) -> PartitionHistories:
    """The histories of a partition that is there."""
    found = catalog.partition(topic, partition)
    assert found is not None, f"{topic}-{partition} is not served"
    assert isinstance(found, BarePartition)
    return found.histories


def spans_of(history: PartitionHistory) -> list[tuple[int, int]]:
    return [(span.first_offset, span.end_offset_exclusive) for span in history.spans]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so that threads bring about."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"
        await asyncio.sleep(0.005)


async def relisted(catalog: BucketCatalog) -> None:
    """Have the bucket listed now, and wait for its end."""
    before = catalog.listings
    catalog.refresh_soon()
    await until(lambda: catalog.listings > before)
