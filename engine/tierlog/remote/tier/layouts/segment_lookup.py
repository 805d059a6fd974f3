"""A segment's objects from its metadata alone, without a listing: one lookup a layout.

Custom metadata of the segment names prefix and key where they were another when it was copied; then the configured
prefix is tried. The plugin looks for manifests under the configured one only, so that its segments become
unreadable when ``key.prefix`` changes (docs/formats/objects.md, Where Tierlog and the plugin differ).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from typing_extensions import Buffer

from tierlog.errors import ConfigError, CorruptObjectError, ObjectNotFoundError, SizeLimitError, StoreError
from tierlog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.layouts.aiven import MANIFEST, check_identity, describe_aiven
from tierlog.remote.tier.layouts.kafka import DESCRIPTION, DESCRIPTION_BYTES_MAX, describe_kafka
from tierlog.remote.tier.layouts.listing import Scope
from tierlog.remote.tier.layouts.local_tiered import describe_local_tiered
from tierlog.remote.tier.objects.candidate_keys import SegmentPlace, places_of
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata, decode_custom_metadata
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.tier.objects.object_keys import aiven_segment_path, kafka_segment_path, local_tiered_segment_path
from tierlog.remote.tier.objects.part_suffixes import LOG
from tierlog.runtime.stores.protocol.object_store import ObjectStore

#: Of a part whose size nobody knows: its object is fetched whole.
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment, and the bytes of its description as it was fetched (0 where the layout has none)."""

    segment: StoredSegment
    description_bytes: int


class DescriptionRead(NamedTuple):
    """A read that a lookup needs: an object from its start, at most so many bytes of it."""

    key: str
    end_position_exclusive: int
    name: str


#: A lookup under way: yields a read, is sent its answer or thrown its error, returns the segment.
LookupSteps = Generator[DescriptionRead, memoryview, FoundSegment]


class SegmentLookup(Protocol):
    """Thread safety: any number of threads."""

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """What the keys of its objects begin with, at each place where they may lie, the likeliest first.

        Raises:
            CorruptObjectError: the topic's name is none, so that its keys would be another segment's; or its custom
                metadata is unreadable.
        """

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """What is to be read to describe it, one read after another, by who drives this.

        Raises:
            ObjectNotFoundError: it is not there, under none of its names.
            CorruptObjectError: unreadable, of another segment or size, or not of the digest that the segment's custom
                metadata has. SizeLimitError. StoreError and its kinds.
        """


class NoLookup:
    """For who has every segment from a listing: nothing is looked up."""

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """No place: it is not known."""
        del metadata
        return []

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """Raise ObjectNotFoundError, without a request."""
        yield from ()
        raise ObjectNotFoundError(f"{metadata.remote_log_segment_id}: segments are known by the listing alone")


def look_up(lookup: SegmentLookup, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
    """What describes a segment, by reads of the store in this thread. Raises: see SegmentLookup.steps."""

    def read(wanted: DescriptionRead) -> memoryview:
        end = wanted.end_position_exclusive
        return memoryview(store.fetch_range(wanted.key, start_position=0, end_position_exclusive=end)).cast("B")

    return run_lookup(lookup.steps(metadata), read)


def run_lookup(steps: LookupSteps, read: Callable[[DescriptionRead], memoryview]) -> FoundSegment:
    """Drive a lookup by reads in this thread. Raises: see SegmentLookup.steps, and what ``read`` raises."""
    try:
        wanted = next(steps)
        while True:
            try:
                answer = read(wanted)
            except StoreError as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as end:
        found: FoundSegment = end.value
        return found


def make_lookup(layout: str, *, key_prefix: str, mask: bool) -> SegmentLookup:
    """The lookup of a layout by its name. Raises ConfigError for one that is not looked up by ids."""
    scope = Scope(key_prefix=key_prefix, mask=mask)
    if layout == "aiven":
        return _AivenLookup(scope)
    if layout == "kafka":
        return _KafkaLookup(scope)
    if layout == "local-tiered":
        return _LocalTieredLookup(scope)
    raise ConfigError(f"layout {layout!r}: segments are fetched from aiven, kafka and local-tiered")


def _path_of(path: Callable[[RemoteLogSegmentMetadata], str], metadata: RemoteLogSegmentMetadata) -> str:
    try:
        return path(metadata)
    except ValueError as error:
        raise CorruptObjectError(f"{metadata.remote_log_segment_id}: {error}", fault="BAD_ENTRY") from error


def _custom(metadata: RemoteLogSegmentMetadata) -> SegmentCustomMetadata:
    return decode_custom_metadata(metadata.custom_metadata, where=str(metadata.remote_log_segment_id))


def _read(key: str, limit: int, name: str) -> Generator[DescriptionRead, memoryview, memoryview]:
    """Read a small object whole, up to the bytes that it may have."""
    found = yield DescriptionRead(key, limit + 1, name)
    if len(found) > limit:
        text = f"more than {limit} bytes: no description of a segment can need them"
        raise SizeLimitError(text, fault="OVER_LIMIT", expected=limit, found=len(found), where=name)
    return found


def _require_digest(data: Buffer, custom: SegmentCustomMetadata, where: str) -> None:
    """``manifest.digest.enabled``: who can write to the bucket cannot write to the metadata topic."""
    if custom.manifest_digest is not None and hashlib.sha256(data).digest() != custom.manifest_digest:
        text = "not the manifest that was copied: its SHA-256 is not the one in the segment's metadata"
        raise CorruptObjectError(text, fault="NOT_AUTHENTIC", where=where)


def _require_size(size_bytes: int, metadata: RemoteLogSegmentMetadata, where: str) -> None:
    """Raises CorruptObjectError: the description and the metadata topic differ in the size of the log."""
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


class _Places(ABC):
    """Looks in one place after another where a segment's description may lie."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @abstractmethod
    def _path(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Path of the segment, below the prefix. Raises ValueError: the topic's name is none."""

    def _places(self, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata) -> list[SegmentPlace]:
        return places_of(custom, _path_of(self._path, metadata), self._scope.key_prefix)

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """As SegmentLookup says."""
        return [place.base for place in self._places(metadata, _custom(metadata))]

    @abstractmethod
    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> LookupSteps:
        """The steps for one place. Raises ObjectNotFoundError: nothing is there."""

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """As SegmentLookup says."""
        custom = _custom(metadata)
        missing: ObjectNotFoundError | None = None
        for place in self._places(metadata, custom):
            try:
                return (yield from self._try(place, metadata, custom))
            except ObjectNotFoundError as error:
                missing = missing or error
        assert missing is not None, "there is always a place to look"
        raise missing


class _AivenLookup(_Places):
    """Looks segments up by their manifests."""

    def _path(self, metadata: RemoteLogSegmentMetadata) -> str:
        return aiven_segment_path(metadata)

    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> LookupSteps:
        key = f"{place.base}.{MANIFEST}"
        name = self._scope.name(key, place.prefix)
        data = yield from _read(key, MANIFEST_BYTES_MAX, name)
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


class _KafkaLookup(_Places):
    """Looks segments up by their ``segment.json``."""

    def _path(self, metadata: RemoteLogSegmentMetadata) -> str:
        return kafka_segment_path(metadata)

    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> LookupSteps:
        key = f"{place.base}/{DESCRIPTION}"
        name = self._scope.name(key, place.prefix)
        data = yield from _read(key, DESCRIPTION_BYTES_MAX, name)
        _require_digest(data, custom, name)
        segment = describe_kafka(
            data,
            folder=f"{place.base}/",
            identity=metadata.remote_log_segment_id,
            name=self._scope.name,
            prefix=place.prefix,
            is_own_key=place.path == kafka_segment_path(metadata),
        )
        if segment.start_offset != metadata.start_offset:
            text = f"begins at {segment.start_offset}, its metadata at {metadata.start_offset}"
            raise CorruptObjectError(text, fault="BAD_OFFSET", base_offset=segment.start_offset, where=name)
        _require_size(segment.size_bytes, metadata, name)
        return FoundSegment(replace(segment, metadata=metadata), len(data))


class _LocalTieredLookup:
    """Kafka's LocalTieredStorage describes nothing: the metadata does, and indexes are as large as their files."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """As SegmentLookup says, without a request."""
        yield from ()
        (base,) = self.bases(metadata)
        name = self._scope.name(f"{base}.{LOG}", self._scope.key_prefix)
        return FoundSegment(describe_local_tiered(base, metadata, name), 0)

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """As SegmentLookup says."""
        return [self._scope.key_prefix + _path_of(local_tiered_segment_path, metadata)]
