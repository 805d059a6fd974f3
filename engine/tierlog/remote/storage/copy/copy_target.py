"""A place that segments are copied into by hand: written as a broker's manager writes, and read back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tierlog.errors import ConfigError
from tierlog.remote.api import LogSegmentData, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.storage.copy.copied_segment import delete_segment, find_copied_before
from tierlog.remote.storage.copy.leftovers import Leftovers
from tierlog.remote.storage.copy.segment_copy import SegmentCopier
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing, read_key_ring
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.configured_store import as_it_is, open_configured_store, stack_store
from tierlog.remote.tier.layouts.aiven import AivenLayout
from tierlog.remote.tier.layouts.kafka import KafkaLayout
from tierlog.remote.tier.layouts.listing import Layout, Scope
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.remote.tier.layouts.segment_objects import plan_removal
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata
from tierlog.remote.tier.objects.object_keys import aiven_segment_path, kafka_segment_path
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import ReadableFiles
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import local_path
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

#: That the copy of one segment may take, where the configuration has no deadline.
_DEADLINE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A segment that is whole in the target.

    Args:
        segment: As its description says.
        stored_bytes: Of all its objects.
        custom_metadata: The bytes that a broker would store with the segment's metadata; None for none.
    """

    segment: StoredSegment
    stored_bytes: int
    custom_metadata: bytes | None


class CopyTarget:
    """A store to copy segments into, to find and to remove them. Its tier is a context manager: ``close`` this instead.

    Args:
        store: Receives the objects, and obeys the download limit; closed with this.
        config: Their form; checked by ``check_for_writing``.
        key_ring: Wraps data keys, and unwraps them for reading back.
        machine: Threads and clock.
        url: Of the store.

    Attributes:
        tier: Reads the written segments.

    Thread safety: any number of threads.
    """

    def __init__(
        self, store: ObjectStore, config: StorageConfig, key_ring: KeyRing, *, machine: Machine, url: str
    ) -> None:
        # Segments copied by hand have not been checked.
        config = replace(config, copy_source_verification_enabled=True)
        self.config = config
        self._store = store
        scope = Scope(key_prefix=config.key_prefix, mask=config.key_prefix_mask)
        self._lookup = make_lookup(config.layout, key_prefix=config.key_prefix, mask=config.key_prefix_mask)
        layout: Layout = (
            KafkaLayout(store, scope, machine)
            if config.layout == "kafka"
            else AivenLayout(store, scope, key_ring, machine)
        )
        self.tier = Tier(store, layout, key_ring=key_ring, machine=machine, url=url)
        metrics = StorageMetrics()
        self._copies = SegmentCopier(
            store,
            config,
            key_ring,
            limiter=RateLimiter(config.upload_rate_limit_bytes_per_second, machine=machine),
            # Ids may be made of the content: another run's new copies must not count as leftovers.
            leftovers=Leftovers(machine, metrics, keeps=False),
            metrics=metrics,
            machine=machine,
            longest_seconds=_DEADLINE_SECONDS,
        )

    def copy(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, files: ReadableFiles) -> None:
        """Store a segment: see SegmentCopier.copy for the errors."""
        self._copies.copy(metadata, data, files=files)

    def find(self, metadata: RemoteLogSegmentMetadata) -> StoredCopy | None:
        """Find the segment of this id, if its description and all its objects are there with their sizes.

        Raises:
            StoreError and its kinds: the store does not say.
        """
        metadata = replace(metadata, custom_metadata=None)
        (key,) = plan_removal(self.config, metadata).descriptions
        whole = find_copied_before(self._store, self.config, metadata, key)
        if whole is None:
            return None
        path = kafka_segment_path if self.config.layout == "kafka" else aiven_segment_path
        custom = SegmentCustomMetadata.of(
            self.config.custom_metadata_fields_include,
            remote_size=whole.stored_bytes,
            object_prefix=self.config.key_prefix,
            object_key=path(metadata),
            digest=whole.digest if self.config.manifest_digest_enabled else None,
        )
        return StoredCopy(look_up(self._lookup, self._store, metadata).segment, whole.stored_bytes, custom.encode())

    def remove(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Take a segment away, its description first."""
        delete_segment(self._store, self.config, replace(metadata, custom_metadata=None), uploads_too=True)

    def close(self) -> None:
        """Cancel running copies, and release threads and store; idempotent."""
        self._copies.end()
        self._copies.close()
        self.tier.close()


def open_copy_target(
    path: str,
    *,
    config: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    wrap_store: Callable[[ObjectStore], ObjectStore] = as_it_is,
) -> CopyTarget:
    """Open a bucket, or a folder in it, to copy segments into; a local folder is made if it is not there.

    Args:
        path: As for ``open_tier``; ``key.prefix`` applies below it.
        config: The RSM's keys; those that name a store's place (bucket, root) are not used.
        machine: Its local files, threads and clock.
        wrap_store: Gets the store, and gives the one to use.

    Raises:
        ConfigError: a key, or what encryption needs is missing. StoreError and its kinds.
    """
    machine = machine or Machine()
    read = read_storage_config(config, machine=machine)
    if read.layout not in ("aiven", "kafka"):
        raise ConfigError(f"layout {read.layout!r}: segments are copied into aiven and kafka")
    read.check_for_writing()
    key_ring = read_key_ring(read, machine, writing=True)
    folder = local_path(path)
    if folder is not None:
        machine.files.make_directories(folder)
    opened = open_configured_store(path, read, machine=machine)
    store = stack_store(opened, read, machine=machine, wrap_store=wrap_store, limited=True)
    return CopyTarget(store, read, key_ring, machine=machine, url=path)
