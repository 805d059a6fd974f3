"""Restored segments as records of a metadata topic that runs.

The topic is read to its end first. A segment that it knows as finished is passed over, so that the same restore can be
run again; a segment that it knows as begun is finished if a restore would write the same record (an earlier run died
between the two records); any other state is refused before a record is written, and so is a segment that the leader of
its partition would delete: a leader deletes each segment whose leader epochs all lie before the first epoch of its own
log, in the next run of its expiration task (Kafka's RemoteLogManager, "leader-epoch-cache truncation"), and each that
ends below its log start offset. The log of a topic that was made anew is empty, and a leader of an empty log forgets
every epoch but its own: it deletes the lost topic's segments in the tier.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError, first_of
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RetriableRemoteStorageException,
    TopicIdPartition,
)
from tierlog.remote.metadata.metadata_log import (
    METADATA_TOPIC,
    MetadataLog,
    metadata_partition,
)
from tierlog.remote.metadata.metadata_source import record_values
from tierlog.remote.metadata.record_serde import decode_record, encode_record
from tierlog.runtime.kafka.topic_admin import LeaderLog, TopicAdmin
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Future
from tierlog.upkeep.restoring.restore_targets import RestoreTarget, records_of

#: Records that are not acknowledged yet, at most.
_IN_FLIGHT: Final = 1000
_READ_BYTES: Final = 8 << 20
_SHOWN: Final = 10
_STARTED: Final = RemoteLogSegmentState.COPY_SEGMENT_STARTED
_FINISHED: Final = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
#: For messages: the one way to restore segments that a running leader would delete.
ORDER: Final = (
    "restore in this order: raise the leader epochs of the topics while they are empty, stop the brokers, "
    "`tierlog copy --map` (for Aiven's plugin), `tierlog export --last-segment`, `tierlog restore --to FOLDER/`, move "
    "both into the log directories, start (docs/disaster-recovery.md, part 4)"
)


def find_leader_logs(
    topics: TopicAdmin, partitions: Iterable[TopicIdPartition], *, timeout_seconds: float
) -> dict[TopicIdPartition, LeaderLog]:
    """Return the logs of those partitions that the cluster has, under the same topic id, by their leaders' answers.

    Raises:
        StoreUnavailableError: a leader does not answer within the time, which is that of each topic.
        StorePermissionError: a topic may not be described. StoreError.
    """
    found: dict[TopicIdPartition, LeaderLog] = {}
    for topic, asked in itertools.groupby(sorted(partitions, key=lambda each: each.topic), lambda each: each.topic):
        known = topics.describe_topic(topic, timeout_seconds=timeout_seconds)
        if known is None:
            continue
        led = {
            each.partition: each
            for each in asked
            if str(each.topic_id) == known.topic_id and each.partition < len(known.replicas)
        }
        logs = topics.leader_logs(topic, list(led), timeout_seconds=timeout_seconds)
        found |= {led[number]: log for number, log in logs.items()}
    return found


def find_reason_to_delete(log: LeaderLog, metadata: RemoteLogSegmentMetadata) -> str | None:
    """Return the reason for which a log's leader deletes a segment or cannot find it; None if the segment stays."""
    last_epoch = max(metadata.segment_leader_epochs)
    if log.start_offset == log.end_offset:
        return "its log there is empty"
    if metadata.end_offset < log.start_offset or (log.first_epoch is not None and last_epoch < log.first_epoch):
        epoch = "" if log.first_epoch is None else f" with leader epoch {log.first_epoch}"
        return f"its log there begins at offset {log.start_offset}{epoch}"
    if log.last_epoch is not None and last_epoch > log.last_epoch:
        return f"its leader is of epoch {log.last_epoch}, and a segment of {last_epoch}"
    return None


@dataclass(frozen=True, slots=True)
class _Appended:
    """A record that is being sent, and the record that follows its acknowledgement: FINISHED alone would be lost."""

    future: Future[int]
    place: int
    following: bytes | None


class TopicWriter(RestoreTarget):
    """A writer into one metadata topic. One thread.

    Args:
        log: The topic; the caller closes it.
        machine: Its clock.
        topics: Asks the leaders of the topic's cluster; the caller closes it. None where the topic has no leaders.
        timeout_seconds: The longest that one read, or the acknowledgement of one record, may take.

    Attributes:
        written: Segments that were written.
        known: Segments that the topic had already.
    """

    def __init__(
        self,
        log: MetadataLog,
        machine: Machine,
        *,
        topics: TopicAdmin | None = None,
        timeout_seconds: float = 60.0,
    ) -> None:
        self._log = log
        self._clock = machine.clock
        self._topics = topics
        self._timeout_seconds = timeout_seconds
        self._states: dict[RemoteLogSegmentId, RemoteLogSegmentState] = {}
        self._begun: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self._unfinished: set[RemoteLogSegmentId] = set()
        self._wrong: list[RemoteLogSegmentId] = []
        self._partitions: set[TopicIdPartition] = set()
        self._in_flight: collections.deque[_Appended] = collections.deque()
        self.written = 0
        self.known = 0

    def read_topic(self) -> None:
        """Read the segments' states from the topic.

        Raises:
            CorruptRecordError: a record is of no known type. RemoteStorageException and its kinds.
        """
        partitions = range(self._log.partition_count)
        bounds = self._log.bounds(partitions, timeout_seconds=self._timeout_seconds)
        positions = {place: at.start_offset for place, at in bounds.items() if at.start_offset < at.end_offset}
        deadline = self._clock.monotonic_seconds() + self._timeout_seconds
        while positions:
            runs = self._log.read(positions, max_bytes=_READ_BYTES, timeout_seconds=self._timeout_seconds)
            for run in runs:
                for _, value in record_values(run):
                    self._learn(value)
                if run.next_offset >= bounds[run.partition].end_offset:
                    positions.pop(run.partition, None)
                elif run.partition in positions:
                    positions[run.partition] = run.next_offset
            if runs:
                deadline = self._clock.monotonic_seconds() + self._timeout_seconds
            elif self._clock.monotonic_seconds() > deadline:
                raise RetriableRemoteStorageException(
                    f"{METADATA_TOPIC}: nothing came of partitions {sorted(positions)} for {self._timeout_seconds:g} s"
                )

    def _learn(self, value: bytes) -> None:
        record = decode_record(value)
        if not isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate):
            return
        segment_id = record.remote_log_segment_id
        if isinstance(record, RemoteLogSegmentMetadataUpdate) and segment_id not in self._states:
            return  # brokers pass over an update without a start: they do not know this segment
        self._states[segment_id] = max(record.state, self._states.get(segment_id, record.state))
        if isinstance(record, RemoteLogSegmentMetadata) and self._states[segment_id] is _STARTED:
            self._begun[segment_id] = record
        else:
            self._begun.pop(segment_id, None)

    def look(self, segment_id: RemoteLogSegmentId) -> None:
        """Compare one segment with its state in the topic."""
        state = self._states.get(segment_id)
        if state is _STARTED:
            self._unfinished.add(segment_id)
        elif state not in (None, _FINISHED):
            self._wrong.append(segment_id)
        if state is not _FINISHED:
            self._partitions.add(segment_id.topic_id_partition)

    def check(self, segments: Callable[[], Iterable[tuple[RemoteLogSegmentMetadata, int]]]) -> None:
        """Refuse segments that the topic knows in other states, and those that leaders of the cluster would delete.

        Raises:
            ConfigError: there are such segments; they are named. StoreError and its kinds: a leader cannot be asked.
        """
        leaders: dict[TopicIdPartition, LeaderLog] = {}
        if self._topics is not None and not self._wrong:
            leaders = find_leader_logs(self._topics, self._partitions, timeout_seconds=self._timeout_seconds)
        lost: dict[TopicIdPartition, str] = {}
        if (self._unfinished or leaders) and not self._wrong:
            for metadata, started_ms in segments():
                segment_id = metadata.remote_log_segment_id
                if segment_id in self._unfinished:
                    started, _ = records_of(metadata, started_ms=started_ms)
                    if self._begun.get(segment_id) != started:
                        self._wrong.append(segment_id)
                partition = segment_id.topic_id_partition
                if partition in leaders and self._states.get(segment_id) is not _FINISHED:
                    reason = find_reason_to_delete(leaders[partition], metadata)
                    if reason is not None:
                        lost.setdefault(partition, reason)
        if self._wrong:
            told = first_of([f"{each} ({self._states[each].name})" for each in self._wrong], _SHOWN)
            raise ConfigError(f"{METADATA_TOPIC} knows segments of these in another state: {told}")
        if lost:
            told = first_of([f"{partition} ({reason})" for partition, reason in sorted(lost.items())], _SHOWN)
            raise ConfigError(
                f"nothing was written: leaders of the cluster would delete segments of {told}: {ORDER}; "
                "other partitions can be restored by themselves, named by TOPIC and --partition"
            )

    def add(self, metadata: RemoteLogSegmentMetadata, *, started_ms: int) -> None:
        """Append the records of a segment that the topic lacks. Raises RemoteStorageException and its kinds."""
        segment_id = metadata.remote_log_segment_id
        state = self._states.get(segment_id)
        if state is _FINISHED:
            self.known += 1
            return
        place = metadata_partition(segment_id.topic_id_partition, self._log.partition_count)
        started, finished = (encode_record(record) for record in records_of(metadata, started_ms=started_ms))
        if state is _STARTED:
            self._append(place, finished)
        else:
            self._append(place, started, finished)
        self.written += 1
        self._settle(_IN_FLIGHT)

    def _append(self, place: int, value: bytes, following: bytes | None = None) -> None:
        self._in_flight.append(_Appended(self._log.append(place, value), place, following))

    def finish(self) -> None:
        """Wait until every record is acknowledged."""
        self._settle(0)

    def _settle(self, left: int) -> None:
        while len(self._in_flight) > left:
            done = self._in_flight.popleft()
            try:
                done.future.result(self._timeout_seconds)
            except TimeoutError:
                text = f"{METADATA_TOPIC}: a record was not acknowledged within {self._timeout_seconds:g} s"
                raise RetriableRemoteStorageException(text) from None
            if done.following is not None:
                self._append(done.place, done.following)
