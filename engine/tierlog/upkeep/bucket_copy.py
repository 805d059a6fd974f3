"""Copy: the closed segments of a tier into a bucket, each one checked on its way and read back.

A segment keeps its id, offsets, epochs, indexes and, once decoded, its bytes; chunks, compression, encryption, keys and
prefix are the target's. Nothing remembers what was copied but the target: a segment that is whole there is checked and
left alone, so that a second run goes on where the first one stopped, and a partition's second replica adds what the
first one lacked. What a killed run left of a segment is replaced.

Order for one segment: the parts beside the log, read and checked (an index that is missing or does not fit is built
anew, and that is told); then SegmentCopier's order; then all of it is read from the target and compared with what was
read from the source. What does not come back as it went is removed again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final

import xxhash
from typing_extensions import Buffer

from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptIndexError,
    CorruptObjectError,
    DataLossError,
    EncryptionKeyError,
    ObjectNotFoundError,
    TierlogError,
    UnknownTopicError,
)
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.storage.chunks.segment import StoredSegment
from tierlog.remote.storage.copy.copy_checks import LogCheck, check_index_parts
from tierlog.remote.storage.copy.copy_target import CopyTarget, StoredCopy
from tierlog.remote.storage.tier.tier import Tier
from tierlog.runtime.machine.scheduling import Arrivals, Pool
from tierlog.scan.topic_name import TopicName
from tierlog.upkeep.copy_source import LAYOUTS_WITHOUT_IDS, SegmentSource, digest_log
from tierlog.upkeep.replica_parts import find_contradiction

#: Kafka's own topics, which it never tiers: of a broker's disk they are copied only by name.
INTERNAL_TOPICS: Final = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, DataLossError, EncryptionKeyError, ObjectNotFoundError)


class CopyState(enum.StrEnum):
    """How it went with one segment."""

    COPIED = "copied"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """What became of one segment.

    Args:
        source: The segment.
        metadata: As it is in the target; None if it failed before it had an id.
        stored: What the target has of it; None if it failed.
        notes: What was built anew.
        kept: Parts that were in the target already and that the source has otherwise, as another replica may.
        error: Why it failed.
    """

    source: StoredSegment
    state: CopyState
    metadata: RemoteLogSegmentMetadata | None = None
    stored: StoredCopy | None = None
    notes: tuple[str, ...] = ()
    kept: tuple[IndexType, ...] = ()
    error: TierlogError | None = None


class BucketCopy:
    """See the module.

    Args:
        source, target: Stay the caller's.
        topics: By name; ``ID:TOPIC`` picks one of two of a name. All if empty, but for Kafka's own of a broker's disk.
        partitions: Only these.
        recheck: Read again what is whole in the target already; False goes by its description and sizes.
        workers: Segments under way at once.
        on_bytes: Told of the bytes of logs as they are read from the source, by any thread.

    Attributes:
        segments: To copy, by topic, partition and offset.
        faults: Segments of the source whose description is unreadable.
        active: Segments that a broker still writes to: left out.
        internal: Names of Kafka's own topics that were left out.

    Raises:
        UnknownTopicError: a topic that was named is not there. ConfigError: the source is one file.
        StoreError and its kinds: the listing failed.
    """

    def __init__(
        self,
        source: Tier,
        target: CopyTarget,
        *,
        topics: Sequence[str] = (),
        partitions: Collection[int] | None = None,
        recheck: bool = True,
        workers: int = 1,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        if source.layout == "file":
            raise ConfigError("one file is no segment: give the log directory that it is in")
        self._source = source
        self._target = target
        self._recheck = recheck
        self._workers = workers
        self._on_bytes = on_bytes
        self.faults: list[TierlogError] = []
        self.internal: tuple[str, ...] = ()
        listed = self._list(topics, partitions)
        self.segments = [segment for segment in listed if segment.closed]
        self.active = [segment for segment in listed if not segment.closed]

    @property
    def size_bytes(self) -> int:
        """Of all logs."""
        return sum(segment.size_bytes for segment in self.segments)

    def _list(self, topics: Sequence[str], partitions: Collection[int] | None) -> list[StoredSegment]:
        wanted = [TopicName.parse(topic) for topic in topics]
        pattern = "|".join(sorted({re.escape(topic.name) for topic in wanted})) if wanted else None
        found = self._source.iter_segments(topic_pattern=pattern, partitions=partitions, faults=self.faults)
        if not wanted:
            listed = list(found)
            if self._source.layout not in LAYOUTS_WITHOUT_IDS:
                return listed
            names = {segment.topic_id_partition.topic for segment in listed} & INTERNAL_TOPICS
            self.internal = tuple(sorted(names))
            return [segment for segment in listed if segment.topic_id_partition.topic not in names]
        listed = [segment for segment in found if any(each.accepts(segment.topic_id_partition) for each in wanted)]
        for missing in wanted:
            if not self.faults and not any(missing.accepts(segment.topic_id_partition) for segment in listed):
                known = sorted({topic.name for topic in self._source.topics()})
                told = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
                raise UnknownTopicError(f"{self._source.describe()}: no segments of {missing}; there are: {told}")
        return listed

    def __iter__(self) -> Iterator[SegmentOutcome]:
        """An outcome a segment, as they are done.

        Raises:
            StoreError and its kinds: a store fails in a way that every segment would meet. ConfigError.
        """
        with self._source.machine.scheduler.pool(self._workers, name="tierlog-copy") as pool:
            yield from self._run(pool)

    def _run(self, pool: Pool) -> Iterator[SegmentOutcome]:
        running: Arrivals[SegmentOutcome] = Arrivals(self._source.machine.scheduler)
        for segment in self.segments:
            running.add(pool.submit(partial(self._outcome, segment)))
            if len(running) > self._workers:
                yield running.take().result()
        while running:
            yield running.take().result()

    def _outcome(self, segment: StoredSegment) -> SegmentOutcome:
        try:
            return self._copy(segment)
        except _OF_ONE_SEGMENT as error:
            return SegmentOutcome(segment, CopyState.FAILED, error=error)

    def _copy(self, segment: StoredSegment) -> SegmentOutcome:
        source = SegmentSource(self._source, segment, on_bytes=self._on_bytes)
        metadata = source.metadata
        present = self._target.find(metadata)
        if present is not None:
            kept = self._check_present(source, present) if self._recheck else ()
            self._on_bytes(segment.size_bytes)
            return SegmentOutcome(segment, CopyState.PRESENT, metadata, present, kept=kept)
        source.require_snapshot()
        try:
            self._target.copy(metadata, source.data, source)
        except CorruptIndexError:
            if not source.rebuild_wrong_indexes():
                raise
            self._target.copy(metadata, source.data, source)
        try:
            stored = self._read_back(source)
        except CorruptDataError:
            self._target.remove(metadata)
            raise
        return SegmentOutcome(segment, CopyState.COPIED, metadata, stored, tuple(source.notes))

    def _read_back(self, source: SegmentSource) -> StoredCopy:
        """What the target gives, compared with what the source gave. Raises CorruptObjectError."""
        stored = self._target.find(source.metadata)
        if stored is None:
            text = "was stored, and is not there as it was stored"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=source.data.log_segment)
        found = digest_log(self._target.tier, stored.segment)
        if found != source.digest:
            text = "the log does not come back as it went"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=stored.segment.name)
        for kind in IndexType:
            self._compare(source, stored, kind)
        return stored

    def _compare(self, source: SegmentSource, stored: StoredCopy, kind: IndexType) -> None:
        if not _is_same(source.parts.get(kind), self._target.tier.fetch_index(stored.segment, kind)):
            text = f"the {kind.value} part does not come back as it went"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=stored.segment.name)

    def _check_present(self, source: SegmentSource, present: StoredCopy) -> tuple[IndexType, ...]:
        """What an earlier run stored is sound, and the same segment: every batch and index entry is looked at again.

        Returns:
            The parts that differ from the source's as two replicas' may.

        Raises:
            CorruptDataError: it is not; it has to be removed before it can be copied anew.
        """
        tier, name = self._target.tier, present.segment.name
        parts: dict[IndexType, bytes] = {}
        for kind in IndexType:
            data = tier.fetch_index(present.segment, kind)
            if data is not None:
                parts[kind] = bytes(data)
        paths = {kind: f"{name} ({kind.value})" for kind in IndexType}
        check_index_parts(parts, source.metadata, paths)
        digest = xxhash.xxh3_128()
        with closing(tier.iter_log_windows(present.segment)) as windows:
            LogCheck(source.metadata, parts, paths, name).follow(_digested(windows, digest))
        if source.known_digest not in (None, digest.digest()):
            raise CorruptObjectError("the log is another than the source's", fault="NOT_EQUAL", where=name)
        differing = [kind for kind in IndexType if not _is_same(source.parts.get(kind), parts.get(kind))]
        for kind in differing:
            contradiction = find_contradiction(kind, source.parts.get(kind), parts.get(kind), source.metadata)
            if contradiction is not None:
                raise CorruptObjectError(contradiction, fault="NOT_EQUAL", where=paths[kind])
        return tuple(differing)


def _is_same(sent: bytes | None, found: Buffer | None) -> bool:
    """A layout may leave out the zeros behind the last entry of an index that was allocated ahead."""
    if sent is None or found is None:
        return sent is found
    size = memoryview(found).nbytes
    return sent[:size] == found and not any(sent[size:])


def _digested(windows: Iterable[tuple[int, memoryview]], digest: xxhash.xxh3_128) -> Iterator[memoryview]:
    for _, window in windows:
        digest.update(window)
        yield window
