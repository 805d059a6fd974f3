"""Segments that somebody else knows: each is found by its ids, and nothing is listed.

What belongs here: looking up the segments that metadata names. Why: a listing shows what lies in a bucket, and metadata
what counts: a segment whose deletion has begun still lies there, and so does what a failed copy left. What does not:
where metadata comes from (``remote.metadata``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from tierlog.errors import CorruptDataError, CorruptObjectError, ObjectNotFoundError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.tier.chunks.segment import StoredPart, StoredSegment
from tierlog.remote.tier.layouts import Candidate, SegmentFilter
from tierlog.remote.tier.layouts.listing import Scope
from tierlog.remote.tier.layouts.segment_lookup import look_up, make_lookup
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore


class KnownSegments(Protocol):
    """The segments that count. Thread safety: any number of threads."""

    def partitions(self) -> Iterable[TopicIdPartition]:
        """The partitions that have, or had, segments, in any order."""

    def readable(self, partition: TopicIdPartition) -> Iterator[RemoteLogSegmentMetadata]:
        """The segments of a partition that may be read (COPY_SEGMENT_FINISHED), by start offset."""


@dataclass(frozen=True, slots=True)
class KnownCandidate(Candidate):
    """A segment as metadata has it."""

    metadata: RemoteLogSegmentMetadata | None = None


class KnownLayout:
    """The known segments of a store, described as its layout has them.

    Args:
        store: Stays the caller's.
        name: Of the layout: one whose segments are found by their ids.
        scope: Where the segments are; those that lie elsewhere are left out.
        known: Which segments there are.

    Raises:
        ConfigError: the layout has no ids.

    Thread safety: any number of threads.
    """

    #: Nothing is listed.
    foreign_objects = 0

    def __init__(self, store: ObjectStore, name: str, scope: Scope, known: KnownSegments) -> None:
        self.name = name
        self._store = store
        self._scope = scope
        self._known = known
        self._lookup = make_lookup(name, key_prefix=scope.key_prefix, mask=scope.mask)

    def find_candidates(
        self,
        wanted: SegmentFilter,
        objects: Iterable[ObjectInfo] | None = None,  # noqa: ARG002 - the metadata says what there is
    ) -> Iterator[Candidate]:
        """As Layout says, without a request."""
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
                return True  # there, and whoever reads it is told what is wrong with it
            return True
        return False

    def candidates_of(self, partition: TopicIdPartition) -> list[KnownCandidate]:
        """The segments of one partition that lie in the scope, by start offset and path, without a request."""
        found = []
        for metadata in self._known.readable(partition):
            try:
                bases = self._lookup.bases(metadata)
            except CorruptDataError:
                bases = [f"{self._scope.folder}{metadata.remote_log_segment_id.id}"]  # loading it tells what is wrong
            if any(base.startswith(self._scope.folder) for base in bases):
                found.append(KnownCandidate(partition, metadata.start_offset, bases[0], {}, metadata=metadata))
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
            segment = look_up(self._lookup, self._store, metadata).segment
            if self.name == "local-tiered":
                segment = self._measured(segment)
        except ObjectNotFoundError as error:
            segment_id = metadata.remote_log_segment_id
            raise ObjectNotFoundError(
                f"{segment_id.topic_id_partition} {self._scope.name(candidate.segment_path, self._scope.key_prefix)}: "
                f"the metadata says that it is there: {error}"
            ) from error
        # Nobody asked the store how old it is: then as old as what the metadata says of it.
        return replace(segment, last_modified_ms=metadata.event_timestamp_ms)

    def _measured(self, segment: StoredSegment) -> StoredSegment:
        """With the sizes of its parts, which nothing in this layout describes. A transaction index may be absent."""
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
        return None if info is None else replace(part, size_bytes=info.size_bytes, object_size_bytes=info.size_bytes)
