"""The remote log indexes of a broker's tiered partitions: files beside each log that say where its records are in the
tier, which the older page of KIP-405 describes (``remote.log_index``).

Leaders and followers write them by the same rule: behind each run of a partition's task, its index gets the entries of
the segments that are copied since, from the objects that lie beside them. So an entry follows its segment's state
COPY_SEGMENT_FINISHED, a follower that was away catches up, and what a truncation, or another leader, made void is cut
off. The index is no source of truth: whatever is wrong with it is made again from the tier, and no error of it stops a
task.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tierlog.errors import ConfigError, CorruptIndexError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.remote_log_index_entry import RemoteLogIndexEntry
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierlog.remote.log_index.partition_index import RemoteLogIndex, append_segments
from tierlog.remote.manager.partition_terms import PartitionRun
from tierlog.remote.manager.task_faults import is_passing
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_lineage import epochs_with_records, is_within
from tierlog.remote.manager.tiered_partition import IndexProgress, TieredPartition
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine.cancelling import cancelled_by

_log = logging.getLogger(__name__)

#: Segments whose entries one run fetches: a partition that lacks more comes again behind the others.
_SEGMENTS_MAX: Final = 256


def indexed_segments(
    segments: Iterable[RemoteLogSegmentMetadata], epochs: LeaderEpochs, *, log_end_offset: int
) -> list[RemoteLogSegmentMetadata]:
    """Return the segments that a log's index has entries of, ascending: those that are copied and the log's own. Of
    several that begin at one offset the longest counts, then the latest; one that lies within another does not.

    Args:
        segments: Of the partition, in any order and state.
        epochs: Of the log, those with records.
        log_end_offset: Exclusive.
    """
    own = [
        each
        for each in segments
        if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        and is_within(each, epochs, log_end_offset=log_end_offset)
    ]
    own.sort(key=lambda each: (each.start_offset, each.end_offset, each.event_timestamp_ms))
    chosen: list[RemoteLogSegmentMetadata] = []
    for each in own:
        if chosen and chosen[-1].start_offset == each.start_offset:
            chosen.pop()
        if not chosen or each.end_offset > chosen[-1].end_offset:
            chosen.append(each)
    return chosen


class Matched(NamedTuple):
    """How far an index on disk is that of a row of segments.

    Attributes:
        segments: The number of the first ones that need nothing more; those of them without entries have none in the
            tier.
        cut_offset: From where on the index has other entries; None: it has none.
    """

    segments: int
    cut_offset: int | None


def match_entries(entries: Iterable[RemoteLogIndexEntry], segments: Sequence[RemoteLogSegmentMetadata]) -> Matched:
    """Compare the entries of an index with the segments that it is to have, both ascending.

    An entry names the object of its segment, whose key has the segment's id.
    """
    count = 0
    for entry in entries:
        at = count
        while at < len(segments) and segments[at].start_offset < entry.first_offset:
            at += 1
        if at < len(segments) and _is_of(entry, segments[at]):
            count = at + 1
        elif count and _is_of(entry, segments[count - 1]):
            continue
        elif count or not segments or entry.first_offset >= segments[0].start_offset:
            return Matched(count, entry.first_offset)
    return Matched(count, None)


def _is_of(entry: RemoteLogIndexEntry, segment: RemoteLogSegmentMetadata) -> bool:
    is_inside = segment.start_offset <= entry.first_offset and entry.last_offset <= segment.end_offset
    return is_inside and str(segment.remote_log_segment_id.id).encode() in entry.identifier


class LogIndexes:
    """Keeps the remote log indexes of partitions up to date.

    Args:
        services: What the manager works with.

    Raises:
        ConfigError: the storage manager stores no entries beside segments (``log.index.object.enabled``).

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices) -> None:
        storage = services.storage
        if not isinstance(storage, TieredStorageManager) or not storage.stores_log_index:
            raise ConfigError(
                "remote.log.index.enable is true: the storage manager must be Tierlog's, with "
                "log.index.object.enabled=true"
            )
        self._services = services
        self._storage = storage
        self._lock = services.machine.scheduler.lock()
        #: Partitions whose index is written now: a run of a term that has ended may overlap one of the next term.
        self._busy: set[TopicIdPartition] = set()

    def behind(self, run: PartitionRun) -> PartitionRun:
        """Return a partition's task that brings the index up to date behind each run of another one."""

        def run_both(partition: TieredPartition) -> float | None:
            pause = run(partition)
            if pause is None or partition.has_ended:
                return pause
            is_behind = self.update(partition)
            return 0.0 if is_behind and partition.failure is None else pause

        return run_both

    def update(self, partition: TieredPartition) -> bool:
        """Bring a partition's index up to date; whether more is to be done. It raises nothing: an error is logged,
        counted, and met again at the next call.
        """
        topic_id_partition = partition.topic_id_partition
        log = self._services.find_log(topic_id_partition)
        if log is None or not log.remote_log_enabled() or log.must_be_rebuilt:
            return False
        with self._lock:
            if topic_id_partition in self._busy:
                return False
            self._busy.add(topic_id_partition)
        try:
            with cancelled_by(partition.scope):
                return not partition.has_ended and self._update(partition, log)
        except Exception as error:  # noqa: BLE001 - the index is made again; the task goes on
            self._failed(partition, error)
            return False
        finally:
            with self._lock:
                self._busy.discard(topic_id_partition)

    def _failed(self, partition: TieredPartition, error: Exception) -> None:
        if partition.has_ended:
            return
        if isinstance(error, CorruptIndexError):
            partition.log_index = None  # it is opened anew, which ends it at the damage
        if not is_passing(error):
            self._services.metrics.add_lone("log_index_errors")
        level = logging.DEBUG if is_passing(error) else logging.WARNING
        topic_id_partition = partition.topic_id_partition
        _log.log(level, "%s: its remote log index is not up to date: %s", topic_id_partition, error)

    def _update(self, partition: TieredPartition, log: PartitionLog) -> bool:
        metadata, topic_id_partition = self._services.metadata, partition.topic_id_partition
        version = metadata.segments_version(topic_id_partition)
        end_offset, last_epoch = log.log_end_offset, log.leader_epoch_cache.latest_entry
        known = partition.log_index
        if known is not None and known.folder == log.folder:
            known.index.remove_before(log.log_start_offset)
            if version is not None and known.seen == (version, last_epoch, min(end_offset, known.highest + 1)):
                return False
        segments = list(metadata.list_remote_log_segments(topic_id_partition))
        epochs = epochs_with_records(log.leader_epoch_cache.epoch_with_offsets().items())
        wanted = indexed_segments(segments, epochs, log_end_offset=end_offset)
        if known is None or known.folder != log.folder:
            known = partition.log_index = self._opened(log.folder, wanted)
        is_behind = self._append(known, wanted)
        if not is_behind:
            known.highest = max((each.end_offset for each in segments), default=-1)
            known.seen = (version, last_epoch, min(end_offset, known.highest + 1))
        return is_behind

    def _opened(self, folder: str, wanted: list[RemoteLogSegmentMetadata]) -> IndexProgress:
        """Open the index that lies beside a log, without entries that are not its own."""
        index = RemoteLogIndex(folder, check_all=True, machine=self._services.machine)
        known = IndexProgress(index, folder)
        matched = match_entries(index.iter_entries(), wanted)
        if matched.cut_offset is not None:
            index.truncate_from_end(matched.cut_offset)
        known.ids = [each.remote_log_segment_id for each in wanted[: matched.segments]]
        return known

    def _append(self, known: IndexProgress, wanted: list[RemoteLogSegmentMetadata]) -> bool:
        """Append the entries that an index lacks; whether it lacks more."""
        ids = [each.remote_log_segment_id for each in wanted]
        had = known.ids
        if ids and ids[0] in had:  # those in front of it have expired
            had = had[had.index(ids[0]) :]
        count = 0
        while count < min(len(ids), len(had)) and ids[count] == had[count]:
            count += 1
        if count < len(had):  # the last one that stays is made again, whichever entries of it the next one hides
            count = max(0, count - 1)
            known.ids = had[:count]
            known.index.truncate_from_end(wanted[count].start_offset if count else 0)
        lacking = wanted[count : count + _SEGMENTS_MAX]
        without = append_segments(known.index, lacking, self._storage.fetch_log_index)
        if without:
            _log.info("%d segments from %s on were copied without entries", len(without), without[0])
        count += len(lacking)
        known.ids = ids[:count]
        return count < len(wanted)
