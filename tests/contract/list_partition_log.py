"""A partition's log of a third party's, in the fewest lines: batches in lists, files written when a segment closes.

It names no class of ours but values and errors, and passes the contract of PartitionLog.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from typing_extensions import Buffer

from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs, encode_leader_epochs
from tierlog.log.formats.producer_snapshot import ProducerEntry, encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.log.local import (
    AppendRefusedError,
    FetchDataInfo,
    FetchIsolation,
    KafkaError,
    LogAppendInfo,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TimestampAndOffset,
)
from tierlog.log.partition_log import PartitionSegment
from tierlog.records import decode, scan


@dataclass(frozen=True)
class ListConfig:
    """Nothing expires."""

    retention_ms: int = -1
    retention_bytes: int = -1
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    remote_copy_lag_ms: int | None = None
    remote_copy_lag_bytes: int | None = None
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False


@dataclass(frozen=True)
class Batch:
    """One batch with its offsets."""

    data: bytes
    base_offset: int
    last_offset: int
    epoch: int

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read(self) -> bytes:
        return self.data

    def records(self) -> Iterator[tuple[int, int]]:
        """(timestamp, offset) of each record."""
        table = decode(self.data)
        return zip(table["timestamp"].cast("int64").to_pylist(), table["offset"].to_pylist(), strict=True)


def batches_of(data: Buffer) -> Iterator[Batch]:
    """The whole batches of a leader's answer."""
    view, found = memoryview(data).cast("B"), scan(data)
    for position, size, base, last, epoch in zip(
        *(
            getattr(found, name).tolist()
            for name in ("position", "size_bytes", "base_offset", "last_offset", "leader_epoch")
        ),
        strict=True,
    ):
        yield Batch(bytes(view[position : position + size]), base, last, epoch)


@dataclass(eq=False)
class ListSegment:
    """A row of batches; their files are written when the next segment begins."""

    folder: pathlib.Path
    base_offset: int
    batches: list[Batch] = field(default_factory=list)

    def path(self, suffix: str) -> pathlib.Path:
        return self.folder / f"{self.base_offset:020}{suffix}"

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches)

    @property
    def largest_timestamp_ms(self) -> int:
        return max((timestamp for batch in self.batches for timestamp, _ in batch.records()), default=-1)

    def find_offset_by_timestamp(self, timestamp_ms: int, starting_offset: int) -> TimestampAndOffset | None:
        records = (record for batch in self.batches for record in batch.records())
        found = next((each for each in records if each[0] >= timestamp_ms and each[1] >= starting_offset), None)
        return None if found is None else TimestampAndOffset(*found, None)

    def collect_aborted(self, *, fetch_offset: int, upper_bound_offset: int) -> tuple[list[tuple[int, int, int]], bool]:
        assert fetch_offset <= upper_bound_offset
        return [], False

    def close(self) -> None:
        self.path(".log").write_bytes(b"".join(batch.data for batch in self.batches))
        for suffix in (".index", ".timeindex"):
            self.path(suffix).write_bytes(b"")


class ListEpochs:
    """Leader epochs over the immutable value of the formats."""

    def __init__(self) -> None:
        self.epochs = LeaderEpochs()

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self.epochs.earliest

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self.epochs.latest

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        return self.epochs.find_previous(epoch)

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        latest = self.epochs.latest
        if epoch is None and latest is not None:
            epoch = latest.epoch
        entry = None if epoch is None else self.epochs.find_previous(epoch)
        return None if entry is None else entry.epoch

    def next_epoch(self, epoch: int) -> int | None:
        entry = self.epochs.find_next(epoch)
        return None if entry is None else entry.epoch

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        return self.epochs.find_entry(epoch)

    def epoch_for_offset(self, offset: int) -> int | None:
        return self.epochs.epoch_for_offset(offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, log_end_offset=log_end_offset)

    def epoch_entries_in_range(self, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        return self.epochs.range(start_offset, end_offset_exclusive)

    def epoch_with_offsets(self) -> dict[int, int]:
        return dict(self.epochs)


class ListLog:
    """The log. One thread. Producers are those of the last snapshot that it began with, which no record changes."""

    def __init__(self, folder: pathlib.Path, *, tiered: bool) -> None:
        folder.mkdir()
        self._folder = folder
        self.folder, self.parent_dir = str(folder), str(folder.parent)
        self.config = ListConfig()
        self.log_start_offset = self.local_log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.highest_offset_in_remote_storage = -1
        self.leader_epoch_cache = ListEpochs()
        self.must_be_rebuilt = False
        self._producers: tuple[ProducerEntry, ...] = ()
        self._tiered = tiered
        self._segments = [ListSegment(folder, 0)]

    @property
    def last_stable_offset(self) -> int:
        begun = (entry.transaction_first_offset for entry in self._producers)
        return min((self.high_watermark, *(first for first in begun if first >= 0)))

    def open_transactions(self) -> list[ProducerEntry]:
        begun = [entry for entry in self._producers if entry.transaction_first_offset >= 0]
        return sorted(begun, key=lambda entry: entry.transaction_first_offset)

    @property
    def active_segment(self) -> ListSegment:
        return self._segments[-1]

    def remote_log_enabled(self) -> bool:
        return self._tiered

    def log_segments(self, from_offset: int | None = None, to_offset: int | None = None) -> tuple[ListSegment, ...]:
        floor = max((each.base_offset for each in self._segments if each.base_offset <= (from_offset or 0)), default=0)
        end = self.log_end_offset + 1 if to_offset is None else to_offset
        return tuple(each for each in self._segments if floor <= each.base_offset < end)

    def closed_segments(self, from_offset: int = 0) -> list[tuple[ListSegment, int]]:
        segments = self.log_segments(from_offset)
        pairs = zip(segments, (each.base_offset for each in segments[1:]), strict=False)
        return [(segment, end) for segment, end in pairs if end <= self.last_stable_offset]

    def size(self) -> int:
        return sum(each.size_bytes for each in self._segments)

    def _only_local(self) -> list[ListSegment]:
        copied = self.highest_offset_in_remote_storage
        return [each for each in self.log_segments(self.log_start_offset) if each.base_offset > copied]

    def only_local_log_segments_size(self) -> int:
        start = self.log_start_offset
        return sum(
            len(batch.data) for each in self._only_local() for batch in each.batches if batch.last_offset >= start
        )

    def only_local_log_segments_count(self) -> int:
        return len(self._only_local())

    # ---- files

    def _snapshot(self, offset: int) -> pathlib.Path:
        return self._folder / f"{offset:020}.snapshot"

    def snapshot_at(self, offset: int) -> bytes | None:
        return self._snapshot(offset).read_bytes() if self._snapshot(offset).is_file() else None

    @contextlib.contextmanager
    def _leased(self, segment: ListSegment, end_offset: int) -> Iterator[LogSegmentData]:
        """Copies of the files."""
        with tempfile.TemporaryDirectory(dir=self.parent_dir) as folder:
            paths = [segment.path(suffix) for suffix in (".log", ".index", ".timeindex")]
            log, offsets, times, snapshot = (shutil.copy(each, folder) for each in (*paths, self._snapshot(end_offset)))
            epochs = encode_leader_epochs(self.leader_epoch_cache.epochs.truncate_from_end(end_offset))
            yield LogSegmentData(log, offsets, times, None, snapshot, epochs)

    def lease(self, segment: PartitionSegment) -> contextlib.AbstractContextManager[LogSegmentData]:
        known = next((each for each in self._segments if each is segment), None)
        if known is None:
            raise LogTruncatedError(f"{self.folder}: the segment from {segment.base_offset} on has gone")
        if known is self.active_segment:
            raise ValueError(f"{self.folder}: the segment from {segment.base_offset} on is appended to")
        return self._leased(known, self._segments[self._segments.index(known) + 1].base_offset)

    # ---- offsets

    def update_highest_offset_in_remote_storage(
        self, offset: int, *, may_fall: bool = False, leader_epoch: int | None = None
    ) -> None:
        own = self.leader_epoch_cache.epoch_for_offset(offset)
        if self._tiered and (None in (own, leader_epoch) or own == leader_epoch):
            here = min(offset, self.log_end_offset - 1)
            known = self.highest_offset_in_remote_storage
            self.highest_offset_in_remote_storage = here if may_fall else max(here, known)

    def update_log_start_offset_from_remote_tier(self, offset: int) -> int:
        if self._tiered:
            self.maybe_increment_log_start_offset(min(offset, self.high_watermark), "the tier begins there")
        return self.log_start_offset

    def maybe_increment_local_log_start_offset(self, offset: int, reason: str) -> bool:
        assert reason
        rises = offset > self.local_log_start_offset
        self.local_log_start_offset = max(offset, self.local_log_start_offset)
        return rises

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(reason, offset=offset, log_start_offset=0, log_end_offset=self.log_end_offset)
        rises = offset > self.log_start_offset
        self.log_start_offset = max(offset, self.log_start_offset)
        return rises

    def update_high_watermark(self, offset: int) -> int:
        self.high_watermark = min(max(offset, self.local_log_start_offset), self.log_end_offset)
        return self.high_watermark

    def maybe_increment_high_watermark(self, offset: int) -> int | None:
        old = self.high_watermark
        return old if offset > old and self.update_high_watermark(offset) != old else None

    # ---- cuts

    def _begin_at(self, offset: int, log_start_offset: int, epochs: LeaderEpochs) -> None:
        self._segments = [ListSegment(self._folder, offset)]
        for path in self._folder.iterdir():
            path.unlink()
        self.local_log_start_offset = self.log_end_offset = self.high_watermark = offset
        self.log_start_offset = log_start_offset
        self.highest_offset_in_remote_storage = min(self.highest_offset_in_remote_storage, offset - 1)
        self.leader_epoch_cache.epochs = epochs
        self._producers, self.must_be_rebuilt = (), False

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        self._begin_at(offset, offset if log_start_offset is None else log_start_offset, LeaderEpochs())

    def start_from_tier(
        self, offset: int, *, log_start_offset: int, epochs: Iterable[tuple[int, int]], producer_snapshot: Buffer
    ) -> None:
        lineage = LeaderEpochs(epochs).range(log_start_offset, offset)
        if lineage.earliest is None or not lineage.earliest.start_offset <= log_start_offset <= offset:
            raise ValueError(f"{self.folder}: no epoch for offset {log_start_offset}")
        producers = tuple(parse_producer_snapshot(producer_snapshot).entries)
        self._begin_at(offset, log_start_offset, lineage)
        self._producers = producers
        self._snapshot(offset).write_bytes(producer_snapshot)

    def complete_lineage(self, epochs: Iterable[tuple[int, int]]) -> None:
        if self.log_end_offset == self.local_log_start_offset:
            raise ValueError(f"{self.folder}: has no records")
        own, start = self.leader_epoch_cache.epochs, self.log_start_offset
        self.leader_epoch_cache.epochs = own.continuing(LeaderEpochs(epochs), start, self.local_log_start_offset)
        self.must_be_rebuilt = False

    def truncate_to(self, offset: int) -> bool:
        if offset >= self.log_end_offset:
            return False
        epochs = self.leader_epoch_cache.epochs.truncate_from_end(offset)
        if offset < self._segments[0].base_offset:
            self._begin_at(offset, min(self.log_start_offset, offset), epochs)
            self.must_be_rebuilt = self._tiered and self.log_start_offset < offset
            return True
        self._segments = [each for each in self._segments if each.base_offset <= offset]
        active = self.active_segment
        active.batches = [batch for batch in active.batches if batch.last_offset < offset]
        self.leader_epoch_cache.epochs, self.log_end_offset = epochs, offset
        self.highest_offset_in_remote_storage = min(self.highest_offset_in_remote_storage, offset - 1)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.update_high_watermark(self.high_watermark)
        return True

    # ---- leaders and followers

    def _append(self, batch: Batch) -> LogAppendInfo:
        if batch.base_offset < self.log_end_offset:
            raise AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, f"offset {batch.base_offset} is there already")
        self.assign_epoch_start_offset(batch.epoch, batch.base_offset)
        self.active_segment.batches.append(batch)
        self.log_end_offset = batch.last_offset + 1
        return LogAppendInfo(batch.base_offset, batch.last_offset, -1, -1, self.log_start_offset, len(batch.data))

    def append_as_leader(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        view = memoryview(data).cast("B")
        (sent,) = batches_of(view)
        struct.pack_into(">q", view, 0, self.log_end_offset)
        struct.pack_into(">i", view, 12, leader_epoch)
        (batch,) = batches_of(view)
        assert batch.last_offset - batch.base_offset == sent.last_offset - sent.base_offset
        return self._append(batch)

    def append_as_follower(self, data: Buffer, *, leader_epoch: int) -> LogAppendInfo:
        info = LogAppendInfo.of_nothing(self.log_start_offset)
        epochs = [entry.epoch for entry in self.leader_epoch_cache.epochs] + [each.epoch for each in batches_of(data)]
        if epochs != sorted(epochs):
            raise AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, f"epochs fall: {epochs}")
        for batch in batches_of(data):
            if batch.epoch > leader_epoch:
                break
            info = self._append(batch)
        return info

    def assign_epoch_start_offset(self, leader_epoch: int, start_offset: int) -> None:
        self.leader_epoch_cache.epochs = self.leader_epoch_cache.epochs.assign(leader_epoch, start_offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        return self.leader_epoch_cache.end_offset_for(leader_epoch, self.log_end_offset)

    def read(
        self, start_offset: int, *, max_bytes: int, isolation: FetchIsolation, min_one_message: bool = True
    ) -> FetchDataInfo[Batch]:
        """A batch a read, however much is wanted."""
        assert max_bytes
        assert min_one_message
        if not self._segments[0].base_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                self.folder,
                offset=start_offset,
                log_start_offset=self.log_start_offset,
                local_log_start_offset=self.local_log_start_offset,
                log_end_offset=self.log_end_offset,
            )
        ends = (self.log_end_offset, self.high_watermark, self.last_stable_offset)
        end = ends[list(FetchIsolation).index(isolation)]
        batches = (batch for segment in self._segments for batch in segment.batches)
        found = [each for each in batches if start_offset <= each.last_offset and start_offset < end][:1]
        return FetchDataInfo(start_offset, records=tuple(found), size_bytes=sum(each.size_bytes for each in found))

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        if timestamp_ms < 0:
            return TimestampAndOffset(-1, {-1: self.log_end_offset, -2: self.log_start_offset}[timestamp_ms], None)
        found = (segment.find_offset_by_timestamp(timestamp_ms, 0) for segment in self._segments)
        return next((each for each in found if each is not None), None)

    # ---- what a broker does with it

    def roll(self) -> None:
        self.active_segment.close()
        self._snapshot(self.log_end_offset).write_bytes(encode_producer_snapshot(self._producers))
        self._segments.append(ListSegment(self._folder, self.log_end_offset))
