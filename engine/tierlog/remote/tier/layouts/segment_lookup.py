"""A segment's objects from its metadata alone, without a listing: one lookup a layout.

Custom metadata of the segment names prefix and key where they were another when it was copied; then the configured
prefix is tried. The plugin looks for manifests under the configured one only, so that its segments become
unreadable when ``key.prefix`` changes (docs/formats/objects.md, Where Tierlog and the plugin differ).

``KnownLayout`` reads the segments that metadata names. A listing shows what lies in a bucket, and metadata what counts:
a segment whose deletion has begun still lies there, and so do the remains of a failed copy.
"""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from typing_extensions import Buffer

from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    ObjectNotFoundError,
    SizeLimitError,
    StoreError,
)
from tierlog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.tier.chunks.stored_segment import StoredPart, StoredSegment
from tierlog.remote.tier.layouts.aiven import MANIFEST, check_identity, describe_aiven
from tierlog.remote.tier.layouts.kafka import DESCRIPTION, DESCRIPTION_BYTES_MAX, describe_kafka
from tierlog.remote.tier.layouts.listing import Candidate, Layout, Scope, SegmentFilter, footer_place
from tierlog.remote.tier.layouts.local_tiered import describe_local_tiered
from tierlog.remote.tier.layouts.plain_segments import plain_segment
from tierlog.remote.tier.objects.custom_metadata import (
    SegmentCustomMetadata,
    SegmentPlace,
    decode_custom_metadata,
    places_of,
)
from tierlog.remote.tier.objects.listed_manifest import find_listed
from tierlog.remote.tier.objects.manifest import MANIFEST_BYTES_MAX, parse_manifest
from tierlog.remote.tier.objects.object_keys import (
    LOG,
    aiven_segment_path,
    kafka_segment_path,
    local_tiered_segment_path,
)
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import MASK

#: Size of a part that is unknown: its object is fetched whole.
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment, and its description as it was fetched (empty where the layout has none)."""

    segment: StoredSegment
    description: memoryview


class DescriptionRead(NamedTuple):
    """A read that a lookup needs: an object from its start, at most so many bytes of it."""

    key: str
    end_position_exclusive: int
    name: str


#: A lookup under way: yields a read, is sent its answer or thrown its error, returns the segment.
LookupSteps = Generator[DescriptionRead, memoryview, FoundSegment]


class SegmentLookup(ABC):
    """The lookup of a layout's segments by their ids. Thread safety: any number of threads."""

    @abstractmethod
    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        """Return the beginning of its objects' keys, at each place where they may lie, the likeliest first.

        Raises:
            CorruptObjectError: the topic's name is none, so that its keys would be another segment's; or its custom
                metadata is unreadable.
        """

    @abstractmethod
    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """Return the reads that describe a segment, one after another, for a driver such as ``run_lookup``.

        Raises:
            ObjectNotFoundError: it is not there, under none of its names.
            CorruptObjectError: unreadable, of another segment or size, or not of the digest that the segment's custom
                metadata has. SizeLimitError. StoreError and its kinds.
        """


def look_up(lookup: SegmentLookup, store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> FoundSegment:
    """Find a segment's description, by reads of the store in this thread. Raises: see SegmentLookup.steps."""

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
    """Make the lookup of a layout by its name. Raises ConfigError for a layout that is not looked up by ids."""
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
    """Check ``manifest.digest.enabled``: a writer of the bucket cannot write to the metadata topic."""
    if custom.manifest_digest is not None and hashlib.sha256(data).digest() != custom.manifest_digest:
        text = "not the manifest that was copied: its SHA-256 is not the one in the segment's metadata"
        raise CorruptObjectError(text, fault="NOT_AUTHENTIC", where=where)


def _require_size(size_bytes: int, metadata: RemoteLogSegmentMetadata, where: str) -> None:
    """Raise CorruptObjectError if the description and the metadata topic differ in the size of the log."""
    expected = metadata.segment_size_in_bytes
    if size_bytes != expected:
        text = f"describes a log of {size_bytes} bytes, its metadata one of {expected}"
        raise CorruptObjectError(text, fault="BAD_SIZE", expected=expected, found=size_bytes, where=where)


def _check_manifest(
    found: RemoteLogSegmentMetadata, metadata: RemoteLogSegmentMetadata, *, is_own_key: bool, where: str
) -> None:
    """Check that it is of this segment. Where custom metadata names another key, topic and partition may have had other
    names.
    """
    identity = metadata.remote_log_segment_id
    if not is_own_key:
        found_partition = found.remote_log_segment_id.topic_id_partition
        identity = RemoteLogSegmentId(found_partition, identity.id)
    check_identity(found, identity, metadata.start_offset, where)


class _Places(SegmentLookup):
    """A lookup in one place after another where a segment's description may lie."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @abstractmethod
    def _path(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Return the path of the segment, below the prefix. Raises ValueError: the topic's name is none."""

    def _places(self, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata) -> list[SegmentPlace]:
        return places_of(custom, _path_of(self._path, metadata), self._scope.key_prefix)

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        return [place.base for place in self._places(metadata, _custom(metadata))]

    @abstractmethod
    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> LookupSteps:
        """Return the steps for one place. Raises ObjectNotFoundError: nothing is there."""

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
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
    """The lookup of segments by their manifests."""

    def _path(self, metadata: RemoteLogSegmentMetadata) -> str:
        return aiven_segment_path(metadata)

    def _try(
        self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, custom: SegmentCustomMetadata
    ) -> LookupSteps:
        key = f"{place.base}.{MANIFEST}"
        name = self._scope.name(key, place.prefix)
        data = yield from _read(key, MANIFEST_BYTES_MAX, name)
        _require_digest(data, custom, name)
        plain = self._plain(place, metadata, data)
        if plain is not None:
            return FoundSegment(plain, data)
        manifest = parse_manifest(data, where=name)
        if manifest.metadata is not None:
            _check_manifest(
                manifest.metadata, metadata, is_own_key=place.path == aiven_segment_path(metadata), where=name
            )
        _require_size(manifest.chunk_index.original_file_size, metadata, name)
        segment = describe_aiven(
            manifest, base=place.base, metadata=metadata, name=self._scope.name, prefix=place.prefix
        )
        return FoundSegment(segment, data)

    def _plain(self, place: SegmentPlace, metadata: RemoteLogSegmentMetadata, data: Buffer) -> StoredSegment | None:
        """Describe a segment that is stored as it is, by a manifest as the plugin writes it: in a third of the time.
        None where the whole parser has to be asked.
        """
        found = find_listed(data)
        if found is None or found.plain is None or found.size_bytes != metadata.segment_size_in_bytes:
            return None
        if not found.segment_path == place.path == aiven_segment_path(metadata):
            return None
        shown = MASK if self._scope.mask else place.prefix
        return plain_segment(metadata, found.plain, prefix=place.prefix, shown=shown, last_modified_ms=0)


class _KafkaLookup(_Places):
    """The lookup of segments by their ``segment.json``."""

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
        return FoundSegment(replace(segment, metadata=metadata), data)


class _LocalTieredLookup(SegmentLookup):
    """Kafka's LocalTieredStorage describes nothing: the metadata does, and indexes are as large as their files."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def steps(self, metadata: RemoteLogSegmentMetadata) -> LookupSteps:
        """Find the segment without a request."""
        yield from ()
        (base,) = self.bases(metadata)
        name = self._scope.name(f"{base}.{LOG}", self._scope.key_prefix)
        return FoundSegment(describe_local_tiered(base, metadata, name), memoryview(b""))

    def bases(self, metadata: RemoteLogSegmentMetadata) -> list[str]:
        return [self._scope.key_prefix + _path_of(local_tiered_segment_path, metadata)]


class KnownSegments(ABC):
    """The segments that count, by metadata. Thread safety: any number of threads."""

    @abstractmethod
    def partitions(self) -> Iterable[TopicIdPartition]:
        """Return the partitions that have, or had, segments, in any order."""

    @abstractmethod
    def readable(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """Return the segments of a partition that may be read (COPY_SEGMENT_FINISHED), by start offset."""


@dataclass(frozen=True, slots=True)
class KnownCandidate(Candidate):
    """A segment as metadata has it."""

    metadata: RemoteLogSegmentMetadata | None = None


class KnownLayout(Layout):
    """The known segments of a store, described as its layout has them.

    Args:
        store: Stays the caller's.
        name: Of the layout: one whose segments are found by their ids.
        scope: Where the segments are; those that lie elsewhere are left out.
        known: Which segments there are.
        unlisted_footers: Whether to ask for footers, since nothing is listed.

    Raises:
        ConfigError: the layout has no ids.

    Thread safety: any number of threads.
    """

    def __init__(
        self, store: ObjectStore, name: str, scope: Scope, known: KnownSegments, *, unlisted_footers: bool = False
    ) -> None:
        self.name = name
        self._unlisted_footers = unlisted_footers and name != "local-tiered"
        self._store = store
        self._scope = scope
        self._known = known
        self._lookup = make_lookup(name, key_prefix=scope.key_prefix, mask=scope.mask)

    def find_candidates(
        self,
        wanted: SegmentFilter,
        objects: Iterable[ObjectInfo] | None = None,  # noqa: ARG002 - the metadata lists the segments
    ) -> Iterator[Candidate]:
        """Find the segments without a request."""
        for partition in sorted(filter(wanted.accepts, self._known.partitions())):
            yield from self.candidates_of(partition)

    def finds_any(self, tried_max: int) -> bool:
        """Whether any of a few known segments is there: the newest of some partitions, which retention takes last.

        Raises:
            StoreError and its kinds.
        """
        partitions = sorted(self._known.partitions())
        newest = (found[-1] for partition in partitions if (found := self.candidates_of(partition)))
        for candidate in itertools.islice(newest, tried_max):
            try:
                self.load(candidate)
            except ObjectNotFoundError:
                continue
            except CorruptDataError:
                return True  # there, and reading it reports the fault
            return True
        return False

    @property
    def known(self) -> KnownSegments:
        """The segments that there are, if their descriptions hold."""
        return self._known

    @property
    def scope(self) -> Scope:
        return self._scope

    @property
    def has_footers(self) -> bool:
        """Whether to ask for footers."""
        return self._unlisted_footers

    def candidates_of(self, partition: TopicIdPartition) -> list[KnownCandidate]:
        """Return the segments of one partition that lie in the scope, by start offset and path, without a request."""
        found = []
        for metadata in self._known.readable(partition):
            try:
                bases = self._lookup.bases(metadata)
            except CorruptDataError:
                bases = [f"{self._scope.folder}{metadata.remote_log_segment_id.id}"]  # loading it reports the fault
            if any(base.startswith(self._scope.folder) for base in bases):
                segment_id = metadata.remote_log_segment_id.id
                found.append(
                    KnownCandidate(partition, metadata.start_offset, bases[0], {}, segment_id, metadata=metadata)
                )
        return sorted(found, key=lambda candidate: (candidate.start_offset, candidate.segment_path))

    def load(self, candidate: Candidate) -> StoredSegment:
        """Find its objects and read what describes it.

        Raises:
            ObjectNotFoundError: they are gone: a loss, or a deletion that the metadata does not know yet.
            CorruptObjectError: unreadable, or of another segment or size. SizeLimitError. StoreError and its kinds.
        """
        assert isinstance(candidate, KnownCandidate)
        assert candidate.metadata is not None
        metadata = candidate.metadata
        try:
            found = look_up(self._lookup, self._store, metadata)
            segment = found.segment
            if self.name == "local-tiered":
                segment = self._measured(segment)
        except ObjectNotFoundError as error:
            segment_id = metadata.remote_log_segment_id
            raise ObjectNotFoundError(
                f"{segment_id.topic_id_partition} {self._scope.name(candidate.segment_path, self._scope.key_prefix)}: "
                f"the metadata says that it is there: {error}"
            ) from error
        # The store was not asked for its age: then the metadata's time counts.
        footer = footer_place(None, found.description, unlisted=self._unlisted_footers)
        return replace(segment, last_modified_ms=metadata.event_timestamp_ms, footer=footer)

    def _measured(self, segment: StoredSegment) -> StoredSegment:
        """Add the sizes of its parts, which nothing in this layout describes. A transaction index may be absent."""
        log = self._found(segment.log)
        if log is None or log.size_bytes != segment.size_bytes:
            if log is None:
                raise ObjectNotFoundError(f"{segment.log.key}: not there")
            text = f"a log of {log.size_bytes} bytes, its metadata says {segment.size_bytes}"
            raise CorruptObjectError(
                text, fault="BAD_SIZE", expected=segment.size_bytes, found=log.size_bytes, where=segment.name
            )
        parts = []
        for kind, part in segment.parts:
            found = self._found(part)
            if found is not None:
                parts.append((kind, found))
            elif kind is not IndexType.TRANSACTION:
                raise ObjectNotFoundError(f"{part.key}: not there")
        return replace(segment, log=log, parts=tuple(parts))

    def _found(self, part: StoredPart) -> StoredPart | None:
        info = self._store.find(part.key)
        return None if info is None else part._replace(size_bytes=info.size_bytes, object_size_bytes=info.size_bytes)
