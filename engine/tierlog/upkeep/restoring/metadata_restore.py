"""The restore of a cluster's remote log metadata: from its bucket alone, or from the printed lines of a copy."""

from __future__ import annotations

import base64
import binascii
import collections
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tierlog.arguments import require_flag, require_ints, require_number, require_text
from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.opening import Config, Path, config_keys, given_machine, open_path, topic_names
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.config import read_storage_config
from tierlog.remote.metadata.metadata_source import is_bootstrap
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.scan.scan_request import TopicName
from tierlog.upkeep.copying.segment_source import TopicMap
from tierlog.upkeep.exporting.broker_directory import TargetCluster
from tierlog.upkeep.restoring.bucket_metadata import BucketMetadata, RestoredPartition
from tierlog.upkeep.restoring.restore_targets import RestoreTarget, SnapshotFile, TopicFolder

#: Minutes without a new object after which a bucket counts as no longer written to.
QUIET_MINUTES: Final = 10
#: Kafka's remote.log.metadata.topic.num.partitions by default.
METADATA_PARTITIONS: Final = 50
_INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlace:
    """The settings of the place of restored metadata: a new folder of the topic, or a running Kafka.

    Args:
        partition_count: For a folder: partitions of the metadata topic that it is for.
        topic_id: For a folder: the id of ``__remote_log_metadata`` in its cluster; None to leave it out.
        cluster: Makes a folder the log directory of a broker of this cluster.
        client_keys: Keys of Kafka's client for a running Kafka, such as ``security.protocol``.
    """

    partition_count: int = METADATA_PARTITIONS
    topic_id: Uuid | None = None
    cluster: TargetCluster | None = None
    client_keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MovedTopic:
    """A topic that is registered under another id than the objects of its segments have.

    Attributes:
        segments: How many segments they are.
        layout: Of the bucket: it decides which storage manager finds the objects.
    """

    topic: str
    old_id: Uuid
    new_id: Uuid
    segments: int
    layout: str


@dataclass(slots=True)
class RestoreResult:
    """The counts of a restore, and the objects that it left out.

    Attributes:
        segments: Segments that were found whole.
        partitions: Partitions that have some.
        size_bytes: Of their logs.
        written: Segments that were written; 0 for a dry run.
        left_out: Name of each segment that was left out, and why.
        moved: Topics that were mapped.
        warnings: What else the caller should know.
    """

    segments: int = 0
    partitions: int = 0
    size_bytes: int = 0
    written: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    moved: tuple[MovedTopic, ...] = ()
    warnings: list[str] = field(default_factory=list)


def restore(
    path: Path,
    topics: str | Iterable[str] = (),
    *,
    to: str | None = None,
    place: RestorePlace = RestorePlace(),
    dry_run: bool = False,
    partitions: Iterable[int] | None = None,
    topic_map: TopicMap | Mapping[Uuid, Uuid] | None = None,
    quiet_minutes: float = QUIET_MINUTES,
    config: Config | None = None,
    layout: str = "auto",
    on_partition: Callable[[RestoredPartition], None] = lambda _: None,
    machine: Machine | None = None,
) -> RestoreResult:
    """Rebuild the remote log metadata of a cluster from its bucket alone.

    Every whole segment is registered as COPY_SEGMENT_FINISHED, dead branches and duplicates among them, with the
    offsets, size, time, leader epochs and custom metadata that the lost topic had. The bucket is not written to.

    Args:
        path: The bucket, as the storage manager has it; ``key.prefix`` applies below it.
        topics: Only these: a name or several, ``<topic id>:<topic>`` for one of two topics of that name.
        to: Where the metadata goes: a new snapshot file, a new folder of ``__remote_log_metadata-N`` (an empty one, or
            a path that ends in "/"), or ``host:port`` of a running Kafka. None writes nothing.
        place: The other arguments of a folder or of a running Kafka.
        dry_run: Check ``to`` as well, and write nothing.
        partitions: The partitions to restore; None for all.
        topic_map: Topic ids of the bucket that are registered as others, of topics that were made anew.
        quiet_minutes: Refuse if an object is younger: nothing in a bucket stops a broker from writing. 0 never refuses.
        config: As for ``tierlog.read``; ``custom.metadata.fields.include`` as the storage manager had it.
        layout: As for ``tierlog.read``.
        on_partition: Called with each partition, as soon as it was read; the segments of no more than a few are in
            memory.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts, and the objects that were left out.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError: ``to`` is not new, the running topic
        contradicts the bucket, its leaders would delete the restored segments, an object is too young, or ``place`` has
        arguments of another kind of place: nothing was written, unless that object came while segments were being
        registered. UnknownTopicError, StoreError, RemoteStorageException and their kinds.
    """
    names = [TopicName.parse(name) for name in topic_names(topics)] if topics else []
    chosen = None if partitions is None else frozenset(require_ints("partitions", partitions))
    mapped = topic_map if isinstance(topic_map, TopicMap) else TopicMap(topic_map)
    require_flag("dry_run", dry_run)
    machine = given_machine(machine)
    quiet = _Quiet(machine, require_number("quiet_minutes", quiet_minutes))

    def wanted(partition: TopicIdPartition) -> bool:
        if chosen is not None and partition.partition not in chosen:
            return False
        return not names or any(name.accepts(partition) for name in names)

    with ExitStack() as held:
        target = None if to is None else _open_target(require_text("to", to), place, machine, held)
        tier = held.enter_context(open_path(path, config=config, layout=layout, machine=machine))
        written_with = read_storage_config(config_keys(config), machine=machine)
        bucket = held.enter_context(BucketMetadata(tier, written_with, wanted=wanted, topics=mapped))
        run = _Run(tier, bucket, mapped, names)
        if target is not None:
            seen: set[str] = set()
            newest = bucket.survey(partial(_look, target, seen))
            run.require_found(seen)
            quiet.check(newest, run.result, refuses=not dry_run)
            target.check(partial(_all_of, bucket))
        writes = target is not None and not dry_run
        for found in bucket.iter_partitions():
            if target is not None and writes:
                quiet.check((found.newest_ms, found.newest), run.result, refuses=True)
                for segment in found.segments:
                    target.add(segment.metadata, started_ms=segment.started_ms)
            run.take(found)
            on_partition(found)
        if target is not None and writes:
            target.finish()
            run.result.written = run.result.segments - target.known
        elif target is None:
            run.require_found(run.topics)
            quiet.check(run.newest, run.result, refuses=False)
        return run.end()


def restore_copied(
    lines: Iterable[str],
    *,
    to: str | None = None,
    place: RestorePlace = RestorePlace(),
    dry_run: bool = False,
    on_segment: Callable[[RemoteLogSegmentMetadata], None] = lambda _: None,
    machine: Machine | None = None,
) -> RestoreResult:
    """Register the segments that ``tierlog copy --output json`` printed, without a look at their bucket.

    Args:
        lines: The lines that the command printed, in one run or in several.
        to: As for ``restore``.
        place: As for ``restore``.
        dry_run: As for ``restore``.
        on_segment: Called with each segment that was copied.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts, and the segments that were not copied.

    Raises:
        ConfigError: a line is no line of this version of the command; it is named by its number. Else as
        ``restore``.
    """
    machine = given_machine(machine)
    result = RestoreResult()
    with ExitStack() as held:
        target = None if to is None else _open_target(require_text("to", to), place, machine, held)
        copied = list(read_copied(lines))
        # Once each: a copy that was gone on with has told some of them again.
        found = {each.metadata.remote_log_segment_id: each.metadata for each in copied if each.metadata is not None}
        there = list(found.values())
        if target is not None:
            for metadata in there:
                target.look(metadata.remote_log_segment_id)
            target.check(lambda: ((each, each.event_timestamp_ms) for each in there))
        writes = target is not None and not dry_run
        for metadata in there:
            if target is not None and writes:
                target.add(metadata, started_ms=metadata.event_timestamp_ms)
            result.size_bytes += metadata.segment_size_in_bytes
            on_segment(metadata)
        if target is not None and writes:
            target.finish()
            result.written = len(there) - target.known
    result.segments = len(there)
    result.partitions = len({each.topic_id_partition for each in there})
    result.left_out = {each.name: f"it was not copied: {each.error}" for each in copied if each.error is not None}
    return result


def _open_target(to: str, place: RestorePlace, machine: Machine, held: ExitStack) -> RestoreTarget:
    """Open the place that ``to`` names, which ``held`` closes."""
    there = machine.files.find(to)
    is_kafka = there is None and is_bootstrap(to)
    is_folder = not is_kafka and (to.endswith("/") or (there is not None and there.is_directory))
    of_folder = place.cluster is not None or place.topic_id is not None or place.partition_count != METADATA_PARTITIONS
    if of_folder and not is_folder:
        what = "a running Kafka" if is_kafka else "a snapshot file"
        text = "partitions, topic id, cluster and node are of a folder, whose path ends in /"
        raise ConfigError(f"{to} is {what}: {text}")
    if place.client_keys and not is_kafka:
        raise ConfigError(f"{to} is no HOST:PORT of a running Kafka, which client keys are for")
    if is_kafka:
        from tierlog.remote.metadata.topic_backed.kafka_metadata_log import open_cluster_log
        from tierlog.runtime.kafka.client_keys import client_settings
        from tierlog.runtime.kafka.topic_admin import TopicAdmin
        from tierlog.upkeep.restoring.topic_writer import TopicWriter

        keys = dict(place.client_keys)
        log = open_cluster_log(to, client_keys=keys, writable=True, machine=machine)
        held.enter_context(log)
        settings = client_settings("admin", {**keys, "bootstrap.servers": to}, client_id="tierlog-restore")
        admin = held.enter_context(TopicAdmin(settings, machine=machine))
        writer = TopicWriter(log, machine, topics=admin)
        writer.read_topic()
        return writer
    if is_folder:
        return TopicFolder(
            to.rstrip("/") or "/",
            partition_count=place.partition_count,
            machine=machine,
            topic_id=place.topic_id,
            target=place.cluster,
        )
    return held.enter_context(closing(SnapshotFile(to, machine=machine)))


def _look(target: RestoreTarget, seen: set[str], segment_id: RemoteLogSegmentId) -> None:
    seen.add(segment_id.topic_id_partition.topic)
    target.look(segment_id)


def _all_of(bucket: BucketMetadata) -> Iterator[tuple[RemoteLogSegmentMetadata, int]]:
    return ((each.metadata, each.started_ms) for found in bucket.iter_partitions() for each in found.segments)


@dataclass(frozen=True, slots=True)
class _Quiet:
    """The time for which a bucket must have been left alone before it is restored."""

    machine: Machine
    minutes: float

    def check(self, newest: tuple[int, str], result: RestoreResult, *, refuses: bool) -> None:
        """Raise ConfigError if the newest object is too young; without ``refuses`` that is a warning."""
        newest_ms, key = newest
        age_ms = self.machine.clock.time_ms() - newest_ms
        if newest_ms < 0 or self.minutes == 0 or age_ms >= self.minutes * 60_000:
            return
        text = (
            f"{key} was written {max(0, age_ms) // 1000} s ago, and nothing in a bucket keeps a broker from going on: "
            "stop the brokers, or the managers, that write to it"
        )
        if refuses:
            raise ConfigError(f"{text}; then wait {self.minutes:g} min (quiet-minutes)")
        result.warnings.append(text)


class _Run:
    """The segments and faults that one restore has found."""

    def __init__(self, tier: Tier, bucket: BucketMetadata, mapped: TopicMap, names: Collection[TopicName]) -> None:
        self._tier = tier
        self._bucket = bucket
        self._mapped = mapped
        self._names = names
        self._moved: collections.Counter[tuple[str, Uuid, Uuid]] = collections.Counter()
        self.result = RestoreResult()
        self.topics: set[str] = set()
        self.newest = (-1, "")

    def take(self, found: RestoredPartition) -> None:
        """Count one partition in."""
        self.result.partitions += bool(found.segments)
        self.result.segments += len(found.segments)
        self.result.size_bytes += sum(segment.metadata.segment_size_in_bytes for segment in found.segments)
        self.result.left_out |= {left.name: left.reason for left in found.left_out}
        self.newest = max(self.newest, (found.newest_ms, found.newest))
        for segment in found.segments:
            if segment.moved:
                was = segment.stored.topic_id_partition
                self._moved[was.topic, was.topic_id, segment.metadata.topic_id_partition.topic_id] += 1
        self.topics.add(found.topic_id_partition.topic)

    def require_found(self, seen: Collection[str]) -> None:
        """Raise UnknownTopicError or ConfigError if a given topic or old id is not in the bucket."""
        for topic in self._names:
            if topic.name not in seen:
                raise UnknownTopicError(f"{self._tier.describe()}: no topic {topic}")
        missing = sorted(map(str, self._mapped.new_ids.keys() - self._bucket.found_old_ids))
        if missing:
            raise ConfigError(f"the bucket has no topic of id {', '.join(missing)}, which is mapped")

    def end(self) -> RestoreResult:
        """Return the result, with the topics that were mapped."""
        self.result.moved = tuple(
            MovedTopic(topic, old, new, count, self._tier.layout)
            for (topic, old, new), count in sorted(self._moved.items())
        )
        return self.result


@dataclass(frozen=True, slots=True)
class ReportedCopy:
    """One line.

    Args:
        metadata: In state COPY_SEGMENT_FINISHED; None for a segment that was not copied.
        name: Of the object, or of the source where there is none.
        error: Why it was not copied.
    """

    metadata: RemoteLogSegmentMetadata | None
    name: str
    error: str | None = None


def read_copied(lines: Iterable[str]) -> Iterator[ReportedCopy]:
    """Read the segments of some lines, in their order; empty lines are skipped.

    Raises:
        ConfigError: a line is no line of this version of the command; it is named by its number.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _segment(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error) as cause:
            text = f"line {number} is no segment of `tierlog copy --output json`: {cause!r:.200}"
            raise ConfigError(text) from cause


def _segment(told: dict[str, Any]) -> ReportedCopy:
    if told["state"] == "failed":
        return ReportedCopy(None, str(told["source"]), str(told["error"]))
    if told["state"] not in ("copied", "present"):
        raise ValueError(f"state {told['state']!r:.40}")
    custom = told["customMetadata"]
    if not 0 <= told["sizeBytes"] <= _INT32_MAX:
        raise ValueError(f"size {told['sizeBytes']!r:.40}")
    partition = TopicIdPartition(Uuid.from_text(told["topicId"]), told["topic"], told["partition"])
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid.from_text(told["segmentId"])),
        start_offset=told["startOffset"],
        end_offset=told["endOffset"],
        max_timestamp_ms=told["maxTimestamp"],
        broker_id=told["brokerId"],
        event_timestamp_ms=told["eventTimestamp"],
        segment_size_in_bytes=told["sizeBytes"],
        segment_leader_epochs={int(epoch): start for epoch, start in told["leaderEpochs"].items()},
        custom_metadata=None if custom is None else base64.b64decode(custom, validate=True),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        txn_idx_empty=told["txnIndexEmpty"],
    )
    return ReportedCopy(metadata, str(told["object"]))
