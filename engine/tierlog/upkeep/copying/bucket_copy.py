"""Copying the closed segments of a tier into a bucket, each checked on its way and read back.

A segment keeps its id, offsets, epochs, indexes and, once decoded, its bytes; chunks, compression, encryption, keys and
prefix are the target's. Only the target records what was copied: a segment that is whole there is checked and left
alone, so that a second run continues the first, and a partition's second replica adds segments that the first one
lacked. Objects of a killed run are replaced.

Order for one segment: the parts beside the log are read and checked (an index that is missing or does not fit is built
anew and reported); then SegmentCopier's order; then the copy is read from the target and compared with the source. A
copy that differs is removed again.

Two replicas of a partition have the same log, byte for byte, but each its own files beside it: a follower forgets
expired producers at other moments than the leader (``producer.id.expiration.ms`` by its own clock), puts index entries
at other batches since it appends other amounts at once, and has epochs from before its own log start. Consumers learn
the same facts from both: the transactions that are open at the segment's end, those that were aborted in it, and the
epoch of each offset.
"""

from __future__ import annotations

import collections
import enum
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import xxhash
from typing_extensions import Buffer

from tierlog.arguments import require_ints, require_path
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
    first_of,
)
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import TransactionIndex
from tierlog.opening import Config, Path, config_keys, given_machine, open_path, topic_names
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, Uuid
from tierlog.remote.storage.copy.copy_checks import LogCheck, check_index_parts
from tierlog.remote.storage.copy.copy_target import CopyTarget, StoredCopy, open_copy_target
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Pool
from tierlog.runtime.waiting.threads import Arrivals
from tierlog.scan.scan_request import TopicName
from tierlog.upkeep.copying.index_repair import digested
from tierlog.upkeep.copying.segment_source import LAYOUTS_WITHOUT_IDS, SegmentSource, TopicMap, digest_log

#: Segments under way at once.
WORKERS: Final = 4
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
    """The outcome of one segment."""

    COPIED = "copied"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """The outcome of one segment, with its details.

    Args:
        source: The segment.
        metadata: Its metadata in the target; None if it failed before it had an id.
        stored: Its objects in the target; None if it failed.
        notes: Parts that were built anew.
        kept: Parts that the target had already and that differ in the source, as parts of two replicas may.
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
    """One run over the closed segments of a tier.

    Args:
        source, target: The caller closes them.
        topics: Names of topics; ``ID:TOPIC`` picks one of two of a name. Empty for all but Kafka's internal topics of a
            broker's disk.
        partitions: The partitions to copy; None for all.
        topic_map: Topic ids that become others in the target; segments keep their own ids.
        only_mapped: Whether to leave out topics whose id stays.
        recheck: Whether to read segments again that are whole in the target already; else their description and sizes
            decide.
        workers: Segments under way at once.
        on_bytes: Called, in any thread, with the number of log bytes that were read from the source.

    Attributes:
        segments: The segments to copy, by topic, partition and offset.
        faults: Segments of the source whose description is unreadable.
        active: Segments that a broker still writes to; they are left out.
        empty: Segments without a byte, of compacted logs, which no reader can fetch; they are left out, and the segment
            before each reaches over its offsets.
        internal: Names of Kafka's internal topics that were left out.

    Raises:
        UnknownTopicError: a named topic, or an id that is mapped, does not exist. ConfigError: the source is one file.
        StoreError and its kinds: the listing failed.
    """

    def __init__(
        self,
        source: Tier,
        target: CopyTarget,
        *,
        topics: Sequence[str] = (),
        partitions: Collection[int] | None = None,
        topic_map: TopicMap | None = None,
        only_mapped: bool = False,
        recheck: bool = True,
        workers: int = 1,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        if source.layout == "file":
            raise ConfigError("one file is not a whole segment: give its log directory")
        self._source = source
        self._target = target
        self._recheck = recheck
        self._workers = workers
        self._on_bytes = on_bytes
        self._topic_map = topic_map or TopicMap()
        self.faults: list[TierlogError] = []
        self.internal: tuple[str, ...] = ()
        listed = self._list(topics, partitions)
        if only_mapped:
            listed = [each for each in listed if each.topic_id_partition.topic_id in self._topic_map.new_ids]
        missing = self._topic_map.new_ids.keys() - {each.topic_id_partition.topic_id for each in listed}
        if missing:
            raise UnknownTopicError(f"{source.describe()}: no topic of id {', '.join(sorted(map(str, missing)))}")
        self.active = [segment for segment in listed if not segment.closed]
        closed = [segment for segment in listed if segment.closed]
        self.empty = [segment for segment in closed if not segment.size_bytes]
        self.segments = list(_reaching_over_empty(closed))

    @property
    def size_bytes(self) -> int:
        """Size of all logs to copy."""
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
                told = first_of(known, 20)
                raise UnknownTopicError(f"{self._source.describe()}: no segments of {missing}; there are: {told}")
        return listed

    def __iter__(self) -> Iterator[SegmentOutcome]:
        """The outcome of each segment, as soon as it is done.

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
        source = SegmentSource(self._source, segment, topics=self._topic_map, on_bytes=self._on_bytes)
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
        """Compare the target's bytes with those that were read from the source. Raises CorruptObjectError."""
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
        """Check that the copy of an earlier run is sound and of the same segment: every batch and index entry is read
        again.

        Returns:
            The parts that differ from the source's, as those of two replicas may.

        Raises:
            CorruptDataError: the copy is not sound; it has to be removed before the segment can be copied anew.
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
        with closing(digested(tier, present.segment, digest)) as windows:
            LogCheck(source.metadata, parts, paths, name).follow(windows)
        if source.known_digest not in (None, digest.digest()):
            raise CorruptObjectError("the copied log differs from the source's", fault="NOT_EQUAL", where=name)
        differing = [kind for kind in IndexType if not _is_same(source.parts.get(kind), parts.get(kind))]
        for kind in differing:
            contradiction = find_contradiction(kind, source.parts.get(kind), parts.get(kind), source.metadata)
            if contradiction is not None:
                raise CorruptObjectError(contradiction, fault="NOT_EQUAL", where=paths[kind])
        return tuple(differing)


def _reaching_over_empty(segments: Iterable[StoredSegment]) -> Iterator[StoredSegment]:
    """The segments, without empty ones: the one before takes their offsets, or readers would find a gap there."""
    last: StoredSegment | None = None
    for segment in segments:
        if segment.size_bytes:
            if last is not None:
                yield last
            last = segment
        elif (
            last is not None
            and last.topic_id_partition == segment.topic_id_partition
            and last.end_offset + 1 == segment.start_offset
        ):
            last = _reaching_over(last, segment)
    if last is not None:
        yield last


def _reaching_over(segment: StoredSegment, empty: StoredSegment) -> StoredSegment:
    """A segment that ends where the empty one behind it ends, with its leader epochs and producer snapshot."""
    own, snapshot = segment.metadata, IndexType.PRODUCER_SNAPSHOT
    parts = [each for each in segment.parts if each[0] is not snapshot]
    parts += [each for each in empty.parts if each[0] is snapshot]
    epochs = {**empty.metadata.segment_leader_epochs, **own.segment_leader_epochs}
    metadata = replace(own, end_offset=empty.end_offset, segment_leader_epochs=dict(sorted(epochs.items())))
    return replace(segment, metadata=metadata, parts=tuple(parts))


def _is_same(sent: bytes | None, found: Buffer | None) -> bool:
    """Whether two parts are equal. A layout may leave out the zeros behind the last entry of a preallocated index."""
    if sent is None or found is None:
        return sent is found
    size = memoryview(found).nbytes
    return sent[:size] == found and not any(sent[size:])


def find_contradiction(
    kind: IndexType, source: bytes | None, stored: bytes | None, metadata: RemoteLogSegmentMetadata
) -> str | None:
    """Return a fact on which two replicas' files of one segment contradict each other.

    Args:
        kind: The kind of file.
        source: One replica's file; None if it has none. A file that is damaged or missing contradicts nothing.
        stored: The other replica's file, which was checked.
        metadata: The segment's metadata, for its offsets.

    Returns:
        The contradiction in words; None if the files differ only as replicas' may.
    """
    try:
        if kind is IndexType.PRODUCER_SNAPSHOT:
            return _of_open_transactions(source, stored)
        if kind is IndexType.TRANSACTION:
            return _of_aborted_transactions(source, stored)
        if kind is IndexType.LEADER_EPOCH:
            return _of_epochs(source, stored, metadata)
    except CorruptIndexError:
        return None
    return None  # a sparse index may point at any of its log's batches


def _of_open_transactions(source: bytes | None, stored: bytes | None) -> str | None:
    if source is None or stored is None:
        return None
    here, there = (parse_producer_snapshot(data).open_transactions() for data in (source, stored))
    return None if here == there else f"open transactions by producer: {there}, the source has {here}"


def _of_aborted_transactions(source: bytes | None, stored: bytes | None) -> str | None:
    here, there = (_aborted(data or b"") for data in (source, stored))
    if here == there:
        return None
    only = f"{_shown(there - here)}, the source has {_shown(here - there)}"
    return f"aborted transactions (producer, first, last offset): {only}"


def _aborted(data: bytes) -> set[tuple[int, int, int]]:
    """The aborted transactions without their last stable offsets, which depend on other producers' expiry."""
    rows = TransactionIndex(data).entries()
    return set(zip(*(rows[name].tolist() for name in ("producer_id", "first_offset", "last_offset")), strict=True))


def _of_epochs(source: bytes | None, stored: bytes | None, metadata: RemoteLogSegmentMetadata) -> str | None:
    end = metadata.end_offset + 1
    here, there = (parse_leader_epochs(data or b"").range(metadata.start_offset, end) for data in (source, stored))
    return None if here == there else f"leader epochs of its offsets: {there}, the source has {here}"


def _shown(transactions: set[tuple[int, int, int]]) -> str:
    return ", ".join(map(str, sorted(transactions)[:5])) or "no others"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """The counts of a copy, and the segments that it left out.

    Attributes:
        copied: Segments that were copied.
        present: Segments that were whole in the target already.
        failed: The outcomes of segments with damage, which were left out.
        faults: Segments of the source whose description is unreadable.
        internal: Names of Kafka's internal topics that were left out.
        active: Segments that were left out since a broker may still write to them.
        empty: Segments without a byte; the segments before them reach over their offsets.
        kept: Parts of present segments in which the target and the source differ, as those of two replicas may: name
            of the part to the number of segments. The target's stay as they are.
    """

    copied: int
    present: int
    failed: tuple[SegmentOutcome, ...]
    faults: tuple[TierlogError, ...]
    internal: tuple[str, ...]
    active: int
    empty: int
    kept: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        """Whether every closed segment is in the target."""
        return not self.failed and not self.faults


def copy(
    source: Path,
    dest: Path,
    topics: str | Iterable[str] = (),
    *,
    partitions: Iterable[int] | None = None,
    config: Config | None = None,
    dest_config: Config | None = None,
    topic_map: TopicMap | Mapping[Uuid, Uuid] | None = None,
    layout: str = "auto",
    recheck: bool = True,
    workers: int = WORKERS,
    on_segment: Callable[[SegmentOutcome], None] = lambda _: None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
    machine: Machine | None = None,
) -> CopyResult:
    """Copy closed segments into a bucket: chunked, compressed, encrypted and named as its configuration says.

    Segments keep their ids, offsets, leader epochs, indexes and bytes. Every batch is checked before its segment
    becomes visible in ``dest``; then the copy is read back and compared. The same call continues a copy that was
    interrupted.

    Args:
        source: A broker's log directory, or a bucket of any layout.
        dest: A bucket or a folder in it; a local folder is made if it does not exist.
        topics: Only these: a name or several, ``<topic id>:<topic>`` for one of two topics of that name.
        partitions: The partitions to copy; None for all.
        config: Of ``source``, as for ``tierlog.read``.
        dest_config: The storage plugin's keys for ``dest`` (``chunk.size``, ``compression.enabled``, ``layout`` …).
        topic_map: Topic ids that become others in ``dest``. If that is ``source``, only mapped topics are copied.
        layout: Of ``source``, as for ``tierlog.read``.
        recheck: Whether to read segments again that an earlier run has copied; else their descriptions and
            sizes decide.
        workers: Segments under way at once.
        on_segment: Called with each outcome, as soon as it is known.
        on_bytes: Called, in any thread, with the bytes of logs that were read since the last call, and with the bytes
            of all logs.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts, and the segments that were left out.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError, UnknownTopicError, StoreError and its
        kinds: of both sides. What concerns one segment alone is its outcome.
    """
    to = require_path("dest", dest)
    names = topic_names(topics) if topics else ()
    chosen = None if partitions is None else require_ints("partitions", partitions)
    mapped = topic_map if isinstance(topic_map, TopicMap) else TopicMap(topic_map)
    machine = given_machine(machine)
    counts: collections.Counter[CopyState] = collections.Counter()
    kept: collections.Counter[str] = collections.Counter()
    failed = []
    with (
        open_path(source, config=config, layout=layout, machine=machine, limited=True) as tier,
        closing(open_copy_target(to, config=config_keys(dest_config), machine=machine)) as target,
    ):
        is_same = tier.url.rstrip("/") == to.rstrip("/") != ""
        if is_same and not mapped:
            raise ConfigError(f"{to} is both the source and the destination")
        if is_same and target.config.layout != tier.layout:
            text = f"{to} has the layout {tier.layout}: give its configuration as a destination layout={tier.layout}"
            raise ConfigError(text)
        run = BucketCopy(
            tier,
            target,
            topics=names,
            partitions=chosen,
            topic_map=mapped,
            only_mapped=is_same,
            recheck=recheck,
            workers=workers,
            on_bytes=lambda size_bytes: on_bytes(size_bytes, run.size_bytes),
        )
        for outcome in run:
            counts[outcome.state] += 1
            kept.update(str(kind.value) for kind in outcome.kept)
            if outcome.error is not None:
                failed.append(outcome)
            on_segment(outcome)
    return CopyResult(
        copied=counts[CopyState.COPIED],
        present=counts[CopyState.PRESENT],
        failed=tuple(failed),
        faults=tuple(run.faults),
        internal=run.internal,
        active=len(run.active),
        empty=len(run.empty),
        kept=dict(sorted(kept.items())),
    )
