"""Copying the closed segments of a tier into a bucket, each checked on its way and read back.

A segment keeps its id, offsets, epochs, indexes and, once decoded, its bytes; chunks, compression, encryption, keys and
prefix are the target's. Only the target records what was copied: a segment that is whole there is checked and left
alone, so that a second run continues the first, and a partition's second replica adds segments that the first one
lacked. Objects of a killed run are replaced.
"""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Final

from tierlog.arguments import require_flag, require_ints, require_path
from tierlog.errors import ConfigError, TierlogError, UnknownTopicError, first_of
from tierlog.opening import Config, Path, TierLocation, config_keys, given_machine, open_path, topic_names
from tierlog.remote.api import IndexType, Uuid
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.copy.copy_target import CopyTarget, open_copy_target
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.scan.scan_request import TopicName
from tierlog.upkeep.copying.copy_work import CopyOrder, CopyState, CopyWork, SegmentOutcome, copy_requests
from tierlog.upkeep.copying.segment_source import LAYOUTS_WITHOUT_IDS, TopicMap
from tierlog.upkeep.job_ledger import ledgered
from tierlog.upkeep.segment_work import Executor, JobEstimate, ThreadExecutor, WorkOrder

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


class BucketCopy:
    """One run over the closed segments of a tier.

    Args:
        source, target: The caller closes them. No target: nothing is copied, only listed.
        topics: Names of topics; ``ID:TOPIC`` picks one of two of a name. Empty for all but Kafka's internal topics of a
            broker's disk.
        partitions: The partitions to copy; None for all.
        topic_map: Topic ids that become others in the target; segments keep their own ids.
        only_mapped: Whether to leave out topics whose id stays.
        recheck: Whether to read segments again that are whole in the target already; else their description and sizes
            decide.
        workers: Segments under way at once.
        on_bytes: Called, in any thread, with the number of log bytes that were read from the source.
        executor: Copies the segments; None for so many threads.
        order: Opens source and target where the executor needs them elsewhere.

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
        target: CopyTarget | None,
        *,
        topics: Sequence[str] = (),
        partitions: Collection[int] | None = None,
        topic_map: TopicMap | None = None,
        only_mapped: bool = False,
        recheck: bool = True,
        workers: int = 1,
        on_bytes: Callable[[int], None] = lambda _: None,
        executor: Executor | None = None,
        order: WorkOrder[StoredSegment, SegmentOutcome] | None = None,
    ) -> None:
        if source.layout == "file":
            raise ConfigError("one file is not a whole segment: give its log directory")
        self._source = source
        self._topic_map = topic_map or TopicMap()
        self._executor = executor or ThreadExecutor(source.machine.scheduler, workers, name="tierlog-copy")
        self._work: CopyWork | None = None
        if target is not None:
            self._work = CopyWork(
                source, target, topic_map=self._topic_map, recheck=recheck, on_bytes=on_bytes, order=order
            )
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

    def estimate(self, part_bytes: int) -> JobEstimate:
        """What the run will do, if nothing is in the target yet.

        Args:
            part_bytes: Of the target's uploads.
        """
        requests = sum(copy_requests(self._source, segment, part_bytes) for segment in self.segments)
        return JobEstimate(len(self.segments), requests, sum(segment.log.size_bytes for segment in self.segments))

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
        if self._work is None:
            return
        with closing(self._executor.run(self._work, self.segments)) as done:
            for _, outcome in done:
                yield outcome


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
    executor: Executor | None = None,
    ledger: Path | None = None,
    dry_run: bool = False,
    on_estimate: Callable[[JobEstimate], None] = lambda _: None,
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
        executor: Copies the segments, as ``pyspark_tierlog.jobs`` has one; None for threads of this process. Limits of
            rates are each process's own.
        ledger: A file, or a folder for it, that remembers what is copied: nothing of segments in it is read again.
        dry_run: List the source, and do nothing else.
        on_estimate: Called once with what the job will do, before it does.
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
    keys, dest_keys = config_keys(config) or {}, config_keys(dest_config) or {}
    dest_read = read_storage_config(dest_keys, machine=machine)
    tally = _Tally()
    with ExitStack() as held:
        tier = held.enter_context(open_path(source, config=keys, layout=layout, machine=machine, limited=True))
        is_same = tier.url.rstrip("/") == to.rstrip("/") != ""
        if is_same and not mapped:
            raise ConfigError(f"{to} is both the source and the destination")
        if is_same and dest_read.layout != tier.layout:
            text = f"{to} has the layout {tier.layout}: give its configuration as a destination layout={tier.layout}"
            raise ConfigError(text)
        target, by = None, executor or ThreadExecutor(machine.scheduler, workers, name="tierlog-copy")
        if not require_flag("dry_run", dry_run):
            target = held.enter_context(closing(open_copy_target(to, config=dest_keys, machine=machine)))
            asked = {"job": "copy", "path": tier.describe(), "dest": target.tier.describe(), "map": str(mapped)}
            if prefix := dest_read.key_prefix:
                is_shown = not dest_read.key_prefix_mask
                asked["prefix"] = prefix if is_shown else hashlib.sha256(prefix.encode()).hexdigest()
            by = held.enter_context(ledgered(by, ledger, asked, machine))
        run = BucketCopy(
            tier,
            target,
            topics=names,
            partitions=chosen,
            topic_map=mapped,
            only_mapped=is_same,
            recheck=recheck,
            on_bytes=lambda size_bytes: on_bytes(size_bytes, run.size_bytes),
            executor=by,
            order=CopyOrder(
                TierLocation(tier.url, tier.layout, dict(keys), limited=True),
                to,
                dict(dest_keys),
                dict(mapped.new_ids),
                recheck,
            ),
        )
        on_estimate(run.estimate(dest_read.part_bytes))
        for outcome in run:
            tally.add(outcome)
            on_segment(outcome)
    return tally.result(run)


class _Tally:
    """The counts of a run."""

    def __init__(self) -> None:
        self._counts: collections.Counter[CopyState] = collections.Counter()
        self._kept: collections.Counter[str] = collections.Counter()
        self._failed: list[SegmentOutcome] = []

    def add(self, outcome: SegmentOutcome) -> None:
        self._counts[outcome.state] += 1
        self._kept.update(str(kind.value) for kind in outcome.kept)
        if outcome.error is not None:
            self._failed.append(outcome)

    def result(self, run: BucketCopy) -> CopyResult:
        return CopyResult(
            copied=self._counts[CopyState.COPIED],
            present=self._counts[CopyState.PRESENT],
            failed=tuple(self._failed),
            faults=tuple(run.faults),
            internal=run.internal,
            active=len(run.active),
            empty=len(run.empty),
            kept=dict(sorted(self._kept.items())),
        )
