"""A segment's objects from its metadata alone, without a listing: one lookup a layout.

Custom metadata of the segment names prefix and key where they were another when it was copied; then the configured
prefix is tried. The plugin looks for manifests under the configured one only (18.3 of the object format), so that its
segments become unreadable when ``key.prefix`` changes; here they do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

from typing_extensions import Buffer

from tierlog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, SizeLimitError
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierlog.remote.storage.custom_metadata import SegmentCustomMetadata, decode_custom_metadata
from tierlog.remote.storage.layouts.aiven import MANIFEST, check_identity, describe_aiven
from tierlog.remote.storage.layouts.kafka import DESCRIPTION, DESCRIPTION_BYTES_MAX, describe_kafka
from tierlog.remote.storage.layouts.listing import Scope
from tierlog.remote.storage.layouts.local_tiered import describe_local_tiered
from tierlog.remote.storage.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.storage.object_keys import aiven_segment_path, kafka_segment_path
from tierlog.remote.storage.segment import StoredSegment
from tierlog.remote.storage.segment_places import SegmentPlace, places_of
from tierlog.runtime.object_store import ObjectStore

#: Of a part whose size nobody knows: its object is fetched whole.
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment, and the bytes of its description as it was fetched (0 where the layout has none)."""

    segment: StoredSegment
    description_bytes: int


class SegmentLookup(Protocol):
    """Thread safety: any number of threads."""

    def cache_key(self, metadata: RemoteLogSegmentMetadata) -> str:
        """What a description is kept under: the same segment may be described otherwise by other custom metadata."""

    def find(self, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
        """Fetch what describes it.

        Raises:
            ObjectNotFoundError: it is not there, under none of its names.
            CorruptObjectError: unreadable, of another segment or size, or not of the digest that the segment's custom
                metadata has. SizeLimitError. StoreError and its kinds.
        """


def make_lookup(layout: str, store: ObjectStore, *, key_prefix: str, mask: bool) -> SegmentLookup:
    """The lookup of a layout by its name. Raises ConfigError for one that is not looked up by ids."""
    scope = Scope(key_prefix=key_prefix, mask=mask)
    if layout == "aiven":
        return _AivenLookup(store, scope)
    if layout == "kafka":
        return _KafkaLookup(store, scope)
    if layout == "local-tiered":
        return _LocalTieredLookup(scope)
    raise ConfigError(f"layout {layout!r}: segments are fetched from aiven, kafka and local-tiered")


def _custom(metadata: RemoteLogSegmentMetadata) -> SegmentCustomMetadata:
    return decode_custom_metadata(metadata.custom_metadata, where=str(metadata.remote_log_segment_id))


def _fetch(store: ObjectStore, key: str, limit: int, where: str) -> memoryview:
    """A small object, whole; never more of it than it may have."""
    found = memoryview(store.fetch_range(key, start_position=0, end_position_exclusive=limit + 1)).cast("B")
    if len(found) > limit:
        text = f"more than {limit} bytes: no description of a segment can need them"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=limit, found=len(found), where=where)
    return found


def _require_digest(data: Buffer, custom: SegmentCustomMetadata, where: str) -> None:
    """``manifest.digest.enabled``: who can write to the bucket cannot write to the metadata topic."""
    if custom.manifest_digest is not None and hashlib.sha256(data).digest() != custom.manifest_digest:
        text = "not the manifest that was copied: its SHA-256 is not the one in the segment's metadata"
        raise CorruptObjectError(text, fault="NOT_AUTHENTIC", where=where)


def _require_size(size_bytes: int, metadata: RemoteLogSegmentMetadata, where: str) -> None:
    """The description and the metadata topic say the same of the log."""
    expected = metadata.segment_size_in_bytes
    if size_bytes != expected:
        text = f"describes a log of {size_bytes} bytes, its metadata one of {expected}"
        raise CorruptObjectError(text, fault="BAD_SIZE", expected=expected, found=size_bytes, where=where)


def _check_manifest(
    found: RemoteLogSegmentMetadata, metadata: RemoteLogSegmentMetadata, *, is_own_key: bool, where: str
) -> None:
    """It is of this segment. Where custom metadata names another key, topic and partition may have had other names."""
    identity = metadata.remote_log_segment_id
    if not is_own_key:
        found_partition = found.remote_log_segment_id.topic_id_partition
        identity = RemoteLogSegmentId(found_partition, identity.id)
    check_identity(found, identity, metadata.start_offset, where)


def _first_found(read: Iterator[FoundSegment | ObjectNotFoundError]) -> FoundSegment:
    missing: ObjectNotFoundError | None = None
    for found in read:
        if isinstance(found, FoundSegment):
            return found
        missing = missing or found
    assert missing is not None
    raise missing


class _AivenLookup:
    """By manifests."""

    def __init__(self, store: ObjectStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    def cache_key(self, metadata: RemoteLogSegmentMetadata) -> str:
        """See SegmentLookup."""
        custom = metadata.custom_metadata or b""
        return f"{aiven_segment_path(metadata)}\0{custom.hex()}"

    def find(self, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
        """See SegmentLookup."""
        custom = _custom(metadata)
        places = places_of(custom, aiven_segment_path(metadata), self._scope.key_prefix)
        return _first_found(self._try(place, metadata, custom) for place in places)

    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> FoundSegment | ObjectNotFoundError:
        key = f"{place.base}.{MANIFEST}"
        name = self._scope.name(key, place.prefix)
        try:
            data = _fetch(self._store, key, MANIFEST_BYTES_MAX, name)
        except ObjectNotFoundError as error:
            return error
        _require_digest(data, custom, name)
        manifest = parse_manifest(data, where=name)
        if manifest.metadata is not None:
            _check_manifest(
                manifest.metadata, metadata, is_own_key=place.path == aiven_segment_path(metadata), where=name
            )
        _require_size(manifest.chunk_index.original_file_size, metadata, name)
        segment = describe_aiven(
            manifest, base=place.base, metadata=metadata, name=self._scope.name, prefix=place.prefix
        )
        return FoundSegment(segment, len(data))


class _KafkaLookup:
    """By ``segment.json``."""

    def __init__(self, store: ObjectStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    def cache_key(self, metadata: RemoteLogSegmentMetadata) -> str:
        """See SegmentLookup."""
        custom = metadata.custom_metadata or b""
        return f"{kafka_segment_path(metadata)}\0{custom.hex()}"

    def find(self, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
        """See SegmentLookup."""
        custom = _custom(metadata)
        places = places_of(custom, kafka_segment_path(metadata), self._scope.key_prefix)
        return _first_found(self._try(place, metadata, custom) for place in places)

    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> FoundSegment | ObjectNotFoundError:
        key = f"{place.base}/{DESCRIPTION}"
        name = self._scope.name(key, place.prefix)
        try:
            data = _fetch(self._store, key, DESCRIPTION_BYTES_MAX, name)
        except ObjectNotFoundError as error:
            return error
        _require_digest(data, custom, name)
        segment = describe_kafka(
            data,
            folder=f"{place.base}/",
            identity=metadata.remote_log_segment_id,
            name=self._scope.name,
            prefix=place.prefix,
        )
        _require_size(segment.size_bytes, metadata, name)
        return FoundSegment(replace(segment, metadata=metadata), len(data))


class _LocalTieredLookup:
    """Kafka's LocalTieredStorage describes nothing: the metadata does, and indexes are as large as their files."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def cache_key(self, metadata: RemoteLogSegmentMetadata) -> str:
        """See SegmentLookup."""
        return str(metadata.remote_log_segment_id)

    def find(self, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
        """See SegmentLookup; no request."""
        partition = metadata.topic_id_partition
        main = (
            f"{partition.topic}-{partition.partition}-{partition.topic_id}/"
            f"{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}"
        )
        prefix = self._scope.key_prefix
        return FoundSegment(describe_local_tiered(prefix + main, metadata, self._scope.name(prefix + main, prefix)), 0)
